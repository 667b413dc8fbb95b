"""Cut and local training of one block of clients, inside the graph of a round."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.models.cut import Axis
from hetero_tf.rounds.batches import build_batches
from hetero_tf.rounds.gather import gather, select_coordinates, select_merged
from hetero_tf.rounds.global_row import concat_values, gather_rows
from hetero_tf.rounds.label_axes import global_classes, label_axis_of, labels_of
from hetero_tf.rounds.local_training import LocalResult, train_locally
from hetero_tf.rounds.objective import Objective
from hetero_tf.rounds.round_setup import RoundSetup

# The most calls to the host while one block of clients trains.
MAX_CALLS = 64


def build_progress(
    on_progress: Callable[[int, int], None] | None, ticks: tf.Tensor, rows: tf.Tensor
) -> Callable | None:
    """Build the progress callback that a block of clients calls after each tick.

    Args:
        on_progress: `(steps of these clients since its last call, clients that have finished now)`, called on threads
            of TensorFlow.
        ticks: Scalar int32, number of ticks that the block trains.
        rows: int32 [K, ticks, batch], the examples of its clients; -1 = padding.

    Returns:
        `tick -> 0`, an int32 to be added to the inputs of the next tick, which makes TensorFlow run it; None without
        `on_progress`.
    """
    if on_progress is None:
        return None
    every = ticks // MAX_CALLS + 1
    # bool [K, ticks], True if a client takes a step.
    active = tf.reduce_any(rows >= 0, axis=2)

    def call(steps, clients):
        on_progress(int(steps), int(clients))
        return np.int32(0)

    def progress(tick):
        done = tick + 1
        last, steps_since_call = done >= ticks, tf.where(done % every == 0, every, done % every)

        def report():
            steps = tf.math.count_nonzero(active[:, done - steps_since_call : done], dtype=tf.int32)
            finished = tf.where(last, tf.math.count_nonzero(tf.reduce_any(active, 1), dtype=tf.int32), 0)
            # Stateless for TensorFlow: stateful operations would make all clients wait for each other.
            return tf.numpy_function(call, [steps, finished], tf.int32, stateful=False)

        return tf.ensure_shape(tf.cond(last | (done % every == 0), report, lambda: tf.constant(0)), [])

    return progress


@dataclass(frozen=True)
class BlockPlan:
    """The work of one block of clients in a round.

    Attributes:
        clients: int32 [K]; -1 = empty slot.
        members: int32 [K], index of the ensemble network that each client trains.
        ticks, rows, starts, stages: As in `packing.PackedRounds`, of this block.
    """

    clients: tf.Tensor
    members: tf.Tensor
    ticks: tf.Tensor
    rows: tf.Tensor
    starts: tf.Tensor
    stages: tf.Tensor

    @property
    def rows_of_tables(self) -> tf.Tensor:
        """int32 [K], the clients' rows in tables; an empty slot reads row 0, since it takes no step."""
        return tf.maximum(self.clients, 0)


@dataclass(frozen=True)
class BlockResult:
    """Results of a block's clients.

    Attributes:
        local: `LocalResult`.
        coordinates: For each client the coordinates of its sub-model, `{Axis: int32}`.
        merged: For each client the coordinates that are merged.
        memory: [K, values], the new memories of the clients' corrections, or None.
        memory_change: [K, values], the change of the memories, if the server sums it; or None.
        updated: [K, values], the values to merge, if the recipe has an update; or None.
        counted: bool [K, values], the entries that are merged, if the recipe has a mask; or None.
    """

    local: LocalResult
    coordinates: list[dict[Axis, tf.Tensor]]
    merged: list[dict[Axis, tf.Tensor]]
    memory: tf.Tensor | None
    memory_change: tf.Tensor | None
    updated: tf.Tensor | None
    counted: tf.Tensor | None

    @property
    def values(self) -> tf.Tensor:
        """[K, values], the clients' contribution to the merge."""
        return self.local.weights if self.updated is None else self.updated


