"""Trains the cohort of a round, block by block, and sums the results of its clients."""

import functools
import math
from typing import NamedTuple

import tensorflow as tf

from hetero_tf.models.state import StateRows
from hetero_tf.planning.packing import PackedRounds
from hetero_tf.rounds.block_training import RoundScalars, completed_stages, table_rows, train_block
from hetero_tf.rounds.merge import axis_mask, coverage, sum_products
from hetero_tf.rounds.private_sum import sum_clipped
from hetero_tf.rounds.round_setup import RoundSetup


class CohortResult(NamedTuple):
    """Sums over the clients of a cohort, and a record of each.

    Attributes:
        total: Sum of weight * value over the clients that cover each entry of the global row, [values]; of an
            asynchronous policy [D, values], by the delay of the clients.
        coverage: The sum of their weights, in the shape of `total`.
        memory_change: Sum of the changes of these clients' memories, [values]; None if the server does not read it.
        products: Sum and coverage of the products of adapters, see `merge.merge_products`; None without products.
        records: Values of each client, [S * K]: those of `record_types`; "weight" in the merge, 0 for excluded clients;
            and under "tables" its new rows, `{table: [S * K, ...]}`; "rows" and "covered" of `client_results`.
    """

    total: tf.Tensor
    coverage: tf.Tensor
    memory_change: tf.Tensor | None
    products: tuple[tf.Tensor, tf.Tensor] | None
    records: dict


def record_types(setup: RoundSetup) -> dict:
    """Return `{name: type}` of the per-client records that the host receives."""
    dtype = setup.layout.dtype
    squares = {"squared_loss": dtype} if setup.algorithm.records_squares else {}
    return {"loss": dtype, "gradient_norm": dtype, "finite": tf.bool, **squares}


def train_cohort_on_replicas(
    setup: RoundSetup, state: StateRows, packed: PackedRounds, scalars: RoundScalars, delays: tf.Tensor | None = None
) -> CohortResult:
    """Run `train_cohort` on the whole cohort; every replica trains the blocks that are assigned to it."""
    replicas = setup.engine.replicas
    assigned = tf.cast(tf.where(packed.replicas == replicas.number)[:, 0], tf.int32)
    assigned_blocks = tf.nest.map_structure(lambda array: tf.gather(array, assigned), packed)
    result = train_cohort(setup, state, assigned_blocks, scalars, delays)
    blocks, max_clients = tf.unstack(tf.shape(packed.clients))
    # Rows of this replica's clients among all [S * K] clients.
    row_indices = tf.reshape(assigned[:, None] * max_clients + tf.range(max_clients), [-1, 1])

    def scatter_clients(rows):
        """Scatter [assigned * K, ...] -> [S * K, ...], zeros for the clients of other replicas."""
        size = tf.concat([[blocks * max_clients], tf.shape(rows)[1:]], 0)
        return tf.scatter_nd(row_indices, tf.cast(rows, setup.layout.dtype), size)

    # One collective sums everything; bool records travel as numbers and are cast back.
    sums = result._asdict() | {"records": tf.nest.map_structure(scatter_clients, result.records)}
    sums = replicas.all_reduce_sum({name: value for name, value in sums.items() if value is not None})
    types = record_types(setup)
    records = sums["records"] | {name: tf.cast(sums["records"][name], kind) for name, kind in types.items()}
    return CohortResult(sums["total"], sums["coverage"], sums.get("memory_change"), sums.get("products"), records)


