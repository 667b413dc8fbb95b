"""Custom layers with weights that are never trained, for `--plugin constant_layers`."""

import keras
import tensorflow as tf

from hetero_tf.layers.stacked import keras_layer


class FrozenDense(keras.layers.Layer):
    """`relu(x @ kernel)` with a kernel that keeps its initial values.

    Args:
        units: how many features.
        clients: Clients computed at once, supplied by the model builder.

    Input shape: `(batch, n)`. Output shape: `(batch, units)`.
    """

    def __init__(self, units: int, clients: int = 1, **kwargs):
        super().__init__(**kwargs)
        self.units, self.clients = units, clients

    def build(self, input_shape):
        make = keras_layer("Dense", self.clients)
        self.dense = make(self.units, use_bias=False, name="dense", dtype=self.dtype_policy)
        self.dense.trainable = False
        self.dense.build(input_shape)

    def call(self, inputs):
        return tf.nn.relu(self.dense(inputs))

    def compute_output_shape(self, input_shape):
        return self.dense.compute_output_shape(input_shape)


class PositionTable(keras.layers.Layer):
    """Adds a constant to every position and channel: weights `table` and, for a scale, `gain` of the channels.

    Input and output shape: `(batch, height, width, channels)`.
    """

    def build(self, input_shape):
        self.table = self.add_weight(shape=input_shape[1:], initializer="random_normal", trainable=False, name="table")
        self.gain = self.add_weight(shape=input_shape[-1:], initializer="uniform", trainable=False, name="gain")

    def call(self, inputs):
        return (inputs + tf.convert_to_tensor(self.table)) * (1 + 10 * tf.convert_to_tensor(self.gain))


class Counter(keras.layers.Layer):
    """Counts its calls in training, without declaring the counter."""

    def build(self, input_shape):
        self.seen = self.add_weight(shape=(), initializer="zeros", trainable=False, name="seen")

    def call(self, inputs, training=False):
        if training:
            self.seen.assign(self.seen + 1)
        return inputs


class Lookup(keras.layers.Layer):
    """Permutes channels by a table of whole numbers.

    Args:
        stored: Whether the table is a weight.
    """

    def __init__(self, stored: bool = True, **kwargs):
        super().__init__(**kwargs)
        self.stored = stored

    def build(self, input_shape):
        self.order = tf.ones(input_shape[-1:], tf.int32)
        if self.stored:
            self.order = self.add_weight(
                shape=input_shape[-1:], initializer="ones", dtype="int32", trainable=False, name="order"
            )

    def call(self, inputs):
        return tf.gather(inputs, tf.convert_to_tensor(self.order), axis=-1)
