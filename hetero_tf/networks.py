"""The networks of a recipe: what clients of each level train, how it lies in the global values, what predicts."""

import dataclasses
import functools
import re
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from hetero_tf import cut as cuts
from hetero_tf import registry, seeds
from hetero_tf.errors import BadInput
from hetero_tf.models import build_model, tracked
from hetero_tf.nets import Net, values
from hetero_tf.stacks import Stack, StageNets
from hetero_tf.stages import Level, Outline, whole


@dataclass(frozen=True, eq=False)
class Networks:
    """Builds every network of a recipe.

    Attributes:
        recipe: `recipe.schema.Recipe`.
        shape: Of one input without the batch axis, see `models.build_model`.
        classes: Length of the global label axis.
        stages: `{level: tuple of stages.Stage}`, the levels of the mix.
        drawn: Whether every step draws its stage.
    """

    recipe: object
    shape: tuple
    classes: int
    stages: dict
    drawn: bool

    @functools.cached_property
    def submodels(self):
        """One level of the mix for each distinct sub-model: levels whose clients train alike are computed as one."""
        found = {}
        for name in self.recipe.levels.names:
            found.setdefault(self._way(name), name)
        return tuple(found.values())

    @functools.cached_property
    def submodel_of(self):
        """For each level of the mix the position of its sub-model among `submodels`."""
        ways = [self._way(name) for name in self.submodels]
        return tuple(ways.index(self._way(name)) for name in self.recipe.levels.names)

    def _way(self, level):
        """All that tells the training of a level's clients from that of others."""
        return self.route(level), self.stages[level]

    def trained(self, level, classes):
        """The Keras model that clients of a level train, the whole of it, Scalers active; built once."""
        return self._alone(self.route(level), classes)

    def fresh(self, level, classes, width=None):
        """The same model built anew, for what changes it; `width`: another one than the level's."""
        route = self.route(level)
        return self._on(route if width is None else dataclasses.replace(route, width=width), classes)

    def route(self, level):
        """The `stages.Route` of a level's whole sub-model."""
        return whole(outline(self.recipe), level_of(self.recipe, level))[0]

    def predictor(self, level):
        """The Keras model by which a level predicts: all classes, Scalers inert, one output."""
        members = self.recipe.levels.members.get(level)
        models = [self._build(self.route(level), 1.0, self.classes, self.recipe.float_type, member=member)
                  for member in (range(members) if members else (None,))]
        if len(models) == len(models[0].outputs) == 1:
            return models[0]
        inputs, found = models[0].inputs[0], []
        for model in models:
            outputs = model.outputs if model is models[0] else tf.nest.flatten(model(inputs))
            found += outputs if self.recipe.evaluate.exits == "mean" else outputs[-1:]
        mean = keras.layers.Average(dtype=self.recipe.float_type)
        return keras.Model(inputs, found[0] if len(found) == 1 else mean(found), name="model")

    def shapes(self, level, classes):
        """`{path: shape}` of the values that a client of a level has; in an ensemble, one network of its axis."""
        return self._shapes(self._values(level, classes)[0])

    def initial(self):
        """The global values before the first round: `{path: value}`, those of an ensemble [networks, ...]."""
        top, members = self.recipe.levels.global_level, self.recipe.levels.ensemble
        model = self.trained(top, self.classes)
        if members is None:
            return {variable.path: tf.convert_to_tensor(variable) for variable in self._held(top, self.classes)}
        drawn = [values(self._build(self.route(top), 1.0, self.classes, self.recipe.float_type, member=member))
                 for member in range(members)]
        return {variable.path: tf.stack([tf.convert_to_tensor(value) for value in own])
                for variable, own in zip(values(model), zip(*drawn), strict=True)}

    def cut(self, classes):
        """The `cut.Cut` of the sub-models of the mix, whose label axes have `classes` entries."""
        levels = self.recipe.levels
        route = dataclasses.replace(self.route(levels.global_level), width=min(levels.widths.values()))
        label_axes = cuts.find_label_axes(lambda few: self._shapes(values(self._on(route, few))))
        top = self.shapes(levels.global_level, self.classes)
        if levels.ensemble:
            top = {path: (levels.ensemble, *shape[1:]) for path, shape in top.items()}
        return cuts.build_cut(top, [self.shapes(level, classes) for level in self.submodels], label_axes, self.classes,
                              levels.ensemble is not None)

    def stack(self, level, clients, classes):
        """The `stacks.Stack` of a level's clients, with a net for each route of its stages."""
        own, learned = self._values(level, classes)
        copies = 1 + max(route.copy for stage in self.stages[level] for route in stage.routes)
        stages = tuple(StageNets(tuple(self._net(level, route, clients, classes, copies) for route in stage.routes),
                                 self._moving(stage, own[:learned], copies)) for stage in self.stages[level])
        shapes = list(self._shapes(own).values())
        shapes = shapes[:learned] * copies + shapes[learned:] * copies
        return Stack(clients, tuple(shapes), learned * copies, copies, stages)

    def _values(self, level, classes):
        """The variables of a level in the order of the global ones, and how many of them are trainable."""
        order = [variable.path for variable in self._held(self.recipe.levels.global_level, self.classes)]
        own = self._held(level, classes)
        for variable in own:
            if variable.path not in order:
                raise BadInput(f"level {level}: {variable.path} belongs to its width alone, and level "
                               f"{self.recipe.levels.global_level} never runs at that width; norms of kind wbn need "
                               "client.stages: nested")
        return (sorted(own, key=lambda variable: order.index(variable.path)),
                len(self.trained(level, classes).trainable_variables))

    def _held(self, level, classes):
        """The variables of a level's whole sub-model, and the running statistics that only its narrower routes have."""
        found = {variable.path: variable for variable in values(self.trained(level, classes))}
        routes = dict.fromkeys(route for stage in self.stages[level] for route in stage.routes)
        for route in routes:
            if route.width < self.route(level).width:
                for variable in tracked(self._alone(route, classes)):
                    found.setdefault(variable.path, variable)
        return list(found.values())

    def _net(self, level, route, clients, classes, copies):
        """A route's `Net`: its variables lie where their paths have their places among the level's values."""
        own, learned = self._values(level, classes)
        positions = {variable.path: place for place, variable in enumerate(own)}

        def place(path):
            position = positions[path]
            if position < learned:
                return route.copy * learned + position
            return copies * learned + route.copy * (len(own) - learned) + position - learned

        alone = self._alone(route, classes)
        model = alone if clients == 1 else self._on(route, classes, clients)
        shapes = {variable.path: tuple(variable.shape) for variable in values(alone)}
        paths = [variable.path for variable in values(model)]
        if not positions.keys() >= set(paths):
            raise BadInput(f"level {level}: the units that it leaves out change the shape of what they hand on, so "
                           "those behind them do not fit; raise its budget")
        return Net(model, clients, tuple(shapes[path] for path in paths), tuple(place(path) for path in paths))

    def _moving(self, stage, trainable, copies):
        """bool [learned], what a stage trains; None: everything."""
        units = self.recipe.model.units
        moves = np.concatenate([
            np.full(int(np.prod(variable.shape)), units[variable.path.split("/")[0]] in stage.trained)
            for variable in trainable])
        return None if moves.all() else np.tile(moves, copies)

    def personal(self):
        """Positions of the global values that stay with the clients."""
        own, units = self.recipe.round.personal, self.recipe.model.units
        paths = self.shapes(self.recipe.levels.global_level, self.classes)
        return tuple(place for place, path in enumerate(paths)
                     if "all" in own or units[path.split("/")[0]] in own)

    def merged(self, cut):
        """For each global value and sub-model, after how many stages clients count in its merge; 0: never."""
        units, personal = self.recipe.model.units, self.personal()
        paths = self.shapes(self.recipe.levels.global_level, self.classes)
        return tuple(tuple(self._counts_from(level, units[path.split("/")[0]]) if holds and place not in personal else 0
                           for holds, level in zip(held, self.submodels))
                     for place, (path, held) in enumerate(zip(paths, cut.held)))

    def _counts_from(self, level, unit):
        """The number of the first stage of a level that trains a unit, 0 if none does; 1 where that does not matter."""
        found = [number for number, stage in enumerate(self.stages[level], 1) if unit in stage.trained]
        if self.recipe.round.untrained == "counted" or (found and self.drawn):
            return 1
        return found[0] if found else 0

    def _alone(self, route, classes):
        """The Keras model of a route as one client trains it, built once."""
        key = (route, classes)
        if key not in self._built:
            self._built[key] = self._on(route, classes)
        return self._built[key]

    def _on(self, route, classes, clients=1):
        """The Keras model of a route as clients train it."""
        levels = self.recipe.levels
        # Each network of an ensemble is scaled as a part of a network of width 1.
        top = 1.0 if levels.ensemble else levels.widths[levels.global_level]
        # A level wider than the global model is outside the mix: it is described, never trained.
        return self._build(route, min(route.width / top, 1.0), classes, self.recipe.precision, clients)

    def _build(self, route, scale, classes, dtype, clients=1, member=None):
        model, seed, name = self.recipe.model, seeds.seed32(self.recipe.seed, "model"), "model"
        if member is not None:
            seed, name = seeds.seed32(self.recipe.seed, "model", member), f"member{member}"
            layers = tuple(dataclasses.replace(spec, name=f"{name}_{spec.name}") for spec in model.layers)
            model = dataclasses.replace(model, layers=layers)
        return build_model(model, self.shape, route.width, scale, classes, dtype, seed, clients, route, name)

    def _shapes(self, variables):
        """`{path: shape}` of one client's variables."""
        first = (1,) if self.recipe.levels.ensemble else ()
        return {variable.path: (*first, *variable.shape) for variable in variables}

    @functools.cached_property
    def _built(self):
        return {}


