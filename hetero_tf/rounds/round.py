"""The compiled round: cut, train all active clients, merge; several rounds in one call, traced once."""

import dataclasses
import functools
from collections.abc import Callable

import tensorflow as tf

from hetero_tf.models.state import StateLayout, StateRows
from hetero_tf.planning.packing import RANKS, PackedRounds
from hetero_tf.rounds.arrivals import merge_arrivals
from hetero_tf.rounds.batches import row_specs
from hetero_tf.rounds.block_training import RoundScalars
from hetero_tf.rounds.client_tables import write_tables
from hetero_tf.rounds.cohort import client_results, record_types, train_cohort, train_cohort_on_replicas
from hetero_tf.rounds.merge import is_finite, merge_products, merge_updates, trained_values
from hetero_tf.rounds.private_sum import private_sum
from hetero_tf.rounds.round_setup import RoundSetup


def build_round(setup: RoundSetup, layout: StateLayout) -> Callable:
    """Build the compiled round.

    Returns:
        A tf.function `(values, packed, learning_rates, first_round, seed, noise) -> (values, metrics)`; if the examples
        stay on disk, with the values of `read_training_rows` as last argument. values: in the structure of
        `StateLayout.build`; packed: a `PackedRounds`; learning_rates: [rounds]; first_round, seed: scalar int32; noise
        of private rounds: the seeds int64 [rounds, n, 2] and the standard deviations float64 [rounds, n] of its n
        summands, else (). If replicas share the work, a call runs one round.
        metrics: "loss", "gradient_norm" (means over the steps of each client), "finite" and, if the selection needs it,
        "squared_loss", each [rounds, blocks * K].
        A client with a result or loss that is not finite has weight 0: the merge of the others is bit-equal to one
        without it.
        "merge_finite", [rounds]: False where finite results overflowed in the sum or in the server's step; such a round
        does not change the state.
    """
    scalar, size = tf.TensorSpec([], tf.int32), [None, setup.private.summands if setup.private else None]
    noise = tf.TensorSpec([*size, 2], tf.int64), tf.TensorSpec(size, tf.float64)
    # The signature is fixed, so the function is traced once for a run.
    signature = [
        layout.build(tf.TensorSpec),
        PackedRounds(*(tf.TensorSpec([None] * rank, tf.int32) for rank in RANKS)),
        tf.TensorSpec([None], setup.layout.dtype),
        scalar,
        scalar,
        noise if setup.private else (),
        *([row_specs(setup.examples)] if setup.examples.on_disk else []),
    ]
    return setup.engine.replicas.compiled(functools.partial(run_rounds, setup, layout), input_signature=signature)


def run_rounds(
    setup: RoundSetup,
    layout: StateLayout,
    values: dict,
    packed: PackedRounds,
    learning_rates: tf.Tensor,
    first_round: tf.Tensor,
    seed: tf.Tensor,
    noise: tuple[tf.Tensor, ...] = (),
    read_rows: dict[str, tf.Tensor] | None = None,
) -> tuple[dict, dict]:
    """Run several rounds in a loop of the graph; see `build_round`.

    `read_rows` replaces the fields of `setup.examples` that it names.
    """
    if read_rows:
        setup = dataclasses.replace(setup, examples=dataclasses.replace(setup.examples, **read_rows))
    types, state = {**record_types(setup), "merge_finite": tf.bool}, layout.pack(values)

    def inputs_of(index):
        arrays = tf.nest.map_structure(lambda array: array[index], packed)
        return arrays, RoundScalars(
            first_round + index, seed, learning_rates[index], tuple(each[index] for each in noise)
        )

    if setup.engine.replicas.count > 1:
        # Replicas synchronise in collectives, which must not run inside a loop of the graph.
        state, records = run_round(setup, state, *inputs_of(0))
        return layout.unpack(state), {name: records[name][None] for name in types}
    # One replica: all rounds in one loop, traced once.
    rounds = tf.shape(learning_rates)[0]

    def body(index, state, metrics):
        state, records = run_round(setup, state, *inputs_of(index))
        return index + 1, state, {name: metrics[name].write(index, records[name]) for name in metrics}

    metrics = {name: tf.TensorArray(kind, size=rounds) for name, kind in types.items()}
    _, state, metrics = tf.while_loop(
        lambda index, *_: index < rounds, body, (0, state, metrics), parallel_iterations=1
    )
    return layout.unpack(state), {name: values.stack() for name, values in metrics.items()}


def run_round(
    setup: RoundSetup, state: StateRows, packed: PackedRounds, scalars: RoundScalars
) -> tuple[StateRows, dict]:
    """Run one round; `packed`: its arrays, without the axis of rounds."""
    train = train_cohort_on_replicas if setup.engine.replicas.count > 1 else train_cohort
    pending, stale, delays = state.pending, setup.algorithm.stale_merge, None
    if stale is not None:
        delays, _ = tf.unique(tf.concat([[0], tf.reshape(packed.delays, [-1])], 0))
    total, coverage, memory_change, products, records = train(setup, state, packed, scalars, delays)
    if stale is not None:
        total, coverage, pending = merge_arrivals(stale, state, delays, total, coverage, setup.layout.learned)
    if setup.private is not None:
        total, coverage = private_sum(setup, state, total, scalars)
    trained = trained_values(setup.layout, scalars.number)
    if trained is not None:
        # Factors that the round does not train keep their bits.
        coverage = tf.where(trained, coverage, tf.zeros([], coverage.dtype))
    clients = client_results(setup, packed, records, scalars.learning_rate)
    merged = merge_updates(setup, state._replace(pending=pending), total, coverage, memory_change, clients)
    if products is not None:
        key = tf.stack([scalars.seed, scalars.number])
        weights = merge_products(setup.layout, state.weights, merged.weights, *products, key)
        merged = merged._replace(weights=weights)
    # The old rows if any of the new ones is not finite.
    finite = is_finite(merged, delays)
    changing = tf.cond(finite, lambda: merged._replace(tables={}), lambda: state._replace(tables={}))
    # Clients [S * K]; a round whose merge overflowed changes no client table.
    clients, members = (tf.reshape(array, [-1]) for array in (packed.clients, packed.members))
    is_written = finite & (records["weight"] > 0)
    tables = write_tables(state.tables, records["tables"], clients, members, setup.layout.is_ensemble, is_written)
    return changing._replace(tables=tables), {**records, "merge_finite": finite}
