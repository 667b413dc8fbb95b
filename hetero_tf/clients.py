"""Local training of the clients of one stack: plain SGD steps inside the graph."""

from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf


@dataclass(frozen=True)
class LocalResult:
    """What local training leaves.

    Attributes:
        weights: [K, parameters], every client's trained sub-model.
        losses: [most, K], before each update; 0 where a client is idle.
        gradient_norms: [most, K], L2 norm of all of a client's gradients before clipping; 0 where it is idle.
    """

    weights: tf.Tensor
    losses: tf.Tensor
    gradient_norms: tf.Tensor


@dataclass(frozen=True)
class Batches:
    """What the clients of a stack read in each tick.

    Attributes:
        read: `(tick, key, kind) -> (inputs, targets)`; key: int32 [K, words]; kind: one of `kinds`.
        active: `tick -> bool [K]`, False for clients that idle; None: nobody ever idles.
        kinds: Every shape that a batch can have, for XLA, which needs them while it compiles; (None,): the shape is
            known when it is read.
        choose: `tick -> position in kinds`.
        ticks: Scalar int32, how many are trained; 0 leaves the weights as they are.
        most: Scalar int32 >= ticks, the length of what is recorded.
    """

    read: Callable
    active: Callable | None
    kinds: tuple
    choose: Callable
    ticks: tf.Tensor
    most: tf.Tensor


def train_locally(stack, objective, optimizer, batches, weights, learning_rate, key):
    """Runs the SGD steps of a stack's clients in a loop of the graph.

    Args:
        stack: `stacks.Stack` of K clients.
        objective: `(logits, targets) -> [K]`.
        optimizer: `recipe.schema.Optimizer`.
        batches: `Batches`.
        weights: [K, parameters], the starting values.
        learning_rate: Scalar.
        key: int32 [K, 3] (seed, round, client) for dropout and masks; each client's own step is added to it.

    Returns:
        `LocalResult`.
    """
    clients, dtype = stack.clients, weights.dtype
    record = tf.TensorArray(dtype, size=batches.most, element_shape=[clients])

    def slope(tick, own, weights, kind):
        inputs, targets = batches.read(tick, own, kind)
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = objective(stack.call(weights, stack.fresh_state(own), inputs), targets)
        gradients = tape.gradient(loss, weights, unconnected_gradients="zero")
        return loss, tf.ensure_shape(gradients, weights.shape)

    def step(tick, done, weights, momenta, losses, norms):
        own = tf.concat([key, done[:, None]], 1)
        branches = [lambda kind=kind: slope(tick, own, weights, kind) for kind in batches.kinds]
        loss, gradients = branches[0]() if len(branches) == 1 else tf.switch_case(batches.choose(tick), branches)
        norm = tf.sqrt(tf.reduce_sum(tf.square(gradients), 1))
        moved, pushed = sgd(weights, momenta, gradients, norm, learning_rate, optimizer)
        if batches.active is None:
            return tick + 1, done + 1, moved, pushed, losses.write(tick, loss), norms.write(tick, norm)
        active = batches.active(tick)
        weights, momenta = (tf.where(active[:, None], new, old) for new, old in ((moved, weights), (pushed, momenta)))
        loss, norm = (tf.where(active, value, tf.zeros_like(value)) for value in (loss, norm))
        return (tick + 1, done + tf.cast(active, tf.int32), weights, momenta, losses.write(tick, loss),
                norms.write(tick, norm))

    start = (0, tf.zeros([clients], tf.int32), weights, tf.zeros_like(weights), record, record)
    _, _, weights, _, losses, norms = tf.while_loop(
        lambda tick, *_: tick < batches.ticks, step, start, parallel_iterations=1)
    return LocalResult(weights, losses.stack(), norms.stack())


def sgd(weights, momenta, gradients, norm, learning_rate, optimizer):
    """One step for every client: clip, add weight decay, accumulate momentum, move.

    `g = gradient * min(1, clip_norm / (norm + 1e-6)) + weight_decay * w`, `v = momentum * v + g`,
    `w = w - learning_rate * v`, as PyTorch's SGD behind clip_grad_norm_ does. Weight decay is neither clipped nor
    decoupled, and applies to every variable.

    Args:
        weights, momenta, gradients: [K, parameters].
        norm: [K].
    """
    if optimizer.clip_norm is not None:
        gradients *= tf.minimum(tf.ones([], weights.dtype), optimizer.clip_norm / (norm + 1e-6))[:, None]
    momenta = optimizer.momentum * momenta + (gradients + optimizer.weight_decay * weights)
    return weights - learning_rate * momenta, momenta
