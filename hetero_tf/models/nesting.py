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

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.models.cut import Parts, first_entries
from hetero_tf.models.variables import all_layers, is_seed, is_table, queried

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
LARGEST_BATCH, VALUES_OF_A_BATCH = 32, 500_000
# Examples that a check draws from.
MOST_EXAMPLES = 256


def check_entries(models: Mapping[str, keras.Model], top: str, examples: np.ndarray) -> None:
    """Refuse models whose entries are not the first ones of the global model, by random weights.

    Levels without some layers, and levels with the shapes of another one, are not compared.

    Args:
        models: The model of each level; none has a weight that is larger than in the global model.
        top: The level of the global model.
        examples: Inputs of the models, [examples, ...]: invented ones could be ids outside of a vocabulary.

    Raises:
        InputError: Names the level, the weight and the axis.
    """
    wide, compared, parts = models[top], [_shapes(models[top])], find_parts(models, top)
    narrowest = min(models, key=lambda level: models[level].count_params())
    for level, narrow in models.items():
        shapes = _shapes(narrow)
        if shapes in compared or len(narrow.weights) != len(wide.weights):
            continue
        compared.append(shapes)
        if (mismatch := _find_mismatch(narrow, wide, examples, parts, probes=level == narrowest)) is not None:
            path, axis = mismatch
            raise InputError(
                f"`model` packs several things, such as heads or what a subclass flattens, on axis {axis} of {path} or "
                f"on an axis before it, or connects its layers in another way at this width, so the first "
                f"{shapes[path][axis]} of {compared[0][path][axis]} entries belong to other units than at the narrow "
                "level. Give each its own axis, build a functional model, or let only the last things on the axis "
                "become narrower. Received: "
                f"{path} of the shape {compared[0][path]} at level {top} and {shapes[path]} at level {level}"
            )


def find_parts(models: Mapping[str, keras.Model], top: str) -> dict[tuple[int, int], Parts]:
    """Return the parts of axes that pack several things, by the sizes of the axis in the global and a narrow model.

    Those things are the branches of a Concatenate, the positions of a Flatten or Reshape, the gates of an LSTM or GRU,
    and the directions of a Bidirectional layer. Sizes that two layers divide in different ways are left out.
    """
    parts_of_sizes: dict[tuple[int, int], set[Parts]] = {}
    for narrow in models.values():
        for layers in zip(all_layers(models[top]), all_layers(narrow)):
            full, few = map(_sizes_of_parts, layers)
            if full != few and len(full) == len(few) > 1:
                parts_of_sizes.setdefault((sum(full), sum(few)), set()).add(tuple(zip(full, few)))
    unique = {sizes: next(iter(parts)) for sizes, parts in parts_of_sizes.items() if len(parts) == 1}
    # A part may have parts, such as the branches at each position of a Flatten.
    for sizes, parts in unique.items():
        unique[sizes] = tuple(
            part for each in parts for part in ((each,) if each == sizes else unique.get(each, (each,)))
        )
    return unique


