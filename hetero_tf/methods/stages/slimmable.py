"""Slimmable training: every step trains the level's width and all narrower ones of the mix, from the same channels."""

import dataclasses

from hetero_tf.methods.stages import Level, ModelOutline, Stage, whole

DRAWN = False


def divide(outline: ModelOutline, level: Level, *, shares) -> tuple[Stage, ...]:
    """One stage with a route for each width of the mix that the level can hold, the level's own last.

    All of them read the same batch, and one step follows their coupled losses; the coupling sum adds them up. The
    public code takes the gradients one width after the other, which gives the same step, so the widest counts against a
    budget; operations are those of all widths together.

    References: SplitMix (Hong et al. 2022, arXiv 2203.09747), its baseline S-HeteroFL; slimmable networks, Yu et al.
    2019 (arXiv 1812.08928).
    """
    route, units = whole(outline, level)
    widths = sorted({width for width in outline.widths if width <= level.width})
    return (Stage(tuple(dataclasses.replace(route, width=width) for width in widths), units),)
