"""Static batch normalisation (sBN): statistics are computed once, after training."""

import keras
import tensorflow as tf

from hetero_tf.base.constraints import Epsilon
from hetero_tf.base.written_gradient import written_gradient
from hetero_tf.layers.stacked.forms import SameShape, sum_axes


def normalize(inputs: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Normalise per channel, with an explicit gradient.

    TensorFlow's fused kernel is slightly faster, but loses two digits in float32, which small batches amplify.
    Automatic differentiation of moments keeps the digits and is several times slower.

    Args:
        inputs: `(batch, ..., channels)`.
        gamma, beta: `(channels,)`.
        epsilon: Added to the variance.

    Returns:
        outputs, mean and unbiased variance. Gradients flow through the outputs only.
    """
    # A static count avoids operations for the batch size in each of dozens of norms.
    static_count = inputs.shape[:-1].num_elements()
    count = tf.cast(tf.reduce_prod(tf.shape(inputs)[:-1]) if static_count is None else static_count, inputs.dtype)
    outputs, mean, biased = _normalized(inputs, gamma, beta, count=count, epsilon=epsilon)
    correction = count / tf.maximum(count - 1, 1) if static_count is None else static_count / max(static_count - 1, 1)
    return outputs, mean, biased * correction


@written_gradient
def _normalized(inputs, gamma, beta, *, count, epsilon):
    axis = tf.constant(-2)
    mean = sum_axes(inputs, axis, 1) / count
    centred = inputs - mean
    variance = sum_axes(tf.square(centred), axis, 1) / count
    inverse = 1 / tf.sqrt(variance + epsilon)

    def gradient(upstream, *_):
        # A separate function, such as the gradient of a block, would capture the forward constant as an input.
        axis = tf.constant(-2)
        for_beta = sum_axes(upstream, axis, 1)
        for_gamma = sum_axes(upstream * centred, axis, 1) * inverse
        for_inputs = (upstream - for_beta / count - centred * (for_gamma * inverse / count)) * (gamma * inverse)
        return for_inputs, for_gamma, for_beta

    return (centred * (gamma * inverse) + beta, mean, variance), gradient


@keras.saving.register_keras_serializable("hetero_tf")
class StaticBatchNormalization(SameShape):
    """Batch normalisation without running averages.

    Training normalises with the moments of the batch and assigns them to `mean` and `variance` (unbiased). Local
    training discards all non-trainable state, so no statistics of activations leave the client.
    `predictor.StatisticsQuery` averages the moments over one pass of the data. Inference uses the two variables.

    Args:
        epsilon: Positive float, added to the variance.

    Attributes:
        QUERIED: Attributes of variables that local steps discard, and that are computed after training.
        group_size: In training, consecutive groups of this number of examples are normalised separately, and the
            variables get the mean of the groups' moments: many small batches in one call. None: one group.

    Input and output shape: `(batch, ..., channels)`; moments are per channel.
    Reference: HeteroFL (arXiv 2010.01264), section 3.2; unbiased variance as in the authors' code.
    """

    QUERIED = ("mean", "variance")
    GEOMETRY = {"outputs": "inputs"}

    def __init__(self, epsilon: Epsilon = 1e-5, **kwargs):
        super().__init__(**kwargs)
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
        """Normalise consecutive groups of examples separately; return outputs, average mean and unbiased variance."""
        shape, size = tf.shape(inputs), self.group_size
        grouped = tf.reshape(inputs, tf.concat([[-1, size], shape[1:]], 0))
        mean, biased = tf.nn.moments(grouped, list(range(1, inputs.shape.rank)), keepdims=True)
        factor = gamma * tf.math.rsqrt(biased + self.epsilon)
        outputs = tf.reshape(grouped * factor + (beta - mean * factor), shape)
        count = tf.cast(size * tf.reduce_prod(shape[1:-1]), inputs.dtype)
        variance = biased * (count / tf.maximum(count - 1, 1))
        channels = [-1, inputs.shape[-1]]
        return outputs, *(tf.reduce_mean(tf.reshape(value, channels), 0) for value in (mean, variance))