def _sizes_of_parts(layer):
    """Return the sizes of the things that a layer packs on one axis; empty for other layers."""
    if isinstance(layer, keras.layers.LSTM | keras.layers.LSTMCell):
        return (layer.units,) * 4
    if isinstance(layer, keras.layers.GRU | keras.layers.GRUCell):
        return (layer.units,) * 3
    # A layer has no inputs before its call, and several if it is called twice.
    with contextlib.suppress(AttributeError, ValueError):
        if isinstance(layer, keras.layers.Bidirectional):
            return (layer.output.shape[-1] // 2,) * 2
        if isinstance(layer, keras.layers.Concatenate):
            return tuple(tensor.shape[-1] for tensor in layer.input)
        if isinstance(layer, keras.layers.Flatten | keras.layers.Reshape):
            channels, packed = layer.input.shape[-1], layer.output.shape[-1]
            return (channels,) * (packed // channels) if channels and packed else ()
    return ()


def _shapes(model):
    return {variable.path: tuple(variable.shape) for variable in model.weights}


def _find_mismatch(narrow, wide, inputs, parts, probes):
    """Return the (path, axis) of a weight whose entries differ, None if the cut is correct."""
    rng, pair = np.random.default_rng(0), (narrow, wide)
    learned = [variable for variable in narrow.weights if not is_seed(variable) and not is_table(variable)]
    initial = {variable.path: tf.convert_to_tensor(variable).numpy() for variable in learned}
    examples = _draw_examples(inputs, rng)
    values = _with_statistics(narrow, _draw_values(initial, rng), examples)
    with _without_norms(pair, CHANNEL_NORMS):
        outputs, wide_outputs = (_call(model, _padded(model, values, parts), examples).numpy() for model in pair)
    # A constant part, such as a large bias, must not hide a difference.
    if np.abs(outputs - wide_outputs).max() <= TOLERANCE * np.ptp(outputs, axis=0).max():
        return None
    # Channel groups differ in a wide model; all other norms keep activations in a range with gradients.
    with _without_norms(pair, keras.layers.GroupNormalization):
        gradients = [_gradient_function(model, parts) for model in pair]
        for probe in (None, *(_probes(narrow, wide, rng) if probes else ())):
            mismatches = None
            for _ in range(DRAWS):
                examples = _draw_examples(inputs, rng)
                values = _with_statistics(narrow, _draw_values(initial, rng, probe), examples)
                projection = rng.normal(size=outputs.shape).astype(np.float32)
                differing = _disagreements(
                    _shapes(wide), parts, *(each(values, examples, projection) for each in gradients)
                )
                mismatches = [entry for entry in differing if mismatches is None or entry in mismatches]
            if mismatches:
                return mismatches[0][:2]
    return None


def _draw_examples(inputs, rng):
    """Return a random batch of inputs."""
    size = int(np.clip(VALUES_OF_A_BATCH // max(1, inputs[0].size), 2, LARGEST_BATCH))
    return rng.choice(inputs, min(size, len(inputs)), replace=False)


def _draw_values(initial, rng, probe=None):
    """Return random values in the range of initial ones, by path; a probe is (path, axis, its only index not 0)."""
    values = {
        path: value + rng.uniform(-0.5, 0.5, value.shape).astype(value.dtype)
        if np.ptp(value) == 0
        else rng.permutation(value.ravel()).reshape(value.shape)
        for path, value in initial.items()
    }
    if probe is not None:
        path, axis, index = probe
        # Biases would keep the other entries of the axis alive.
        values |= {path: value for path, value in initial.items() if value.ndim == 1 and not value.any()}
        is_chosen = np.arange(values[path].shape[axis]) == index
        values[path] = values[path] * is_chosen.reshape([-1] + [1] * (values[path].ndim - axis - 1))
    return values


def _with_statistics(model, values, examples):
    """Return values with the statistics of a batch; with random ones, signals would vanish in a deep model."""
    measured = {variable.path for variable in queried(model)}
    if not measured:
        return values
    # A training step returns the batch statistics as new non-trainable values.
    _, state = model.stateless_call(*_in_order(model, values), examples, training=True)
    return values | {
        variable.path: value.numpy()
        for variable, value in zip(model.non_trainable_variables, state)
        if variable.path in measured
    }


def _in_order(model, values):
    """Return the trainable and the other values of a model; it keeps those without a path in `values`."""
    return [
        [tf.cast(values.get(variable.path, variable), variable.dtype) for variable in variables]
        for variables in (model.trainable_variables, model.non_trainable_variables)
    ]


def _call(model, values, examples):
    """Return the float32 outputs of a model in inference with other values of its weights."""
    outputs, _ = model.stateless_call(*_in_order(model, values), examples, training=False)
    return tf.cast(outputs, tf.float32)


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


def _padded(model, values, parts):
    """Return values in the shapes of a model, of whose axes or their parts they are the first entries; else zeros."""
    shapes, padded = _shapes(model), {}
    for path, value in values.items():
        padded[path] = np.zeros(shapes[path], value.dtype)
        padded[path][_entries(shapes[path], value.shape, parts)] = value
    return padded


def _entries(full, shape, parts):
    """Return the index of the entries of a value in the global one, by their shapes."""
    return np.ix_(*(first_entries(parts.get(sizes, (sizes,))) for sizes in zip(full, shape)))


def _probes(narrow, wide, rng):
    """Return a probe of every shortened axis, or of as many of them as a model of this size allows."""
    sizes, full = _shapes(narrow), _shapes(wide)
    axes = [(path, axis) for path in sizes for axis, size in enumerate(sizes[path]) if size < full[path][axis]]
    count = int(np.clip(WEIGHTS_OF_ALL_PROBES // max(1, wide.count_params()), FEWEST_PROBES, MOST_PROBES))
    chosen = [axes[number] for number in rng.permutation(len(axes))[:count]]
    return [(path, axis, int(rng.integers(sizes[path][axis]))) for path, axis in chosen]


def _gradient_function(model, parts):
    """Return `(values, examples, projection) -> {path: gradient}` of the projected outputs, in inference."""

    @tf.function(autograph=False)
    def gradients(values, examples, projection):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(values)
            projected = tf.reduce_sum(_call(model, values, examples) * projection)
        return tape.gradient(projected, values, unconnected_gradients="zero")

    def run(values, examples, projection):
        tensors = tf.nest.map_structure(tf.constant, (_padded(model, values, parts), examples, projection))
        return tf.nest.map_structure(np.array, gradients(*tensors))

    return run


def _disagreements(full, parts, gradients, wide_gradients):
    """Return each (path, axis, index) that has a gradient in one of the models and none in the other."""
    wide_gradients = {
        path: value[_entries(full[path], gradients[path].shape, parts)] for path, value in wide_gradients.items()
    }
    models = [(values, max(np.abs(value).max() for value in values.values())) for values in (gradients, wide_gradients)]
    disagreements = []
    for path, gradient in gradients.items():
        for axis, size in enumerate(gradient.shape):
            if size < full[path][axis]:
                rest = tuple(other for other in range(gradient.ndim) if other != axis)
                one, two = (np.abs(values[path]).max(rest) / largest for values, largest in models)
                differ = ((one > PRESENT) & (two < ABSENT)) | ((one < ABSENT) & (two > PRESENT))
                disagreements += [(path, axis, index) for index in np.flatnonzero(differ)]
    return disagreements
