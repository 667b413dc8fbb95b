"""Cut and local training of the clients of one stack, inside the graph of a round."""

from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

from hetero_tf import cut as cuts
from hetero_tf.clients import Batches, LocalResult, train_locally
from hetero_tf.engines import Engine
from hetero_tf.inputs import Input, Labels, all_labels
from hetero_tf.recipe.schema import Optimizer


@dataclass(frozen=True)
class RoundParts:
    """What a round is made of.

    Attributes:
        models: Keras models, one per level of the mix.
        engine: `engines.Engine`: how the clients of each level are computed.
        cut: Where the models' variables lie in the global model.
        keep, objective, merge, server: The functions of the recipe's plug-ins.
        optimizer: Local SGD.
        input: How examples become batches.
        x, y: The stored training split.
        labels: int32 [clients, kept], each client's labels with -1 behind them; None: all levels keep all labels.
        present: bool [clients, classes or kept], which of the kept labels a client has.
        kinds: `clients.Batches.kinds`: (examples, positions) of every batch that can occur, or (None,).
        parallel: Stacks in flight at once.
    """

    models: tuple
    engine: Engine
    cut: cuts.Cut
    keep: Callable
    objective: Callable
    optimizer: Optimizer
    merge: Callable
    server: Callable
    input: Input
    x: tf.Tensor
    y: tf.Tensor | None
    labels: tf.Tensor | None
    present: tf.Tensor
    kinds: tuple
    parallel: int


@dataclass(frozen=True)
class StackUpdate:
    """A stack's part of the merge: its `clients.LocalResult` and, per client, the coordinates that are merged."""

    local: object
    rows: list


def train_stack(parts, level, weights, clients, round, seed, work, learning_rate):
    """Cuts the sub-models of a stack's clients, trains them and says where their values belong.

    Args:
        parts: `RoundParts`.
        level: Position in the mix, a Python int.
        weights: Global tensors.
        clients: int32 [K]; -1 = empty place.
        round, seed: Scalar int32.
        work: (ticks, rows [K, ticks, batch], starts [ticks]) of this stack, as in `packing.Packed`.
        learning_rate: Scalar.

    Returns:
        `StackUpdate`.
    """
    stack = parts.engine.stacks[level]
    # An empty place does no step, but its tables are looked up.
    clients = tf.unstack(tf.maximum(clients, 0), num=stack.clients)
    own = [_own_labels(parts, client) for client in clients]
    where = [cuts.coordinates(parts.cut, level, parts.keep, round, client, seed, labels)
             for client, labels in zip(clients, own)]
    present = tf.gather(parts.present, tf.stack(clients))
    key = tf.stack([tf.stack([seed, round, client]) for client in clients])
    axis = all_labels(parts.present.shape[1]) if parts.labels is None else _label_axis(parts, own)
    start = stack.pack([cuts.take(parts.cut, weights, places) for places in where])

    def train(start, present, key, learning_rate, *work):
        local = train_locally(stack, _objective(parts, axis, present), parts.optimizer,
                              _batches(parts, stack.clients, work, axis), start, learning_rate, key)
        return local.weights, local.losses, local.gradient_norms

    if parts.engine.compiled:
        train = tf.function(train, jit_compile=True, autograph=False)
    local = LocalResult(*train(start, present, key, learning_rate, *work))
    return StackUpdate(local, [cuts.merged_rows(parts.cut, places, present[place])
                               for place, places in enumerate(where)])


def _own_labels(parts, client):
    """The labels of a client's label axis, -1 = padding."""
    return tf.range(parts.present.shape[1]) if parts.labels is None else tf.gather(parts.labels, client)


def _classes(parts):
    """Length of the global label axis."""
    return parts.present.shape[1] if parts.labels is None else next(a for a in parts.cut.distinct if a.label).size


def _label_axis(parts, own):
    """`Labels` of clients whose label axes are cut: label -> position among the client's own."""
    count = own[0].shape[0]
    # An idle client reads an example of somebody else, whose label it may not have.
    places = tf.stack([tf.minimum(cuts.inverse(labels, _classes(parts)), count - 1) for labels in own])
    return Labels(local=lambda targets: tf.gather(places, targets, batch_dims=1), count=count)


def _objective(parts, axis, present):
    """`(logits, targets) -> [K]`, each client's mean."""
    def objective(logits, targets):
        shape = [present.shape[0], *[1] * (logits.shape.rank - 2), present.shape[1]]
        losses = parts.objective(logits, targets, tf.reshape(present, shape), _classes(parts) - axis.count)
        return tf.reduce_mean(losses, axis=list(range(1, losses.shape.rank)))

    return objective


def _batches(parts, clients, work, axis):
    """The `clients.Batches` of a stack."""
    ticks, rows, starts = work

    def counts(tick):
        return tf.math.count_nonzero(rows[:, tick] >= 0, axis=1, dtype=tf.int32)

    def read(tick, key, kind):
        count, length = (tf.reduce_max(counts(tick)), None) if kind is None else kind
        chosen = tf.maximum(rows[:, tick, :count], 0)
        return parts.input.batch(parts.x, parts.y, chosen, starts[tick], key, axis, training=True, length=length)

    def choose(tick):
        found = tf.stack([tf.reduce_max(counts(tick)), parts.input.length(parts.x, starts[tick])])
        return tf.argmax(tf.reduce_all(found == tf.constant(parts.kinds), axis=1), output_type=tf.int32)

    active = (lambda tick: counts(tick) > 0) if clients > 1 else None
    return Batches(read, active, parts.kinds, choose, ticks, tf.shape(rows)[1])
