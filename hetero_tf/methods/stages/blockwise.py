"""Blockwise training: as many units at a time as the client's memory holds, from the stem to the head."""

import dataclasses
from typing import Literal

from hetero_tf.base.constraints import Share
from hetero_tf.base.errors import BadInput
from hetero_tf.methods.stages import Level, Outline, Route, Stage, budgets, whole

DRAWN = False


def divide(
    outline: Outline,
    level: Level,
    *,
    shares,
    exit: Literal["link", "branch"] = "link",
    stem: Literal["first", "every"] = "first",
    tolerance: Share = 0.05,
    peers: bool = False,
    buffered: bool = False,
) -> tuple[Stage, ...]:
    """Packs the units between stem and head into stages under the level's budget.

    The head is trained in every stage, the stem in the first one or in every one. Units before a stage are run and stay
    as they are.
    Leading units that the budget cannot hold are left out: the client trains the others only.

    Args:
        exit: how a stage before the last ends: link, which brings its output to the head's size without parameters, or
            branch, the `Exit` behind its last unit
        stem: whether the stem is trained in the first stage alone or in every stage; then the gradient passes through
            the units before the stage, whose outputs a client must hold as well
        tolerance: share by which a stage may exceed the budget
        peers: whether clients with a budget of 2 or more train as many networks side by side, of which they return
            one; the coupling says what these learn from each other
        buffered: whether a client keeps in each stage what the units before it give for all of its examples, and so
            runs them once instead of in every epoch; refused where that would change the result: batch norms and
            dropout in these units, random augmentation

    Reference: FeDepth (Zhang et al. 2023, arXiv 2303.04887), sections 3 and 4; `stem: every` as its code has it for a
    ViT.
    """
    route, units = whole(outline, level)
    if level.budget is None or level.budget >= 1:
        copies = int(level.budget) if peers and level.budget else 1
        return (
            Stage(
                tuple(dataclasses.replace(route, exits=(outline.last,), copy=copy) for copy in range(copies)),
                frozenset(outline.trunk),
            ),
        )
    _, *body, head = outline.trunk
    limit = budgets.cap(level.budget, sum(shares.values()), tolerance)
    try:
        packing = budgets.pack([shares[unit] for unit in body], limit, body)
    except BadInput as problem:
        raise BadInput(f"levels.budgets.{level.name}, in shares of the whole model: {problem}") from None
    found = tuple(
        _stage(
            outline,
            level,
            exit,
            body[len(packing.skipped) :],
            [body[place] for place in stage],
            place == 0 or stem == "every",
        )
        for place, stage in enumerate(packing.stages)
    )
    return tuple(_with_buffer(stage) for stage in found) if buffered else found


def _with_buffer(stage):
    """The same stage, whose steps begin behind its frozen units, if it has any."""
    routes = tuple(dataclasses.replace(route, buffered=route.frozen > 0) for route in stage.routes)
    return dataclasses.replace(stage, routes=routes)


def _stage(outline, level, exit, body, own, with_stem):
    """The stage that trains the units `own` of the body, behind those before them, and perhaps the stem."""
    stem, *_, head = outline.trunk
    before, after = body.index(own[0]), body.index(own[-1]) + 1
    trained, run = frozenset(own) | (frozenset([stem]) if with_stem else frozenset()), (stem, *body[:after])
    frozen = 0 if with_stem else 1 + before
    if after == len(body) or exit == "link":
        return Stage((Route((*run, head), (outline.last,), level.width, after < len(body), frozen),), trained | {head})
    number, unit = _branch(outline, own[-1])
    return Stage((Route(run, (number,), level.width, frozen=frozen),), trained | {unit})


def _branch(outline, unit):
    """The exit directly behind a unit: its number and the unit of its branch."""
    position = outline.trunk.index(unit) + 1
    for number, (before, branch) in outline.exits.items():
        if before == position:
            return number, branch
    raise BadInput(
        f"client.stages.exit: branch needs an `Exit` directly behind unit {unit}, where a stage ends; add "
        "one to model.layers or use exit: link"
    )
