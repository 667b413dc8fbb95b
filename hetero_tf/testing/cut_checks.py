"""Contracts of plug-ins that select the values a client trains: submodels, masks and stages."""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from hetero_tf.methods.stages import LevelSpec, ModelOutline, full_route
from hetero_tf.testing.subject import Subject

AXES = ((1, 1), (5, 1), (5, 3), (5, 5), (16, 1), (16, 11))
SHAPE = (3, 41)
MASKABLE = np.arange(SHAPE[1]) % 5 != 0
KEYS = tf.constant([[0, 1, 2], [0, 1, 5], [0, 1, 7]])
TRUNK = ("0", "1", "3", "5", "7")
# An exit after every unit of the body.
EXITS = {1: (2, "2"), 2: (3, "4"), 3: (4, "6")}
COSTS = {"0": 0.10, "1": 0.40, "3": 0.25, "5": 0.20, "7": 0.05}
BUDGETS = (0.3, 0.45, 0.7, 1, 2)
WIDTHS = (1.0, 0.5, 0.25)
OUTLINE = ModelOutline(TRUNK, EXITS, WIDTHS)


def _coordinates(subject, size, count, *numbers):
    return subject.call("keep", size, count, *map(tf.constant, numbers))


def check_coordinates(subject: Subject) -> None:
    """Coordinates are distinct int32 values inside the axis; a full axis has all of them."""
    for size, count in AXES:
        for numbers in ((0, 0, 0), (3, 1, 7), (1000, 99, 2**31 - 1)):
            coordinates = _coordinates(subject, size, count, *numbers).numpy()
            subject.require(coordinates.dtype == np.int32, "coordinates must be int32", coordinates.dtype.name)
            subject.require(coordinates.shape == (count,), f"keep({size}, {count}) must return {count} coordinates")
            is_valid = len(set(coordinates.tolist())) == count and 0 <= coordinates.min() <= coordinates.max() < size
            subject.require(
                is_valid, f"keep({size}, {count}) must return distinct coordinates of the axis", coordinates
            )


def check_pure_coordinates(subject: Subject) -> None:
    """Equal arguments give equal coordinates, also in a stateless graph."""
    for numbers in ((0, 0, 0), (4, 2, 9), (5, 2, 9)):
        eager, again = (_coordinates(subject, 16, 11, *numbers) for _ in range(2))
        subject.require_close(eager, again, "equal arguments need equal coordinates")
        subject.require_graph(lambda *numbers: subject.call("keep", 16, 11, *numbers), *map(tf.constant, numbers))


def draw_weights(dtype: str = "float64", seed: int = 0) -> tf.Tensor:
    """Return weights of the clients."""
    return tf.constant(np.random.default_rng(seed).normal(size=SHAPE), dtype)


