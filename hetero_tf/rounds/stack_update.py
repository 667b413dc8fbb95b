"""Cut and local training of the clients of one stack, inside the graph of a round."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

from hetero_tf.inputs import Input, Labels, all_labels
from hetero_tf.rounds.batches import build_batches
from hetero_tf.rounds.buffers import Epochs
from hetero_tf.rounds.cut import Cut, coordinates, inverse, merged_rows, take
from hetero_tf.rounds.engine import Engine
from hetero_tf.rounds.local_training import LocalOptimizer, LocalResult, train_locally


@dataclass(frozen=True)
class RoundParts:
    """What a round is made of.

    Attributes:
        models: Whole Keras models, one per sub-model of the mix.
        engine: `engines.Engine`: how the clients of each sub-model are computed.
        cut: Where the models' values lie in the global model.
        keep, objective, couple, server: The functions of the recipe's plug-ins.
        correct, remember: Those of its correction; None where there is none, or none that remembers.
        optimizer: `local_training.LocalOptimizer`.
        input: How examples become batches.
        x, y: The stored training split.
        labels: int32 [clients, kept], each client's labels with -1 behind them; None: all sub-models keep all labels.
        present: bool [clients, classes or kept], which of the kept labels a client has.
        counts: float [clients], what each client counts in the merge; None: one.
        merged: For each variable and sub-model, after how many stages its clients count for the variable; 0: never.
        all_rows: Whether the rows of labels that a client lacks are merged too.
        personal: Positions of the variables that stay with the clients.
        kinds: `batches.Batches.kinds`: (examples, positions) of every batch that can occur, or (None,).
        epochs: `buffers.Epochs` of the clients.
        parallel: Stacks in flight at once.
    """

    models: tuple
    engine: Engine
    cut: Cut
    keep: Callable
    objective: Callable
    couple: Callable
    correct: Callable | None
    remember: Callable | None
    optimizer: LocalOptimizer
    server: Callable
    input: Input
    x: tf.Tensor
    y: tf.Tensor | None
    labels: tf.Tensor | None
    present: tf.Tensor
    counts: tf.Tensor | None
    merged: tuple
    all_rows: bool
    personal: tuple
    kinds: tuple
    epochs: Epochs
    parallel: int


@dataclass(frozen=True)
class StackPlan:
    """What one stack of clients does in a round.

    Attributes:
        clients: int32 [K]; -1 = empty place.
        members: int32 [K], which network of an ensemble each of them trains.
        ticks, rows, starts, stages: As in `packing.PackedRounds`, of this stack.
    """

    clients: tf.Tensor
    members: tf.Tensor
    ticks: tf.Tensor
    rows: tf.Tensor
    starts: tf.Tensor
    stages: tf.Tensor


@dataclass(frozen=True)
class StackUpdate:
    """A stack's part of the merge.

    Attributes:
        local: `clients.LocalResult`.
        places: For each client the coordinates that it has.
        rows: For each client the coordinates that are merged.
        memory: [K, values], what the clients' correction remembers, or None.
    """

    local: object
    places: list
    rows: list
    memory: tf.Tensor | None


def train_stack(parts, submodel, weights, tables, round, seed, work, learning_rate):
    """Cuts the sub-models of a stack's clients, trains them and says where their values belong.

    Args:
        parts: `RoundParts`.
        submodel: Position of the sub-model in the mix, a Python int.
        weights: Global tensors.
        tables: What clients keep between rounds, see `rounds.build_round`.
        round, seed: Scalar int32.
        work: `StackPlan`.
        learning_rate: Scalar.

    Returns:
        `StackUpdate`.
    """
    stack = parts.engine.stacks[submodel]
    # An empty place does no step, but its tables are looked up.
    clients = tf.unstack(tf.maximum(work.clients, 0), num=stack.clients)
    members = tf.unstack(work.members, num=stack.clients)
    own = [_own_labels(parts, client) for client in clients]
    where = [
        coordinates(parts.cut, submodel, parts.keep, round, client, seed, labels, member)
        for client, labels, member in zip(clients, own, members)
    ]
    present = tf.gather(parts.present, tf.stack(clients))
    key = tf.stack([tf.stack([seed, round, client]) for client in clients])
    axis = all_labels(parts.present.shape[1]) if parts.labels is None else _label_axis(parts, own)

    def packed(values):
        return stack.to_rows(
            [take(parts.cut, submodel, values(client), places) for client, places in zip(clients, where)]
        )

    start = packed(lambda client: own_values(weights, tables["personal"], client))
    memory = [packed(lambda client: [table[client] for table in tables["memory"].values()])] if parts.remember else []

    def train(start, memory, present, round, key, learning_rate, *steps):
        correct, learned = None, start[:, : stack.parameters]
        memory = memory[0][:, : stack.parameters] if memory else None
        if parts.correct is not None:
            correct = functools.partial(parts.correct, start=learned, memory=memory, slots=())
        local = train_locally(
            stack,
            _objective(parts, axis, present, round),
            correct,
            parts.optimizer,
            build_batches(parts, stack.clients, steps, axis),
            start,
            learning_rate,
            key,
        )
        after = []
        if memory is not None:
            trained = local.weights[:, : stack.parameters]
            after = [parts.remember(memory, trained, learned, (), local.steps, learning_rate)]
        # Running statistics stand behind the trainable values of a row; nothing is remembered about them.
        after = [tf.pad(value, [[0, 0], [0, start.shape[1] - stack.parameters]]) for value in after]
        return local.weights, local.losses, local.gradient_norms, local.steps, after

    if parts.engine.compiled:
        train = tf.function(train, jit_compile=True, autograph=False)
    *local, after = train(
        start, memory, present, round, key, learning_rate, work.ticks, work.rows, work.starts, work.stages
    )
    rows = tf.ones_like(present) if parts.all_rows else present
    merged = [merged_rows(parts.cut, places, rows[place]) for place, places in enumerate(where)]
    return StackUpdate(LocalResult(*local), where, merged, after[0] if after else None)


def own_values(weights, table, client):
    """The global values, but a client's own where it keeps some: `table` is `{position: [clients, ...]}`."""
    return [table[place][client] if place in table else value for place, value in enumerate(weights)]


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
    places = tf.stack([tf.minimum(inverse(labels, _classes(parts)), count - 1) for labels in own])
    return Labels(local=lambda targets: tf.gather(places, targets, batch_dims=1), count=count)


def _objective(parts, axis, present, round):
    """`(outputs, targets) -> [K]`, each client's mean."""

    def loss(logits, targets):
        shape = [present.shape[0], *[1] * (logits.shape.rank - 2), present.shape[1]]
        return parts.objective(logits, targets, tf.reshape(present, shape), _classes(parts) - axis.count)

    def objective(outputs, targets):
        losses = parts.couple([loss(logits, targets) for logits in outputs], outputs, targets, round)
        return tf.reduce_mean(losses, axis=list(range(1, losses.shape.rank)))

    return objective
