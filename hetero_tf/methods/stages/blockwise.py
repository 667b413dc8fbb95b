"""Blockwise training: as many units at a time as the client's memory holds, from the stem to the head."""

import dataclasses
from typing import Literal

from hetero_tf.base.errors import InputError
from hetero_tf.methods.stages import Level, ModelOutline, Route, Stage, budgets, whole

DRAWN = False


def divide(
    outline: ModelOutline,
    level: Level,
    *,
    shares,
    exit: Literal["link", "branch"] = "link",
    stem: Literal["first", "every"] = "first",
    peers: bool = False,
    buffered: bool = False,
) -> tuple[Stage, ...]:
    """Packs the units between stem and head into stages under the level's budget.

    The head is trained in every stage, the stem in the first one or in every one. Units before a stage are run and stay
    as they are. Leading units that the budget cannot hold are left out: the client trains the others only.

    Args:
        exit: how a stage before the last ends: link, which brings its output to the head's size without parameters, or
            branch, the `Exit` behind its last unit
        stem: whether the stem is trained in the first stage alone or in every stage; then the gradient passes through
            the units before the stage, whose outputs a client must hold as well
        peers: whether clients whose budget is above 1 train more than the network that they return: one for each whole
            budget, and one in stages where all units fit into what is left of it; the coupling says what these learn
            from each other. Peers stay with their client and start from initial values of their own
        buffered: whether a client keeps in each stage what the units before it give for all of its examples, and so
            runs them once instead of in every epoch; refused where that would change the result: batch norms and
            dropout in these units, random augmentation

    Reference: FeDepth (Zhang et al. 2023, arXiv 2303.04887), sections 3 and 4; `stem: every` as its code has it for a
    ViT.
    """
    stages: tuple[Stage, ...]
    if level.budget is not None and level.budget < 1:
        stages = _packed(outline, level, level.budget, shares, exit, stem)
    else:
        stages = (_whole_trunk(outline, level),)
        if peers and level.budget is not None:
            stages = _with_peers(stages[0], outline, level, shares, exit, stem)
    return tuple(_with_buffer(stage) for stage in stages) if buffered else stages


def _whole_trunk(outline, level):
    """The stage of a client that can hold the whole model, which ends at the trunk's end."""
    route, _ = whole(outline, level)
    return Stage((dataclasses.replace(route, exits=(outline.last,)),), frozenset(outline.trunk))


def _packed(outline, level, budget, shares, exit, stem):
    """The stages under a budget below 1."""
    body = outline.trunk[1:-1]
    limit = budgets.cap(budget, 1.0, level.tolerance)
    try:
        packing = budgets.pack([shares[unit] for unit in body], limit, body)
    except InputError as problem:
        raise InputError(f"levels.budgets.{level.name}, in shares of the whole model: {problem}") from None
    left = body[len(packing.skipped) :]
    return tuple(
        _stage(outline, level, exit, left, [body[place] for place in stage], place == 0 or stem == "every")
        for place, stage in enumerate(packing.stages)
    )


def _with_peers(own, outline, level, shares, exit, stem):
    """The stages of a client with peers; the networks that it holds whole are trained in every one of them."""
    many, left = divmod(level.budget, 1)
    networks = (own,) * int(many)
    limit = budgets.cap(left, 1.0, level.tolerance)
    if not budgets.fits(max(shares[unit] for unit in outline.trunk[1:-1]), limit):
        return (_side_by_side(networks),)
    packed = _packed(outline, level, left, shares, exit, stem)
    return tuple(_side_by_side((*networks, stage)) for stage in packed)


def _side_by_side(networks):
    """One stage in which a client trains several networks, each as one of the given stages says."""
    routes = tuple(
        dataclasses.replace(route, network=number) for number, stage in enumerate(networks) for route in stage.routes
    )
    return Stage(routes, networks[0].trained, tuple(stage.trained for stage in networks[1:]))


def _with_buffer(stage):
    """The same stage, whose steps begin behind its frozen units, if it has any."""
    several = len(stage.routes) > 1
    routes = tuple(dataclasses.replace(route, buffered=route.frozen > 0 and not several) for route in stage.routes)
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
    raise InputError(
        f"client.stages.exit: branch needs an `Exit` directly behind unit {unit}, where a stage ends; add "
        "one to model.layers or use exit: link"
    )
