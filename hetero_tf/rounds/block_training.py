"""Cut and local training of one block of clients, inside the graph of a round."""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from hetero_tf.models.state import StateRows
from hetero_tf.planning.packing import BlockPlan
from hetero_tf.rounds.batches import Batches, global_classes, label_axis_of, labels_of
from hetero_tf.rounds.client_tables import read_tables
from hetero_tf.rounds.local_training import NO_CALLS, LocalResult, LocalTraining
from hetero_tf.rounds.merge import trained_values
from hetero_tf.rounds.round_setup import RoundSetup, Submodel
from hetero_tf.rounds.submodel_cut import Coordinates, merged_coordinates
from hetero_tf.rounds.training_step import Objective

# Seconds between calls to the host while one block of clients trains. A call takes about 1 ms.
CALL_SECONDS = 0.25


def build_progress(
    on_progress: Callable[[int, int], None] | None, ticks: tf.Tensor, rows: tf.Tensor
) -> Callable | None:
    """Build the progress callback that a block of clients calls after some ticks, as often as their pace requires.

    Args:
        on_progress: `(steps of these clients since its last call, clients that have finished now)`, called on threads
            of TensorFlow.
        ticks: Scalar int32, number of ticks that the block trains.
        rows: int32 [K, ticks, batch], the examples of its clients; -1 = padding.

    Returns:
        `(tick, calls) -> calls` after the tick; None without `on_progress`. Calls are `NO_CALLS` before the first tick.
    """
    if on_progress is None:
        return None
    # bool [K, ticks], True if a client takes a step.
    active = tf.reduce_any(rows >= 0, axis=2)

    def call(done, calls, steps, clients):
        on_progress(int(steps), int(clients))
        _, last, last_time = calls
        now = time.monotonic()
        # The first call, whose last time is minus infinity, requires a second one after the next tick.
        return np.array([done + max(1, CALL_SECONDS * (done - last) // (now - last_time)), done, now])

    def progress(tick, calls):
        done = tick + 1
        last = done >= ticks

        def report():
            steps = tf.math.count_nonzero(active[:, tf.cast(calls[1], tf.int32) : done], dtype=tf.int32)
            finished = tf.where(last, tf.math.count_nonzero(tf.reduce_any(active, 1), dtype=tf.int32), 0)
            # Stateless for TensorFlow: stateful operations would make all clients wait for each other.
            next_calls = tf.numpy_function(call, [done, calls, steps, finished], tf.float64, stateful=False)
            return tf.ensure_shape(next_calls, [len(NO_CALLS)])

        return tf.cond(last | (tf.cast(done, tf.float64) >= calls[0]), report, lambda: calls)

    return progress


class RoundScalars(NamedTuple):
    """Scalars of one round.

    Attributes:
        number: int32, counted from 0.
        noise: Of a private round, `noise_seeds` and `noise_stds` of `planning.plan.Plan`; else ().
    """

    number: tf.Tensor
    seed: tf.Tensor
    learning_rate: tf.Tensor
    noise: tuple[tf.Tensor, ...] = ()


@dataclass(frozen=True)
class BlockResult:
    """Results of a block's clients.

    Attributes:
        merged: Those of them that are merged.
        completed_stages: int32 [K], see `completed_stages`; None if no value counts only from a later stage on.
        stored: `{table: [K, ...]}`, the clients' rows of the tables before the round.
        memory: [K, values], the new memories of the clients' corrections, or None.
        memory_change: [K, values], the change of the memories, if the server sums it; or None.
        errors: [K, values], what the clients' messages have left out, if the recipe's update stores it; or None.
        updated: [K, values], the values to merge, if the recipe transforms them; or None.
        counted: bool [K, values], the entries that are merged, if the recipe has a mask; or None.
    """

    local: LocalResult
    coordinates: list[Coordinates]
    merged: list[Coordinates]
    completed_stages: tf.Tensor | None
    stored: dict[str, tf.Tensor]
    memory: tf.Tensor | None
    memory_change: tf.Tensor | None
    errors: tf.Tensor | None
    updated: tf.Tensor | None
    counted: tf.Tensor | None

    @property
    def values(self) -> tf.Tensor:
        """[K, values], the clients' contribution to the merge."""
        return self.local.rows if self.updated is None else self.updated


def table_rows(plan: BlockPlan) -> tf.Tensor:
    """Return int32 [K], the clients' rows in tables; an empty slot reads row 0, since it takes no step."""
    return tf.maximum(plan.clients, 0)


def completed_stages(rows: tf.Tensor, stages: tf.Tensor) -> tf.Tensor:
    """Return the number of stages that clients have completed.

    Args:
        rows: int32 [..., K, ticks, batch], -1 = padding.
        stages: int32 [..., ticks].

    Returns:
        int32 [..., K].
    """
    return tf.reduce_max(tf.where(tf.reduce_any(rows >= 0, axis=-1), stages[..., None, :] + 1, 0), axis=-1)


def train_block(
    setup: RoundSetup, submodel: Submodel, state: StateRows, scalars: RoundScalars, plan: BlockPlan
) -> BlockResult:
    """Cut the sub-models of a block's clients, train them, and return the results with their coordinates."""
    block, examples, (round, seed, *_) = submodel.block, setup.examples, scalars
    clients = tf.unstack(table_rows(plan), num=block.clients)
    # Coordinates of each client's sub-model, and the labels of its label axis: bool [K, label axis].
    labels = [labels_of(examples, client) for client in clients]
    coordinates = [
        submodel.cut.coordinates(setup.algorithm.submodel, round, client, seed, client_labels, member)
        for client, client_labels, member in zip(clients, labels, tf.unstack(plan.members, num=block.clients))
    ]
    present = tf.gather(examples.present, tf.stack(clients))
    # Key of random numbers, int32 [K, 3].
    key = tf.stack([tf.stack([seed, round, client]) for client in clients])
    stored = read_tables(state.tables, tf.stack(clients), plan.members, setup.layout.is_ensemble)
    # XLA may compile this function; the cut before it is not compiled. Without XLA it stays a separate function too:
    # TensorFlow's graph optimizer takes longer for one large graph than for its parts.
    train = tf.function(
        functools.partial(_train_rows, setup, submodel, label_axis_of(examples, setup.layout.cut, labels)),
        jit_compile=setup.engine.compiled or None,
        autograph=False,
        experimental_attributes=None if setup.engine.compiled else {"_noinline": True},
    )
    # Coordinates that are merged: absent labels are excluded unless the recipe merges them.
    merged_labels = tf.ones_like(present) if setup.layout.merge_absent_labels else present
    merged = [merged_coordinates(indices, merged_labels[slot]) for slot, indices in enumerate(coordinates)]
    is_staged = any(segment.first_merged_stage > 1 for segment in submodel.cut.segments)
    completed = completed_stages(plan.rows, plan.stages) if is_staged else None
    start = _start(setup, submodel, state, scalars, stored, coordinates, merged, completed)
    local, after = train(start, present, key, scalars, plan)
    return BlockResult(local, coordinates, merged, completed, stored, **after)


class BlockStart(NamedTuple):
    """Values of a block's clients before their steps.

    Attributes:
        rows: [K, values].
        memory: [K, parameters], the memories of their corrections; None without memory.
        slots: The slots of the server that the correction reads, each [K, parameters].
        twin: With a personalization, the twins and their alpha, see `methods.personalizations`.
        is_sent: bool [K or 1, parameters of a network], the values that a compression of their updates sends; or None.
        errors: [K, values of a network], what their messages have left out; or None.
        lost: [K, values], what the compression of the received values has changed; or None.
    """

    rows: tf.Tensor
    memory: tf.Tensor | None
    slots: tuple[tf.Tensor, ...]
    twin: tuple[tf.Tensor, tf.Tensor] | None
    is_sent: tf.Tensor | None
    errors: tf.Tensor | None
    lost: tf.Tensor | None


def _start(setup, submodel, state, scalars, stored, coordinates, merged, completed):
    """Gather the `BlockStart` of a block's clients: global or personal values, and those of the peers."""
    block, cut = submodel.block, submodel.cut
    algorithm, parameters = setup.algorithm, block.parameters // block.networks
    rows, lost = cut.gather(state.weights, coordinates), None
    if algorithm.broadcast is not None:
        received = _received(algorithm.broadcast, submodel, rows, scalars)
        rows, lost = received, rows - received
    if "personal" in stored:
        rows = submodel.tables["personal"].read(stored["personal"], coordinates, rows)
    peers = [
        submodel.tables["peers"].cut.gather(stored["peers"][:, peer], coordinates) for peer in range(block.networks - 1)
    ]
    memory, errors = (
        submodel.tables[name].cut.gather(stored[name], coordinates) if name in stored else None
        for name in ("memory", "errors")
    )
    slots = [cut.gather(state.slots[number], coordinates) for number in algorithm.read_slots]
    is_sent = None
    if algorithm.update is not None and algorithm.update.is_compression:
        is_sent = cut.merged_columns(merged, completed)[:, :parameters]
        trained = trained_values(setup.layout, scalars.number, submodel)
        is_sent = is_sent if trained is None else is_sent & trained[:parameters]
    return BlockStart(
        block.join_networks([rows, *peers]),
        None if memory is None else memory[:, : block.parameters],
        tuple(slot[:, : block.parameters] for slot in slots),
        None if algorithm.personalize is None else _twin(submodel, stored, coordinates, rows),
        is_sent,
        errors,
        None if lost is None else block.join_networks([lost, *map(tf.zeros_like, peers)]),
    )


def _received(broadcast, submodel, rows, scalars):
    """Return the rows that clients receive, [K, values of a network]: compressed, except what stays with them."""
    parameters = submodel.block.parameters // submodel.block.networks
    weights, is_received = rows[:, :parameters], ~_personal_columns(submodel, rows.shape[1])[:parameters]
    key = tf.repeat(tf.stack([scalars.seed, scalars.number, -1])[None], submodel.block.clients, 0)
    sent = tf.where(is_received, weights, tf.zeros_like(weights))
    entries = tf.fill([submodel.block.clients], np.count_nonzero(is_received))
    received = broadcast.transform(sent, tf.zeros_like(sent), tf.zeros_like(entries), key, entries)
    return tf.concat([tf.where(is_received, received, weights), rows[:, parameters:]], 1)


def _personal_columns(submodel, size):
    """Return the columns of the values that stay with a client, bool [size]."""
    personal = np.zeros(size, bool)
    for first, end in submodel.tables["personal"].columns:
        personal[first:end] = True
    return personal


def _twin(submodel, stored, coordinates, rows):
    """Return the twins of a block's clients and their alpha; without twins, the trainable values and 1."""
    table = next((name for name in ("twin", "previous") if name in stored), None)
    if table is None:
        return rows[:, : submodel.block.parameters], tf.ones_like(rows[:, :1])
    alpha = stored["twin_scalars"][:, 1:] if table == "twin" else tf.zeros_like(rows[:, :1])
    return submodel.tables[table].cut.gather(stored[table], coordinates), alpha


def _personalization(setup, submodel, start, scalars, plan):
    """Return the recipe's personalization, whose fields that a round fixes are set; None without one."""
    if setup.algorithm.personalize is None:
        return None
    examples, parameters = setup.examples, submodel.block.parameters
    sizes = tf.ensure_shape(tf.gather(examples.sizes, table_rows(plan)), [submodel.block.clients])
    # An empty slot may be that of a client without examples.
    batches = tf.maximum(-(-sizes // tf.shape(plan.rows)[2]), 1)
    steps_of_epoch = batches * len(examples.input.starts(examples.x))
    personal = _personal_columns(submodel, start.rows.shape[1])

    def personalize(number, **fields):
        return setup.algorithm.personalize(
            start=start.rows[:, :parameters],
            personal=tf.constant(personal[:parameters]),
            number=number,
            epoch=number // steps_of_epoch,
            rate=scalars.learning_rate,
            **fields,
        )

    return personalize


def _train_rows(setup, submodel, label_axis, start, present, key, scalars, plan):
    """Train rows; return a `LocalResult`, and by name the last fields of a `BlockResult`."""
    block, algorithm, mask = submodel.block, setup.algorithm, submodel.mask
    trainable = start.rows[:, : block.parameters]
    correct = algorithm.correct and functools.partial(
        algorithm.correct, start=trainable, memory=start.memory, slots=start.slots
    )
    mask_state = mask and mask.prepare(trainable, key)
    # Classes that are not on the client's label axis, for losses over all classes.
    outside = global_classes(setup.examples, setup.layout.cut) - label_axis.count
    training = LocalTraining(
        block,
        Objective(algorithm.loss, algorithm.couple, outside, present, scalars.number),
        Batches(setup.examples, plan, key[:, 2], label_axis),
        algorithm.optimizer,
        scalars.learning_rate,
        key,
        correct,
        mask and functools.partial(mask.mask, state=mask_state),
        trained_values(setup.layout, scalars.number, submodel),
        _personalization(setup, submodel, start, scalars, plan),
        # Functions that XLA compiles cannot call the host.
        None if setup.engine.compiled else build_progress(setup.on_progress, plan.ticks, plan.rows),
    )
    local = training.run(start.rows, start.twin)
    return local, _after_training(setup, submodel, local, start, mask_state, scalars.learning_rate, key)


def _after_training(setup, submodel, local, start, mask_state, learning_rate, key):
    """Return the last fields of a `BlockResult` by name, None for those that the recipe does not need."""
    block, algorithm = submodel.block, setup.algorithm
    after = dict.fromkeys(("memory", "memory_change", "errors", "updated", "counted"))
    if start.memory is None and start.lost is None and submodel.mask is None and algorithm.update is None:
        return after
    trained, running = local.rows[:, : block.parameters], local.rows[:, block.parameters :]
    trainable = start.rows[:, : block.parameters]
    # Running statistics follow the trainable values of a row: they have no memory, and all of them are merged.
    paddings = [[0, 0], [0, running.shape[1]]]
    if start.memory is not None:
        memory = algorithm.remember(start.memory, trained, trainable, start.slots, local.steps, learning_rate)
        after["memory"] = tf.pad(memory, paddings)
        after["memory_change"] = tf.pad(memory - start.memory, paddings) if algorithm.sums_memory else None
    if algorithm.update is not None:
        sent, after["errors"] = _sent(algorithm.update, block, trained, start, local.steps, key)
        after["updated"] = tf.concat([sent, running], 1)
    if start.lost is not None:
        after["updated"] = start.lost + (local.rows if after["updated"] is None else after["updated"])
    if submodel.mask is not None:
        counted = submodel.mask.counts(trained, trainable, mask_state)
        after["counted"] = tf.pad(counted, paddings, constant_values=True)
    return after


def _sent(update, block, trained, start, steps, key):
    """Return the values that a block's clients send, [K, parameters], and the errors of their messages or None."""
    before = start.rows[:, : block.parameters]
    if start.is_sent is None:
        return update.transform(trained, before, steps, key, None), None
    # The peers of a client stay with it.
    parameters = block.parameters // block.networks
    values, first, peers = trained[:, :parameters], before[:, :parameters], trained[:, parameters:]
    if start.errors is not None:
        values += start.errors[:, :parameters]
    values = tf.where(start.is_sent, values, first)
    entries = tf.broadcast_to(tf.math.count_nonzero(start.is_sent, 1, dtype=tf.int32), [block.clients])
    sent = tf.where(start.is_sent, update.transform(values, first, steps, key, entries), first)
    errors = start.errors
    if errors is not None:
        # Running statistics are sent as they are.
        new = tf.where(start.is_sent, values - sent, errors[:, :parameters])
        errors = tf.concat([new, errors[:, parameters:]], 1)
    return tf.concat([sent, peers], 1), errors
