"""The two forms of a stack's activations.

Channel form: `(batch, ..., clients * channels)`, client by client. Leading form: `(clients, batch, ..., channels)`.
"""

import tensorflow as tf


def is_leading(shape: tuple, clients: int) -> bool:
    """Whether a layer that is built for `shape` gets the leading form. One client alone has no form."""
    return clients > 1 and len(shape) > 1 and shape[0] == clients


def leading_shape(shape: tuple, clients: int) -> tuple:
    """The leading form of a shape in either form; `ValueError` where the channels are not those of all clients."""
    if is_leading(shape, clients):
        return tuple(shape)
    if shape[-1] is None or shape[-1] % clients:
        raise ValueError(f"the last axis must hold the channels of {clients} clients. Received: shape={tuple(shape)}")
    return (clients, *shape[:-1], shape[-1] // clients)


def to_leading(inputs: tf.Tensor, clients: int) -> tf.Tensor:
    """Channel form to leading form; all axes but the batch must have a static size."""
    rank = inputs.shape.rank
    apart = tf.reshape(inputs, [-1, *inputs.shape[1:-1], clients, inputs.shape[-1] // clients])
    return tf.transpose(apart, [rank - 1, *range(rank - 1), rank])
