"""The compiled round: cut, train all active clients, merge; several rounds in one call, traced once."""

import functools

import tensorflow as tf

from hetero_tf.rounds import cut as cuts
from hetero_tf.rounds.stack_update import StackPlan, train_stack


def build_round(parts, slots, registered):
    """Compiles the round.

    Args:
        parts: `stack_round.RoundParts`.
        slots: How many tensors of a variable's shape the server keeps for each.
        registered: Number of registered clients.

    Returns:
        A tf.function `(state, packed, learning_rates, first_round, seed) -> (state, metrics)`. state: `new_state`;
        packed: the arrays of a `packing.PackedRounds`; learning_rates: [rounds]; first_round, seed: scalar int32. metrics:
        "loss", "gradient_norm" (means over the steps of each client) and "finite", each [rounds, stacks * K]. A client
        whose result is not finite counts nothing, and the others' merge is bit-equal to one without it.
    """
    dtype = parts.models[0].trainable_variables[0].dtype
    weights = [tf.TensorSpec(shape, dtype) for shape in parts.cut.shapes]
    ints = [tf.TensorSpec([None] * rank, tf.int32) for rank in (3, 3, 2, 2, 5, 3, 3)]
    scalar = tf.TensorSpec([], tf.int32)
    signature = [
        new_state(parts, weights, slots, registered, tf.TensorSpec),
        ints,
        tf.TensorSpec([None], dtype),
        scalar,
        scalar,
    ]
    return tf.function(functools.partial(play, parts), input_signature=signature, autograph=False)


def new_state(parts, weights, slots, registered, make):
    """What a round takes and gives.

    Args:
        parts: `stack_round.RoundParts`.
        weights: List of the global values, in the order of the cut.
        slots, registered: As for `build_round`.
        make: `(shape, dtype) -> value` of what is empty before the first round, such as tf.zeros.

    Returns:
        {"weights": list; "slots": list of lists, what the server keeps; "tables": {"personal", "memory"}, each
        `{position of a variable: [registered, *shape]}`, what clients keep between rounds}.
    """

    def tables(positions):
        return {place: make([registered, *weights[place].shape], weights[place].dtype) for place in positions}

    memory = range(len(weights)) if parts.remember else ()
    return {
        "weights": list(weights),
        "slots": [[make(w.shape, w.dtype) for w in weights] for _ in range(slots)],
        "tables": {"personal": tables(parts.personal), "memory": tables(memory)},
    }


def play(parts, state, packed, learning_rates, first_round, seed):
    """Several rounds in a loop of the graph; see `build_round`."""
    rounds = tf.shape(learning_rates)[0]
    record = {name: tf.TensorArray(kind, size=rounds) for name, kind in _metrics(state["weights"][0].dtype)}

    def body(index, state, record):
        this = [array[index] for array in packed]
        state, found = one_round(parts, state, this, learning_rates[index], first_round + index, seed)
        return index + 1, state, {name: record[name].write(index, found[name]) for name in record}

    _, state, record = tf.while_loop(lambda index, *_: index < rounds, body, (0, state, record), parallel_iterations=1)
    return state, {name: values.stack() for name, values in record.items()}


def _metrics(dtype):
    return (("loss", dtype), ("gradient_norm", dtype), ("finite", tf.bool))


