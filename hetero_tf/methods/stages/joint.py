"""Joint training: one stage that trains the full sub-model."""

from typing import Literal

from hetero_tf.methods.stages import LevelSpec, ModelOutline, Stage, full_route

DRAWN = False
READS_SHARES = False
UNUSED = {
    "a step has one output": {"model.exits": False, "client.coupling": True},
    "the model has one output": {"model.exits": False, "exits": True},
    "a client trains all of its values": {"exits": "all", "round.untrained": True},
}


def divide(
    outline: ModelOutline, level: LevelSpec, *, shares, exits: Literal["all", "last"] = "all"
) -> tuple[Stage, ...]:
    """Return one stage that runs the full sub-model in every step.

    Args:
        exits: which exits are trained: all, or last, the deepest one of the client; the others run, so their
            running statistics are updated, but they get neither gradient nor weight decay

    Reference: `last` with the coupling `last` is InclusiveFL as DepthFL's authors run it.
    """
    route, units = full_route(outline, level)
    if exits == "last":
        units -= {unit for number, (_, unit) in outline.exits.items() if number != level.depth}
    return (Stage((route,), units),)
