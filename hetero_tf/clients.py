"""Local training of one client: plain SGD steps inside the graph."""

from dataclasses import dataclass

import tensorflow as tf

from hetero_tf import noise
from hetero_tf.models import is_seed


@dataclass(frozen=True)
class LocalResult:
    """What local training leaves.

    Attributes:
        weights: The client's trained sub-model, in model order.
        losses: [steps], before each update.
        gradient_norms: [steps], L2 norm of all gradients before clipping.
    """

    weights: list
    losses: tf.Tensor
    gradient_norms: tf.Tensor


def train_locally(model, objective, optimizer, batch, steps, weights, learning_rate, key):
    """Runs a client's SGD steps in a loop of the graph.

    Args:
        model: Keras model of the client's level; only its structure is used.
        objective: `(logits, targets) -> scalar`.
        optimizer: `recipe.schema.Optimizer`.
        batch: `step -> (inputs, targets)`.
        steps: Scalar int32; 0 leaves the weights as they are.
        weights: The sub-model's starting values, in model order.
        learning_rate: Scalar.
        key: int32 vector (seed, round, client) for dropout.

    Returns:
        `LocalResult`.
    """
    dtype = weights[0].dtype
    record = tf.TensorArray(dtype, size=steps)

    def step(index, weights, momenta, losses, norms):
        inputs, targets = batch(index)
        state = _state(model, tf.concat([key, index[None]], 0))
        with tf.GradientTape() as tape:
            tape.watch(weights)
            logits, _ = model.stateless_call(weights, state, inputs, training=True)
            loss = objective(logits, targets)
        gradients = tape.gradient(loss, weights, unconnected_gradients="zero")
        # Some gradients come as slices or without their static shape, which the loop insists on.
        gradients = [tf.ensure_shape(gradient, value.shape) for gradient, value in zip(gradients, weights)]
        norm = tf.linalg.global_norm(gradients)
        weights, momenta = sgd(weights, momenta, gradients, norm, learning_rate, optimizer)
        return index + 1, weights, momenta, losses.write(index, loss), norms.write(index, norm)

    start = (0, weights, [tf.zeros_like(value) for value in weights], record, record)
    _, weights, _, losses, norms = tf.while_loop(lambda index, *_: index < steps, step, start, parallel_iterations=1)
    return LocalResult(weights, losses.stack(), norms.stack())


def sgd(weights, momenta, gradients, norm, learning_rate, optimizer):
    """One step: clip, add weight decay, accumulate momentum, move.

    `g = gradient * min(1, clip_norm / (norm + 1e-6)) + weight_decay * w`, `v = momentum * v + g`,
    `w = w - learning_rate * v`, as PyTorch's SGD behind clip_grad_norm_ does. Weight decay is neither clipped nor
    decoupled, and applies to every variable.
    """
    dtype = weights[0].dtype
    factor = tf.ones([], dtype)
    if optimizer.clip_norm is not None:
        factor = tf.minimum(factor, optimizer.clip_norm / (norm + 1e-6))
    momenta = [optimizer.momentum * v + (g * factor + optimizer.weight_decay * w)
               for w, v, g in zip(weights, momenta, gradients)]
    return [w - learning_rate * v for w, v in zip(weights, momenta)], momenta


def _state(model, key):
    """Non-trainable values for one step: dropout seeds from `key`, zeros for what a round throws away."""
    state = []
    for place, variable in enumerate(model.non_trainable_variables):
        if is_seed(variable):
            bits = noise.hashed(tf.concat([key, [place]], 0), 2)
            state.append(tf.cast(tf.bitwise.right_shift(bits, tf.constant(1, tf.uint32)), variable.dtype))
        else:
            state.append(tf.zeros(variable.shape, variable.dtype))
    return state
