"""Keras layers with products for the mixed policy: the bias is added, and its gradient summed, in float32.

Keras adds a bias with `tf.nn.bias_add`. Its gradient on a CPU (TensorFlow 2.21) is a running sum in the type of the
inputs: in bfloat16 it stops growing after a few hundred values.
"""

import keras


class _FloatBias(keras.layers.Layer):
    """Excludes the variable `bias` from Keras' cast to bfloat16."""

    def add_weight(self, *args, name=None, **kwargs):
        return super().add_weight(*args, name=name, autocast=name != "bias", **kwargs)


@keras.saving.register_keras_serializable("hetero_tf")
class MixedConv2D(_FloatBias, keras.layers.Conv2D):
    """`keras.layers.Conv2D` with a float32 bias; outputs are float32 with a bias, bfloat16 without."""


@keras.saving.register_keras_serializable("hetero_tf")
class MixedDense(_FloatBias, keras.layers.Dense):
    """`keras.layers.Dense` with a float32 bias; outputs are float32 with a bias, bfloat16 without."""
