"""The two layouts of the activations of several clients.

Channel form: `(batch, ..., clients * channels)`, client by client. Leading form: `(clients, batch, ..., channels)`.
"""

import tensorflow as tf


def is_leading(shape: tuple, clients: int) -> bool:
    """Return True if `shape` is the leading form. A single client has neither form."""
    return clients > 1 and len(shape) > 1 and shape[0] == clients


def leading_shape(shape: tuple, clients: int) -> tuple:
    """Return the leading form of a shape; `ValueError` if the channels are not divisible by the number of clients."""
    if is_leading(shape, clients):
        return tuple(shape)
    if shape[-1] is None or shape[-1] % clients:
        raise ValueError(f"the last axis must be divisible by {clients} clients. Received: shape={tuple(shape)}")
    return (clients, *shape[:-1], shape[-1] // clients)


def to_leading(inputs: tf.Tensor, clients: int) -> tf.Tensor:
    """Convert channel form to leading form; all axes except the batch must be static."""
    rank = inputs.shape.rank
    by_client = tf.reshape(inputs, [-1, *inputs.shape[1:-1], clients, inputs.shape[-1] // clients])
    return tf.transpose(by_client, [rank - 1, *range(rank - 1), rank])


def to_channels(inputs: tf.Tensor, clients: int) -> tf.Tensor:
    """Convert leading form to channel form; all axes except the batch must be static."""
    rank = inputs.shape.rank
    transposed = tf.transpose(inputs, [*range(1, rank - 1), 0, rank - 1])
    return tf.reshape(transposed, [-1, *inputs.shape[2:-1], clients * inputs.shape[-1]])