def one_round(parts, state, packed, learning_rate, round, seed):
    """One round on the arrays of one round of a `packing.PackedRounds`; see `build_round`."""
    clients, members, submodels, ticks, rows, starts, stages = packed
    weights, tables = state["weights"], state["tables"]
    many, dtype = tf.shape(clients)[0], weights[0].dtype
    largest = max(stack.clients for stack in parts.engine.stacks)

    def stack_at(submodel, place):
        own = parts.engine.stacks[submodel].clients
        work = StackPlan(
            clients[place, :own], members[place, :own], ticks[place], rows[place, :own], starts[place], stages[place]
        )
        update = train_stack(parts, submodel, weights, tables, round, seed, work, learning_rate)
        return _contribution(parts, submodel, tables, update, work, largest)

    def body(place, total, record):
        branches = [functools.partial(stack_at, submodel, place) for submodel in range(len(parts.engine.stacks))]
        added, found = tf.switch_case(submodels[place], branches)
        # The sum is chained in the order of the stacks: the result does not depend on how many are in flight.
        total = [have + more for have, more in zip(total, added)]
        return place + 1, total, tf.nest.map_structure(lambda record, value: record.write(place, value), record, found)

    def records(kind):
        return tf.TensorArray(kind, size=many)

    names = [*(f"mask{place}" for place in range(len(parts.cut.distinct))), "loss", "gradient_norm", "weight"]
    record = {name: records(dtype) for name in names} | {"finite": records(tf.bool)}
    record["tables"] = {name: {place: records(dtype) for place in table} for name, table in tables.items()}
    zeros = [tf.zeros(shape, dtype) for shape in parts.cut.shapes]
    _, total, record = tf.while_loop(
        lambda place, *_: place < many, body, (0, zeros, record), parallel_iterations=parts.parallel
    )
    # [stacks, K, ...] -> [stacks * K, ...]
    found = tf.nest.map_structure(lambda values: _flat(values.stack(), largest), record)
    masks = {axis: found[f"mask{place}"] for place, axis in enumerate(parts.cut.distinct)}
    counting = _counting(parts, found["weight"], tf.repeat(submodels, largest), rows, stages)
    merged, slots = merge_updates(parts, state, total, masks, counting)
    networks = tf.reshape(members, [-1]) if any(axis.member for axis in parts.cut.distinct) else None
    tables = _kept(tables, found["tables"], tf.reshape(clients, [-1]), networks, found["weight"])
    return ({"weights": merged, "slots": slots, "tables": tables}, {name: found[name] for name, _ in _metrics(dtype)})


def _flat(values, largest):
    return tf.reshape(values, [tf.shape(values)[0] * largest, *values.shape[2:]])


def _contribution(parts, submodel, tables, update, work, largest):
    """The clients' weighted values in global shapes, summed, and what is recorded about each, [largest, ...]."""
    local, stack = update.local, parts.engine.stacks[submodel]
    steps = tf.math.count_nonzero(tf.reduce_any(work.rows >= 0, axis=-1), axis=1, dtype=tf.int32)
    finite = tf.reduce_all(tf.math.is_finite(local.weights), axis=1)
    counts, dtype = finite & (steps > 0), local.weights.dtype
    weight = tf.cast(counts, dtype)
    # Not a product with a mask: NaN * 0 is NaN.
    values = tf.where(counts[:, None], local.weights, tf.zeros([], dtype))
    if parts.counts is not None:
        weight *= tf.gather(parts.counts, tf.maximum(work.clients, 0))
        values *= weight[:, None]
    added, since = None, [flags[submodel] for flags in parts.merged]
    for place, own in enumerate(update.rows):
        more = [
            tf.zeros([], dtype) if value is None or not first else value
            for value, first in zip(cuts.put(parts.cut, submodel, stack.from_row(values[place]), own), since)
        ]
        if max(since) > 1:
            done = reached(work.rows, work.stages)[place]
            more = [value * tf.cast(done >= first, dtype) if first > 1 else value for value, first in zip(more, since)]
        added = more if added is None else [have + extra for have, extra in zip(added, more)]
    added = [tf.broadcast_to(value, shape) for value, shape in zip(added, parts.cut.shapes)]
    masks = [cuts.axis_masks(parts.cut, own, dtype) for own in update.rows]
    found = {f"mask{place}": tf.stack([mask[axis] for mask in masks]) for place, axis in enumerate(parts.cut.distinct)}
    many = tf.cast(tf.maximum(steps, 1), dtype)
    # Summed step after step: zeros behind the last one, from a longer round of the same call, change no bit.
    sums = [tf.cumsum(values)[-1] / many for values in (local.losses, local.gradient_norms)]
    found |= {"loss": sums[0], "gradient_norm": sums[1], "finite": finite, "weight": weight}
    found["tables"] = _own_rows(parts, submodel, tables, update, work)
    return added, tf.nest.map_structure(
        lambda value: tf.pad(value, [[0, largest - stack.clients], *[[0, 0]] * (value.shape.rank - 1)]), found
    )