def train_block(
    setup: RoundSetup,
    submodel: int,
    state: dict,
    round: tf.Tensor,
    seed: tf.Tensor,
    plan: BlockPlan,
    learning_rate: tf.Tensor,
) -> BlockResult:
    """Cut the sub-models of a block's clients, train them, and return the results with their coordinates.

    Args:
        submodel: Position of the sub-model in the mix.
        state: See `round.new_state`, with the global values in rows, see `global_row.pack_state`.
        round, seed: Scalar int32.
        plan: The work of the block's clients.
        learning_rate: Scalar.
    """
    block, examples, cut = setup.engine.blocks[submodel], setup.examples, setup.layout.cut
    clients = tf.unstack(plan.rows_of_tables, num=block.clients)
    # Coordinates of each client's sub-model, and the labels of its label axis: bool [K, label axis].
    labels = [labels_of(examples, client) for client in clients]
    coordinates = [
        select_coordinates(cut, submodel, setup.algorithm.submodel, round, client, seed, client_labels, member)
        for client, client_labels, member in zip(clients, labels, tf.unstack(plan.members, num=block.clients))
    ]
    present = tf.gather(examples.present, tf.stack(clients))
    key = tf.stack([tf.stack([seed, round, client]) for client in clients])
    label_axis = label_axis_of(examples, cut, labels)

    def gather_row(values, indices):
        """Gather a client's sub-model, [values], from values in global shapes."""
        return concat_values(gather(cut, submodel, values, indices))

    # Starting rows [K, values]: global values, personal ones instead of them, and the peers' values.
    tables, memory = state["tables"], None
    personal = [dict(zip(tables["personal"], _gather_tables(tables["personal"], client))) for client in clients]
    start = gather_rows(cut, submodel, state["weights"], coordinates, personal)
    if block.networks > 1:
        peer_tables, peers = [_gather_tables(tables["peers"], client) for client in clients], range(block.networks - 1)
        start = block.to_rows(
            [
                [row, *(gather_row([networks[peer] for networks in client_peers], indices) for peer in peers)]
                for row, client_peers, indices in zip(tf.unstack(start), peer_tables, coordinates)
            ]
        )
    slots = tuple(
        gather_rows(cut, submodel, state["slots"][index], coordinates) for index in setup.algorithm.read_slots
    )
    if setup.algorithm.remember is not None:
        memories = [_gather_tables(tables["memory"], client) for client in clients]
        memory = tf.stack([gather_row(values, indices) for values, indices in zip(memories, coordinates)])
    # XLA may compile this function; the cut before it is not compiled. Without XLA it stays a separate function too:
    # TensorFlow's graph optimizer takes longer for one large graph than for its parts.
    train = tf.function(
        functools.partial(_train_rows, setup, submodel, label_axis),
        jit_compile=setup.engine.compiled or None,
        autograph=False,
        experimental_attributes=None if setup.engine.compiled else {"_noinline": True},
    )
    steps = (plan.ticks, plan.rows, plan.starts, plan.stages)
    local, after = train(start, memory, slots, present, round, key, learning_rate, *steps)
    # Coordinates that are merged: absent labels are excluded unless the recipe merges them.
    merged_labels = tf.ones_like(present) if setup.layout.merge_absent_labels else present
    merged = [select_merged(cut, indices, merged_labels[slot]) for slot, indices in enumerate(coordinates)]
    return BlockResult(LocalResult(*local), coordinates, merged, **after)


def _gather_tables(tables, client):
    """Gather a client's rows of tables `{position: [registered, ...]}`."""
    return [tf.gather(table, client) for table in tables.values()]


def _train_rows(setup, submodel, label_axis, start, memory, slots, present, round, key, learning_rate, *steps):
    """Train rows; return the fields of a `LocalResult`, and by name the last fields of a `BlockResult`."""
    block, algorithm = setup.engine.blocks[submodel], setup.algorithm
    start_trainable, correct, mask, mask_state = start[:, : block.parameters], None, None, None
    memory = None if memory is None else memory[:, : block.parameters]
    slots = tuple(slot[:, : block.parameters] for slot in slots)
    if algorithm.correct is not None:
        correct = functools.partial(algorithm.correct, start=start_trainable, memory=memory, slots=slots)
    if algorithm.masks is not None:
        mask_state = algorithm.masks[submodel].prepare(start_trainable, key)
        mask = functools.partial(algorithm.masks[submodel].mask, state=mask_state)
    # Functions that XLA compiles cannot call the host.
    progress = None if setup.engine.compiled else build_progress(setup.on_progress, *steps[:2])
    # Classes that are not on the client's label axis, for losses over all classes.
    outside = global_classes(setup.examples, setup.layout.cut) - label_axis.count
    local = train_locally(
        block,
        Objective(algorithm.loss, algorithm.couple, outside, present, round),
        correct,
        algorithm.optimizer,
        build_batches(setup.examples, key[:, 2], steps, label_axis),
        start,
        learning_rate,
        key,
        mask,
        progress,
    )
    after = _after_training(setup, submodel, local, start_trainable, memory, slots, mask_state, learning_rate, key)
    return (local.weights, local.losses, local.gradient_norms, local.steps), after


def _after_training(setup, submodel, local, start, memory, slots, mask_state, learning_rate, key):
    """Return the last fields of a `BlockResult` by name, None for those that the recipe does not need."""
    block, algorithm = setup.engine.blocks[submodel], setup.algorithm
    after = dict.fromkeys(("memory", "memory_change", "updated", "counted"))
    if memory is None and mask_state is None and algorithm.update is None:
        return after
    trained, running = local.weights[:, : block.parameters], local.weights[:, block.parameters :]
    # Running statistics follow the trainable values of a row: they have no memory, and all of them are merged.
    paddings = [[0, 0], [0, running.shape[1]]]
    if memory is not None:
        new_memory = algorithm.remember(memory, trained, start, slots, local.steps, learning_rate)
        after["memory"] = tf.pad(new_memory, paddings)
        after["memory_change"] = tf.pad(new_memory - memory, paddings) if algorithm.sums_memory else None
    if algorithm.update is not None:
        after["updated"] = tf.concat([algorithm.update(trained, start, local.steps, key), running], 1)
    if mask_state is not None:
        counted = algorithm.masks[submodel].counts(trained, start, mask_state)
        after["counted"] = tf.pad(counted, paddings, constant_values=True)
    return after