def train_cohort(
    setup: RoundSetup, state: StateRows, packed: PackedRounds, scalars: RoundScalars, delays: tf.Tensor | None = None
) -> CohortResult:
    """Train all clients of a round from the same global values.

    Args:
        packed: The arrays of one round; S = blocks, K = the largest block.
        delays: int32 [D], the different delays of the round, of an asynchronous policy.
    """
    count, max_clients, arrivals = tf.shape(packed.clients)[0], max(setup.block_sizes), None
    if delays is not None:
        # Index of each client's delay among those of the round, [S, K].
        arrivals = tf.argmax(packed.delays[..., None] == delays, -1, tf.int32)

    def body(index, sums, records):
        groups = None if arrivals is None else (arrivals[index], tf.unique(arrivals[index])[0])
        branches = [
            functools.partial(_train_and_sum, setup, submodel, state, packed, scalars, index, groups)
            for submodel in setup.submodels
        ]
        contribution, recorded = tf.switch_case(packed.submodels[index], branches)
        # Sums are added in the order of the blocks: the result does not depend on the number of blocks in flight.
        if groups is None:
            sums = {name: sums[name] + contribution[name] for name in sums}
        else:
            rows = groups[1][:, None]
            sums = {name: tf.tensor_scatter_nd_add(sums[name], rows, contribution[name]) for name in sums}
        records = tf.nest.map_structure(lambda array, value: array.write(index, value), records, recorded)
        return index + 1, sums, records

    # Loop over the blocks of all levels; several are in flight, limited by `parallel`.
    _, sums, records = tf.while_loop(
        lambda index, *_: index < count,
        body,
        (0, _zero_sums(setup, state.weights, delays), _empty_records(setup, state.tables, count)),
        parallel_iterations=setup.engine.replicas.parallel,
    )
    # [S, K, ...] -> [S * K, ...]
    records = tf.nest.map_structure(lambda array: _merge_blocks(array.stack(), count * max_clients), records)
    masks = dict(zip(setup.layout.cut.distinct, records.pop("masks")))
    if "coverage" not in sums:
        weights = _weights_in_merge(setup, records["weight"], packed, max_clients)
        groups = None if arrivals is None else (tf.reshape(arrivals, [-1]), tf.range(tf.size(delays)))
        sums |= _coverage_of_axes(setup, sums, masks, weights, groups)
    return CohortResult(sums["total"], sums["coverage"], sums.get("memory_change"), sums.get("products"), records)


def _coverage_of_axes(setup, sums, masks, weights, groups):
    """Return the coverage of the values and products of `sums`: without entry masks, that of small masks of axes.

    Args:
        masks: `{axis: [S * K, size]}`.
        weights: See `_weights_in_merge`.
        groups: See `_sum_groups`.
    """
    layout, adapters = setup.layout, setup.layout.adapters
    of = functools.partial(coverage, layout.cut, masks, kinds=layout.first_merged_stage, zeros=layout.zeros_count)
    covered = {"coverage": _sum_groups(of, weights, groups)}
    if "products" in sums:
        products = coverage(adapters.cut, masks, weights, adapters.first_merged_stage)
        covered["products"] = sums["products"], products
    return covered


def _sum_groups(total, values, groups):
    """Return `total(values)` of all clients; with groups, one row for each of them, in which others have zeros.

    Args:
        values: Tensors whose first or only axis is that of the clients.
        groups: int32 [clients], the group of each client, and int32 [groups], the groups; or None.
    """
    if groups is None:
        return total(values)

    def of_group(group):
        def members(each):
            is_member = tf.reshape(groups[0] == group, [-1, *[1] * (each.shape.rank - 1)])
            return tf.where(is_member, each, tf.zeros([], each.dtype))

        return total(tf.nest.map_structure(members, values))

    spec = tf.TensorSpec([None], tf.nest.flatten(values)[0].dtype)
    return tf.map_fn(of_group, groups[1], fn_output_signature=spec)


def _zero_sums(setup, weights, delays):
    """Return zeros for every sum over clients, by its name; coverage is one of them only with entry masks."""
    zeros = tf.zeros_like(weights) if delays is None else tf.zeros([tf.size(delays), *weights.shape], weights.dtype)
    has_masks = any(submodel.mask for submodel in setup.submodels)
    names = {"total": True, "coverage": has_masks, "memory_change": setup.algorithm.sums_memory}
    sums = {name: zeros for name, needed in names.items() if needed}
    if any(submodel.factors for submodel in setup.submodels):
        sums["products"] = tf.zeros([sum(map(math.prod, setup.layout.adapters.cut.shapes))], weights.dtype)
    return sums


def _empty_records(setup, tables, count):
    """Return a `tf.TensorArray` over the blocks for every record of their clients."""

    def array(dtype):
        return tf.TensorArray(dtype, size=count)

    dtype = setup.layout.dtype
    records = {name: array(kind) for name, kind in {**record_types(setup), "weight": dtype}.items()}
    if setup.algorithm.aggregate is not None:
        records |= {"rows": array(dtype), "covered": array(tf.bool)}
    masks = tuple(array(dtype) for _ in setup.layout.cut.distinct)
    return {**records, "masks": masks, "tables": {name: array(dtype) for name in tables}}


def _merge_blocks(values, num_rows):
    return tf.reshape(values, [num_rows, *values.shape[2:]])


