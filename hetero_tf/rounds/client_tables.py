"""Tables of what clients keep between rounds: personal values, what their correction remembers, and their peers."""

import functools

import tensorflow as tf

from hetero_tf.rounds.block_training import BlockPlan, BlockResult
from hetero_tf.rounds.gather import put
from hetero_tf.rounds.global_row import joined, put_rows
from hetero_tf.rounds.round_setup import RoundSetup

# In place of the positions of single values: all of them one behind the other.
WHOLE = -1


def new_table_rows(
    parts: RoundSetup, submodel: int, tables: dict, update: BlockResult, plan: BlockPlan
) -> dict[str, dict[int, tf.Tensor]]:
    """New table rows of a block's clients, `{table: {key: [K, ...]}}` with the keys of `table_columns`."""
    trained, clients = update.local.weights, tf.unstack(plan.rows_of_tables, num=len(update.coordinates))
    kept: dict[str, dict[int, tf.Tensor]] = {name: {} for name in tables}
    if tables["personal"]:
        read = functools.partial(_new_values, parts, submodel, update, trained, tables["personal"])
        kept["personal"] = _stacked(
            [read(slot, _row_of(tables["personal"], client)) for slot, client in enumerate(clients)]
        )
    if tables["memory"]:
        rows = [_new_memory(parts, submodel, update, tables["memory"], *each) for each in enumerate(clients)]
        kept["memory"] = {WHOLE: tf.stack(rows)}
    if tables["peers"]:
        read = functools.partial(_new_peers, parts, submodel, update, tables["peers"])
        kept["peers"] = _stacked([read(slot, client) for slot, client in enumerate(clients)])
    return kept


def table_columns(tables: dict[str, dict[int, tf.Tensor]]) -> dict[str, tuple[int, ...]]:
    """Returns under which keys clients' new rows are recorded: the positions of a table; memories as a global row."""
    keys = {name: tuple(table) for name, table in tables.items()}
    return {**keys, "memory": (WHOLE,) if tables["memory"] else ()}


def _new_memory(parts, submodel, update, table, slot, client):
    """What a client's correction remembers of all global values, [values]; outside its sub-model as before."""
    cut, where, memory = parts.placement.cut, update.coordinates[slot : slot + 1], update.memory[slot][None]
    old = joined([tf.gather(values, client) for values in table.values()])
    new, inside = (
        put_rows(cut, submodel, rows, where, [1] * len(cut.shapes)) for rows in (memory, tf.ones_like(memory))
    )
    return tf.where(inside > 0, new, old)


def _row_of(table, client):
    """A function that reads a client's row of a table at a position."""
    return lambda position: tf.gather(table[position], client)


def _stacked(rows):
    """One `{position: [n, ...]}` of the same for each of n."""
    return {position: tf.stack([row[position] for row in rows]) for position in rows[0]}


def _new_values(parts, submodel, update, matrix, positions, slot, old, network=0):
    """The new `{position: value}` of a client's network from a matrix [K, values]; what is outside stays as it is."""
    cut, stack, where = parts.placement.cut, parts.engine.stacks[submodel], update.coordinates[slot]
    values = stack.from_row(matrix[slot], network)
    axes_of = [axes for axes, contained in zip(cut.axes, cut.contained) if contained[submodel]]
    # A variable that is cut nowhere is new as a whole: nothing of the old row is read.
    inside = [tf.ones_like(value) if any(axes) else value for value, axes in zip(values, axes_of)]
    values, inside = (put(cut, submodel, each, where) for each in (values, inside))

    def new(position):
        if values[position] is None:
            return old(position)
        if not any(cut.axes[position]):
            return values[position]
        return tf.where(inside[position] > 0, values[position], old(position))

    return {position: new(position) for position in positions}


def _new_peers(parts, submodel, update, table, slot, client):
    """The new `{position: [peers, ...]}` of a client; peers that its level does not train stay as they are."""
    old, trained, peers = _row_of(table, client), update.local.weights, parts.engine.stacks[submodel].networks - 1
    new = [
        _new_values(parts, submodel, update, trained, table, slot, lambda at, peer=peer: old(at)[peer], peer + 1)
        for peer in range(peers)
    ]
    if peers == parts.engine.peers:
        return _stacked(new)
    stay = {position: old(position)[peers:] for position in table}
    if not new:
        return stay
    return {position: tf.concat([values, stay[position]], 0) for position, values in _stacked(new).items()}


def update_tables(
    parts: RoundSetup, tables: dict, records: dict, clients: tf.Tensor, members: tf.Tensor
) -> dict[str, dict[int, tf.Tensor]]:
    """Writes the new rows of the clients that count.

    Args:
        tables: See `round.new_state`.
        records: As `cohort.train_cohort` gives them.
        clients: int32 [S, K], -1 = empty slot.
        members: int32 [S, K], which network of an ensemble each client trained.
    """
    clients, ensemble = tf.reshape(clients, [-1]), any(axis.member for axis in parts.placement.cut.distinct)
    # An empty slot or a client that is left out writes behind the table's end, and so nothing.
    index = tf.where((clients >= 0) & (records["weight"] > 0), clients, tf.int32.max)[:, None]
    if ensemble:
        # A client trains each of its networks apart, and each writes only its own part of the client's row.
        members = tf.reshape(members, [-1])
        index = tf.concat([index, members[:, None]], 1)

    def written(table, rows):
        rows = tf.gather(rows, members, batch_dims=1) if ensemble else rows
        return tf.raw_ops.TensorScatterUpdate(tensor=table, indices=index, updates=rows, bad_indices_policy="IGNORE")

    rows = dict(records["tables"])
    if tables["memory"]:
        shapes = [table.shape[1:] for table in tables["memory"].values()]
        columns = tf.split(rows["memory"][WHOLE], [shape.num_elements() for shape in shapes], axis=1)
        rows["memory"] = {
            position: tf.reshape(part, [-1, *shape]) for position, part, shape in zip(tables["memory"], columns, shapes)
        }
    return tf.nest.map_structure(written, tables, rows)
