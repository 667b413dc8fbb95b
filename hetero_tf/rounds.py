"""The compiled round: cut, train all active clients, merge; several rounds in one call, traced once."""

import functools

import tensorflow as tf

from hetero_tf import cut as cuts
from hetero_tf.stack_round import train_stack


def build_round(parts):
    """Compiles the round.

    Args:
        parts: `stack_round.RoundParts`.

    Returns:
        A tf.function `(weights, packed, learning_rates, first_round, seed) -> (weights, metrics)`. packed: the arrays
        of a `packing.Packed`; learning_rates: [rounds]; first_round, seed: scalar int32. metrics: "loss",
        "gradient_norm" (means over the steps of each client) and "finite", each [rounds, stacks * K]. A client whose
        result is not finite counts nothing, and the others' merge is bit-equal to one without it.
    """
    shapes, dtype = parts.cut.shapes, parts.models[0].trainable_variables[0].dtype
    ints = [tf.TensorSpec([None] * rank, tf.int32) for rank in (3, 2, 2, 5, 3)]
    scalar = tf.TensorSpec([], tf.int32)
    signature = [[tf.TensorSpec(shape, dtype) for shape in shapes], ints, tf.TensorSpec([None], dtype), scalar, scalar]
    return tf.function(functools.partial(play, parts), input_signature=signature, autograph=False)


def play(parts, weights, packed, learning_rates, first_round, seed):
    """Several rounds in a loop of the graph; see `build_round`."""
    rounds = tf.shape(learning_rates)[0]
    record = {name: tf.TensorArray(kind, size=rounds) for name, kind in _metrics(weights[0].dtype)}

    def body(index, weights, record):
        this = [array[index] for array in packed]
        weights, found = one_round(parts, weights, this, learning_rates[index], first_round + index, seed)
        return index + 1, weights, {name: record[name].write(index, found[name]) for name in record}

    _, weights, record = tf.while_loop(
        lambda index, *_: index < rounds, body, (0, weights, record), parallel_iterations=1)
    return weights, {name: values.stack() for name, values in record.items()}


def _metrics(dtype):
    return (("loss", dtype), ("gradient_norm", dtype), ("finite", tf.bool))


def one_round(parts, weights, packed, learning_rate, round, seed):
    """One round on the arrays of one round of a `packing.Packed`; see `build_round`."""
    clients, levels, ticks, rows, starts = packed
    many, dtype = tf.shape(clients)[0], weights[0].dtype
    largest = max(stack.clients for stack in parts.engine.stacks)

    def stack_at(level, place):
        own = parts.engine.stacks[level].clients
        work = (ticks[place], rows[place, :own], starts[place])
        update = train_stack(parts, level, weights, clients[place, :own], round, seed, work, learning_rate)
        return _contribution(parts, level, update, rows[place, :own], largest)

    def body(place, total, record):
        branches = [lambda level=level: stack_at(level, place) for level in range(len(parts.engine.stacks))]
        added, found = tf.switch_case(levels[place], branches)
        # The sum is chained in the order of the stacks: the result does not depend on how many are in flight.
        total = [have + more for have, more in zip(total, added)]
        return place + 1, total, {name: record[name].write(place, value) for name, value in found.items()}

    names = [*(f"mask{place}" for place in range(len(parts.cut.distinct))), "loss", "gradient_norm", "weight"]
    record = {name: tf.TensorArray(dtype, size=many) for name in names}
    record["finite"] = tf.TensorArray(tf.bool, size=many)
    zeros = [tf.zeros(shape, dtype) for shape in parts.cut.shapes]
    _, total, record = tf.while_loop(
        lambda place, *_: place < many, body, (0, zeros, record), parallel_iterations=parts.parallel)
    found = {name: values.stack() for name, values in record.items()}
    # [stacks, K, ...] -> [stacks * K, ...]
    found = {name: tf.reshape(value, [many * largest, *value.shape[2:]]) for name, value in found.items()}
    masks = {axis: found[f"mask{place}"] for place, axis in enumerate(parts.cut.distinct)}
    merged = merge_updates(parts, weights, total, masks, found["weight"])
    return merged, {name: found[name] for name, _ in _metrics(dtype)}


def _contribution(parts, level, update, rows, largest):
    """The clients' weighted values in global shapes, summed, and what is recorded about each, [largest, ...]."""
    local, stack = update.local, parts.engine.stacks[level]
    steps = tf.math.count_nonzero(tf.reduce_any(rows >= 0, axis=-1), axis=1, dtype=tf.int32)
    finite = tf.reduce_all(tf.math.is_finite(local.weights), axis=1)
    counts, dtype = finite & (steps > 0), local.weights.dtype
    # Not a product with a mask: NaN * 0 is NaN.
    values = tf.where(counts[:, None], local.weights, tf.zeros([], dtype))
    added = None
    for place, own in enumerate(update.rows):
        more = cuts.put(parts.cut, stack.unpack(values[place]), own)
        added = more if added is None else [have + extra for have, extra in zip(added, more)]
    masks = [cuts.axis_masks(parts.cut, own, dtype) for own in update.rows]
    found = {f"mask{place}": tf.stack([mask[axis] for mask in masks])
             for place, axis in enumerate(parts.cut.distinct)}
    many = tf.cast(tf.maximum(steps, 1), dtype)
    # Summed step after step: zeros behind the last one, from a longer round of the same call, change no bit.
    sums = [tf.cumsum(values)[-1] / many for values in (local.losses, local.gradient_norms)]
    found |= {"loss": sums[0], "gradient_norm": sums[1], "finite": finite, "weight": tf.cast(counts, dtype)}
    return added, {name: tf.pad(value, [[0, largest - stack.clients], *[[0, 0]] * (value.shape.rank - 1)])
                   for name, value in found.items()}


def merge_updates(parts, weights, total, masks, client_weights):
    """The new global weights.

    Args:
        weights: The old ones.
        total: Sum of the clients' contributions, in global shapes.
        masks: `{Axis: [cohort, size]}`, covered coordinates.
        client_weights: [cohort], 0 for clients that do not count.
    """
    new = []
    for old, summed, covering in zip(weights, total, cuts.coverage(parts.cut, masks, client_weights)):
        mean = parts.merge(old, summed, covering)
        new.append(parts.server(old, mean, covering > 0))
    return new
