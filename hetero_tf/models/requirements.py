"""Requirements of a Keras model from a user; refuses parts that a round would ignore."""

import re
import textwrap
from typing import Any

import keras
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.layers.embedding import Embedding
from hetero_tf.models.variables import all_layers

# Operations that keep the values of their first input.
KEEPING = ("Cast", "Identity", "Reshape", "Squeeze")


def has_embedding(model: keras.Model) -> bool:
    """Return True if a model has an embedding, whose inputs are words."""
    return any(isinstance(layer, keras.layers.Embedding | Embedding) for layer in all_layers(model))


def accepts(shape: tuple[int | None, ...], example: tuple[int | None, ...]) -> bool:
    """Return True if an input of a shape, in which None is any size, takes examples."""
    return len(shape) == len(example) and all(expected in (None, size) for expected, size in zip(shape, example))


def check_structure(model: Any, shape: tuple[int | None, ...], classes: int) -> None:
    """Refuse a model that cannot be cut, trained or exported, by its layers and shapes.

    Args:
        shape: Shape of one input without the batch axis.

    Raises:
        InputError: Names the layer or the weight.
    """
    if not isinstance(model, keras.Model) or not model.built or not getattr(model, "inputs", None):
        raise InputError(
            "`model` must return a Keras model with one input, such as keras.Model(inputs, logits). "
            f"Received: {type(model).__name__}"
        )
    inputs, outputs = [tuple(x.shape[1:]) for x in model.inputs], [tuple(x.shape) for x in model.outputs]
    if len(inputs) != 1 or not accepts(inputs[0], shape):
        raise InputError(f"`model` must have one input, of the shape {tuple(shape)} of the data. Received: {inputs}")
    logits = (None, classes) if shape != (None,) else (None, None, classes)
    is_packed = getattr(model.outputs[0]._keras_history.operation, "IS_PACKED", False)
    if not is_packed and (len(outputs) != 1 or len(outputs[0]) != len(logits) or outputs[0][-1] != classes):
        raise InputError(f"`model` must give logits of the shape {logits} for classes={classes}. Received: {outputs}")
    for variable in model.trainable_variables:
        if getattr(variable, "constraint", None) is not None:
            raise InputError(
                "`model` must have no constraints, which local training does not apply: compute the constrained value "
                f"in `call` of a layer. Received: {type(variable.constraint).__name__} on {variable.path}"
            )
    for layer in all_layers(model):
        if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable:
            raise InputError(
                "`model` must have no running averages of a client's data: use hetero_tf.static_norms(model), which "
                "replaces them by static batch normalisation; in a custom layer, use "
                f"hetero_tf.layers.static_batch_normalization.StaticBatchNormalization. Received: {layer.path}, a "
                "BatchNormalization"
            )
    if not model.trainable_variables:
        raise InputError("`model` must have something to train. Received: a model without trainable weights")
    paths = [variable.path for variable in model.weights]
    twice = sorted({path for path in paths if paths.count(path) > 1})
    if twice:
        raise InputError(f"`model` must give its layers different names. Received: two weights named {twice[0]}")


def check_behavior(model: keras.Model) -> None:
    """Refuse a model that ends in probabilities, by a trace of its call in training.

    Args:
        model: A model that `check_structure` accepts.

    Raises:
        InputError: Describes the output of the model, or its failure.
    """
    spec = tf.TensorSpec(model.inputs[0].shape, model.inputs[0].dtype)
    call = tf.function(lambda inputs: model(inputs, training=True), autograph=False)
    try:
        outputs = call.get_concrete_function(spec).structured_outputs
    # Layers of other libraries raise many types of errors.
    except Exception as error:
        shape = tuple(model.inputs[0].shape)
        raise InputError(
            f"`model` must run in training on inputs of the shape {shape}. Received: {describe_failure(error)}"
        ) from error
    if not isinstance(outputs, tf.Tensor):
        raise InputError(f"`model` must return one tensor of logits. Received: a {type(outputs).__name__} of tensors")
    operation = outputs.op
    while operation.type in KEEPING:
        operation = operation.inputs[0].op
    # Keras computes a hard sigmoid as relu6(x + 3) / 6.
    is_hard = operation.type in ("Mul", "RealDiv") and operation.inputs[0].op.type == "Relu6"
    if is_hard or operation.type in ("Sigmoid", "Softmax"):
        raise InputError(
            "`model` must give logits, since the loss applies the softmax: leave out the softmax or sigmoid at its "
            f"end. Received: the outputs of {operation.name}"
        )


def describe_failure(error: Exception) -> str:
    """Return the type and the beginning of the text of an error of Keras, which prints some in bold."""
    return textwrap.shorten(re.sub(r"\x1b\[\d+m", "", f"{type(error).__name__}: {error}"), 400)


def check_training(model: Any) -> None:
    """Refuse training steps of the model, since those of the program run instead.

    Args:
        model: The result of the user's function; if it is not a Keras model, `check_structure` refuses it.

    Raises:
        InputError: Names the parts.
    """
    if not isinstance(model, keras.Model):
        return
    names = ("train_step", "compute_loss")
    parts = [name for name in names if getattr(type(model), name) is not getattr(keras.Model, name)]
    if parts:
        raise InputError(
            f"`model` must train by the steps of the program: leave out {', '.join(parts)}; for another loss, use "
            f"compile(loss=...) or add_loss. Received: {type(model).__name__}"
        )
