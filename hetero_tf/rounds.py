"""The compiled round: cut, train all active clients, merge; several rounds in one call, traced once."""

from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

from hetero_tf import cut as cuts
from hetero_tf.clients import train_locally
from hetero_tf.inputs import Input, Labels, all_labels
from hetero_tf.recipe.schema import Optimizer


@dataclass(frozen=True)
class RoundParts:
    """What a round is made of.

    Attributes:
        models: Keras models, one per level of the mix.
        cut: Where their variables lie in the global model.
        keep, objective, merge, server: The functions of the recipe's plug-ins.
        optimizer: Local SGD.
        input: How examples become batches.
        x, y: The stored training split.
        labels: int32 [clients, kept], each client's labels with -1 behind them; None: all levels keep all labels.
        present: bool [clients, classes or kept], which of the kept labels a client has.
        parallel: Clients in flight at once.
    """

    models: tuple
    cut: cuts.Cut
    keep: Callable
    objective: Callable
    optimizer: Optimizer
    merge: Callable
    server: Callable
    input: Input
    x: tf.Tensor
    y: tf.Tensor | None
    labels: tf.Tensor | None
    present: tf.Tensor
    parallel: int


@dataclass(frozen=True)
class ClientUpdate:
    """One client's part of the merge: its `LocalResult` and the global coordinates that are merged."""

    local: object
    rows: dict


def train_client(parts, level, weights, client, round, seed, work, learning_rate):
    """Cuts one client's sub-model, trains it and says where its values belong.

    Args:
        parts: `RoundParts`.
        level: Position in the mix, a Python int.
        weights: Global tensors.
        client, round, seed: Scalar int32.
        work: (steps, rows [steps, batch], starts [steps]) of this client, as in `plans.Plan`.
        learning_rate: Scalar.

    Returns:
        `ClientUpdate`.
    """
    classes = parts.present.shape[1] if parts.labels is None else _label_axis(parts.cut).size
    present = tf.gather(parts.present, client)
    own = tf.range(classes) if parts.labels is None else tf.gather(parts.labels, client)
    axis = all_labels(classes) if parts.labels is None else _own_labels(own, classes)
    where = cuts.coordinates(parts.cut, level, parts.keep, round, client, seed, own)
    key = tf.stack([seed, round, client])
    steps, rows, starts = work

    def batch(step):
        chosen = rows[step]
        chosen = chosen[:tf.math.count_nonzero(chosen >= 0, dtype=tf.int32)]
        return parts.input.batch(
            parts.x, parts.y, chosen, starts[step], tf.concat([key, step[None]], 0), axis, training=True)

    def objective(logits, targets):
        return parts.objective(logits, targets, present, classes - axis.count)

    local = train_locally(parts.models[level], objective, parts.optimizer, batch, steps,
                          cuts.take(parts.cut, weights, where), learning_rate, key)
    return ClientUpdate(local, cuts.merged_rows(parts.cut, where, present))


def _label_axis(cut):
    return next(axis for axis in cut.distinct if axis.label)


def _own_labels(labels, classes):
    """`Labels` of a client whose label axis is cut: label -> position among its own."""
    places = cuts.inverse(labels, classes)
    return Labels(local=lambda targets: tf.gather(places, targets), count=labels.shape[0])


def build_round(parts):
    """Compiles the round.

    Returns:
        A tf.function `(weights, plan, learning_rates, first_round, seed) -> (weights, metrics)`. plan: the arrays
        of a stacked `plans.Plan`, [rounds, ...]; learning_rates: [rounds]; first_round, seed: scalar int32.
        metrics: "loss", "gradient_norm" (means over the steps of each client) and "finite", each [rounds, cohort].
        A client whose result is not finite counts nothing, and the others' merge is bit-equal to one without it.
    """
    shapes, dtype = parts.cut.shapes, parts.models[0].trainable_variables[0].dtype
    ints = [tf.TensorSpec([None] * rank, tf.int32) for rank in (2, 2, 2, 4, 3)]
    scalar = tf.TensorSpec([], tf.int32)
    signature = [[tf.TensorSpec(shape, dtype) for shape in shapes], ints, tf.TensorSpec([None], dtype), scalar, scalar]

    @tf.function(input_signature=signature, autograph=False)
    def run(weights, plan, learning_rates, first_round, seed):
        rounds = tf.shape(learning_rates)[0]
        record = {name: tf.TensorArray(kind, size=rounds) for name, kind in _metrics(dtype)}

        def body(index, weights, record):
            this = [array[index] for array in plan]
            weights, found = one_round(parts, weights, this, learning_rates[index], first_round + index, seed)
            return index + 1, weights, {name: record[name].write(index, found[name]) for name in record}

        _, weights, record = tf.while_loop(
            lambda index, *_: index < rounds, body, (0, weights, record), parallel_iterations=1)
        return weights, {name: values.stack() for name, values in record.items()}

    return run


def _metrics(dtype):
    return (("loss", dtype), ("gradient_norm", dtype), ("finite", tf.bool))


def one_round(parts, weights, plan, learning_rate, round, seed):
    """One round on the arrays of an unstacked plan; see `build_round`."""
    clients, levels, steps, rows, starts = plan
    slots = tf.shape(clients)[0]
    dtype = weights[0].dtype

    def slot_at(level, slot):
        work = (steps[slot], rows[slot], starts[slot])
        update = train_client(parts, level, weights, clients[slot], round, seed, work, learning_rate)
        return _contribution(parts, update, steps[slot])

    def body(slot, total, record):
        branches = [lambda level=level: slot_at(level, slot) for level in range(len(parts.models))]
        added, found = tf.switch_case(levels[slot], branches)
        # The sum is chained in slot order: the result does not depend on how many clients are in flight.
        total = [have + more for have, more in zip(total, added)]
        return slot + 1, total, {name: record[name].write(slot, value) for name, value in found.items()}

    names = [*(f"mask{place}" for place in range(len(parts.cut.distinct))), "loss", "gradient_norm", "weight"]
    record = {name: tf.TensorArray(dtype, size=slots) for name in names}
    record["finite"] = tf.TensorArray(tf.bool, size=slots)
    zeros = [tf.zeros(shape, dtype) for shape in parts.cut.shapes]
    _, total, record = tf.while_loop(
        lambda slot, *_: slot < slots, body, (0, zeros, record), parallel_iterations=parts.parallel)
    found = {name: values.stack() for name, values in record.items()}
    masks = {axis: found[f"mask{place}"] for place, axis in enumerate(parts.cut.distinct)}
    merged = merge_updates(parts, weights, total, masks, found["weight"])
    return merged, {name: found[name] for name, _ in _metrics(dtype)}


def _contribution(parts, update, steps):
    """A client's weighted values in global shape, and what is recorded about it."""
    local = update.local
    finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(value)) for value in local.weights])
    counts = finite & (steps > 0)
    dtype = local.weights[0].dtype
    # Not a product with a mask: NaN * 0 is NaN.
    values = [tf.where(counts, value, tf.zeros([], dtype)) for value in local.weights]
    masks = cuts.axis_masks(parts.cut, update.rows, dtype)
    found = {f"mask{place}": masks[axis] for place, axis in enumerate(parts.cut.distinct)}
    many = tf.cast(tf.maximum(steps, 1), dtype)
    found |= {"loss": tf.reduce_sum(local.losses) / many, "finite": finite, "weight": tf.cast(counts, dtype),
              "gradient_norm": tf.reduce_sum(local.gradient_norms) / many}
    return cuts.put(parts.cut, values, update.rows), found


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
