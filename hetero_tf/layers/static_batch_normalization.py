"""Static batch normalisation (sBN): statistics are gathered once, after training."""

import keras
import tensorflow as tf

from hetero_tf.base.constraints import Epsilon
from hetero_tf.base.written_gradient import written_gradient


def normalize(inputs: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Normalises per channel, with a gradient written out.

    TensorFlow's fused kernel is a little faster but loses two digits in float32, which small batches amplify;
    automatic differentiation of moments keeps the digits and is several times slower.

    Args:
        inputs: `(batch, ..., channels)`.
        gamma, beta: `(channels,)`.
        epsilon: Added to the variance.

    Returns:
        outputs, mean and unbiased variance. Gradients flow through the outputs only.
    """
    # A graph that knows the batch needs no operations for its size, in each of dozens of norms.
    known = inputs.shape[:-1].num_elements()
    count = tf.cast(tf.reduce_prod(tf.shape(inputs)[:-1]) if known is None else known, inputs.dtype)
    outputs, mean, biased = _normalized(inputs, gamma, beta, count=count, epsilon=epsilon)
    return outputs, mean, biased * (count / tf.maximum(count - 1, 1) if known is None else known / max(known - 1, 1))


@written_gradient
def _normalized(inputs, gamma, beta, *, count, epsilon):
    axis = tf.constant(-2)
    mean = _sum(inputs, axis) / count
    centred = inputs - mean
    variance = _sum(tf.square(centred), axis) / count
    inverse = 1 / tf.sqrt(variance + epsilon)

    def gradient(upstream, *_):
        # In a function of its own, as the gradient of a block is, the constant of the forward pass is no constant.
        axis = tf.constant(-2)
        for_beta = _sum(upstream, axis)
        for_gamma = _sum(upstream * centred, axis) * inverse
        for_inputs = (upstream - for_beta / count - centred * (for_gamma * inverse / count)) * (gamma * inverse)
        return for_inputs, for_gamma, for_beta

    return (centred * (gamma * inverse) + beta, mean, variance), gradient


def _sum(values, axis):
    """The sum per channel, one `axis` after the other: short sums lose far fewer digits than one long sum."""
    while values.shape.rank > 1:
        values = tf.reduce_sum(values, axis)
    return values


@keras.saving.register_keras_serializable("hetero_tf")
class StaticBatchNormalization(keras.layers.Layer):
    """Batch normalisation without running averages.

    Training normalises with the moments of the batch and leaves them in `mean` and `variance` (the unbiased one).
    Local training drops all non-trainable state, so nothing about a client's activations leaves the client;
    `calibration.build_calibrate` averages them over one pass of the data. Inference uses what stands there.

    Args:
        epsilon: Positive float, added to the variance.

    Attributes:
        QUERIED: Attributes with the variables that a local step throws away, and that are queried after training.
        group_size: While training, consecutive groups of so many examples are normalised separately and the mean
            of the groups' moments is left behind: many small batches in one call. None: the batch is one group.

    Input and output shape: `(batch, ..., channels)`; moments are per channel.
    Reference: HeteroFL (arXiv 2010.01264), section 3.2; unbiased variance as in the authors' code.
    """

    QUERIED = ("mean", "variance")

    def __init__(self, epsilon: Epsilon = 1e-5, **kwargs):
        super().__init__(**kwargs)
        if epsilon <= 0:
            raise ValueError(f"`epsilon` must be positive. Received: epsilon={epsilon}")
        self.epsilon = epsilon
        self.group_size = None

    def build(self, input_shape: tuple) -> None:
        shape = (input_shape[-1],)
        self.gamma = self.add_weight(shape=shape, initializer="ones", name="gamma")
        self.beta = self.add_weight(shape=shape, initializer="zeros", name="beta")
        self.mean = self.add_weight(shape=shape, initializer="zeros", name="mean", trainable=False)
        self.variance = self.add_weight(shape=shape, initializer="ones", name="variance", trainable=False)

    def call(self, inputs: tf.Tensor, training: bool | None = False) -> tf.Tensor:
        gamma, beta = tf.convert_to_tensor(self.gamma), tf.convert_to_tensor(self.beta)
        if not training:
            factor = gamma * tf.math.rsqrt(tf.convert_to_tensor(self.variance) + self.epsilon)
            return inputs * factor + (beta - self.mean * factor)
        if self.group_size is None:
            outputs, mean, variance = normalize(inputs, gamma, beta, self.epsilon)
        else:
            outputs, mean, variance = self._normalize_groups(inputs, gamma, beta)
        self.mean.assign(mean)
        self.variance.assign(variance)
        return outputs

    def _normalize_groups(self, inputs, gamma, beta):
        """Consecutive groups of examples apart: outputs, and the groups' average mean and unbiased variance."""
        shape, size = tf.shape(inputs), self.group_size
        grouped = tf.reshape(inputs, tf.concat([[-1, size], shape[1:]], 0))
        mean, biased = tf.nn.moments(grouped, list(range(1, inputs.shape.rank)), keepdims=True)
        factor = gamma * tf.math.rsqrt(biased + self.epsilon)
        outputs = tf.reshape(grouped * factor + (beta - mean * factor), shape)
        count = tf.cast(size * tf.reduce_prod(shape[1:-1]), inputs.dtype)
        variance = biased * (count / tf.maximum(count - 1, 1))
        channels = [-1, inputs.shape[-1]]
        return outputs, *(tf.reduce_mean(tf.reshape(value, channels), 0) for value in (mean, variance))

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape
