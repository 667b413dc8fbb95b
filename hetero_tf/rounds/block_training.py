"""Cut and local training of the clients of one stack, inside the graph of a round."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.models.cut import Axis
from hetero_tf.rounds.batches import build_batches
from hetero_tf.rounds.gather import coordinates, merged_coordinates, take
from hetero_tf.rounds.global_row import joined, take_rows
from hetero_tf.rounds.label_axes import global_classes, label_axis_of, labels_of
from hetero_tf.rounds.local_training import LocalResult, train_locally
from hetero_tf.rounds.objective import Objective
from hetero_tf.rounds.round_setup import RoundSetup

# So often at most does the training of one stack of clients call the host.
MOST_CALLS = 64


def build_progress(watch: Callable[[int, int], None] | None, ticks: tf.Tensor, rows: tf.Tensor) -> Callable | None:
    """Builds what the steps of one stack of clients call after each tick.

    Args:
        watch: `(steps of these clients since its last call, clients that are done now)`, called on threads of
            TensorFlow.
        ticks: Scalar int32, how many ticks the stack trains.
        rows: int32 [K, ticks, batch], the examples of its clients; -1 = padding.

    Returns:
        `tick -> 0`, an int32 that must be added to what the next tick reads, since only that makes it run; None where
        nobody watches.
    """
    if watch is None:
        return None
    every = ticks // MOST_CALLS + 1
    active = tf.reduce_any(rows >= 0, axis=2)

    def call(steps, clients):
        watch(int(steps), int(clients))
        return np.int32(0)

    def note(tick):
        done = tick + 1
        last, since = done >= ticks, tf.where(done % every == 0, every, done % every)

        def tell():
            steps = tf.math.count_nonzero(active[:, done - since : done], dtype=tf.int32)
            finished = tf.where(last, tf.math.count_nonzero(tf.reduce_any(active, 1), dtype=tf.int32), 0)
            # Stateless for TensorFlow: what it takes for stateful makes all clients wait for each other.
            return tf.numpy_function(call, [steps, finished], tf.int32, stateful=False)

        return tf.ensure_shape(tf.cond(last | (done % every == 0), tell, lambda: tf.constant(0)), [])

    return note


@dataclass(frozen=True)
class BlockPlan:
    """What one stack of clients does in a round.

    Attributes:
        clients: int32 [K]; -1 = empty slot.
        members: int32 [K], which network of an ensemble each of them trains.
        ticks, rows, starts, stages: As in `packing.PackedRounds`, of this stack.
    """

    clients: tf.Tensor
    members: tf.Tensor
    ticks: tf.Tensor
    rows: tf.Tensor
    starts: tf.Tensor
    stages: tf.Tensor

    @property
    def rows_of_tables(self) -> tf.Tensor:
        """int32 [K], the clients' rows in tables; an empty slot takes no step, but its tables are looked up."""
        return tf.maximum(self.clients, 0)


@dataclass(frozen=True)
class BlockResult:
    """What the clients of a stack return.

    Attributes:
        local: `LocalResult`.
        coordinates: For each client the coordinates of its sub-model, `{Axis: int32}`.
        merged: For each client those of them that are merged.
        memory: [K, values], what the clients' correction remembers, or None.
        memory_change: [K, values], what that has changed by, where the server sums it up; or None.
        updated: [K, values], the values to merge where the recipe updates them; or None.
        counted: bool [K, values], which entries are merged, where there is a mask; or None.
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
        """[K, values], what the clients give to the merge."""
        return self.local.weights if self.updated is None else self.updated


def train_block(
    parts: RoundSetup,
    submodel: int,
    state: dict,
    round: tf.Tensor,
    seed: tf.Tensor,
    plan: BlockPlan,
    learning_rate: tf.Tensor,
) -> BlockResult:
    """Cuts the sub-models of a stack's clients, trains them and says where their values belong.

    Args:
        submodel: Position of the sub-model in the mix.
        state: See `round.new_state`, with the global values in rows, see `global_row.in_rows`.
        round, seed: Scalar int32.
        plan: What the stack's clients do.
        learning_rate: Scalar.
    """
    stack, examples, cut = parts.engine.stacks[submodel], parts.examples, parts.placement.cut
    clients = tf.unstack(plan.rows_of_tables, num=stack.clients)
    # Where each client's sub-model lies, and which labels of its label axis it has: bool [K, label axis].
    labels = [labels_of(examples, client) for client in clients]
    where = [
        coordinates(cut, submodel, parts.algorithm.submodel, round, client, seed, own_labels, member)
        for client, own_labels, member in zip(clients, labels, tf.unstack(plan.members, num=stack.clients))
    ]
    present = tf.gather(examples.present, tf.stack(clients))
    key = tf.stack([tf.stack([seed, round, client]) for client in clients])
    label_axis = label_axis_of(examples, cut, labels)

    def sub_row(values, place):
        """A client's sub-model, [values], of values in global shapes."""
        return joined(take(cut, submodel, values, place))

    tables, memory = state["tables"], None
    personal = [dict(zip(tables["personal"], _gathered(tables["personal"], client))) for client in clients]
    start = take_rows(cut, submodel, state["weights"], where, personal)
    if stack.networks > 1:
        kept, peers = [_gathered(tables["peers"], client) for client in clients], range(stack.networks - 1)
        start = stack.to_rows(
            [
                [row, *(sub_row([networks[peer] for networks in own], place) for peer in peers)]
                for row, own, place in zip(tf.unstack(start), kept, where)
            ]
        )
    slots = tuple(take_rows(cut, submodel, state["slots"][index], where) for index in parts.algorithm.read_slots)
    if parts.algorithm.remember is not None:
        remembered = [_gathered(tables["memory"], client) for client in clients]
        memory = tf.stack([sub_row(values, place) for values, place in zip(remembered, where)])
    # What is inside may be compiled by XLA; the cut before it is not. Without XLA it stays a function of its own too:
    # the optimizer of TensorFlow's graphs takes longer for one large graph than for its parts.
    train = tf.function(
        functools.partial(_train_rows, parts, submodel, label_axis),
        jit_compile=parts.engine.compiled or None,
        autograph=False,
        experimental_attributes=None if parts.engine.compiled else {"_noinline": True},
    )
    steps = (plan.ticks, plan.rows, plan.starts, plan.stages)
    local, after = train(start, memory, slots, present, round, key, learning_rate, *steps)
    merged_labels = tf.ones_like(present) if parts.placement.merge_absent_labels else present
    merged = [merged_coordinates(cut, place, merged_labels[slot]) for slot, place in enumerate(where)]
    return BlockResult(LocalResult(*local), where, merged, **after)


def _gathered(tables, client):
    """A client's rows of tables `{position: [registered, ...]}`."""
    return [tf.gather(table, client) for table in tables.values()]


def _train_rows(parts, submodel, label_axis, start, memory, slots, present, round, key, learning_rate, *steps):
    """Trains rows: the fields of a `LocalResult`, and by name the last ones of a `BlockResult`."""
    stack, algorithm = parts.engine.stacks[submodel], parts.algorithm
    start_trainable, correct, mask, mask_state = start[:, : stack.parameters], None, None, None
    memory = None if memory is None else memory[:, : stack.parameters]
    slots = tuple(slot[:, : stack.parameters] for slot in slots)
    if algorithm.correct is not None:
        correct = functools.partial(algorithm.correct, start=start_trainable, memory=memory, slots=slots)
    if algorithm.masks is not None:
        mask_state = algorithm.masks[submodel].prepare(start_trainable, key)
        mask = functools.partial(algorithm.masks[submodel].mask, state=mask_state)
    # XLA calls nothing on the host.
    note = None if parts.engine.compiled else build_progress(parts.watch, *steps[:2])
    outside = global_classes(parts.examples, parts.placement.cut) - label_axis.count
    local = train_locally(
        stack,
        Objective(algorithm.loss, algorithm.couple, outside, present, round),
        correct,
        algorithm.optimizer,
        build_batches(parts.examples, key[:, 2], steps, label_axis),
        start,
        learning_rate,
        key,
        mask,
        note,
    )
    after = _after_training(parts, submodel, local, start_trainable, memory, slots, mask_state, learning_rate, key)
    return (local.weights, local.losses, local.gradient_norms, local.steps), after


def _after_training(parts, submodel, local, start, memory, slots, mask_state, learning_rate, key):
    """The last fields of a `BlockResult` by name, None for what the recipe does not ask for."""
    stack, algorithm = parts.engine.stacks[submodel], parts.algorithm
    after = dict.fromkeys(("memory", "memory_change", "updated", "counted"))
    if memory is None and mask_state is None and algorithm.update is None:
        return after
    trained, running = local.weights[:, : stack.parameters], local.weights[:, stack.parameters :]
    # Running statistics stand behind the trainable values of a row: nothing is remembered about them, all are merged.
    behind = [[0, 0], [0, running.shape[1]]]
    if memory is not None:
        remembered = algorithm.remember(memory, trained, start, slots, local.steps, learning_rate)
        after["memory"] = tf.pad(remembered, behind)
        after["memory_change"] = tf.pad(remembered - memory, behind) if algorithm.sums_memory else None
    if algorithm.update is not None:
        after["updated"] = tf.concat([algorithm.update(trained, start, local.steps, key), running], 1)
    if mask_state is not None:
        counted = algorithm.masks[submodel].counts(trained, start, mask_state)
        after["counted"] = tf.pad(counted, behind, constant_values=True)
    return after
