"""Index of every variable: paths, shapes and initial values of the global ones, and their cut into sub-models."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.methods.adapters import AdapterMerge
from hetero_tf.models.adapter_pairs import AdapterLayout, build_adapter_layout, check_adapters, find_adapters
from hetero_tf.models.cut import Cut, cut_of_shapes, find_label_axes
from hetero_tf.models.family import ModelFamily
from hetero_tf.models.personal import select_paths
from hetero_tf.models.variables import carried, constants, shared_path, values
from hetero_tf.recipe.nodes import InvalidValue
from hetero_tf.recipe.schema import Recipe


@dataclass(frozen=True)
class GlobalLayout:
    """Layout of the global values: the sub-models' cut of them, and which values are merged.

    Attributes:
        trainable: Number of trainable global values; running statistics follow them.
        first_merged_stage: For each global value and sub-model, the number of completed stages from which on a client
            counts in its merge; 0: never.
        merge_absent_labels: Whether the rows of labels that a client lacks are merged too.
        zeros_count: Whether the channels or ranks that a client lacks count as zeros in the merge.
        personal: Positions of the global values that stay with the clients.
        adapters: The adapters, or None if all rounds train and merge them like other values.
    """

    cut: Cut
    dtype: str
    trainable: int
    first_merged_stage: tuple[tuple[int, ...], ...]
    merge_absent_labels: bool
    zeros_count: bool
    personal: tuple[int, ...]
    adapters: AdapterLayout | None = None

    @functools.cached_property
    def learned(self) -> int:
        """Number of entries of the trainable values, the first of the global row."""
        return sum(math.prod(shape) for shape in self.cut.shapes[: self.trainable])

    @functools.cached_property
    def is_ensemble(self) -> bool:
        """True if the global values lead with an axis of networks."""
        return any(axis.member for axis in self.cut.distinct)


def shapes(family: ModelFamily, level: str, classes: int) -> dict[str, tuple[int, ...]]:
    """Return `{path: shape}` of the values of a level's client; in an ensemble, those of one network of its axis."""
    first = (1,) if family.recipe.levels.ensemble else ()
    return {variable.path: (*first, *variable.shape) for variable in variables_in_order(family, level, classes)}


def global_shapes(family: ModelFamily) -> dict[str, tuple[int, ...]]:
    """Return `{path: shape}` of the global values, copies of `round.by_level` included; [networks, ...] in an ensemble.

    Trainable values come first.
    """
    networks = (family.recipe.levels.ensemble,) if family.recipe.levels.ensemble else ()
    return {variable.path: (*networks, *variable.shape) for variable in _global_variables(family)}


def last_blocks(family: ModelFamily) -> tuple[tuple[np.ndarray, int, np.ndarray], ...]:
    """Return the `blocks` of `methods.merges`, from the shallowest to the second deepest one.

    Raises:
        InvalidValue: There are none.
    """
    shapes, unit_of = global_shapes(family), family.recipe.model.unit_of
    starts = dict(zip(shapes, itertools.accumulate(map(math.prod, shapes.values()), initial=0)))

    def block(level, unit):
        """Return the shapes of the trainable values of a unit at a level, and their columns."""
        model = family.training_model(level, family.classes)
        paths = [variable.path for variable in model.trainable_variables if unit_of(variable.path) == unit]
        columns = [starts[path] + np.arange(math.prod(shapes[path])) for path in paths]
        return [shapes[path] for path in paths], np.concatenate([np.zeros(0, int), *columns])

    blocks, by_depth = [], sorted(family.submodels, key=lambda level: len(family.route(level).units))
    for level, deeper in itertools.pairwise(by_depth):
        last, units = family.route(level).units[-1], family.route(deeper).units
        kind, columns = block(level, last)
        candidates = [block(deeper, unit) for unit in units[units.index(last) :]] if kind else []
        if sources := [each for kind_of_unit, each in candidates if kind_of_unit == kind]:
            blocks.append((columns, family.submodels.index(deeper), np.stack(sources)))
    if not blocks:
        text = "needs a level whose last block has the shapes of a deeper level's blocks; set levels.depths"
        raise InvalidValue(("round", "merge"), f"{text}. Received: {family.recipe.round.merge.name}")
    return tuple(blocks)


def initial_values(family: ModelFamily) -> dict[str, tf.Tensor]:
    """Return the global values before the first round by path; those of an ensemble are [networks, ...]."""
    levels = family.recipe.levels
    if levels.ensemble is None:
        variables = _variables(family, levels.global_level, family.classes)
        return with_copies(family, {variable.path: tf.convert_to_tensor(variable) for variable in variables})
    networks = [values(model) for model in family.prediction_models(levels.global_level)]
    paths = shapes(family, levels.global_level, family.classes)
    return {
        path: tf.stack([tf.convert_to_tensor(variable) for variable in variables])
        for path, variables in zip(paths, zip(*networks), strict=True)
    }


