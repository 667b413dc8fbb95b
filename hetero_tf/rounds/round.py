"""The compiled round: cut, train all active clients, merge; several rounds in one call, traced once."""

import dataclasses
import functools
from collections.abc import Callable

import tensorflow as tf

from hetero_tf.rounds.client_tables import update_tables
from hetero_tf.rounds.cohort import record_types, train_cohort_on_replicas
from hetero_tf.rounds.disk_rows import reads_from_disk, row_specs
from hetero_tf.rounds.global_row import pack_state, unpack_state
from hetero_tf.rounds.merge import all_finite, merge_updates
from hetero_tf.rounds.round_setup import RoundSetup


def build_round(setup: RoundSetup, slots: int, registered: int) -> Callable:
    """Builds the compiled round.

    Args:
        slots: Number of the server's slots, each with the shapes of the global values.
        registered: Number of registered clients.

    Returns:
        A tf.function `(state, packed, learning_rates, first_round, seed) -> (state, metrics)`, and then
        the values of `read_training_rows` if the examples stay on disk. state: `new_state`;
        packed: the arrays of a `packing.PackedRounds`; learning_rates: [rounds]; first_round, seed: scalar int32.
        If replicas share the work, `packed` ends with the replica of each block, and a call runs one round.
        metrics: "loss", "gradient_norm" (means over the steps of each client) and "finite", each [rounds, blocks * K].
        A client whose result is not finite has weight 0: the merge of the others is bit-equal to one without it.
        "merge_finite", [rounds]: False where finite results overflowed in the sum or in the server's step; such a round
        does not change the state.
    """
    dtype, scalar, shared = setup.layout.dtype, tf.TensorSpec([], tf.int32), setup.engine.replicas.count > 1
    # The signature is fixed, so the function is traced once for a run.
    weights = [tf.TensorSpec(shape, dtype) for shape in setup.layout.cut.shapes]
    signature = [
        new_state(setup, weights, slots, registered, tf.TensorSpec),
        [tf.TensorSpec([None] * rank, tf.int32) for rank in (*(3, 3, 2, 2, 5, 3, 3), *([2] if shared else []))],
        tf.TensorSpec([None], dtype),
        scalar,
        scalar,
        *([row_specs(setup.examples)] if reads_from_disk(setup.examples) else []),
    ]
    return setup.engine.replicas.compiled(functools.partial(run_rounds, setup), input_signature=signature)


def new_state(setup: RoundSetup, weights: list, slots: int, registered: int, make: Callable) -> dict:
    """Build the state that a round takes and returns.

    Args:
        weights: List of the global values, in the order of the cut.
        slots, registered: As for `build_round`.
        make: `(shape, dtype) -> value`, which builds empty values before the first round, such as tf.zeros.

    Returns:
        {"weights": list; "slots": list of lists, the server's state; "tables": {"personal", "memory", "peers"}, the
        clients' state between rounds, each `{position of a variable: [registered, *shape]}`, of peers
        `[registered, peers, *shape]`}.
    """

    def table(positions, *leading):
        return {
            position: make([registered, *leading, *weights[position].shape], weights[position].dtype)
            for position in positions
        }

    all_positions, peers = range(len(weights)), setup.engine.peers
    return {
        "weights": list(weights),
        "slots": [[make(weight.shape, weight.dtype) for weight in weights] for _ in range(slots)],
        "tables": {
            "personal": table(setup.layout.personal),
            "memory": table(all_positions if setup.algorithm.remember else ()),
            "peers": table(all_positions if peers else (), peers),
        },
    }


def run_rounds(
    setup: RoundSetup,
    state: dict,
    packed: list[tf.Tensor],
    learning_rates: tf.Tensor,
    first_round: tf.Tensor,
    seed: tf.Tensor,
    read_rows: dict[str, tf.Tensor] | None = None,
) -> tuple[dict, dict]:
    """Run several rounds in a loop of the graph; see `build_round`.

    `read_rows` replaces the fields of `setup.examples` that it names.
    """
    if read_rows:
        setup = dataclasses.replace(setup, examples=dataclasses.replace(setup.examples, **read_rows))
    shapes, state = setup.layout.cut.shapes, pack_state(state)
    if setup.engine.replicas.count > 1:
        # Replicas synchronise in collectives, which must not run inside a loop of the graph.
        arrays = [array[0] for array in packed]
        state, records = run_round(setup, state, arrays, learning_rates[0], first_round, seed)
        return unpack_state(state, shapes), {name: records[name][None] for name in _metric_types(setup)}
    # One replica: all rounds in one loop, traced once.
    rounds = tf.shape(learning_rates)[0]
    metrics = {name: tf.TensorArray(kind, size=rounds) for name, kind in _metric_types(setup).items()}

    def body(index, state, metrics):
        arrays = [array[index] for array in packed]
        state, records = run_round(setup, state, arrays, learning_rates[index], first_round + index, seed)
        return index + 1, state, {name: metrics[name].write(index, records[name]) for name in metrics}

    _, state, metrics = tf.while_loop(
        lambda index, *_: index < rounds, body, (0, state, metrics), parallel_iterations=1
    )
    return unpack_state(state, shapes), {name: values.stack() for name, values in metrics.items()}


def _metric_types(setup):
    """Return `{name: type}` of the records of a round: those of each client, and that of the merge."""
    return {**record_types(setup.layout.dtype), "merge_finite": tf.bool}


def run_round(
    setup: RoundSetup, state: dict, packed: list[tf.Tensor], learning_rate: tf.Tensor, round: tf.Tensor, seed: tf.Tensor
) -> tuple[dict, dict]:
    """Run one round of a packed state; `packed`: the arrays of one round of a `packing.PackedRounds`."""
    total, coverage, memory_change, records = train_cohort_on_replicas(setup, state, packed, learning_rate, round, seed)
    # Rows [values] of the new weights and slots; the old ones if any of them is not finite.
    merged = merge_updates(setup, state, total, coverage, memory_change)
    finite = all_finite(tf.nest.flatten(merged))
    weights, slots = tf.cond(finite, lambda: merged, lambda: (state["weights"], state["slots"]))
    # A round whose merge overflowed changes no client table.
    counts = {**records, "weight": tf.where(finite, records["weight"], 0)} if any(state["tables"].values()) else records
    tables = update_tables(setup, state["tables"], counts, *packed[:2])
    return {"weights": weights, "slots": slots, "tables": tables}, {**records, "merge_finite": finite}
