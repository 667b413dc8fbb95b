"""Trains the cohort of a round, block by block, and sums the results of its clients."""

import functools

import tensorflow as tf

from hetero_tf.rounds.block_training import BlockPlan, train_block
from hetero_tf.rounds.client_tables import new_table_rows, table_columns
from hetero_tf.rounds.global_row import flatten_coverage, scatter_rows
from hetero_tf.rounds.merge import axis_masks, coverage
from hetero_tf.rounds.round_setup import RoundSetup


def record_types(dtype: str) -> dict:
    """Return `{name: type}` of the per-client records that the host receives."""
    return {"loss": dtype, "gradient_norm": dtype, "finite": tf.bool}


def train_cohort_on_replicas(
    setup: RoundSetup, state: dict, packed: list[tf.Tensor], learning_rate: tf.Tensor, round: tf.Tensor, seed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None, dict]:
    """Run `train_cohort` on the whole cohort; every replica trains the blocks that are assigned to it."""
    replicas = setup.engine.replicas
    if replicas.count == 1:
        return train_cohort(setup, state, packed, learning_rate, round, seed)
    *arrays, replica_of = packed
    assigned = tf.cast(tf.where(replica_of == replicas.number)[:, 0], tf.int32)
    total, coverage, memory_change, records = train_cohort(
        setup, state, [tf.gather(array, assigned) for array in arrays], learning_rate, round, seed
    )
    blocks, max_clients = tf.unstack(tf.shape(arrays[0]))
    # Rows of this replica's clients among all [S * K] clients.
    row_indices = tf.reshape(assigned[:, None] * max_clients + tf.range(max_clients), [-1, 1])

    def scatter_clients(rows):
        """Scatter [assigned * K, ...] -> [S * K, ...], zeros for the clients of other replicas."""
        size = tf.concat([[blocks * max_clients], tf.shape(rows)[1:]], 0)
        return tf.scatter_nd(row_indices, tf.cast(rows, setup.layout.dtype), size)

    # One collective sums everything; bool records travel as numbers and are cast back.
    types = record_types(setup.layout.dtype)
    sums = {"total": total, "coverage": coverage, "records": tf.nest.map_structure(scatter_clients, records)}
    sums |= {} if memory_change is None else {"memory_change": memory_change}
    sums = replicas.all_reduce_sum(sums)
    records = sums["records"]
    records |= {name: tf.cast(records[name], kind) for name, kind in types.items()}
    return sums["total"], sums["coverage"], sums.get("memory_change"), records


def train_cohort(
    setup: RoundSetup, state: dict, packed: list[tf.Tensor], learning_rate: tf.Tensor, round: tf.Tensor, seed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None, dict]:
    """Train all clients of a round from the same global values.

    Args:
        state: See `round.new_state`, with the global values in rows, see `global_row.pack_state`.
        packed: The arrays of one round of a `packing.PackedRounds`; S = blocks, K = the largest block.
        learning_rate: Scalar.
        round, seed: Scalar int32.

    Returns:
        total: Sum of weight * value over the clients that cover each entry of the global row, [values].
        coverage: The sum of their weights, [values].
        memory_change: Sum of the changes of these clients' memories, [values]; None if the server does not read it.
        records: Of each client, [S * K]: those of `record_types`; "weight" in the merge, 0 for excluded clients;
            and under "tables" its new rows, see `client_tables.new_table_rows`.
    """
    clients, members, submodels, ticks, rows, starts, stages = packed
    cut, blocks = setup.layout.cut, setup.engine.blocks
    count, max_clients = tf.shape(clients)[0], max(block.clients for block in blocks)

    # Plan of one block: arrays of the largest block, cut to the block's number of clients.
    def train(submodel, index):
        size = blocks[submodel].clients
        plan = BlockPlan(
            clients[index, :size], members[index, :size], ticks[index], rows[index, :size], starts[index], stages[index]
        )
        return _block_contribution(setup, submodel, state, round, seed, plan, learning_rate, max_clients)

    def body(index, sums, records):
        branches = [functools.partial(train, submodel, index) for submodel in range(len(blocks))]
        contribution, recorded = tf.switch_case(submodels[index], branches)
        # Sums are added in the order of the blocks: the result does not depend on the number of blocks in flight.
        sums = {name: sums[name] + contribution[name] for name in sums}
        records = tf.nest.map_structure(lambda array, value: array.write(index, value), records, recorded)
        return index + 1, sums, records

    # Loop over the blocks of all levels; several are in flight, limited by `parallel`.
    zeros = {name: tf.zeros_like(state["weights"]) for name in _sum_names(setup)}
    _, sums, records = tf.while_loop(
        lambda index, *_: index < count,
        body,
        (0, zeros, _empty_records(setup, state["tables"], count)),
        parallel_iterations=setup.engine.replicas.parallel,
    )
    # [S, K, ...] -> [S * K, ...]
    num_rows = count * max_clients
    records = tf.nest.map_structure(lambda array: _merge_blocks(array.stack(), num_rows), records)
    masks = {axis: records.pop(f"mask{number}") for number, axis in enumerate(cut.distinct)}
    # Without entry masks the coverage follows from small masks of axes, [S * K, size].
    if "coverage" not in sums:
        weights = _weights_in_merge(setup, records["weight"], tf.repeat(submodels, max_clients), rows, stages)
        coverage_of_values = coverage(cut, masks, weights, setup.layout.zeros_count)
        sums["coverage"] = flatten_coverage(coverage_of_values, cut.shapes)
    return sums["values"], sums["coverage"], sums.get("memory_change"), records