def _train_and_sum(setup, submodel, state, packed, scalars, index, groups):
    """Train a block; return its part of every sum of `_zero_sums`, and the records of its clients, [max_clients, ...].

    It is the branch of a sub-model in the graph of `train_cohort`.

    Args:
        groups: Groups of the block's slots with equal delays, see `_sum_groups`.
    """
    plan = packed.block(index, submodel.block.clients)
    result = train_block(setup, submodel, state, scalars, plan)
    # Steps and weight in the merge of each client, [K].
    steps = tf.math.count_nonzero(tf.reduce_any(plan.rows >= 0, axis=-1), axis=1, dtype=tf.int32)
    records = _client_records(setup, submodel, result, steps)
    finite = _finite_clients(result, records, steps)
    counts, counts_of = finite & (steps > 0), setup.examples.counts
    weight = tf.cast(counts, setup.layout.dtype)
    if counts_of is not None:
        weight *= tf.gather(counts_of, table_rows(plan))
    rows = _weighted_rows(result, counts, weight if counts_of is not None else None)
    groups = groups and (groups[0][: submodel.block.clients], groups[1])

    def total(values):
        return submodel.cut.scatter_sum(submodel.block.network_rows(values), result.merged, result.completed_stages)

    if setup.private is not None:
        del rows["total"]
    sums = {name: _sum_groups(total, values, groups) for name, values in rows.items()}
    if setup.private is not None:
        sums["total"] = sum_clipped(setup, submodel, state, result, counts)
    if submodel.factors is not None:
        counted = submodel.block.network_rows(tf.where(counts[:, None], result.values, tf.zeros([], weight.dtype)))
        sums["products"] = sum_products(setup.layout, submodel, counted, weight, result.merged, result.completed_stages)
    records |= {"finite": finite, "weight": weight}
    if setup.algorithm.aggregate is not None:
        records |= _global_rows(submodel, result, counts)
    # Pad the records of a smaller block to the size of the largest one.
    missing = max(setup.block_sizes) - submodel.block.clients
    if missing:
        records = tf.nest.map_structure(
            lambda value: tf.pad(value, [[0, missing], *[[0, 0]] * (value.shape.rank - 1)]), records
        )
    return sums, records


def _weighted_rows(result, counts, weight):
    """Return the rows [K, values] to be summed over the clients that count, by the names of `_zero_sums`.

    Args:
        counts: bool [K].
        weight: [K], the clients' weights in the merge. If None, each client that counts has 1.
    """
    # tf.where instead of a product with a mask: NaN * 0 is NaN.
    zero, counted = tf.zeros([], result.values.dtype), _counted_entries(result, counts)
    rows = {"total": tf.where(counted, result.values, zero)}
    if result.counted is not None:
        rows["coverage"] = tf.cast(counted, zero.dtype)
    if weight is not None:
        rows = {name: values * weight[:, None] for name, values in rows.items()}
    if result.memory_change is not None:
        rows["memory_change"] = tf.where(counts[:, None], result.memory_change, zero)
    return rows


def _counted_entries(result, counts):
    """Return the entries that are merged: bool [K, values], or [K, 1] without a mask; `counts`: bool [K]."""
    return counts[:, None] if result.counted is None else counts[:, None] & result.counted


def _global_rows(submodel, result, counts):
    """Return the rows of a block's clients among all global values, and the entries that they cover: [K, values]."""
    rows, counted = _weighted_rows(result, counts, None)["total"], _counted_entries(result, counts)
    ones = tf.cast(tf.broadcast_to(counted, tf.shape(rows)), rows.dtype)
    rows, ones = (
        submodel.cut.scatter(submodel.block.network_rows(values), result.merged, result.completed_stages)
        for values in (rows, ones)
    )
    return {"rows": rows, "covered": ones > 0}


def _client_records(setup, submodel, result, steps):
    """Return the records of a block's clients, [K, ...], see `CohortResult`; "masks": `axis_mask` of each axis."""
    dtype = setup.layout.dtype
    # Summed step after step: the zeros of a longer round in the same call change no bit.
    per_step = tf.cast(tf.maximum(steps, 1), dtype)
    values_of_steps = {"loss": result.local.losses, "gradient_norm": result.local.gradient_norms}
    if setup.algorithm.records_squares:
        values_of_steps["squared_loss"] = tf.square(result.local.losses)
    means = {name: tf.cumsum(values)[-1] / per_step for name, values in values_of_steps.items()}
    # Covered coordinates of every axis, [K, size].
    masks = tuple(
        tf.stack([axis_mask(axis, coordinates, dtype) for coordinates in result.merged])
        for axis in setup.layout.cut.distinct
    )
    return {**means, "masks": masks, "tables": _new_table_rows(submodel, result)}


