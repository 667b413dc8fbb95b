"""How the values of a recipe's networks lie: among the global ones, and in the rows of the clients of a stack."""

import dataclasses

import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import BadInput
from hetero_tf.models.variables import tracked, values
from hetero_tf.rounds import cut as cuts
from hetero_tf.rounds.routed_model import RoutedModel
from hetero_tf.rounds.stack import Stack, StageModels


def shapes(family, level, classes):
    """`{path: shape}` of the values that a client of a level has; in an ensemble, one network of its axis.

    Args:
        family: `models.family.ModelFamily`, here and below.
        level: Name of a level.
        classes: Length of the label axis.
    """
    return _shapes(family, _values(family, level, classes)[0])


def initial(family):
    """The global values before the first round: `{path: value}`, those of an ensemble [networks, ...]."""
    levels = family.recipe.levels
    if levels.ensemble is None:
        held = _held(family, levels.global_level, family.classes)
        return {variable.path: tf.convert_to_tensor(variable) for variable in held}
    drawn = [values(model) for model in family.members(levels.global_level)]
    paths = shapes(family, levels.global_level, family.classes)
    return {
        path: tf.stack([tf.convert_to_tensor(value) for value in own])
        for path, own in zip(paths, zip(*drawn), strict=True)
    }


def build_cut(family, classes):
    """The `cut.Cut` of the sub-models of the mix, whose label axes have `classes` entries."""
    levels = family.recipe.levels
    route = dataclasses.replace(family.route(levels.global_level), width=min(levels.widths.values()))
    label_axes = cuts.find_label_axes(lambda few: _shapes(family, values(family.together(route, few))))
    top = shapes(family, levels.global_level, family.classes)
    if levels.ensemble:
        top = {path: (levels.ensemble, *shape[1:]) for path, shape in top.items()}
    submodels = [shapes(family, level, classes) for level in family.submodels]
    return cuts.cut_of_shapes(top, submodels, label_axes, family.classes, levels.ensemble is not None)


def build_stack(family, level, clients, classes):
    """The `stacks.Stack` of so many of a level's clients, with a net for each route of its stages."""
    own, learned = _values(family, level, classes)
    stages, units = family.stages[level], family.recipe.model.units
    copies = 1 + max(route.copy for stage in stages for route in stage.routes)

    def net(route):
        return _net(family, level, route, clients, classes, copies)

    found = tuple(
        StageModels(
            tuple(map(net, stage.routes)),
            _moving(stage, units, own[:learned], copies),
            None if stage.before is None else net(stage.before),
        )
        for stage in stages
    )
    held = list(_shapes(family, own).values())
    return Stack(clients, (*held[:learned] * copies, *held[learned:] * copies), learned * copies, copies, found)


def personal(family):
    """Positions of the global values that stay with the clients."""
    recipe = family.recipe
    own, units = recipe.round.personal, recipe.model.units
    paths = shapes(family, recipe.levels.global_level, family.classes)
    return tuple(place for place, path in enumerate(paths) if "all" in own or units[path.split("/")[0]] in own)


def merged(family, cut, personal):
    """For each global value and sub-model, after how many stages clients count in its merge; 0: never.

    Args:
        cut: As `build_cut` gives it.
        personal: As `personal` gives it.
    """
    units = family.recipe.model.units
    paths = shapes(family, family.recipe.levels.global_level, family.classes)
    return tuple(
        tuple(
            _counts_from(family, level, units[path.split("/")[0]]) if holds and place not in personal else 0
            for holds, level in zip(held, family.submodels)
        )
        for place, (path, held) in enumerate(zip(paths, cut.held))
    )


def _counts_from(family, level, unit):
    """The number of the first stage of a level that trains a unit, 0 if none does; 1 where that does not matter."""
    found = [number for number, stage in enumerate(family.stages[level], 1) if unit in stage.trained]
    if family.recipe.round.untrained == "counted" or (found and family.drawn):
        return 1
    return found[0] if found else 0


def _values(family, level, classes):
    """The variables of a level in the order of the global ones, and how many of them are trainable."""
    top = family.recipe.levels.global_level
    order = {variable.path: place for place, variable in enumerate(_held(family, top, family.classes))}
    own = _held(family, level, classes)
    for variable in own:
        if variable.path not in order:
            raise BadInput(
                f"level {level}: {variable.path} belongs to its width alone, and level {top} never runs at "
                "that width; norms of kind wbn need client.stages: nested"
            )
    learned = len(family.trained(level, classes).trainable_variables)
    return sorted(own, key=lambda variable: order[variable.path]), learned


def _held(family, level, classes):
    """The variables of a level's whole sub-model, and the running statistics that only its narrower routes have."""
    found = {variable.path: variable for variable in values(family.trained(level, classes))}
    routes = dict.fromkeys(route for stage in family.stages[level] for route in stage.routes)
    for route in routes:
        if route.width < family.route(level).width:
            for variable in tracked(family.alone(route, classes)):
                found.setdefault(variable.path, variable)
    return list(found.values())


def _net(family, level, route, clients, classes, copies):
    """A route's `RoutedModel`: its variables lie where their paths have their places among the level's values."""
    own, learned = _values(family, level, classes)
    positions = {variable.path: place for place, variable in enumerate(own)}

    def place(path):
        position = positions[path]
        if position < learned:
            return route.copy * learned + position
        return copies * learned + route.copy * (len(own) - learned) + position - learned

    alone = family.alone(route, classes)
    model = alone if clients == 1 else family.together(route, classes, clients)
    shapes = {variable.path: tuple(variable.shape) for variable in values(alone)}
    paths = [variable.path for variable in values(model)]
    if not positions.keys() >= set(paths):
        raise BadInput(
            f"level {level}: the units that it leaves out change the shape of what they hand on, so those "
            "behind them do not fit; raise its budget"
        )
    return RoutedModel(model, clients, tuple(shapes[path] for path in paths), tuple(place(path) for path in paths))


def _moving(stage, units, trainable, copies):
    """bool [learned], what a stage trains; None: everything."""
    moves = np.concatenate(
        [
            np.full(int(np.prod(variable.shape)), units[variable.path.split("/")[0]] in stage.trained)
            for variable in trainable
        ]
    )
    return None if moves.all() else np.tile(moves, copies)


def _shapes(family, variables):
    """`{path: shape}` of one client's variables."""
    first = (1,) if family.recipe.levels.ensemble else ()
    return {variable.path: (*first, *variable.shape) for variable in variables}