def _sum_names(setup):
    """Return the names of the entry-wise sums over clients; coverage is one of them only with entry masks."""
    names = {"values": True, "coverage": setup.algorithm.masks, "memory_change": setup.algorithm.sums_memory}
    return [name for name, needed in names.items() if needed]


def _empty_records(setup, tables, count):
    """Return a `tf.TensorArray` over the blocks for every record of their clients."""

    def array(dtype):
        return tf.TensorArray(dtype, size=count)

    dtype = setup.layout.dtype
    types = {f"mask{number}": dtype for number in range(len(setup.layout.cut.distinct))}
    types |= record_types(dtype) | {"weight": dtype}
    records = {name: array(kind) for name, kind in types.items()}
    records["tables"] = {name: {key: array(dtype) for key in keys} for name, keys in table_columns(tables).items()}
    return records


def _merge_blocks(values, num_rows):
    return tf.reshape(values, [num_rows, *values.shape[2:]])


def _block_contribution(setup, submodel, state, round, seed, plan, learning_rate, max_clients):
    """Return the block's part of every sum of `_sum_names`, and the records of its clients, [max_clients, ...]."""
    update = train_block(setup, submodel, state, round, seed, plan, learning_rate)
    local, clients, dtype = update.local, setup.engine.blocks[submodel].clients, setup.layout.dtype
    steps = tf.math.count_nonzero(tf.reduce_any(plan.rows >= 0, axis=-1), axis=1, dtype=tf.int32)
    finite = _finite_clients(update, steps)
    counts = finite & (steps > 0)
    weight = tf.cast(counts, dtype)
    # tf.where instead of a product with a mask: NaN * 0 is NaN.
    counted = counts[:, None] if update.counted is None else counts[:, None] & update.counted
    values = tf.where(counted, update.values, tf.zeros([], dtype))
    if setup.examples.counts is not None:
        weight *= tf.gather(setup.examples.counts, plan.rows_of_tables)
        values *= weight[:, None]
    # Summed step after step: the zeros of a longer round in the same call change no bit.
    per_step = tf.cast(tf.maximum(steps, 1), dtype)
    loss, gradient_norm = (tf.cumsum(each)[-1] / per_step for each in (local.losses, local.gradient_norms))
    records = {"loss": loss, "gradient_norm": gradient_norm, "finite": finite, "weight": weight}
    # Records [K, ...] of this block.
    # Covered coordinates of every axis, [K, size].
    masks = [axis_masks(setup.layout.cut, coordinates, dtype) for coordinates in update.merged]
    for number, axis in enumerate(setup.layout.cut.distinct):
        records[f"mask{number}"] = tf.stack([mask[axis] for mask in masks])
    records["tables"] = new_table_rows(setup, submodel, state["tables"], update, plan)
    # Pad the records of a smaller block to the size of the largest one.
    if clients < max_clients:
        records = tf.nest.map_structure(
            lambda value: tf.pad(value, [[0, max_clients - clients], *[[0, 0]] * (value.shape.rank - 1)]), records
        )
    # Matrices [K, values] to be summed over the clients.
    rows = {"values": values}
    if update.counted is not None:
        rows["coverage"] = tf.cast(counted, dtype) * weight[:, None]
    if update.memory_change is not None:
        rows["memory_change"] = tf.where(counts[:, None], update.memory_change, tf.zeros([], dtype))
    return {name: _sum_of_block(setup, submodel, matrix, update, plan) for name, matrix in rows.items()}, records


def _finite_clients(update, steps):
    """Return whether the result and the new memory of each client are finite: bool [K]."""
    finite = tf.reduce_all(tf.math.is_finite(update.values), axis=1)
    if update.updated is not None:
        finite &= tf.reduce_all(tf.math.is_finite(update.local.weights), axis=1)
    if update.memory is not None:
        # A client without a step has no new memory.
        finite &= tf.reduce_all(tf.math.is_finite(update.memory), axis=1) | (steps == 0)
    return finite


def _sum_of_block(setup, submodel, values, update, plan):
    """Sum a block's weighted values [K, values] over its clients to a global row; zeros where no client counts."""
    block, first_merged_stage = (
        setup.engine.blocks[submodel],
        [first[submodel] for first in setup.layout.first_merged_stage],
    )
    done = completed_stages(plan.rows, plan.stages) if max(first_merged_stage) > 1 else None
    rows = (
        values
        if block.networks == 1
        else tf.stack([block.network_row(row) for row in tf.unstack(values, num=block.clients)])
    )
    return scatter_rows(setup.layout.cut, submodel, rows, update.merged, first_merged_stage, done)


def completed_stages(rows: tf.Tensor, stages: tf.Tensor) -> tf.Tensor:
    """Return the number of stages that clients have completed.

    Args:
        rows: int32 [..., K, ticks, batch], -1 = padding.
        stages: int32 [..., ticks].

    Returns:
        int32 [..., K].
    """
    return tf.reduce_max(tf.where(tf.reduce_any(rows >= 0, axis=-1), stages[..., None, :] + 1, 0), axis=-1)


def _weights_in_merge(setup, weight, submodels, rows, stages):
    """Return for each global value the weight of each client, [S * K]: 0 if its sub-model is not merged, or not yet."""

    def weights(first_stages):
        if set(first_stages) == {1}:
            return weight
        first = tf.gather(tf.constant(first_stages), submodels)
        counts = first > 0
        if max(first_stages) > 1:
            counts &= tf.reshape(completed_stages(rows, stages), [-1]) >= first
        return weight * tf.cast(counts, weight.dtype)

    first_merged_stage = setup.layout.first_merged_stage
    by_first_stages = {first_stages: weights(first_stages) for first_stages in dict.fromkeys(first_merged_stage)}
    return [by_first_stages[first_stages] for first_stages in first_merged_stage]
