"""Tables of what clients keep between rounds: personal values, what their correction remembers, and their peers."""

import tensorflow as tf

from hetero_tf.rounds.cut import put
from hetero_tf.rounds.parts import RoundParts
from hetero_tf.rounds.stack_update import StackPlan, StackUpdate


def rows_to_keep(
    parts: RoundParts, submodel: int, tables: dict, update: StackUpdate, plan: StackPlan
) -> dict[str, dict[int, tf.Tensor]]:
    """What the clients of a stack keep after this round: like `tables`, with [K, ...] in place of [registered, ...]."""
    trained = update.local.weights
    kept: dict[str, dict[int, tf.Tensor]] = {name: {} for name in tables}
    for name, matrix in (("personal", trained), ("memory", update.memory)):
        if tables[name]:
            old = _rows(tables[name], update, plan)
            kept[name] = _stacked([_new_values(parts, submodel, *row, matrix, update) for row in enumerate(old)])
    if tables["peers"]:
        old = _rows(tables["peers"], update, plan)
        kept["peers"] = _stacked([_new_peers(parts, submodel, *row, trained, update) for row in enumerate(old)])
    return kept


def _rows(table, update, plan):
    """For each client of a stack its row of a table, `{position: value}`."""
    clients = tf.unstack(plan.rows_of_tables, num=len(update.coordinates))
    return [{position: tf.gather(rows, client) for position, rows in table.items()} for client in clients]


def _stacked(rows):
    """One `{position: [n, ...]}` of the same for each of n."""
    return {position: tf.stack([row[position] for row in rows]) for position in rows[0]}


def _new_values(parts, submodel, client, old, matrix, update, network=0):
    """The new `{position: value}` of a client's network from a matrix [K, values]; what is outside stays as it is."""
    cut, stack, where = parts.placement.cut, parts.engine.stacks[submodel], update.coordinates[client]
    values = put(cut, submodel, stack.from_row(matrix[client], network), where)
    inside = put(cut, submodel, [tf.ones(shape, matrix.dtype) for shape in stack.own_shapes], where)
    return {
        position: before if values[position] is None else tf.where(inside[position] > 0, values[position], before)
        for position, before in old.items()
    }


def _new_peers(parts, submodel, client, old, trained, update):
    """The new `{position: [peers, ...]}` of a client; peers that its level does not train stay as they are."""
    peers, new = parts.engine.stacks[submodel].networks - 1, []
    for peer in range(peers):
        values = {position: of_peers[peer] for position, of_peers in old.items()}
        new.append(_new_values(parts, submodel, client, values, trained, update, network=peer + 1))
    stay = {position: of_peers[peers:] for position, of_peers in old.items()}
    if not new:
        return stay
    return {position: tf.concat([values, stay[position]], 0) for position, values in _stacked(new).items()}


def update_tables(
    parts: RoundParts, tables: dict, records: dict, clients: tf.Tensor, members: tf.Tensor
) -> dict[str, dict[int, tf.Tensor]]:
    """Writes the new rows of the clients that count.

    Args:
        tables: See `round.new_state`.
        records: As `cohort.train_cohort` gives them.
        clients: int32 [S, K], -1 = empty slot.
        members: int32 [S, K], which network of an ensemble each client trained.
    """
    ensemble = any(axis.member for axis in parts.placement.cut.distinct)
    clients, members = tf.reshape(clients, [-1]), tf.reshape(members, [-1]) if ensemble else None

    def written(table, rows):
        # An empty slot or a client that is left out writes behind the table's end, into a row that is dropped.
        index = tf.where((clients >= 0) & (records["weight"] > 0), clients, table.shape[0])[:, None]
        if members is not None:
            # A client trains each of its networks apart, and each writes only its own part of the client's row.
            index, rows = tf.concat([index, members[:, None]], 1), tf.gather(rows, members, batch_dims=1)
        longer = tf.pad(table, [[0, 1], *[[0, 0]] * (table.shape.rank - 1)])
        return tf.tensor_scatter_nd_update(longer, index, rows)[:-1]

    return tf.nest.map_structure(written, tables, records["tables"])
