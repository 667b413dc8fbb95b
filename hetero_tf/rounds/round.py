"""The compiled round: cut, train all active clients, merge; several rounds in one call, traced once."""

import dataclasses
import functools
from collections.abc import Callable

import tensorflow as tf

from hetero_tf.rounds.client_tables import update_tables
from hetero_tf.rounds.cohort import record_types, train_cohort_on_replicas
from hetero_tf.rounds.disk_rows import given_specs, reads_from_disk
from hetero_tf.rounds.global_row import in_rows, unpack_state
from hetero_tf.rounds.merge import all_finite, merge_updates
from hetero_tf.rounds.round_setup import RoundSetup


def build_round(parts: RoundSetup, slots: int, registered: int) -> Callable:
    """Builds the compiled round.

    Args:
        slots: How many tensors of a variable's shape the server keeps for each.
        registered: Number of registered clients.

    Returns:
        A tf.function `(state, packed, learning_rates, first_round, seed) -> (state, metrics)`, and then
        `read_training_rows` where examples stay on disk. state: `new_state`;
        packed: the arrays of a `packing.PackedRounds`; learning_rates: [rounds]; first_round, seed: scalar int32.
        Where replicas share the work, `packed` ends with the replica of each stack, and a call plays one round.
        metrics: "loss", "gradient_norm" (means over the steps of each client) and "finite", each [rounds, stacks * K].
        A client whose result is not finite counts nothing, and the others' merge is bit-equal to one without it.
        "merge_finite", [rounds]: False where finite results overflowed in the sum or in the server's step; such a round
        leaves the state as it was.
    """
    dtype, scalar, shared = parts.placement.dtype, tf.TensorSpec([], tf.int32), parts.engine.replicas.count > 1
    weights = [tf.TensorSpec(shape, dtype) for shape in parts.placement.cut.shapes]
    signature = [
        new_state(parts, weights, slots, registered, tf.TensorSpec),
        [tf.TensorSpec([None] * rank, tf.int32) for rank in (*(3, 3, 2, 2, 5, 3, 3), *([2] if shared else []))],
        tf.TensorSpec([None], dtype),
        scalar,
        scalar,
        *([given_specs(parts.examples)] if reads_from_disk(parts.examples) else []),
    ]
    return parts.engine.replicas.compiled(functools.partial(play, parts), input_signature=signature)


def new_state(parts: RoundSetup, weights: list, slots: int, registered: int, make: Callable) -> dict:
    """What a round takes and gives.

    Args:
        weights: List of the global values, in the order of the cut.
        slots, registered: As for `build_round`.
        make: `(shape, dtype) -> value` of what is empty before the first round, such as tf.zeros.

    Returns:
        {"weights": list; "slots": list of lists, what the server keeps; "tables": {"personal", "memory", "peers"},
        what clients keep between rounds, each `{position of a variable: [registered, *shape]}`, of peers
        `[registered, peers, *shape]`}.
    """

    def table(positions, *each):
        return {
            position: make([registered, *each, *weights[position].shape], weights[position].dtype)
            for position in positions
        }

    everything, peers = range(len(weights)), parts.engine.peers
    return {
        "weights": list(weights),
        "slots": [[make(weight.shape, weight.dtype) for weight in weights] for _ in range(slots)],
        "tables": {
            "personal": table(parts.placement.personal),
            "memory": table(everything if parts.algorithm.remember else ()),
            "peers": table(everything if peers else (), peers),
        },
    }


def play(
    parts: RoundSetup,
    state: dict,
    packed: list[tf.Tensor],
    learning_rates: tf.Tensor,
    first_round: tf.Tensor,
    seed: tf.Tensor,
    given: dict[str, tf.Tensor] | None = None,
) -> tuple[dict, dict]:
    """Plays several rounds in a loop of the graph; see `build_round`.

    `given` takes the place of the fields of `parts.examples` that it names.
    """
    if given:
        parts = dataclasses.replace(parts, examples=dataclasses.replace(parts.examples, **given))
    shapes, state = parts.placement.cut.shapes, in_rows(state)
    if parts.engine.replicas.count > 1:
        # Replicas wait for each other, which they must not do inside of a loop of the graph.
        arrays = [array[0] for array in packed]
        state, records = play_one(parts, state, arrays, learning_rates[0], first_round, seed)
        return unpack_state(state, shapes), {name: records[name][None] for name in _metric_types(parts)}
    rounds = tf.shape(learning_rates)[0]
    metrics = {name: tf.TensorArray(kind, size=rounds) for name, kind in _metric_types(parts).items()}

    def body(index, state, metrics):
        arrays = [array[index] for array in packed]
        state, records = play_one(parts, state, arrays, learning_rates[index], first_round + index, seed)
        return index + 1, state, {name: metrics[name].write(index, records[name]) for name in metrics}

    _, state, metrics = tf.while_loop(
        lambda index, *_: index < rounds, body, (0, state, metrics), parallel_iterations=1
    )
    return unpack_state(state, shapes), {name: values.stack() for name, values in metrics.items()}


def _metric_types(parts):
    """`{name: type}` of what a round records: of each client, and of the merge."""
    return {**record_types(parts.placement.dtype), "merge_finite": tf.bool}


def play_one(
    parts: RoundSetup, state: dict, packed: list[tf.Tensor], learning_rate: tf.Tensor, round: tf.Tensor, seed: tf.Tensor
) -> tuple[dict, dict]:
    """Plays one round of a state in rows; `packed`: the arrays of one round of a `packing.PackedRounds`."""
    total, coverage, memory_change, records = train_cohort_on_replicas(parts, state, packed, learning_rate, round, seed)
    merged = merge_updates(parts, state, total, coverage, memory_change)
    finite = all_finite(tf.nest.flatten(merged))
    weights, slots = tf.cond(finite, lambda: merged, lambda: (state["weights"], state["slots"]))
    # Clients keep nothing of a round whose merge overflowed.
    counts = {**records, "weight": tf.where(finite, records["weight"], 0)} if any(state["tables"].values()) else records
    tables = update_tables(parts, state["tables"], counts, *packed[:2])
    return {"weights": weights, "slots": slots, "tables": tables}, {**records, "merge_finite": finite}
