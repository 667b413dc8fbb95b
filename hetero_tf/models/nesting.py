"""Checks that a level's model is a part of the global one: its weights are the first entries of every axis.

Shapes alone do not show it. If one axis packs several things, such as the channels of several positions after a
Flatten, the branches of a Concatenate, the gates of an LSTM or the heads of an attention, the first entries of the wide
axis belong to other units than those of the narrow one.

The narrow weights are copied into the wide model, whose other entries are zero: both must give the same outputs. Layers
whose result depends on the number of channels (a mean over channels, the scale of an attention) change the numbers of
a correct cut too. So different outputs prove nothing; then the two models must also disagree on the entries of the
weights that have a gradient at all.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.models.requirements import call, draw_examples, draw_values, initial_values, with_statistics
from hetero_tf.models.variables import all_layers

# Their statistics depend on the number of channels, which is part of HeteroFL's cut; the comparison leaves them out.
CHANNEL_NORMS = (
    keras.layers.GroupNormalization,
    keras.layers.LayerNormalization,
    keras.layers.RMSNormalization,
    keras.layers.UnitNormalization,
)
# Largest difference of outputs, as a share of their spread over examples: float32 sums in another order.
TOLERANCE = 1e-3
# A gradient is present above the one share of the largest gradient of the model, and absent below the other.
PRESENT, ABSENT = 1e-4, 1e-7
# A mismatch counts if it appears with every one of these draws of weights and examples.
DRAWS = 4
MOST_PROBES, FEWEST_PROBES, WEIGHTS_OF_ALL_PROBES = 32, 4, 100_000_000


@dataclass(frozen=True)
class Probe:
    """One axis of a weight with a single non-zero entry.

    Attributes:
        axis: Axis of its shape.
        index: Along the axis.
    """

    path: str
    axis: int
    index: int


def check_shapes(models: Mapping[str, keras.Model], top: str) -> None:
    """Refuse models whose weights do not fit into those of the global one.

    Args:
        top: The level of the global model.

    Raises:
        InputError: Names the level and the weight.
    """
    global_shapes = {variable.path: tuple(variable.shape) for variable in models[top].weights}
    for level, model in models.items():
        for variable in model.weights:
            shape, full = tuple(variable.shape), global_shapes.get(variable.path)
            if full is None or len(shape) != len(full) or any(size > full_size for size, full_size in zip(shape, full)):
                raise InputError(
                    f"`model` must build the same layers at every width, none of them larger than in the model of "
                    f"level {top}, where {variable.path} has the shape {full}. Received: {shape} at level {level}"
                )


def same_models(models: Mapping[str, keras.Model]) -> list[tuple[str, str]]:
    """Return the pairs of levels whose weights have equal paths, shapes and `trainable`; each with the first one."""
    first: dict = {}
    for level, model in models.items():
        first.setdefault((_shapes(model), tuple(v.trainable for v in model.weights)), []).append(level)
    return [(levels[0], other) for levels in first.values() for other in levels[1:]]


def check_entries(models: Mapping[str, keras.Model], top: str, example: tuple[int, ...]) -> None:
    """Refuse models whose entries are not the first ones of the global model, by random examples.

    Levels without some layers, and levels with the shapes of another one, are not compared.

    Args:
        models: The model of each level; `check_shapes` accepts them.
        top: The level of the global model.
        example: Shape of one input without the batch axis.

    Raises:
        InputError: Names the level, the weight and the axis.
    """
    wide = models[top]
    checked_shapes = {_shapes(wide): top}
    narrowest = min(models, key=lambda level: models[level].count_params())
    for level, narrow in models.items():
        if _shapes(narrow) in checked_shapes or len(narrow.weights) != len(wide.weights):
            continue
        checked_shapes[_shapes(narrow)] = level
        mismatch = _find_mismatch(narrow, wide, example, probes=level == narrowest)
        if mismatch is not None:
            path, axis = mismatch
            wide_shape, narrow_shape = (dict(_shapes(model))[path] for model in (wide, narrow))
            raise InputError(
                f"`model` packs several things, such as positions, branches, heads or gates, on axis {axis} of {path} "
                "or on an axis before it, or connects its layers in another way at this width, so the first "
                f"{narrow_shape[axis]} of {wide_shape[axis]} entries belong to other units than at the narrow level. "
                "Give each its own axis, or let only the last things on the axis become narrower (instead of Flatten: "
                "GlobalAveragePooling2D, or Permute((3, 1, 2)) before it). "
                f"Received: {path} of the shape {wide_shape} at level {top} and {narrow_shape} at level {level}"
            )


def _shapes(model):
    return tuple((variable.path, tuple(variable.shape)) for variable in model.weights)


def _find_mismatch(narrow, wide, example, probes):
    """Return the (path, axis) of a weight whose entries differ, None if the cut is correct."""
    rng, pair = np.random.default_rng(0), (narrow, wide)
    initial = initial_values(narrow)
    examples = draw_examples(narrow, example, rng)
    values = with_statistics(narrow, _draw(initial, rng), examples)
    with _without_norms(pair, CHANNEL_NORMS):
        outputs, other_values = (call(model, _padded(model, values), examples).numpy() for model in pair)
    # A constant part, such as a large bias, must not hide a difference.
    if np.abs(outputs - other_values).max() <= TOLERANCE * np.ptp(outputs, axis=0).max():
        return None
    # Channel groups differ in a wide model; all other norms keep activations in a range with gradients.
    with _without_norms(pair, keras.layers.GroupNormalization):
        gradients = [_gradient_function(model) for model in pair]
        for probe in (None, *(_probes(narrow, wide, rng) if probes else ())):
            mismatches = None
            for _ in range(DRAWS):
                examples = draw_examples(narrow, example, rng)
                values = with_statistics(narrow, _draw(initial, rng, probe), examples)
                projection = rng.normal(size=outputs.shape).astype(np.float32)
                present, other_values = (gradient(values, examples, projection) for gradient in gradients)
                differing = _disagreements(wide, present, other_values)
                mismatches = [entry for entry in differing if mismatches is None or entry in mismatches]
                if not mismatches:
                    break
            if mismatches:
                return mismatches[0][:2]
    return None


@contextlib.contextmanager
def _without_norms(models, norm_types):
    """Replace the norms of models by identities."""
    norms = [layer for model in models for layer in all_layers(model) if isinstance(layer, norm_types)]
    for norm in norms:
        norm.call = lambda inputs: inputs
    try:
        yield
    finally:
        for norm in norms:
            del norm.call


def _draw(initial, rng, probe=None):
    """Return `{path: value}` of random weights; only one entry of the probed axis is not zero."""
    values = draw_values(initial, rng)
    if probe is not None:
        # Biases would keep the other entries of the axis alive.
        values |= {path: value for path, value in initial.items() if value.ndim == 1 and not value.any()}
        value = values[probe.path]
        is_chosen = np.arange(value.shape[probe.axis]) == probe.index
        values[probe.path] = value * is_chosen.reshape([-1] + [1] * (value.ndim - probe.axis - 1))
    return values


def _padded(model, values):
    """Pad values with zeros to the shapes of a model, whose first entries they are."""
    shapes = dict(_shapes(model))
    return {
        path: np.pad(value, [(0, full - size) for full, size in zip(shapes[path], value.shape)])
        for path, value in values.items()
    }


def _probes(narrow, wide, rng):
    """Return a probe of every shortened axis, or of as many of them as a model of this size allows."""
    sizes, full = dict(_shapes(narrow)), dict(_shapes(wide))
    axes = [(path, axis) for path in sizes for axis, size in enumerate(sizes[path]) if size < full[path][axis]]
    affordable = WEIGHTS_OF_ALL_PROBES // max(1, wide.count_params())
    count = int(np.clip(affordable, FEWEST_PROBES, MOST_PROBES))
    chosen_axes = [axes[number] for number in rng.permutation(len(axes))[:count]]
    return [Probe(path, axis, int(rng.integers(sizes[path][axis]))) for path, axis in chosen_axes]


def _gradient_function(model):
    """Return `(values, examples, projection) -> {path: gradient}` of the projected outputs, in inference."""

    @tf.function(autograph=False)
    def gradients(values, examples, projection):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(values)
            projected = tf.reduce_sum(call(model, values, examples) * projection)
        return tape.gradient(projected, values, unconnected_gradients="zero")

    def run(values, examples, projection):
        tensors = tf.nest.map_structure(tf.constant, (_padded(model, values), examples, projection))
        return tf.nest.map_structure(np.array, gradients(*tensors))

    return run


def _disagreements(wide, gradients, other_values):
    """Return each (path, axis, index) that has a gradient in one of the models and none in the other."""
    full = dict(_shapes(wide))
    other_values = {path: value[tuple(map(slice, gradients[path].shape))] for path, value in other_values.items()}
    largest = [
        max(np.abs(value).max() for value in values_of_model.values()) for values_of_model in (gradients, other_values)
    ]
    disagreements = []
    for path, gradient in gradients.items():
        shape = gradient.shape
        for axis, size in enumerate(shape):
            if size < full[path][axis]:
                rest = tuple(other for other in range(len(shape)) if other != axis)
                sizes = [
                    np.abs(values_of_model[path]).max(rest) / largest_of_model
                    for values_of_model, largest_of_model in zip((gradients, other_values), largest)
                ]
                one, two = [(value > PRESENT, value < ABSENT) for value in sizes]
                differ = (one[0] & two[1]) | (one[1] & two[0])
                disagreements += [(path, axis, index) for index in np.flatnonzero(differ)]
    return disagreements
