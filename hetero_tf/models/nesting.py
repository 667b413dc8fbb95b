"""Checks that the model of a level is a part of the global one: its weights are the first entries of every axis.

Shapes alone do not show it. Where one axis packs several things, such as the channels of several positions after a
Flatten, the branches of a Concatenate, the gates of an LSTM or the heads of an attention, the first entries of the wide
axis belong to other units than those of the narrow one.

The narrow weights are copied into the wide model and the rest of it is zero: both must give the same outputs. Layers
whose result depends on how many channels there are (a mean over channels, the scale of an attention) change the numbers
of a correct cut too. So outputs that differ are no proof; then the two models must disagree on which entries of the
weights have a gradient at all.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.models.probing import call, draw_examples, draw_values, initial_values, with_statistics
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
    """One axis of a weight of which a single entry is not zero.

    Attributes:
        path: Of the weight.
        axis: Of its shape.
        index: Along the axis.
    """

    path: str
    axis: int
    index: int


def check_shapes(models: Mapping[str, keras.Model], top: str) -> None:
    """Refuses models whose weights do not fit into those of the global one.

    Args:
        models: The model of each level.
        top: The level of the global model.

    Raises:
        InputError: Names the level and the weight.
    """
    whole = {variable.path: tuple(variable.shape) for variable in models[top].weights}
    for level, model in models.items():
        for variable in model.weights:
            shape, full = tuple(variable.shape), whole.get(variable.path)
            if full is None or len(shape) != len(full) or any(size > most for size, most in zip(shape, full)):
                raise InputError(
                    f"`model` must build the same layers at every width, none of them larger than in the model of "
                    f"level {top}, where {variable.path} has the shape {full}. Received: {shape} at level {level}"
                )


def same_models(models: Mapping[str, keras.Model]) -> list[tuple[str, str]]:
    """Returns the pairs of levels whose weights have equal paths, shapes and `trainable`; each with the first one.

    Args:
        models: The model of each level.
    """
    first: dict = {}
    for level, model in models.items():
        first.setdefault((_shapes(model), tuple(v.trainable for v in model.weights)), []).append(level)
    return [(levels[0], other) for levels in first.values() for other in levels[1:]]


def check_entries(models: Mapping[str, keras.Model], top: str, example: tuple[int, ...]) -> None:
    """Refuses models whose entries are not the first ones of the global model, by random examples.

    Levels that leave out layers, and levels with the shapes of another one, are not compared.

    Args:
        models: The model of each level; `check_shapes` accepts them.
        top: The level of the global model.
        example: Shape of one input without the batch axis.

    Raises:
        InputError: Names the level, the weight and the axis.
    """
    wide = models[top]
    compared = {_shapes(wide): top}
    narrowest = min(models, key=lambda level: models[level].count_params())
    for level, narrow in models.items():
        if _shapes(narrow) in compared or len(narrow.weights) != len(wide.weights):
            continue
        compared[_shapes(narrow)] = level
        mismatch = _find_mismatch(narrow, wide, example, probes=level == narrowest)
        if mismatch is not None:
            path, axis = mismatch
            wide_shape, narrow_shape = (dict(_shapes(model))[path] for model in (wide, narrow))
            raise InputError(
                f"`model` packs several things, such as positions, branches, heads or gates, on axis {axis} of {path} "
                "or on an axis before it, or connects its layers in another way at this width, so the first "
                f"{narrow_shape[axis]} of {wide_shape[axis]} entries belong to other units than at the narrow level. "
                "Give each its own axis, or let only the last things on the axis become narrower (in place of Flatten: "
                "GlobalAveragePooling2D, or Permute((3, 1, 2)) before it). "
                f"Received: {path} of the shape {wide_shape} at level {top} and {narrow_shape} at level {level}"
            )


def _shapes(model):
    return tuple((variable.path, tuple(variable.shape)) for variable in model.weights)


def _find_mismatch(narrow, wide, example, probes):
    """Returns the (path, axis) of a weight whose entries differ, None where the cut is correct."""
    rng, pair = np.random.default_rng(0), (narrow, wide)
    initial = initial_values(narrow)
    examples = draw_examples(narrow, example, rng)
    values = with_statistics(narrow, _draw(initial, rng), examples)
    with _without_norms(pair, CHANNEL_NORMS):
        outputs, others = (call(model, _padded(model, values), examples).numpy() for model in pair)
    # A constant part, such as a large bias, must not hide a difference.
    if np.abs(outputs - others).max() <= TOLERANCE * np.ptp(outputs, axis=0).max():
        return None
    # Groups of channels are others in a wide model; all other norms keep activations at a size that has gradients.
    with _without_norms(pair, keras.layers.GroupNormalization):
        gradients = [_gradient_function(model) for model in pair]
        for probe in (None, *(_probes(narrow, wide, rng) if probes else ())):
            mismatches = None
            for _ in range(DRAWS):
                examples = draw_examples(narrow, example, rng)
                values = with_statistics(narrow, _draw(initial, rng, probe), examples)
                projection = rng.normal(size=outputs.shape).astype(np.float32)
                present, others = (gradient(values, examples, projection) for gradient in gradients)
                differing = _disagreements(wide, present, others)
                mismatches = [each for each in differing if mismatches is None or each in mismatches]
                if not mismatches:
                    break
            if mismatches:
                return mismatches[0][:2]
    return None


@contextlib.contextmanager
def _without_norms(models, kinds):
    """Makes identities of the norms of models."""
    norms = [layer for model in models for layer in all_layers(model) if isinstance(layer, kinds)]
    for norm in norms:
        norm.call = lambda inputs: inputs
    try:
        yield
    finally:
        for norm in norms:
            del norm.call


def _draw(initial, rng, probe=None):
    """Returns `{path: value}` of random weights; of the probed axis only one entry is not zero."""
    values = draw_values(initial, rng)
    if probe is not None:
        # Biases would keep the entries beside the chosen one alive.
        values |= {path: value for path, value in initial.items() if value.ndim == 1 and not value.any()}
        value = values[probe.path]
        chosen = np.arange(value.shape[probe.axis]) == probe.index
        values[probe.path] = value * chosen.reshape([-1] + [1] * (value.ndim - probe.axis - 1))
    return values


def _padded(model, values):
    """Returns values in the shapes of a model, whose first entries they are; the rest is zero."""
    shapes = dict(_shapes(model))
    return {
        path: np.pad(value, [(0, full - size) for full, size in zip(shapes[path], value.shape)])
        for path, value in values.items()
    }


def _probes(narrow, wide, rng):
    """Returns a probe of every shortened axis, or of as many of them as a model of this size allows."""
    sizes, full = dict(_shapes(narrow)), dict(_shapes(wide))
    axes = [(path, axis) for path in sizes for axis, size in enumerate(sizes[path]) if size < full[path][axis]]
    affordable = WEIGHTS_OF_ALL_PROBES // max(1, wide.count_params())
    count = int(np.clip(affordable, FEWEST_PROBES, MOST_PROBES))
    chosen = [axes[number] for number in rng.permutation(len(axes))[:count]]
    return [Probe(path, axis, int(rng.integers(sizes[path][axis]))) for path, axis in chosen]


def _gradient_function(model):
    """Returns `(values, examples, projection) -> {path: gradient}` of the projected outputs, in inference."""

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


def _disagreements(wide, gradients, others):
    """Returns each (path, axis, index) that has a gradient in one of the models and none in the other."""
    full = dict(_shapes(wide))
    others = {path: value[tuple(map(slice, gradients[path].shape))] for path, value in others.items()}
    largest = [max(np.abs(value).max() for value in each.values()) for each in (gradients, others)]
    disagreements = []
    for path, gradient in gradients.items():
        shape = gradient.shape
        for axis, size in enumerate(shape):
            if size < full[path][axis]:
                rest = tuple(other for other in range(len(shape)) if other != axis)
                sizes = [np.abs(each[path]).max(rest) / most for each, most in zip((gradients, others), largest)]
                one, two = [(value > PRESENT, value < ABSENT) for value in sizes]
                differ = (one[0] & two[1]) | (one[1] & two[0])
                disagreements += [(path, axis, index) for index in np.flatnonzero(differ)]
    return disagreements
