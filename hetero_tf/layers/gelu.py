"""GELU: the Gaussian error linear unit, exact or in the approximation of most Flax models."""

import math
from typing import Literal

import keras
import tensorflow as tf

from hetero_tf.layers.stacked.forms import SameShape

Form = Literal["exact", "tanh"]


@keras.saving.register_keras_serializable("hetero_tf")
class GELU(SameShape):
    """`x * P(z <= x)` for a standard normal z, by the error function.

    `tf.nn.gelu` rounds sqrt(2) to float32, which loses half of the digits in float64.

    Args:
        form: exact; or tanh, the approximation `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.

    Input and output shape: any, equal.
    Reference: Hendrycks and Gimpel 2016 (arXiv 1606.08415).
    """

    GEOMETRY = {"outputs": "inputs"}

    def __init__(self, form: Form = "exact", **kwargs):
        super().__init__(**kwargs)
        self.form = form
        self.erf = tf.math.erf

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if self.form == "tanh":
            return 0.5 * inputs * (1 + tf.tanh(math.sqrt(2 / math.pi) * (inputs + 0.044715 * inputs**3)))
        return 0.5 * inputs * (1 + self.erf(inputs * 0.5**0.5))
