"""Nested widths: every step draws a width up to that of the client's level and trains the channels it has."""

import dataclasses

from hetero_tf.methods.stages import Level, ModelOutline, Stage, whole

DRAWN = True


def divide(outline: ModelOutline, level: Level, *, shares, distill: bool = False) -> tuple[Stage, ...]:
    """A stage for each width of the mix that the level can hold.

    Args:
        distill: also run the level's whole width in every step; its output comes last, for the coupling
            self_distillation

    Reference: FjORD (Horvath et al. 2021, arXiv 2102.13451), ordered dropout by batch.
    """
    route, units = whole(outline, level)
    widths = sorted({width for width in outline.widths if width <= level.width})
    teacher = (route,) if distill else ()
    return tuple(Stage((dataclasses.replace(route, width=width), *teacher), units) for width in widths)
