"""Random weights and examples for a Keras model, which test its behavior before training."""

from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.layers.embedding import Embedding
from hetero_tf.models.variables import all_layers, is_seed, queried

LARGEST_BATCH, VALUES_OF_A_BATCH = 32, 500_000


def call(
    model: keras.Model, values: Mapping[str, np.ndarray | tf.Tensor], examples: np.ndarray | tf.Tensor
) -> tf.Tensor:
    """Return the float32 outputs of a model in inference with other values of its weights.

    Args:
        model: Keras model with one output.
        values: By path; the other variables keep their values.
        examples: Batch of inputs.
    """
    outputs, _ = model.stateless_call(*_in_order(model, values), examples, training=False)
    return tf.cast(outputs, tf.float32)


def with_statistics(
    model: keras.Model, values: Mapping[str, np.ndarray], examples: np.ndarray
) -> dict[str, np.ndarray]:
    """Return values in which the statistics of static batch normalization are those of a batch.

    With random statistics, signals would vanish in a deep model.

    Args:
        model: Keras model with one output.
        values: All of its weights by path.
        examples: Batch of inputs.
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
