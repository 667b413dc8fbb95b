"""Tables of client state between rounds: personal values, correction memories, and peers."""

import functools

import tensorflow as tf

from hetero_tf.rounds.block_training import BlockPlan, BlockResult
from hetero_tf.rounds.gather import scatter
from hetero_tf.rounds.global_row import concat_values, scatter_rows
from hetero_tf.rounds.round_setup import RoundSetup

# Key of rows that hold all values concatenated, instead of the position of a single value.
ALL_VALUES = -1


def new_table_rows(
    setup: RoundSetup, submodel: int, tables: dict, update: BlockResult, plan: BlockPlan
) -> dict[str, dict[int, tf.Tensor]]:
    """Return new table rows of a block's clients, `{table: {key: [K, ...]}}` with the keys of `table_columns`."""
    trained, clients = update.local.weights, tf.unstack(plan.rows_of_tables, num=len(update.coordinates))
    new_rows: dict[str, dict[int, tf.Tensor]] = {name: {} for name in tables}
    if tables["personal"]:
        read = functools.partial(_new_values, setup, submodel, update, trained, tables["personal"])
        new_rows["personal"] = _stack_rows(
            [read(slot, _row_reader(tables["personal"], client)) for slot, client in enumerate(clients)]
        )
    if tables["memory"]:
        rows = [_new_memory(setup, submodel, update, tables["memory"], *each) for each in enumerate(clients)]
        new_rows["memory"] = {ALL_VALUES: tf.stack(rows)}
    if tables["peers"]:
        read = functools.partial(_new_peers, setup, submodel, update, tables["peers"])
        new_rows["peers"] = _stack_rows([read(slot, client) for slot, client in enumerate(clients)])
    return new_rows


def table_columns(tables: dict[str, dict[int, tf.Tensor]]) -> dict[str, tuple[int, ...]]:
    """Return the keys of clients' new rows: the positions of a table; `ALL_VALUES` for memories."""
    keys = {name: tuple(table) for name, table in tables.items()}
    return {**keys, "memory": (ALL_VALUES,) if tables["memory"] else ()}


def _new_memory(setup, submodel, update, table, slot, client):
    """Return a client's memory of all global values, [values]; entries outside its sub-model keep the old value."""
    cut, coordinates, memory = setup.layout.cut, update.coordinates[slot : slot + 1], update.memory[slot][None]
    old = concat_values([tf.gather(values, client) for values in table.values()])
    new, inside = (
        scatter_rows(cut, submodel, rows, coordinates, [1] * len(cut.shapes)) for rows in (memory, tf.ones_like(memory))
    )
    return tf.where(inside > 0, new, old)


def _row_reader(table, client):
    """Return a function that reads a client's row of a table at a position."""
    return lambda position: tf.gather(table[position], client)


def _stack_rows(rows):
    """Stack n mappings of the same positions to one `{position: [n, ...]}`."""
    return {position: tf.stack([row[position] for row in rows]) for position in rows[0]}


def _new_values(setup, submodel, update, matrix, positions, slot, old, network=0):
    """Return the new `{position: value}` of a client's network from a matrix [K, values]; other entries keep `old`."""
    cut, block, coordinates = setup.layout.cut, setup.engine.blocks[submodel], update.coordinates[slot]
    values = block.from_row(matrix[slot], network)
    axes_of = [axes for axes, contained in zip(cut.axes, cut.contained) if contained[submodel]]
    # An uncut variable is replaced completely: its old row is not read.
    inside = [tf.ones_like(value) if any(axes) else value for value, axes in zip(values, axes_of)]
    values, inside = (scatter(cut, submodel, each, coordinates) for each in (values, inside))

    def new(position):
        if values[position] is None:
            return old(position)
        if not any(cut.axes[position]):
            return values[position]
        return tf.where(inside[position] > 0, values[position], old(position))

    return {position: new(position) for position in positions}


def _new_peers(setup, submodel, update, table, slot, client):
    """Return the new `{position: [peers, ...]}` of a client; peers that its level does not train keep their values."""
    old, trained, peers = _row_reader(table, client), update.local.weights, setup.engine.blocks[submodel].networks - 1
    new = [
        _new_values(setup, submodel, update, trained, table, slot, lambda at, peer=peer: old(at)[peer], peer + 1)
        for peer in range(peers)
    ]
    if peers == setup.engine.peers:
        return _stack_rows(new)
    unchanged = {position: old(position)[peers:] for position in table}
    if not new:
        return unchanged
    return {position: tf.concat([values, unchanged[position]], 0) for position, values in _stack_rows(new).items()}


def update_tables(
    setup: RoundSetup, tables: dict, records: dict, clients: tf.Tensor, members: tf.Tensor
) -> dict[str, dict[int, tf.Tensor]]:
    """Write the new rows of the clients whose weight is positive.

    Args:
        tables: See `round.new_state`.
        records: As `cohort.train_cohort` gives them.
        clients: int32 [S, K], -1 = empty slot.
        members: int32 [S, K], index of the ensemble network that each client trained.
    """
    clients, ensemble = tf.reshape(clients, [-1]), any(axis.member for axis in setup.layout.cut.distinct)
    # Empty slots and excluded clients get an index past the table's end, which the scatter ignores.
    index = tf.where((clients >= 0) & (records["weight"] > 0), clients, tf.int32.max)[:, None]
    if ensemble:
        # An ensemble client trains its networks separately; each of them updates only its own part of the row.
        members = tf.reshape(members, [-1])
        index = tf.concat([index, members[:, None]], 1)

    def updated(table, rows):
        rows = tf.gather(rows, members, batch_dims=1) if ensemble else rows
        return tf.raw_ops.TensorScatterUpdate(tensor=table, indices=index, updates=rows, bad_indices_policy="IGNORE")

    rows = dict(records["tables"])
    if tables["memory"]:
        shapes = [table.shape[1:] for table in tables["memory"].values()]
        columns = tf.split(rows["memory"][ALL_VALUES], [shape.num_elements() for shape in shapes], axis=1)
        rows["memory"] = {
            position: tf.reshape(part, [-1, *shape]) for position, part, shape in zip(tables["memory"], columns, shapes)
        }
    return tf.nest.map_structure(updated, tables, rows)
