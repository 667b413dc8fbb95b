"""GELU: the exact Gaussian error linear unit."""

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable("hetero_tf")
class GELU(keras.layers.Layer):
    """`x * P(z <= x)` for a standard normal z, by the error function.

    `tf.nn.gelu` rounds sqrt(2) to float32, which costs half of the digits in float64.

    Input and output shape: any, the same.
    Reference: Hendrycks and Gimpel 2016 (arXiv 1606.08415).
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return 0.5 * inputs * (1 + tf.math.erf(inputs * 0.5**0.5))

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape
