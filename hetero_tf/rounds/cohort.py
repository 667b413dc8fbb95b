"""Trains the cohort of a round, stack by stack, and sums up what its clients return."""

import functools

import tensorflow as tf

from hetero_tf.rounds.block_training import BlockPlan, train_block
from hetero_tf.rounds.client_tables import new_table_rows, table_columns
from hetero_tf.rounds.global_row import coverage_row, put_rows
from hetero_tf.rounds.merge import axis_masks, coverage
from hetero_tf.rounds.round_setup import RoundSetup


def record_types(dtype: str) -> dict:
    """`{name: type}` of what is recorded about each client and told to the host."""
    return {"loss": dtype, "gradient_norm": dtype, "finite": tf.bool}


def train_cohort_on_replicas(
    parts: RoundSetup, state: dict, packed: list[tf.Tensor], learning_rate: tf.Tensor, round: tf.Tensor, seed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None, dict]:
    """What `train_cohort` gives for the whole cohort, of which every replica trains the stacks that are dealt to it."""
    replicas = parts.engine.replicas
    if replicas.count == 1:
        return train_cohort(parts, state, packed, learning_rate, round, seed)
    *arrays, replica_of = packed
    dealt = tf.cast(tf.where(replica_of == replicas.number)[:, 0], tf.int32)
    total, coverage, memory_change, records = train_cohort(
        parts, state, [tf.gather(array, dealt) for array in arrays], learning_rate, round, seed
    )
    stacks, largest = tf.unstack(tf.shape(arrays[0]))
    places = tf.reshape(dealt[:, None] * largest + tf.range(largest), [-1, 1])

    def whole(rows):
        """[dealt * K, ...] -> [S * K, ...], zeros for the clients of other replicas."""
        size = tf.concat([[stacks * largest], tf.shape(rows)[1:]], 0)
        return tf.scatter_nd(places, tf.cast(rows, parts.placement.dtype), size)

    types = record_types(parts.placement.dtype)
    sums = {"total": total, "coverage": coverage, "records": tf.nest.map_structure(whole, records)}
    sums |= {} if memory_change is None else {"memory_change": memory_change}
    sums = replicas.summed(sums)
    records = sums["records"]
    records |= {name: tf.cast(records[name], kind) for name, kind in types.items()}
    return sums["total"], sums["coverage"], sums.get("memory_change"), records


def train_cohort(
    parts: RoundSetup, state: dict, packed: list[tf.Tensor], learning_rate: tf.Tensor, round: tf.Tensor, seed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None, dict]:
    """Trains all clients of a round from the same global values.

    Args:
        state: See `round.new_state`, with the global values in rows, see `global_row.in_rows`.
        packed: The arrays of one round of a `packing.PackedRounds`; S = stacks, K = the largest stack.
        learning_rate: Scalar.
        round, seed: Scalar int32.

    Returns:
        total: For each entry of the global row the sum of weight * value over the clients that cover it, [values].
        coverage: The sum of their weights, [values].
        memory_change: The sum of what these clients' memories have changed by, [values]; None where the server does not
            take it.
        records: About each client, [S * K]: those of `record_types`; "weight" in the merge, 0 for clients that do not
            count; and under "tables" what it keeps, see `client_tables.new_table_rows`.
    """
    clients, members, submodels, ticks, rows, starts, stages = packed
    cut, stacks = parts.placement.cut, parts.engine.stacks
    count, largest = tf.shape(clients)[0], max(stack.clients for stack in stacks)

    def train(submodel, index):
        own = stacks[submodel].clients
        plan = BlockPlan(
            clients[index, :own], members[index, :own], ticks[index], rows[index, :own], starts[index], stages[index]
        )
        return _contribution(parts, submodel, state, round, seed, plan, learning_rate, largest)

    def body(index, sums, records):
        branches = [functools.partial(train, submodel, index) for submodel in range(len(stacks))]
        contribution, recorded = tf.switch_case(submodels[index], branches)
        # The sum is chained in the order of the stacks: the result does not depend on how many are in flight.
        sums = {name: sums[name] + contribution[name] for name in sums}
        records = tf.nest.map_structure(lambda array, value: array.write(index, value), records, recorded)
        return index + 1, sums, records

    zeros = {name: tf.zeros_like(state["weights"]) for name in _sum_names(parts)}
    _, sums, records = tf.while_loop(
        lambda index, *_: index < count,
        body,
        (0, zeros, _empty_records(parts, state["tables"], count)),
        parallel_iterations=parts.engine.replicas.parallel,
    )
    # [S, K, ...] -> [S * K, ...]
    places = count * largest
    records = tf.nest.map_structure(lambda array: _flat(array.stack(), places), records)
    masks = {axis: records.pop(f"mask{place}") for place, axis in enumerate(cut.distinct)}
    if "coverage" not in sums:
        weights = _weights_in_merge(parts, records["weight"], tf.repeat(submodels, largest), rows, stages)
        covered = coverage(cut, masks, weights, parts.placement.zeros_count)
        sums["coverage"] = coverage_row(covered, cut.shapes)
    return sums["values"], sums["coverage"], sums.get("memory_change"), records


def _sum_names(parts):
    """What is summed over the clients entry by entry; coverage only where single entries are masked."""
    names = {"values": True, "coverage": parts.algorithm.masks, "memory_change": parts.algorithm.sums_memory}
    return [name for name, needed in names.items() if needed]


def _empty_records(parts, tables, count):
    """A `tf.TensorArray` over the stacks for everything that is recorded about their clients."""

    def array(dtype):
        return tf.TensorArray(dtype, size=count)

    dtype = parts.placement.dtype
    types = {f"mask{place}": dtype for place in range(len(parts.placement.cut.distinct))}
    types |= record_types(dtype) | {"weight": dtype}
    records = {name: array(kind) for name, kind in types.items()}
    records["tables"] = {name: {key: array(dtype) for key in keys} for name, keys in table_columns(tables).items()}
    return records


def _flat(values, places):
    return tf.reshape(values, [places, *values.shape[2:]])


def _contribution(parts, submodel, state, round, seed, plan, learning_rate, largest):
    """The stack's part of every sum of `_sum_names`, and what is recorded about each client, [largest, ...]."""
    update = train_block(parts, submodel, state, round, seed, plan, learning_rate)
    local, clients, dtype = update.local, parts.engine.stacks[submodel].clients, parts.placement.dtype
    steps = tf.math.count_nonzero(tf.reduce_any(plan.rows >= 0, axis=-1), axis=1, dtype=tf.int32)
    finite = _finite_clients(update, steps)
    counts = finite & (steps > 0)
    weight = tf.cast(counts, dtype)
    # Not a product with a mask: NaN * 0 is NaN.
    counted = counts[:, None] if update.counted is None else counts[:, None] & update.counted
    values = tf.where(counted, update.values, tf.zeros([], dtype))
    if parts.examples.counts is not None:
        weight *= tf.gather(parts.examples.counts, plan.rows_of_tables)
        values *= weight[:, None]
    # Summed step after step: zeros behind the last one, from a longer round of the same call, change no bit.
    per_step = tf.cast(tf.maximum(steps, 1), dtype)
    loss, gradient_norm = (tf.cumsum(each)[-1] / per_step for each in (local.losses, local.gradient_norms))
    records = {"loss": loss, "gradient_norm": gradient_norm, "finite": finite, "weight": weight}
    # Covered coordinates of every axis, [K, size].
    masks = [axis_masks(parts.placement.cut, where, dtype) for where in update.merged]
    for place, axis in enumerate(parts.placement.cut.distinct):
        records[f"mask{place}"] = tf.stack([mask[axis] for mask in masks])
    records["tables"] = new_table_rows(parts, submodel, state["tables"], update, plan)
    # A smaller stack fills up to the size of the largest one.
    if clients < largest:
        records = tf.nest.map_structure(
            lambda value: tf.pad(value, [[0, largest - clients], *[[0, 0]] * (value.shape.rank - 1)]), records
        )
    rows = {"values": values}
    if update.counted is not None:
        rows["coverage"] = tf.cast(counted, dtype) * weight[:, None]
    if update.memory_change is not None:
        rows["memory_change"] = tf.where(counts[:, None], update.memory_change, tf.zeros([], dtype))
    return {name: _summed(parts, submodel, matrix, update, plan) for name, matrix in rows.items()}, records


def _finite_clients(update, steps):
    """Whether what each client returns, and what it keeps, is finite: bool [K]."""
    finite = tf.reduce_all(tf.math.is_finite(update.values), axis=1)
    if update.updated is not None:
        finite &= tf.reduce_all(tf.math.is_finite(update.local.weights), axis=1)
    if update.memory is not None:
        # A client without a step remembers nothing new.
        finite &= tf.reduce_all(tf.math.is_finite(update.memory), axis=1) | (steps == 0)
    return finite


def _summed(parts, submodel, values, update, plan):
    """The sum over a stack's clients of weighted values [K, values] as a global row; zeros where nothing counts."""
    stack, counts_from = parts.engine.stacks[submodel], [first[submodel] for first in parts.placement.merged_from]
    done = completed_stages(plan.rows, plan.stages) if max(counts_from) > 1 else None
    rows = (
        values
        if stack.networks == 1
        else tf.stack([stack.network_row(row) for row in tf.unstack(values, num=stack.clients)])
    )
    return put_rows(parts.placement.cut, submodel, rows, update.merged, counts_from, done)


def completed_stages(rows: tf.Tensor, stages: tf.Tensor) -> tf.Tensor:
    """How many of their stages clients have come to.

    Args:
        rows: int32 [..., K, ticks, batch], -1 = padding.
        stages: int32 [..., ticks].

    Returns:
        int32 [..., K].
    """
    return tf.reduce_max(tf.where(tf.reduce_any(rows >= 0, axis=-1), stages[..., None, :] + 1, 0), axis=-1)


def _weights_in_merge(parts, weight, submodels, rows, stages):
    """For each global value the weight of each client, [S * K]: 0 where its sub-model is not merged, or not yet."""

    def weights(first_stages):
        if set(first_stages) == {1}:
            return weight
        first = tf.gather(tf.constant(first_stages), submodels)
        counts = first > 0
        if max(first_stages) > 1:
            counts &= tf.reshape(completed_stages(rows, stages), [-1]) >= first
        return weight * tf.cast(counts, weight.dtype)

    merged_from = parts.placement.merged_from
    by_first_stages = {first_stages: weights(first_stages) for first_stages in dict.fromkeys(merged_from)}
    return [by_first_stages[first_stages] for first_stages in merged_from]