def build_networks(recipe, shape, classes, costs):
    """The `Networks` of a recipe.

    Args:
        recipe: `recipe.schema.Recipe`.
        shape: Of one input without the batch axis.
        classes: Length of the global label axis.
        costs: `() -> {unit: share}`, what each unit takes of the whole model, see `accounting.memory.unit_shares`.

    Raises:
        BadInput: A level cannot hold any unit, or some unit is trained by nobody.
    """
    plugin, options = registry.find("stages", recipe.client.stages.name), recipe.client.stages.options
    found = {name: plugin.divide(outline(recipe), level_of(recipe, name), costs=costs, **options)
             for name in recipe.levels.names}
    trained = frozenset().union(*(stage.trained for name in found if name not in recipe.levels.idle
                                  for stage in found[name]))
    for unit in whole(outline(recipe), level_of(recipe, recipe.levels.global_level))[0].units:
        if unit not in trained:
            raise BadInput(f"levels.budgets: unit {unit} is trained by nobody, since no client can hold it; raise a "
                           f"budget or the tolerance, or use smaller units. Received: budgets={recipe.levels.budgets}")
    return Networks(recipe, shape, classes, found, plugin.DRAWN)


def outline(recipe):
    """The `stages.Outline` of a recipe."""
    widths = tuple(recipe.levels.widths[name] for name in recipe.levels.names)
    return Outline(recipe.model.trunk, recipe.model.exits, widths)


def level_of(recipe, name):
    """The `stages.Level` of a level's name."""
    levels, last = recipe.levels, len(recipe.model.exits) + 1
    return Level(name, levels.widths[name], levels.depths.get(name, last), levels.budgets.get(name))


def predicted(variable, given):
    """The value of a predictor's variable: the first channels of the one given, in an ensemble of its own network.

    Args:
        variable: Of a model that `Networks.predictor` made.
        given: `path -> value` in the global shape.
    """
    member = re.match(r"member(\d+)_(.*)", variable.path)
    value = given(member[2])[int(member[1])] if member else given(variable.path)
    return tf.slice(value, [0] * len(variable.shape), variable.shape)