def _new_table_rows(submodel, result):
    """Return the new table rows of a block's clients, `{table: [K, ...]}`."""
    block, stored, slots = submodel.block, result.stored, range(submodel.block.clients)

    def write(name, old, rows):
        table = submodel.tables[name]
        return tf.stack([table.write(old[slot], rows[slot], result.coordinates[slot]) for slot in slots])

    new_rows = {}
    for name in [table for table in ("personal", "previous") if table in stored]:
        new_rows[name] = write(name, stored[name], block.network_rows(result.local.rows))
    if "memory" in stored:
        new_rows["memory"] = write("memory", stored["memory"], result.memory)
    if "errors" in stored:
        new_rows["errors"] = write("errors", stored["errors"], result.errors)
    if "twin" in stored:
        twin, rounds = result.local.twin, stored["twin_scalars"][:, :1]
        new_rows["twin"] = write("twin", stored["twin"], twin.values)
        new_rows["twin_scalars"] = tf.concat([rounds + 1, twin.alpha], 1)
    if "peers" in stored:
        old = stored["peers"]
        new = [
            write("peers", old[:, peer], block.network_rows(result.local.rows, peer + 1))
            for peer in range(block.networks - 1)
        ]
        # Peers that the level does not train keep their values.
        new_rows["peers"] = tf.stack([*new, *tf.unstack(old[:, len(new) :], axis=1)], 1)
    return new_rows


def _finite_clients(result, records, steps):
    """Return whether result, loss, gradient norm, new memory and twin of each client are finite: bool [K]."""
    finite = tf.reduce_all(tf.math.is_finite(result.values), axis=1)
    # Clipping divides by an infinite norm, so weights can stay finite.
    finite &= tf.math.is_finite(records["loss"]) & tf.math.is_finite(records["gradient_norm"])
    if result.updated is not None:
        finite &= tf.reduce_all(tf.math.is_finite(result.local.rows), axis=1)
    if result.memory is not None:
        # A client without a step has no new memory.
        finite &= tf.reduce_all(tf.math.is_finite(result.memory), axis=1) | (steps == 0)
    if result.local.twin:
        finite &= tf.reduce_all(tf.math.is_finite(result.local.twin.values), axis=1)
    return finite


def client_results(
    setup: RoundSetup, packed: PackedRounds, records: dict, rate: tf.Tensor
) -> dict[str, tf.Tensor] | None:
    """Return the arguments of the recipe's merge after `old`, see `methods.merges`; None if it needs only sums.

    Args:
        packed: The arrays of one round.
        records: Those of its `CohortResult`.
        rate: Its learning rate.
    """
    if setup.algorithm.aggregate is None:
        return None
    weight, steps = records["weight"], tf.reduce_any(packed.rows >= 0, axis=-1)
    return {
        "rows": records["rows"],
        # Sums over replicas are numbers.
        "covered": tf.cast(records["covered"], tf.bool),
        "weight": weight,
        "steps": tf.reshape(tf.math.count_nonzero(steps, axis=-1, dtype=tf.int32), [-1]),
        # The loss of an excluded client may be NaN.
        "loss": tf.where(weight > 0, records["loss"], tf.zeros([], weight.dtype)),
        "examples": tf.gather(setup.examples.sizes, tf.maximum(tf.reshape(packed.clients, [-1]), 0)),
        "submodel": tf.repeat(packed.submodels, tf.shape(packed.clients)[1]),
        "rate": rate,
    }


def _weights_in_merge(setup, weight, packed, max_clients):
    """Return the weight of each client, [S * K], for the global values with equal `first_merged_stage`.

    It is 0 if the values of the client's sub-model are not merged, or not yet.
    """
    submodels = tf.repeat(packed.submodels, max_clients)

    def weights(first_stages):
        if set(first_stages) == {1}:
            return weight
        first = tf.gather(tf.constant(first_stages), submodels)
        counts = first > 0
        if max(first_stages) > 1:
            counts &= tf.reshape(completed_stages(packed.rows, packed.stages), [-1]) >= first
        return weight * tf.cast(counts, weight.dtype)

    layout, kinds = setup.layout, list(setup.layout.first_merged_stage)
    kinds += layout.adapters.first_merged_stage if layout.adapters else ()
    return {first_stages: weights(first_stages) for first_stages in dict.fromkeys(kinds)}
