"""The networks of a recipe: the Keras models that clients of each level train, and those that predict."""

import dataclasses
import functools
import re
from dataclasses import dataclass

import keras
import tensorflow as tf

from hetero_tf.base import registry, seeds
from hetero_tf.base.errors import BadInput
from hetero_tf.methods.stages import Level, Outline, whole
from hetero_tf.models.build import build_model


@dataclass(frozen=True, eq=False)
class ModelFamily:
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

    @functools.cached_property
    def apart(self):
        """The levels whose clients are computed one by one: side by side they would mostly idle, or have buffers."""
        return frozenset(
            name
            for name, stages in self.stages.items()
            if self.drawn or any(stage.before is not None for stage in stages)
        )

    def _way(self, level):
        """All that tells the training of a level's clients from that of others."""
        return self.route(level), self.stages[level]

    def trained(self, level, classes):
        """The Keras model that clients of a level train, the whole of it, Scalers active; built once."""
        return self.alone(self.route(level), classes)

    def fresh(self, level, classes, width=None):
        """The same model built anew, for what changes it; `width`: another one than the level's."""
        route = self.route(level)
        return self.together(route if width is None else dataclasses.replace(route, width=width), classes)

    def route(self, level):
        """The `stages.Route` of a level's whole sub-model."""
        return whole(outline(self.recipe), level_of(self.recipe, level))[0]

    def members(self, level):
        """The Keras models by which a level predicts: all classes, Scalers inert; one, or those of its ensemble."""
        many = self.recipe.levels.members.get(level)
        return [
            self._build(self.route(level), 1.0, self.classes, self.recipe.float_type, member=member)
            for member in (range(many) if many else (None,))
        ]

    def predictor(self, level):
        """The Keras model by which a level predicts, with one output: of its members and their exits."""
        models = self.members(level)
        if len(models) == len(models[0].outputs) == 1:
            return models[0]
        inputs, found = models[0].inputs[0], []
        for model in models:
            outputs = model.outputs if model is models[0] else tf.nest.flatten(model(inputs))
            found += outputs if self.recipe.evaluate.exits == "mean" else outputs[-1:]
        mean = keras.layers.Average(dtype=self.recipe.float_type)
        return keras.Model(inputs, found[0] if len(found) == 1 else mean(found), name="model")

    def alone(self, route, classes):
        """The Keras model of a route as one client trains it, built once."""
        key = (route, classes)
        if key not in self._built:
            self._built[key] = self.together(route, classes)
        return self._built[key]

    def together(self, route, classes, clients=1):
        """The Keras model of a route as so many clients train it side by side, built anew."""
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

    @functools.cached_property
    def _built(self):
        return {}


def build_family(recipe, shape, classes, costs):
    """The `ModelFamily` of a recipe.

    Args:
        recipe: `recipe.schema.Recipe`.
        shape: Of one input without the batch axis.
        classes: Length of the global label axis.
        costs: `() -> {unit: share}`, what each unit takes of the whole model, see `accounting.memory.unit_shares`.

    Raises:
        BadInput: A level cannot hold any unit, or some unit is trained by nobody.
    """
    plugin, options = registry.find("stages", recipe.client.stages.name), recipe.client.stages.options
    found = {
        name: plugin.divide(outline(recipe), level_of(recipe, name), costs=costs, **options)
        for name in recipe.levels.names
    }
    trained = frozenset().union(
        *(stage.trained for name in found if name not in recipe.levels.idle for stage in found[name])
    )
    for unit in whole(outline(recipe), level_of(recipe, recipe.levels.global_level))[0].units:
        if unit not in trained:
            raise BadInput(
                f"levels.budgets: unit {unit} is trained by nobody, since no client can hold it; raise a "
                f"budget or the tolerance, or use smaller units. Received: budgets={recipe.levels.budgets}"
            )
    return ModelFamily(recipe, shape, classes, found, plugin.DRAWN)


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
        variable: Of a model that `ModelFamily.predictor` made.
        given: `path -> value` in the global shape.
    """
    member = re.match(r"member(\d+)_(.*)", variable.path)
    value = given(member[2])[int(member[1])] if member else given(variable.path)
    return tf.slice(value, [0] * len(variable.shape), variable.shape)
