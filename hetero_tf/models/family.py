"""The model family of a recipe: the Keras models that clients of each level train, and those that predict."""

import collections
import dataclasses
import functools
import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import registry, seeds
from hetero_tf.base.errors import InputError
from hetero_tf.methods.adapters import AdapterMerge
from hetero_tf.methods.stages import LevelSpec, ModelOutline, Route, Stage, full_route
from hetero_tf.models.adapter_pairs import freeze_factors
from hetero_tf.models.build_model import build_model
from hetero_tf.models.costs.counting import ForwardCost, forward, unit_shares
from hetero_tf.models.custom_model import ModelBuilder, build_custom_model, layers_of, model_digest, probabilities_of
from hetero_tf.models.cut import PartsOfSizes, check_parts, find_label_axes, first_entries
from hetero_tf.models.nesting import check_entries, find_parts
from hetero_tf.models.personal import select_paths
from hetero_tf.models.requirements import check_behavior
from hetero_tf.models.variables import all_layers, check_constants, level_path, shrink_to_part, values
from hetero_tf.recipe.schema import Recipe


@dataclass(frozen=True, eq=False)
class ModelFamily:
    """Builder of every model of a recipe.

    Attributes:
        shape: Shape of one input without the batch axis, see `models.build_model.build_model`.
        example: The same without None.
        classes: Length of the global label axis, the number of outputs.
        stages: `{level: its stages}`, of the levels of the mix.
        drawn: Whether every step draws its stage.
        function: Builds a custom model instead of the recipe's layers, see `custom_model`, or None.
        device: "cpu" or "gpu", the device for which the models train.
    """

    recipe: Recipe
    shape: tuple[int | None, ...]
    example: tuple[int, ...]
    classes: int
    stages: dict[str, tuple[Stage, ...]]
    drawn: bool
    function: ModelBuilder | None
    device: str

    @functools.cached_property
    def submodels(self) -> tuple[str, ...]:
        """One level of the mix for each distinct sub-model: levels with equal training share one."""
        first_level: dict = {}
        for level in self.recipe.levels.names:
            first_level.setdefault(self._training_key(level), level)
        return tuple(first_level.values())

    @functools.cached_property
    def submodel_of(self) -> tuple[int, ...]:
        """For each level of the mix, the position of its sub-model in `submodels`."""
        distinct = [self._training_key(level) for level in self.submodels]
        return tuple(distinct.index(self._training_key(level)) for level in self.recipe.levels.names)

    @functools.cached_property
    def adapter_merge(self) -> AdapterMerge:
        """Rule by which adapters are trained and merged."""
        return registry.function_of("adapters", self.recipe.round.adapters)()

    @functools.cached_property
    def unbatched_levels(self) -> frozenset[str]:
        """Levels whose clients are computed one by one: batched clients would mostly idle, or have maps."""
        return frozenset(self.stages if self.drawn or self.recipe.targets == "label_map" else ())

    def _training_key(self, level):
        """Key of a level's training: levels with equal keys are one sub-model."""
        return self.route(level), self.stages[level], self.recipe.levels.entries.get(level, 1.0)

    def full_route(self, level: str) -> tuple[Route, frozenset[str]]:
        """Return the route through a level's full sub-model, and the units on it; see `stages.full_route`."""
        return full_route(outline(self.recipe), level_of(self.recipe, level))

    def route(self, level: str) -> Route:
        """Return the route through a level's full sub-model."""
        return self.full_route(level)[0]

    def training_model(self, level: str, classes: int) -> keras.Model:
        """Return the full model that clients of a level train, with active Scalers; built once."""
        return self.single_client_model(self.route(level), classes)

    def new_training_model(self, level: str, classes: int) -> keras.Model:
        """Build the same model again, for changes or export; its convolutions keep their ordinary form."""
        return self._build_training_model(self.route(level), classes, 1)

    def forward(self, route: Route, classes: int) -> tuple[ForwardCost, ...]:
        """Return the cost of each layer of a route's model, counted once; see `counting.forward`."""
        model = self.single_client_model(route, classes)
        return self.cached(("forward", route, classes), lambda: forward(model, self.example))

    def single_client_model(self, route: Route, classes: int) -> keras.Model:
        """Return the model of a route for one client, built once."""
        return self.batched_model(route, classes, 1)

    def batched_model(self, route: Route, classes: int, clients: int) -> keras.Model:
        """Return the model of a route that trains `clients` clients at once, built once for all levels."""
        return self.cached(
            ("model", route, classes, clients),
            lambda: self.fast(self._build_training_model(route, classes, clients), self.recipe.client.batch_size),
        )

    def _build_training_model(self, route, classes, clients):
        """Build a new model of a route with active Scalers."""
        levels = self.recipe.levels
        # Each network of an ensemble is scaled as a part of a network of width 1.
        top = 1.0 if levels.ensemble else levels.widths[levels.global_level]
        # A level that is wider than the global model is not in the mix: it is described, but never trained.
        scale = 1.0 if self.recipe.model.cuts_ranks_only else min(route.width / top, 1.0)
        return self._build(route, scale, classes, self.recipe.precision, clients)

    def fast(self, model: keras.Model, batch: int | None = None) -> keras.Model:
        """Switch a model's layers to the form that trains fastest on its device; return the model.

        Args:
            batch: Examples of a training step. If None, the model runs in training mode without gradients.
        """
        if self.recipe.engine == "auto":
            for layer in all_layers(model):
                if hasattr(layer, "use_fastest_form"):
                    layer.use_fastest_form(batch, self.device)
        return model

    @functools.cached_property
    def parts(self) -> PartsOfSizes:
        """The axes of a custom model that have several parts."""
        if self.function is None:
            return {}
        levels = self.recipe.levels
        models = {level: self.training_model(level, self.classes) for level in (levels.global_level, *levels.names)}
        return find_parts(models, levels.global_level)

    @functools.cached_property
    def digest(self) -> str | None:
        """Digest of the custom models of all levels; None for the layers of a recipe."""
        if self.function is None:
            return None
        return model_digest(self.training_model(level, self.classes) for level in self.recipe.levels.names)

    def prediction_value(self, variable: keras.Variable, value_of: Callable[[str], tf.Tensor]) -> tf.Tensor:
        """Return the value of a predictor's variable: the first channels of a global one, in an ensemble its network's.

        Args:
            variable: Variable of a model built by `predictor`.
            value_of: `path -> value` in the global shape.
        """
        member = re.match(r"member(\d+)_(.*)", variable.path)
        value = value_of(member[2])[int(member[1])] if member else value_of(variable.path)
        return self.cut_value(value, variable.shape)

    def cut_value(self, value: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
        """Return the first channels of a global value, in the shape of a sub-model's."""
        for axis, (full, size) in enumerate(zip(value.shape, shape)):
            if (full, size) in self.parts:
                value = tf.gather(value, first_entries(self.parts[full, size]), axis=axis)
        return tf.slice(value, [0] * len(shape), shape) if len(shape) else value

    def prediction_key(self, level: str) -> tuple:
        """Return the cache key of a level's prediction model."""
        levels = self.recipe.levels
        return self.route(level), levels.members.get(level), levels.entries.get(level, 1.0)

    def prediction_models(self, level: str) -> list[keras.Model]:
        """Build the models that predict at a level: all classes, inert Scalers; one, or those of its ensemble."""
        levels = self.recipe.levels
        models = [
            self._build(self.route(level), 1.0, self.classes, self.recipe.float_type, member=member)
            for member in (range(levels.members[level]) if level in levels.members else (None,))
        ]
        for model in models if levels.members_fan_in == "wide" else ():
            shrink_to_part(model, levels.widths[level])
        return models

    def peer(self, level: str, number: int) -> keras.Model:
        """Build a level's prediction model with the initial values of the clients' n-th peers."""
        seed = seeds.seed32(self.recipe.seed, "peer", number)
        return self._build(self.route(level), 1.0, self.classes, self.recipe.float_type, seed=seed)

    def predictor(self, level: str) -> keras.Model:
        """Build the prediction model of a level with one output: the mean over its networks and their exits."""
        models = self.prediction_models(level)
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
            of_loss = probabilities_of(self.recipe)
            built = build_custom_model(
                self.function, self.shape, route.width, scale, classes, dtype, seed, clients, of_loss
            )
            return self._checked(built, built, dtype, route)
        if member is not None:
            seed, name = seeds.seed32(self.recipe.seed, "model", member), f"member{member}"
            layers = tuple(dataclasses.replace(spec, name=f"{name}_{spec.name}") for spec in model.layers)
            model = dataclasses.replace(model, layers=layers)
        is_map = self.recipe.targets == "label_map"
        built = build_model(model, self.shape, route.width, scale, classes, dtype, seed, clients, route, name, is_map)
        single = built if clients == 1 else self.single_client_model(route, classes)
        return self._checked(built, single, dtype, route)

    def _checked(self, model, single, dtype, route):
        """Freeze factors of adapters, and check constants once for all widths; `single` is the model for one client."""
        if self.recipe.round.by_level:
            self._name_copies(model, route)
        if self.adapter_merge != AdapterMerge():
            freeze_factors(model, single, self.adapter_merge)
        if model is not single:
            return model
        names = frozenset(layer.name for layer in model.layers)
        if not any(names <= known for known in self._checked_layers[dtype]):
            check_constants(model, keras.DTypePolicy(dtype).variable_dtype)
            self._checked_layers[dtype].append(names)
        return model

    @functools.cached_property
    def _copied(self):
        """Paths of the values that `round.by_level` names."""
        level, names = self.recipe.levels.global_level, [name for name in self.recipe.round.by_level if name != "last"]
        model = self.training_model(level, self.classes)
        paths, label_paths = [variable.path for variable in values(model)], dict[str, dict[int, int]]()
        if not {"head", "body"}.isdisjoint(names):
            two, others = (self.training_model(level, classes) for classes in (2, 3))
            label_paths = find_label_axes(*({v.path: tuple(v.shape) for v in values(each)} for each in (two, others)))
        return select_paths("by_level", names, self.recipe.model, model, paths, label_paths)

    def _name_copies(self, model, route):
        """Give values of `round.by_level` paths of copies, one for each width and depth; the global ones are shared."""
        recipe = self.recipe
        level = next((level for level in recipe.levels.names if _is_full(self.route(level), route)), None)
        if level in (None, recipe.levels.global_level):
            return
        last = route.units[-1] if "last" in recipe.round.by_level else None
        for variable in values(model):
            if variable.path in self._copied or recipe.model.unit_of(variable.path) == last:
                variable._path = level_path(variable.path, level)

    def cached(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the cached value of a key; the first call for a key computes it by `make`."""
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    @functools.cached_property
    def _cache(self):
        return {}

    @functools.cached_property
    def _checked_layers(self):
        return collections.defaultdict(list)


def build_family(
    recipe: Recipe,
    shape: tuple[int | None, ...],
    example: tuple[int, ...],
    classes: int,
    function: ModelBuilder | None = None,
    device: str = "cpu",
    inputs: np.ndarray | None = None,
) -> ModelFamily:
    """Build the model family of a recipe.

    Args:
        shape: Shape of one input without the batch axis, see `models.build_model.build_model`.
        example: The same without None.
        classes: Length of the global label axis, the number of outputs.
        function: Builds custom models instead of the recipe's layers; the family's recipe then describes their layers.
        device: "cpu" or "gpu", the device for which the models train; their costs do not depend on it.
        inputs: Inputs of custom models, [examples, ...], which check that they are nested; None does not check it.

    Raises:
        InputError: A level cannot hold any unit, no client trains some unit, or the custom models are not nested.
    """
    # A recipe that already has the function's layers was checked before.
    if function is not None and not recipe.model.layers:
        recipe = _with_custom_model(recipe, shape, classes, function, inputs)
    plugin, options = registry.find("stages", recipe.client.stages.name), recipe.client.stages.options
    reads_shares = getattr(plugin, "READS_SHARES", True)
    shares = unit_shares(recipe, shape, example, classes) if reads_shares else {}
    # The plug-in divides every level of the mix into its stages.
    stages = {
        level: plugin.divide(outline(recipe), level_of(recipe, level), shares=shares, **options)
        for level in recipe.levels.names
    }
    _check_every_unit_is_trained(recipe, stages)
    return ModelFamily(recipe, shape, example, classes, stages, plugin.DRAWN, function, device)


def _with_custom_model(recipe, shape, classes, function, inputs):
    """Return the recipe with the layers that the function builds at the global level."""
    top, widths = recipe.levels.global_level, recipe.levels.widths
    of_loss = probabilities_of(recipe)
    models = {
        level: build_custom_model(function, shape, widths[level], classes=classes, probabilities=of_loss)
        for level in recipe.levels.names
    }
    shapes = {level: {v.path: tuple(v.shape) for v in model.weights} for level, model in models.items()}
    check_parts(shapes[top], shapes)
    check_behavior(models[top])
    layers = layers_of(models[top])
    if inputs is not None:
        check_entries(models, top, inputs)
    return dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, layers=layers))


def _check_every_unit_is_trained(recipe, stages):
    trained = frozenset().union(
        *(stage.trained for level in stages if level not in recipe.levels.idle for stage in stages[level])
    )
    for unit in full_route(outline(recipe), level_of(recipe, recipe.levels.global_level))[0].units:
        if unit not in trained:
            raise InputError(
                f"levels.budgets: no client trains unit {unit}: it exceeds every budget; raise a "
                f"budget or the tolerance, or use smaller units. Received: budgets={recipe.levels.budgets}"
            )


def _is_full(full, route):
    """Return whether a route has the width and the last exit of a level's full one."""
    return full.width == route.width and full.exits[-1] == route.exits[-1]


def outline(recipe: Recipe) -> ModelOutline:
    """Return the outline of a recipe's model for its division into stages."""
    widths = tuple(recipe.levels.widths[name] for name in recipe.levels.names)
    return ModelOutline(recipe.model.trunk, recipe.model.exits, widths)


def level_of(recipe: Recipe, name: str) -> LevelSpec:
    """Return the specification of a level for its division into stages."""
    levels, depth = recipe.levels, recipe.levels.depths.get(name, len(recipe.model.exits) + 1)
    if name not in levels.widths:
        raise InputError(f"`level` must be one of {', '.join(levels.widths)}. Received: level={name!r}")
    return LevelSpec(name, levels.widths[name], depth, levels.budgets.get(name), levels.tolerance)
