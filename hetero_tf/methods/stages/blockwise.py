"""Blockwise training: trains as many units at a time as fit the client's budget, from the stem to the head."""

import dataclasses
from typing import Literal

from hetero_tf.base.errors import InputError
from hetero_tf.methods.stages import LevelSpec, ModelOutline, Route, Stage, budgets, full_route

DRAWN = False
REQUIRES = {"levels.budgets": True, "model.trunk": 3}
CONFLICTS = {
    "blockwise stages train every unit": {"model.frozen": True},
    "a client trains the networks of an ensemble separately": {"peers": True, "levels.members": True},
    "corrections store nothing for peers": {"peers": True, "client.correction.REMEMBERS": True},
}
UNUSED = {
    "a step has one output": {"peers": False, "client.coupling": True},
    "a stage already trains only as many units as fit the budget": {
        "levels.fit": ["widths", "common_width", "depths", "members"]
    },
}


def divide(
    outline: ModelOutline,
    level: LevelSpec,
    *,
    shares,
    exit: Literal["link", "branch"] = "link",
    stem: Literal["first", "every"] = "first",
    peers: bool = False,
) -> tuple[Stage, ...]:
    """Pack the units between stem and head into stages that fit the budget of the level.

    Every stage trains the head. The stem is trained in the first stage or in every stage. Units before a stage run but
    are frozen. Leading units that exceed the budget are never trained by the client.

    Args:
        exit: how a stage before the last one reaches the logits: link, which brings its output to the head's input
            size without parameters, or branch, the `Exit` after its last unit
        stem: whether the stem is trained in the first stage only or in every stage; with every, the gradient passes
            through the units before the stage, whose activations the client must store as well
        peers: whether clients with a budget above 1 train additional networks: one per full unit of the budget, and
            one in stages if all units fit into the remainder; the coupling defines what they learn from each other.
            Peers stay on their client and have separate initial values

    Reference: FeDepth (Zhang et al. 2023, arXiv 2303.04887), sections 3 and 4; `stem: every` as in its code for a ViT.
    """
    if level.budget is not None and level.budget < 1:
        return _packed(outline, level, level.budget, shares, exit, stem)
    full_stage = _whole_trunk(outline, level)
    if peers and level.budget is not None:
        return _with_peers(full_stage, outline, level, shares, exit, stem)
    return (full_stage,)


def _whole_trunk(outline, level):
    """Return the stage of a client whose budget fits the full model; it ends at the end of the trunk."""
    route, _ = full_route(outline, level)
    return Stage((dataclasses.replace(route, exits=(outline.last,)),), frozenset(outline.trunk))


def _packed(outline, level, budget, shares, exit, stem):
    """Return the stages for a budget below 1."""
    body = outline.trunk[1:-1]
    limit = budgets.cap(budget, 1.0, level.tolerance)
    try:
        packing = budgets.pack([shares[unit] for unit in body], limit, body)
    except InputError as problem:
        raise InputError(f"levels.budgets.{level.name}, in shares of the full model: {problem}") from None
    remaining = body[len(packing.skipped) :]
    return tuple(
        _stage(outline, level, exit, remaining, [body[index] for index in stage], index == 0 or stem == "every")
        for index, stage in enumerate(packing.stages)
    )


def _with_peers(full_stage, outline, level, shares, exit, stem):
    """Return the stages of a client with peers; every stage trains all networks that fit in full."""
    full_networks, remainder = divmod(level.budget, 1)
    networks = (full_stage,) * int(full_networks)
    limit = budgets.cap(remainder, 1.0, level.tolerance)
    if not budgets.fits(max(shares[unit] for unit in outline.trunk[1:-1]), limit):
        return (_side_by_side(networks),)
    packed = _packed(outline, level, remainder, shares, exit, stem)
    return tuple(_side_by_side((*networks, stage)) for stage in packed)


def _side_by_side(networks):
    """Return one stage that trains several networks, one per stage in `networks`."""
    routes = tuple(
        dataclasses.replace(route, network=number) for number, stage in enumerate(networks) for route in stage.routes
    )
    return Stage(routes, networks[0].trained, tuple(stage.trained for stage in networks[1:]))


def _stage(outline, level, exit, body, units, with_stem):
    """Return the stage that trains `units` of the body and, if `with_stem`, the stem."""
    stem, *_, head = outline.trunk
    before, after = body.index(units[0]), body.index(units[-1]) + 1
    trained, run = frozenset(units) | (frozenset([stem]) if with_stem else frozenset()), (stem, *body[:after])
    frozen = 0 if with_stem else 1 + before
    if after == len(body) or exit == "link":
        return Stage((Route((*run, head), (outline.last,), level.width, after < len(body), frozen),), trained | {head})
    number, unit = _branch(outline, units[-1])
    return Stage((Route(run, (number,), level.width, frozen=frozen),), trained | {unit})


def _branch(outline, unit):
    """Return the number of the exit directly after a unit, and the unit of its branch."""
    position = outline.trunk.index(unit) + 1
    for number, (before, branch) in outline.exits.items():
        if before == position:
            return number, branch
    raise InputError(
        f"client.stages.exit: branch needs an `Exit` directly after unit {unit}, the last of a stage; add one to "
        "model.layers or use exit: link"
    )
