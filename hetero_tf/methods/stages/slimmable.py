"""Slimmable training: every step trains the width of the level and all narrower widths of the mix, nested."""

import dataclasses

from hetero_tf.methods.stages import LevelSpec, ModelOutline, Stage, full_route

DRAWN = False
READS_SHARES = False
CONFLICTS = {"bn has one set of running statistics for all widths; use wbn or sbn": {"model.layers.*": "bn"}}
UNUSED = {
    "a step has one output": {"model.exits": False, "levels.widths": False, "client.coupling": True},
    "a client trains all of its values": {"round.untrained": True},
}


def divide(outline: ModelOutline, level: LevelSpec, *, shares) -> tuple[Stage, ...]:
    """Return one stage with a route per width of the mix, ascending up to the width of the level.

    All routes read the same batch, and one step minimises their coupled loss; the coupling `sum` adds the losses. The
    public code computes the gradients one width at a time, which gives the same step. Therefore memory budgets count
    the widest route, and operations those of all widths.

    References: SplitMix (Hong et al. 2022, arXiv 2203.09747), its baseline S-HeteroFL; slimmable networks, Yu et al.
    2019 (arXiv 1812.08928).
    """
    route, units = full_route(outline, level)
    widths = sorted({width for width in outline.widths if width <= level.width})
    return (Stage(tuple(dataclasses.replace(route, width=width) for width in widths), units),)