def masked(
    subject: Subject, start: tf.Tensor, share: float, weights: tf.Tensor | None = None, keys: tf.Tensor = KEYS
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the mask of weights after `prepare` with the start, and its state."""
    number = int(share * MASKABLE.sum())
    state = tf.stop_gradient(subject.call("prepare", start, keys, tf.constant(MASKABLE), number))
    return subject.call("mask", start if weights is None else weights, state), state


def check_mask_share(subject: Subject) -> None:
    """A mask selects the share of the maskable entries, and all others."""
    for share in (1.0, 0.25, 1 / 16):
        mask = masked(subject, draw_weights(), share)[0].numpy()
        subject.require(set(np.unique(mask)) <= {0.0, 1.0}, "a mask must be 0 or 1")
        subject.require((mask[:, ~MASKABLE] == 1).all(), "entries that are not maskable must have mask 1")
        counts = mask[:, MASKABLE].sum(1)
        subject.require((counts == int(share * MASKABLE.sum())).all(), "a mask must select `number` entries", counts)


def check_masks_of_clients(subject: Subject) -> None:
    """Batched clients get the masks of single clients, in the type of the weights."""
    for dtype in ("float32", "float64"):
        start, weights = draw_weights(dtype), draw_weights(dtype, 1)
        mask = subject.require_rows(
            lambda start, weights, keys: masked(subject, start, 0.25, weights, keys)[0], start, weights, KEYS
        )
        subject.require_form(mask, SHAPE, dtype, "a mask must have the weights' form and type")
        counts = subject.call("counts", weights, start, masked(subject, start, 0.25, weights)[1])
        subject.require_form(counts, SHAPE, "bool", "`counts` must return bool [clients, entries]")


def _mask_and_gradient(subject, weights, share):
    """The mask of weights, and the gradient of a sum of masked weights."""
    with tf.GradientTape() as tape:
        tape.watch(weights)
        mask = masked(subject, weights, share)[0]
        value = tf.reduce_sum(weights * mask * draw_weights(seed=2))
    return mask, tape.gradient(value, weights)


def check_mask_gradients(subject: Subject) -> None:
    """Masked entries get no gradient, and others a finite one, also at zeros."""
    # Zeros among the weights: a threshold of 0 must divide nothing by 0.
    weights = draw_weights() * tf.constant(np.arange(SHAPE[1]) % 3 != 0, tf.float64)
    for share in (1.0, 0.25):
        mask, slope = _mask_and_gradient(subject, weights, share)
        gradient = slope.numpy()
        subject.require(np.isfinite(gradient).all(), "gradients through a mask must be finite")
        subject.require(((gradient != 0) == (mask.numpy() != 0)).all(), "exactly the masked entries have no gradient")


def _divided(subject: Subject) -> Iterator:
    """Levels of every width, depth and budget, with their stages; budgets only occur at full width and depth."""
    needs_budgets = (subject.constant("REQUIRES") or {}).get("levels.budgets", False)
    for width in WIDTHS:
        depths = [OUTLINE.last] if needs_budgets else range(1, OUTLINE.last + 1)
        specs = [(depth, None) for depth in depths] + [(OUTLINE.last, budget) for budget in BUDGETS]
        for depth, budget in specs:
            level = LevelSpec("a", width, depth, budget, tolerance=0.0)
            yield level, subject.call("divide", OUTLINE, level, shares=COSTS)


def check_trained_units(subject: Subject) -> None:
    """Stages train the units of the level, except leading ones of its body, on their routes, and no frozen ones."""
    for level, stages in _divided(subject):
        level_route, _ = full_route(OUTLINE, level)
        trained = frozenset().union(*(stage.trained for stage in stages))
        body = [unit for unit in level_route.units[1:] if unit != TRUNK[-1]]
        missing = [unit for unit in body if unit not in trained]
        is_leading = missing == body[: len(missing)] and len(missing) < max(len(body), 1)
        subject.require(stages and is_leading, f"{level} must train its units except leading ones", missing)
        ends = {level_route.units[0], level_route.units[-1]}
        subject.require(ends <= trained | set(missing), f"{level} must train its first and last unit", sorted(trained))
        for stage in stages:
            branches = {EXITS[each][1] for route in stage.routes for each in route.exits if each in EXITS}
            run = branches.union(*(route.units for route in stage.routes))
            subject.require(stage.trained and stage.trained <= run, "a stage must run the units that it trains", stage)
            frozen = {unit for route in stage.routes for unit in route.units[: route.frozen]}
            subject.require(not stage.trained & frozen, "a stage must not train frozen units", stage)


def check_routes(subject: Subject) -> None:
    """Routes go from the stem in order to an exit of the level; a link exists only where units are skipped."""
    for level, stages in _divided(subject):
        level_route, _ = full_route(OUTLINE, level)
        for route in (route for stage in stages for route in stage.routes):
            is_ordered = list(route.units) == sorted(route.units, key=TRUNK.index) and route.units[0] == TRUNK[0]
            is_inside = set(route.units) <= set(level_route.units) and set(route.exits) <= set(level_route.exits)
            subject.require(is_ordered and is_inside, f"a route must follow the trunk of {level}", route)
            exits = list(route.exits)
            subject.require(exits and exits == sorted(set(exits)), "exits of a route must ascend", route)
            end = TRUNK[EXITS[exits[-1]][0] - 1] if exits[-1] in EXITS else TRUNK[-1]
            subject.require(route.units[-1] == end, "a route must end at its last exit", route)
            subject.require(
                0 <= route.frozen < len(route.units) and route.network >= 0, "`frozen` leaves a unit", route
            )
            skipped = [unit for unit in TRUNK[1:] if unit not in route.units and unit > route.units[-2]]
            subject.require(
                route.linked == (bool(skipped) and end == TRUNK[-1]), "`linked` bridges skipped units", route
            )


def check_widths_and_peers(subject: Subject) -> None:
    """Widths are at most that of the level, the last route the widest; peers have the route of the returned network."""
    for level, stages in _divided(subject):
        for stage in stages:
            widths = [route.width for route in stage.routes]
            subject.require(max(widths) <= level.width and set(widths) <= set(WIDTHS), f"widths at {level}", widths)
            subject.require(widths[-1] == max(widths), "the last route must be the widest", widths)
            returned = [(route.units, route.exits) for route in stage.routes if route.network == 0]
            subject.require(returned, "a stage needs a route of network 0, which the client returns", stage)
            same = all((route.units, route.exits) == returned[-1] for route in stage.routes)
            subject.require(same, "peers must have the route of the returned network", stage)


def check_levels_without_exits_or_budgets(subject: Subject) -> None:
    """A model without exits has a stage with all units; without a budget the shares of costs are not read."""
    for width in (1.0, 0.25):
        level = LevelSpec("a", width, 1, None, tolerance=0.0)
        stages = subject.call("divide", ModelOutline(TRUNK, {}, WIDTHS), level, shares=COSTS)
        subject.require(all(stage.trained == frozenset(TRUNK) for stage in stages), "all units must be trained", stages)
        route = stages[-1].routes[-1]
        subject.require((route.units, route.width) == (TRUNK, width), "the last route must run the trunk", route)
    level = LevelSpec("a", 1.0, OUTLINE.last, None, tolerance=0.0)
    same = subject.call("divide", OUTLINE, level, shares={}) == subject.call("divide", OUTLINE, level, shares=COSTS)
    subject.require(same, "a level without a budget must not read `shares`, which are then empty")


RESULTS = {
    "submodels": lambda subject: [_coordinates(subject, 16, 11, round, round + 1, 7) for round in range(3)],
    "masks": lambda subject: _mask_and_gradient(subject, draw_weights(), 0.25),
    "stages": lambda subject: list(_divided(subject)),
}
CHECKS = {
    "submodels": (check_coordinates, check_pure_coordinates),
    "masks": (check_mask_share, check_masks_of_clients, check_mask_gradients),
    "stages": (check_trained_units, check_routes, check_widths_and_peers, check_levels_without_exits_or_budgets),
}