def with_copies(family: ModelFamily, weights: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Return global values in order; copies of `round.by_level` that are missing are the cut of the shared value."""
    return {
        v.path: weights[v.path] if v.path in weights else family.cut_value(weights[shared_path(v.path)], v.shape)
        for v in _global_variables(family)
    }


def initial_peers(family: ModelFamily, weights: Sequence[tf.Tensor], count: int) -> list[tf.Tensor]:
    """Return the values of a client's peers before the first round, [peers, ...] of each global value.

    A peer with the initial values of another network would see the same batches and remain its copy, and neither could
    learn from the other. So each peer draws its initial values. Constants are those of the global model.
    """
    top = family.recipe.levels.global_level
    order = shapes(family, top, family.classes)
    networks = [{v.path: tf.convert_to_tensor(v) for v in values(family.peer(top, number))} for number in range(count)]
    fixed = {variable.path for variable in constants(family.training_model(top, family.classes))}
    return [
        tf.stack([value if path in fixed else network[path] for network in networks])
        for path, value in zip(order, weights, strict=True)
    ]


def build_global_layout(family: ModelFamily, label_axis: int) -> GlobalLayout:
    """Build the layout of the global values for sub-models whose label axes have `label_axis` entries."""
    recipe, levels = family.recipe, family.recipe.levels
    model, paths = recipe.model, global_shapes(family)
    trained = family.training_model(levels.global_level, family.classes)
    cut, personal = _cut(family, label_axis), personal_paths(family)
    is_personal = [path in personal for path in paths]
    trainable, fixed = ({v.path for v in variables} for variables in (trained.trainable_variables, constants(trained)))
    for path in paths:
        if path != shared_path(path) in personal:
            raise InvalidValue(("round", "by_level"), f"round.personal keeps {shared_path(path)} on the clients")

    def first_stages(path, contained):
        return tuple(
            _first_merged_stage(family, level, model.unit_of(path)) if is_contained else 0
            for is_contained, level in zip(contained, family.submodels)
        )

    # Constants and personal values are never merged.
    unmerged = (0,) * len(family.submodels)
    first_merged_stage = tuple(
        unmerged if personal or shared_path(path) in fixed else first_stages(path, contained)
        for path, personal, contained in zip(paths, is_personal, cut.contained, strict=True)
    )
    return GlobalLayout(
        cut=cut,
        dtype=recipe.float_type,
        trainable=sum(shared_path(path) in trainable for path in paths),
        first_merged_stage=first_merged_stage,
        merge_absent_labels=recipe.round.label_rows == "all",
        zeros_count=recipe.round.uncovered == "zeros",
        personal=tuple(position for position, personal in enumerate(is_personal) if personal),
        adapters=_adapter_layout(family, tuple(paths), cut, first_merged_stage),
    )


def _adapter_layout(family, paths, cut, first_merged_stage):
    """Return the layout of the adapters; None if every round trains and merges them like other values."""
    recipe, merge = family.recipe, family.adapter_merge
    if merge == AdapterMerge():
        return None
    adapters = {level: find_adapters(family.training_model(level, family.classes)) for level in recipe.levels.names}
    check_adapters(recipe, adapters)
    if merge.combine is None and len(merge.trained) == 1:
        return None
    return build_adapter_layout(merge, adapters[recipe.levels.global_level], paths, cut, first_merged_stage)


def _cut(family, label_axis):
    """Return the cut of the sub-models of the mix."""
    levels = family.recipe.levels
    submodels = {level: shapes(family, level, label_axis) for level in family.submodels}
    # An axis of networks precedes those of the values.
    first = 1 if levels.ensemble else 0
    axes = {path: {first + axis: extra for axis, extra in each.items()} for path, each in label_axes(family).items()}
    every = global_shapes(family)
    axes |= {path: axes[shared_path(path)] for path in every if shared_path(path) in axes}
    return cut_of_shapes(every, submodels, axes, family.classes, levels.ensemble is not None, family.parts)


def personal_paths(family: ModelFamily) -> frozenset[str]:
    """Return the paths of the values that stay on their clients, which `round.personal` names."""

    def select():
        level = family.recipe.levels.global_level
        model, paths = family.training_model(level, family.classes), tuple(shapes(family, level, family.classes))
        names = family.recipe.round.personal
        return select_paths("personal", names, family.recipe.model, model, paths, label_axes(family))

    return family.cached(("personal",), select) if family.recipe.round.personal else frozenset()


def label_axes(family: ModelFamily) -> dict[str, dict[int, int]]:
    """Return the label axes of the values of one network, see `cut.find_label_axes`."""
    # A custom model may have no channels at the widths of other levels.
    routes = [family.route(level) for level in family.recipe.levels.names]
    deepest = max(routes, key=lambda route: len(route.exits))
    narrowest = dataclasses.replace(deepest, width=min(route.width for route in routes))
    # Two numbers of classes show which dimensions are label axes; a model of the family's own is built anyway.
    other = family.classes if narrowest in routes and family.classes != 2 else 3
    models = [family.single_client_model(narrowest, classes) for classes in (2, other)]
    return find_label_axes(*({shared_path(v.path): tuple(v.shape) for v in values(model)} for model in models))


def _first_merged_stage(family, level, unit):
    """Return the number of the first stage of a level that trains a unit, 0 without one; 1 if it does not matter."""
    numbers = [number for number, stage in enumerate(family.stages[level], 1) if unit in stage.trained]
    if family.recipe.round.untrained == "counted" or (numbers and family.drawn):
        return 1
    return numbers[0] if numbers else 0


def variables_in_order(family: ModelFamily, level: str, classes: int) -> list[keras.Variable]:
    """Return the variables of a client of a level in the order of the global values.

    Raises:
        InputError: The level has a variable that the global level lacks.
    """
    top = family.recipe.levels.global_level
    order = {variable.path: position for position, variable in enumerate(_global_variables(family))}
    variables = _variables(family, level, classes)
    for variable in variables:
        if variable.path not in order:
            raise InputError(
                f"level {level}: only its width has {variable.path}, and level {top} never runs at "
                "that width; norms of kind wbn need client.stages: nested or slimmable, and a custom layer must "
                "create the same weights at every width"
            )
    return sorted(variables, key=lambda variable: order[variable.path])


def _global_variables(family):
    """Return the variables of the global model and the copies of `round.by_level`, trainable ones first."""
    top = family.recipe.levels.global_level
    trainable = {variable.path for variable in family.training_model(top, family.classes).trainable_variables}
    variables = _variables(family, top, family.classes)
    if family.recipe.round.by_level:
        for level in family.submodels:
            each = values(family.training_model(level, family.classes))
            variables += [variable for variable in each if shared_path(variable.path) != variable.path]
    return sorted(variables, key=lambda variable: shared_path(variable.path) not in trainable)


def _variables(family, level, classes):
    """Return the variables of a level's full sub-model, and the carried ones that only its narrower routes have."""
    # Narrower routes may add running statistics of their width.
    variables = {variable.path: variable for variable in values(family.training_model(level, classes))}
    routes = dict.fromkeys(route for stage in family.stages[level] for route in stage.routes)
    for route in routes:
        if route.width < family.route(level).width:
            for variable in carried(family.single_client_model(route, classes)):
                variables.setdefault(variable.path, variable)
    return list(variables.values())


def may_cut_labels(recipe: Recipe) -> bool:
    """Return whether a label axis of the client's own labels gives exactly the same results.

    Weight decay moves the rows of absent labels: personal rows keep that change, and corrections react to it.
    A coupling that reads logits would miss those of absent labels.
    """
    masks = registry.find("losses", recipe.loss.name).MASKS_LABELS
    reads_logits = registry.find("couplings", recipe.client.coupling.name).READS_LOGITS
    weighs_classes = recipe.loss.options.get("class_weights", "none") != "none"
    client, rules = recipe.client, recipe.round
    keeps_state = rules.personal or client.correction or client.personalization or client.update or rules.update
    return bool(
        registry.constant("tasks", recipe.task.name, "CUTS_LABELS")
        and recipe.client.label_cut
        and recipe.round.label_rows == "own"
        and masks
        and not reads_logits
        and not (keeps_state or recipe.round.mask)
        and not weighs_classes
    )


def label_table(label_mask: np.ndarray) -> np.ndarray:
    """Return each client's labels as int32 [clients, most labels], padded with -1.

    Args:
        label_mask: bool [clients, classes].
    """
    # One entry for each pair of client and label, in ascending order of the label.
    client, label = np.nonzero(label_mask)
    sizes = np.bincount(client, minlength=len(label_mask))
    table = np.full((len(sizes), sizes.max()), -1, np.int32)
    table[client, np.arange(len(label)) - np.repeat(np.cumsum(sizes) - sizes, sizes)] = label
    return table
