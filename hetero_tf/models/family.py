"""The model family of a recipe: the Keras models that clients of each level train, and those that predict."""

import collections
import dataclasses
import functools
import re
import warnings
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from hetero_tf.base import hardware, registry, seeds
from hetero_tf.base.errors import InputError
from hetero_tf.methods.stages import Level, ModelOutline, Route, Stage, whole
from hetero_tf.models.build_model import build_model
from hetero_tf.models.costs.counting import Forward, forward
from hetero_tf.models.costs.unit_costs import unit_shares
from hetero_tf.models.custom_model import ModelBuilder, build_custom_model, layers_of
from hetero_tf.models.nesting import check_entries, check_shapes, same_models
from hetero_tf.models.repeated_blocks import call_by_functions
from hetero_tf.models.requirements import check_behavior
from hetero_tf.models.variables import all_layers, check_constants, shrink_to_part
from hetero_tf.recipe.schema import Recipe


@dataclass(frozen=True, eq=False)
class ModelFamily:
    """Builds every model of a recipe.

    Attributes:
        recipe: The recipe.
        shape: Of one input without the batch axis, see `models.build_model.build_model`.
        classes: Length of the global label axis.
        stages: `{level: its stages}`, of the levels of the mix.
        drawn: Whether every step draws its stage.
        function: Builds a person's own model in place of the recipe's layers, see `own_model`; None: there is none.
    """

    recipe: Recipe
    shape: tuple[int | None, ...]
    classes: int
    stages: dict[str, tuple[Stage, ...]]
    drawn: bool
    function: ModelBuilder | None = None

    @functools.cached_property
    def submodels(self) -> tuple[str, ...]:
        """One level of the mix for each distinct sub-model: levels whose clients train alike are computed as one."""
        first_level: dict = {}
        for level in self.recipe.levels.names:
            first_level.setdefault(self._training_of(level), level)
        return tuple(first_level.values())

    @functools.cached_property
    def submodel_of(self) -> tuple[int, ...]:
        """For each level of the mix the position of its sub-model among `submodels`."""
        distinct = [self._training_of(level) for level in self.submodels]
        return tuple(distinct.index(self._training_of(level)) for level in self.recipe.levels.names)

    @functools.cached_property
    def apart(self) -> frozenset[str]:
        """The levels whose clients are computed one by one: side by side they would mostly idle, or have buffers."""
        return frozenset(
            level
            for level, stages in self.stages.items()
            if self.drawn or any(stage.before is not None for stage in stages)
        )

    def _training_of(self, level):
        """All that tells the training of a level's clients from that of others."""
        return self.route(level), self.stages[level], self.recipe.levels.entries.get(level, 1.0)

    def route(self, level: str) -> Route:
        """Returns the route through a level's whole sub-model."""
        return whole(outline(self.recipe), level_of(self.recipe, level))[0]

    def trained(self, level: str, classes: int) -> keras.Model:
        """Returns the model that clients of a level train, the whole of it, Scalers active; built once."""
        return self.alone(self.route(level), classes)

    def fresh(self, level: str, classes: int) -> keras.Model:
        """Builds the same model anew, for what changes it or takes it elsewhere; convolutions stay convolutions."""
        return self._training(self.route(level), classes, 1)

    def forward(self, route: Route, classes: int, example: tuple[int, ...]) -> Forward:
        """Counts one forward pass of the model of a route for an example, once; see `counting.forward`."""
        return self.once(("forward", route, classes, example), lambda: forward(self.alone(route, classes), example))

    def alone(self, route: Route, classes: int) -> keras.Model:
        """Returns the model of a route as one client trains it, built once."""
        return self.once(("model", route, classes), lambda: self.together(route, classes))

    def together(self, route: Route, classes: int, clients: int = 1) -> keras.Model:
        """Builds a new model of a route that trains `clients` clients at once."""
        model = self.fast(self._training(route, classes, clients))
        return call_by_functions(model, self.once("blocks", dict)) if self._may_be_fast else model

    def _training(self, route, classes, clients):
        """A new model of a route, Scalers active."""
        levels = self.recipe.levels
        # Each network of an ensemble is scaled as a part of a network of width 1.
        top = 1.0 if levels.ensemble else levels.widths[levels.global_level]
        # A level wider than the global model is outside the mix: it is described, never trained.
        scale = 1.0 if self.recipe.model.cuts_ranks_only else min(route.width / top, 1.0)
        return self._build(route, scale, classes, self.recipe.precision, clients)

    def fast(self, model: keras.Model) -> keras.Model:
        """Returns a model for this machine alone: its layers train in whatever form is the fastest here."""
        if self._may_be_fast:
            for layer in all_layers(model):
                if getattr(layer, "faster_by_taps", False):
                    layer.by_taps = True
        return model

    @property
    def _may_be_fast(self):
        """Whether layers may train in another form than their own; a GPU compiles the step as a whole."""
        return self.recipe.engine == "auto" and hardware.devices() == "cpu"

    def prediction_of(self, level: str) -> tuple:
        """Returns all that tells the prediction of a level from that of others: equal ones are one model."""
        levels = self.recipe.levels
        return self.route(level), levels.members.get(level), levels.entries.get(level, 1.0)

    def members(self, level: str, count: int | None = None) -> list[keras.Model]:
        """Builds the models by which a level predicts: all classes, Scalers inert; one, or those of its ensemble.

        Args:
            level: Name of the level.
            count: So many of its ensemble; None: as many as the level has.
        """
        levels = self.recipe.levels
        count = levels.members.get(level) if count is None else count
        models = [
            self._build(self.route(level), 1.0, self.classes, self.recipe.float_type, member=member)
            for member in (range(count) if count else (None,))
        ]
        for model in models if levels.members_fan_in == "wide" else ():
            shrink_to_part(model, levels.widths[level])
        return models

    def unit_models(self, level: str, member: int | None = None) -> Iterator[keras.Model]:
        """Yields a model of each unit on the way to a level's last exit; each takes what the one before hands on.

        Args:
            level: Name of the level.
            member: Number of a network of its ensemble, None where it has none.
        """
        route = self.route(level)
        for index in range(len(route.units)):
            exits = route.exits[-1:] if index + 1 == len(route.units) else ()
            part = Route(route.units[: index + 1], exits, route.width, frozen=index, buffered=index > 0)
            yield self._build(part, 1.0, self.classes, self.recipe.float_type, member=member)

    def peer(self, level: str, number: int) -> keras.Model:
        """Builds a model like that by which a level predicts, with the initial values of the clients' n-th peers."""
        seed = seeds.seed32(self.recipe.seed, "peer", number)
        return self._build(self.route(level), 1.0, self.classes, self.recipe.float_type, seed=seed)

    def predictor(self, level: str, members: int | None = None) -> keras.Model:
        """Builds the model by which a level predicts, with one output: the mean over its members and their exits.

        Args:
            level: Name of the level.
            members: So many of its ensemble; None: as many as the level has.
        """
        models = self.members(level, members)
        if len(models) == len(models[0].outputs) == 1:
            return models[0]
        inputs, averaged = models[0].inputs[0], []
        for model in models:
            outputs = model.outputs if model is models[0] else tf.nest.flatten(model(inputs))
            averaged += outputs if self.recipe.evaluate.exits == "mean" else outputs[-1:]
        mean = keras.layers.Average(dtype=self.recipe.float_type)
        return keras.Model(inputs, averaged[0] if len(averaged) == 1 else mean(averaged), name="model")

    def _build(self, route, scale, classes, dtype, clients=1, member=None, seed=None):
        model, name = self.recipe.model, "model"
        seed = seeds.seed32(self.recipe.seed, "model") if seed is None else seed
        if self.function is not None:
            built = build_custom_model(self.function, self.shape, route.width, scale, classes, dtype, seed, clients)
            return self._checked(built, dtype)
        if member is not None:
            seed, name = seeds.seed32(self.recipe.seed, "model", member), f"member{member}"
            layers = tuple(dataclasses.replace(spec, name=f"{name}_{spec.name}") for spec in model.layers)
            model = dataclasses.replace(model, layers=layers)
        built = build_model(model, self.shape, route.width, scale, classes, dtype, seed, clients, route, name)
        return built if clients > 1 else self._checked(built, dtype)

    def _checked(self, model, dtype):
        """The model, whose constants clients can keep; the same layers at another width are not looked at again."""
        names = frozenset(layer.name for layer in model.layers)
        if not any(names <= known for known in self._known[dtype]):
            check_constants(model, keras.DTypePolicy(dtype).variable_dtype)
            self._known[dtype].append(names)
        return model

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Returns what `make` gives for a key, made once for all levels."""
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]

    @functools.cached_property
    def _shared(self):
        return {}

    @functools.cached_property
    def _known(self):
        return collections.defaultdict(list)


def build_family(
    recipe: Recipe,
    shape: tuple[int | None, ...],
    example: tuple[int, ...],
    classes: int,
    function: ModelBuilder | None = None,
) -> ModelFamily:
    """Builds the model family of a recipe.

    Args:
        recipe: The recipe.
        shape: Of one input without the batch axis, see `models.build_model.build_model`.
        example: The same without None.
        classes: Length of the global label axis.
        function: Builds the models in place of the recipe's layers, which the family's recipe then describes.

    Raises:
        InputError: A level cannot hold any unit, no client trains some unit, or the function's models are not nested.
    """
    # A recipe that has the layers of the function was checked before.
    if function is not None and not recipe.model.layers:
        recipe = _with_own_model(recipe, shape, example, classes, function)
    plugin, options = registry.find("stages", recipe.client.stages.name), recipe.client.stages.options
    # Counting what units take needs a whole model, so it is done only where levels have budgets.
    shares = unit_shares(recipe, shape, example, classes) if recipe.levels.budgets else {}
    stages = {
        level: plugin.divide(outline(recipe), level_of(recipe, level), shares=shares, **options)
        for level in recipe.levels.names
    }
    _check_every_unit_is_trained(recipe, stages)
    return ModelFamily(recipe, shape, classes, stages, plugin.DRAWN, function)


def _with_own_model(recipe, shape, example, classes, function):
    """The recipe whose layers are those that the function builds at the global level."""
    top, widths = recipe.levels.global_level, recipe.levels.widths
    models = {
        level: build_custom_model(function, shape, widths[level], classes=classes) for level in recipe.levels.names
    }
    check_shapes(models, top)
    check_behavior(models[top], example)
    for one, other in same_models(models):
        if widths[one] != widths[other]:
            warnings.warn(
                f"levels {one} and {other} are the same model: `model` builds equal shapes at the widths "
                f"{widths[one]:g} and {widths[other]:g}. Make its layers depend on `width`, or leave out a level",
                stacklevel=2,
            )
    layers = layers_of(models[top])
    check_entries(models, top, example)
    return dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, layers=layers))


def _check_every_unit_is_trained(recipe, stages):
    trained = frozenset().union(
        *(stage.trained for level in stages if level not in recipe.levels.idle for stage in stages[level])
    )
    for unit in whole(outline(recipe), level_of(recipe, recipe.levels.global_level))[0].units:
        if unit not in trained:
            raise InputError(
                f"levels.budgets: unit {unit} is trained by nobody, since no client can hold it; raise a "
                f"budget or the tolerance, or use smaller units. Received: budgets={recipe.levels.budgets}"
            )


def outline(recipe: Recipe) -> ModelOutline:
    """Returns what a division into stages needs to know of a recipe's model."""
    widths = tuple(recipe.levels.widths[name] for name in recipe.levels.names)
    return ModelOutline(recipe.model.trunk, recipe.model.exits, widths)


def level_of(recipe: Recipe, name: str) -> Level:
    """Returns what a division into stages needs to know of a level."""
    levels, last = recipe.levels, len(recipe.model.exits) + 1
    return Level(name, levels.widths[name], levels.depths.get(name, last), levels.budgets.get(name), levels.tolerance)


def predicted(variable: keras.Variable, value_of: Callable[[str], tf.Tensor]) -> tf.Tensor:
    """Cuts the value of a predictor's variable out of a global one: its first channels, in an ensemble its member's.

    Args:
        variable: Of a model that `ModelFamily.predictor` made.
        value_of: `path -> value` in the global shape.
    """
    member = re.match(r"member(\d+)_(.*)", variable.path)
    value = value_of(member[2])[int(member[1])] if member else value_of(variable.path)
    return tf.slice(value, [0] * len(variable.shape), variable.shape)
