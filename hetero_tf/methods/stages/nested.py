"""Nested widths: every step draws a width, at most that of the client's level, and trains its channels."""

import dataclasses

from hetero_tf.methods.stages import LevelSpec, ModelOutline, Stage, full_route

DRAWN = True
READS_SHARES = False
CONFLICTS = {"bn has one set of running statistics for all widths; use wbn or sbn": {"model.layers.*": "bn"}}
UNUSED = {
    "a step has one output": {"model.exits": False, "distill": False, "client.coupling": True},
    "a client trains all of its values": {"round.untrained": True},
}


def divide(outline: ModelOutline, level: LevelSpec, *, shares, distill: bool = False) -> tuple[Stage, ...]:
    """Return one stage per width of the mix, up to the width of the level.

    Args:
        distill: whether every step also runs the full width of the level; its output is the last, for the coupling
            self_distillation

    Reference: FjORD (Horvath et al. 2021, arXiv 2102.13451), ordered dropout by batch.
    """
    route, units = full_route(outline, level)
    widths = sorted({width for width in outline.widths if width <= level.width})
    teacher = (route,) if distill else ()
    return tuple(Stage((dataclasses.replace(route, width=width), *teacher), units) for width in widths)