def _own_rows(parts, submodel, tables, update, work):
    """What the stack's clients keep after this round: like `tables`, but [K, ...] in place of [registered, ...]."""
    stack, found = parts.engine.stacks[submodel], {"personal": {}, "memory": {}}
    for name, matrix in (("personal", update.local.weights), ("memory", update.memory)):
        rows = []
        for client, places in enumerate(update.places if tables[name] else ()):
            values = cuts.put(parts.cut, submodel, stack.from_row(matrix[client]), places)
            ones = cuts.put(parts.cut, submodel, [tf.ones(shape, matrix.dtype) for shape in stack.own_shapes], places)
            old = [table[tf.maximum(work.clients[client], 0)] for table in tables[name].values()]
            rows.append(
                [
                    before if values[place] is None else tf.where(ones[place] > 0, values[place], before)
                    for place, before in zip(tables[name], old)
                ]
            )
        found[name] = {place: tf.stack([row[index] for row in rows]) for index, place in enumerate(tables[name])}
    return found


def _kept(tables, rows, clients, networks, weight):
    """The tables with the new rows of the clients that count; `networks`: the one of an ensemble that each trained."""

    def scattered(table, new):
        # An empty or lost place writes behind the table's end, into a row that is dropped.
        places = tf.where((clients >= 0) & (weight > 0), clients, table.shape[0])[:, None]
        if networks is not None:
            # A client trains each of its networks apart, and each writes only its own part of the client's row.
            places, new = tf.concat([places, networks[:, None]], 1), tf.gather(new, networks, batch_dims=1)
        longer = tf.pad(table, [[0, 1], *[[0, 0]] * (table.shape.rank - 1)])
        return tf.tensor_scatter_nd_update(longer, places, new)[:-1]

    return tf.nest.map_structure(scattered, tables, rows)


def reached(rows, stages):
    """How many of their stages clients have come to: rows [..., K, ticks, batch], stages [..., ticks] -> [..., K]."""
    return tf.reduce_max(tf.where(tf.reduce_any(rows >= 0, axis=-1), stages[..., None, :] + 1, 0), axis=-1)


def _counting(parts, weight, submodels, rows, stages):
    """For each variable what each client counts, [cohort]: nothing where its sub-model is not merged, or not yet."""

    def counted(since):
        if set(since) == {1}:
            return weight
        first = tf.gather(tf.constant(since), submodels)
        counts = first > 0 if max(since) < 2 else (first > 0) & (tf.reshape(reached(rows, stages), [-1]) >= first)
        return weight * tf.cast(counts, weight.dtype)

    found = {since: counted(since) for since in dict.fromkeys(parts.merged)}
    return [found[since] for since in parts.merged]


def merge_updates(parts, state, total, masks, client_weights):
    """The new global weights, and what the server keeps.

    Args:
        state: The old ones, see `new_state`.
        total: Sum of the clients' contributions, in global shapes.
        masks: `{Axis: [cohort, size]}`, covered coordinates.
        client_weights: For each variable [cohort], 0 for clients that do not count.

    Returns:
        (weights, slots) as in `new_state`.
    """
    new, slots, learned = [], [[] for _ in state["slots"]], len(parts.models[0].trainable_variables)
    covering = cuts.coverage(parts.cut, masks, client_weights)
    for old, summed, coverage, *kept in zip(state["weights"], total, covering, *state["slots"]):
        value = masked_mean(old, summed, coverage)
        # Running statistics behind the trainable values are measured, not learned: the server takes their mean.
        if len(new) < learned:
            value, kept = parts.server(old, value, coverage, tuple(kept))
        new.append(value)
        for slot, one in zip(slots, kept):
            slot.append(one)
    return new, slots


def masked_mean(old, total, coverage):
    """Mean over the clients that cover an entry: `total / coverage` where somebody does, else the old value bit for bit.

    Args:
        old: Values of one global variable.
        total: Sum of weight * value over the clients that cover an entry, in the shape of `old`.
        coverage: Sum of their weights, broadcastable to `old`.

    Reference: HeteroFL (arXiv 2010.01264), equations 2 to 6; every client counts 1 as in the authors' code.
    """
    covered = tf.broadcast_to(coverage > 0, tf.shape(old))
    return tf.where(covered, tf.math.divide_no_nan(total, coverage), old)
