"""Requirements of a Keras model from a user; refuses parts that a round would ignore."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.layers.embedding import Embedding
from hetero_tf.models.variables import all_layers, is_seed, queried

LARGEST_BATCH, VALUES_OF_A_BATCH = 32, 500_000


def call(
    model: keras.Model, values: Mapping[str, np.ndarray | tf.Tensor], examples: np.ndarray | tf.Tensor
) -> tf.Tensor:
    """Return the float32 outputs of a model in inference with other values of its weights.

    Args:
        values: By path; the other variables keep their values.
    """
    outputs, _ = model.stateless_call(*_in_order(model, values), examples, training=False)
    return tf.cast(outputs, tf.float32)


def with_statistics(
    model: keras.Model, values: Mapping[str, np.ndarray], examples: np.ndarray
) -> dict[str, np.ndarray]:
    """Return values in which the statistics of static batch normalization are those of a batch.

    With random statistics, signals would vanish in a deep model.
    """
    # A training step returns the batch statistics as new non-trainable values.
    measured = {variable.path for variable in queried(model)}
    if not measured:
        return dict(values)
    _, state = model.stateless_call(*_in_order(model, values), examples, training=True)
    statistics = {variable.path: value.numpy() for variable, value in zip(model.non_trainable_variables, state)}
    return {**values, **{path: statistics[path] for path in measured}}


def _in_order(model, values):
    """Return the trainable and the other values of a model."""
    return [
        [tf.cast(values.get(variable.path, variable), variable.dtype) for variable in variables]
        for variables in (model.trainable_variables, model.non_trainable_variables)
    ]


def draw_examples(model: keras.Model, example: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return a batch of random inputs for a model: standard normal numbers, or words and other ids 1 and 2.

    Args:
        model: Its input decides between numbers and words.
        example: Shape of one input without the batch axis.
    """
    size = int(np.clip(VALUES_OF_A_BATCH // max(1, int(np.prod(example))), 2, LARGEST_BATCH))
    for layer in model.layers:
        if hasattr(layer, "id_slices"):
            examples = rng.normal(size=(size, *example)).astype(np.float32)
            for ids in layer.id_slices:
                examples[:, ids] = rng.integers(1, 3, examples[:, ids].shape)
            return examples
    if has_embedding(model) or "int" in str(model.inputs[0].dtype):
        # Every vocabulary has these two, and 0 may be padding.
        return rng.integers(1, 3, (size, *example)).astype(np.int32)
    return rng.normal(size=(size, *example)).astype(np.float32)


def initial_values(model: keras.Model) -> dict[str, np.ndarray]:
    """Return `{path: value}` of all weights of a model, without the states of random generators."""
    return {v.path: tf.convert_to_tensor(v).numpy() for v in model.weights if not is_seed(v)}


def draw_values(initial: Mapping[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return random values in the range of initial ones, by path.

    Args:
        initial: Constant ones, such as those of biases and scales, become different numbers.
    """

    def draw(value):
        if np.ptp(value) == 0:
            return value + rng.uniform(-0.5, 0.5, value.shape).astype(value.dtype)
        return rng.permutation(value.ravel()).reshape(value.shape)

    return {path: draw(value) for path, value in initial.items()}


def has_embedding(model: keras.Model) -> bool:
    """Return True if a model has an embedding, whose inputs are words."""
    return any(isinstance(layer, keras.layers.Embedding | Embedding) for layer in all_layers(model))


# Draws of weights for each factor of their size: probabilities stay in 0..1 at any size, also if they are rounded to 0
# or 1, but a ReLU that is small at one size exceeds 1 at a larger one.
DRAWS, FACTORS = 2, (1.0, 8.0, 2.0**24)
# Relative error of the sum of a softmax in bfloat16.
TOLERANCE = 1e-2


def check_structure(model: Any, shape: tuple[int | None, ...], classes: int) -> None:
    """Refuse a model that cannot be cut, trained or exported, by its layers and shapes.

    Args:
        shape: Shape of one input without the batch axis.

    Raises:
        InputError: Names the layer or the weight.
    """
    _check_interface(model, shape, classes)
    _check_penalties(model)
    _check_statistics(model)
    if not model.trainable_variables:
        raise InputError("`model` must have something to train. Received: a model without trainable weights")
    paths = [variable.path for variable in model.weights]
    twice = sorted({path for path in paths if paths.count(path) > 1})
    if twice:
        raise InputError(f"`model` must give its layers different names. Received: two weights named {twice[0]}")


def check_behavior(model: keras.Model, example: tuple[int, ...]) -> None:
    """Refuse a model that adds losses in its calls, or that ends in probabilities; calls it on random examples.

    Args:
        model: A model that `check_structure` accepts.
        example: Shape of one input without the batch axis.

    Raises:
        InputError: Describes the output of the model.
    """
    rng = np.random.default_rng(0)
    outputs = model(draw_examples(model, example, rng), training=True)
    if not tf.is_tensor(outputs):
        raise InputError(f"`model` must return one tensor of logits. Received: a {type(outputs).__name__} of tensors")
    if model.losses:
        raise InputError(
            f"`model` must add no losses, since clients minimize the loss of the recipe: leave `add_loss` out. "
            f"Received: {len(model.losses)} losses of a call"
        )
    initial = initial_values(model)
    learned = {variable.path for variable in model.trainable_variables}
    draws = []
    for factor in np.repeat(FACTORS, DRAWS):
        values = draw_values(initial, rng)
        values = {path: factor * value if path in learned else value for path, value in values.items()}
        examples = draw_examples(model, example, rng)
        outputs = call(model, with_statistics(model, values, examples), examples).numpy()
        # Outputs that hardly vary over examples, or are NaN, say nothing about their form.
        if np.ptp(outputs, axis=0).max() > 1e-6 * np.abs(outputs).max() or np.isinf(outputs).any():
            if not _are_probabilities(outputs):
                return
            draws.append(outputs)
    if draws:
        raise InputError(
            "`model` must give logits, since the loss applies the softmax: leave out the softmax or sigmoid at its "
            f"end. Received: outputs from {min(map(np.min, draws)):.2g} to {max(map(np.max, draws)):.2g} for random "
            "weights and inputs"
        )


def _are_probabilities(outputs):
    """Return whether outputs are not negative and have a constant sum, as those of a softmax, or do not exceed 1."""
    if not outputs.min() >= 0:
        return False
    sums = outputs.sum(-1)
    return outputs.max() <= 1 or np.ptp(sums) <= TOLERANCE * np.abs(sums).mean()


def _check_interface(model, shape, classes):
    if not isinstance(model, keras.Model) or not model.built or not getattr(model, "inputs", None):
        raise InputError(
            "`model` must return a Keras model with one input, such as keras.Model(inputs, logits). "
            f"Received: {type(model).__name__}"
        )
    if len(model.inputs) != 1:
        raise InputError(f"`model` must have one input. Received: {len(model.inputs)} inputs")
    received, expected = tuple(model.inputs[0].shape[1:]), tuple(shape)
    if received != expected:
        raise InputError(f"`model` must take inputs of the shape {expected} of the data. Received: {received}")
    shapes = [tuple(output.shape) for output in model.outputs]
    expected_shape = (None, classes) if shape != (None,) else (None, None, classes)
    if len(shapes) != 1:
        raise InputError(
            f"`model` must give one tensor of logits of the shape {expected_shape}. Received: {len(shapes)} outputs of "
            f"the shapes {', '.join(map(str, shapes))}"
        )
    if len(shapes[0]) != len(expected_shape) or shapes[0][-1] != classes:
        raise InputError(f"`model` must give one tensor of logits of the shape {expected_shape}. Received: {shapes[0]}")


def check_training(model: Any) -> None:
    """Refuse an optimizer, a loss or training steps of the model: those of the recipe run instead.

    Args:
        model: The result of the user's function; if it is not a Keras model, `check_structure` refuses it.

    Raises:
        InputError: Names the part.
    """
    if not isinstance(model, keras.Model):
        return
    if model.compiled:
        raise InputError(
            "`model` must not be compiled, since the recipe sets the loss and the optimizer: leave out compile(), or "
            "load a model with compile=False. Received: a compiled model"
        )
    for name in ("train_step", "compute_loss"):
        if getattr(type(model), name) is not getattr(keras.Model, name):
            raise InputError(
                f"`model` must train by the steps of the recipe: leave out {name}. Received: {type(model).__name__}, "
                f"which defines {name}"
            )


def _check_penalties(model):
    for variable in model.trainable_variables:
        for name, advice in (
            ("regularizer", "set optimizer.weight_decay in the recipe"),
            ("constraint", "compute the constrained value in `call` of a layer"),
        ):
            value = getattr(variable, name, None)
            if value is not None:
                raise InputError(
                    f"`model` must have no {name}s, which local training does not apply: leave it out and {advice}. "
                    f"Received: {type(value).__name__} on {variable.path}"
                )
    for layer in all_layers(model):
        if getattr(layer, "activity_regularizer", None) is not None:
            raise InputError(
                "`model` must have no activity regularizers, which local training does not apply: leave it out. "
                f"Received: {type(layer.activity_regularizer).__name__} on {layer.name}"
            )


def _check_statistics(model):
    for layer in all_layers(model):
        if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable:
            raise InputError(
                f"`model` must have no running averages of a client's data: give hetero_tf.static_norms(model), which "
                f"replaces them by static batch normalisation; in a custom layer, use "
                f"hetero_tf.layers.static_batch_normalization.StaticBatchNormalization. "
                f"Received: {layer.path}, a BatchNormalization"
            )
        if isinstance(layer, keras.layers.Normalization) and layer.weights:
            raise InputError(
                "`model` must have fixed statistics of its inputs: give Normalization(mean=..., variance=...), or set "
                f"input.mean and input.std in the recipe. Received: {layer.path}, a Normalization that was adapted"
            )
