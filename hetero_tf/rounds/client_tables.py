"""Tables of what clients keep between rounds: personal values, and what their correction remembers."""

import tensorflow as tf

from hetero_tf.rounds.cut import put
from hetero_tf.rounds.parts import RoundParts
from hetero_tf.rounds.stack_update import StackPlan, StackUpdate


def rows_to_keep(
    parts: RoundParts, submodel: int, tables: dict, update: StackUpdate, plan: StackPlan
) -> dict[str, dict[int, tf.Tensor]]:
    """What the clients of a stack keep after this round: like `tables`, with [K, ...] in place of [registered, ...]."""
    matrices = {"personal": update.local.weights, "memory": update.memory}
    return {
        name: _new_rows(parts, submodel, tables[name], matrices[name], update, plan) if tables[name] else {}
        for name in ("personal", "memory")
    }


def _new_rows(parts, submodel, table, matrix, update, plan):
    """The clients' new rows of one table from a matrix [K, values]; entries outside a sub-model stay as they are."""
    cut, stack, clients = parts.placement.cut, parts.engine.stacks[submodel], []
    for client, where in enumerate(update.coordinates):
        values = put(cut, submodel, stack.from_row(matrix[client]), where)
        inside = put(cut, submodel, [tf.ones(shape, matrix.dtype) for shape in stack.own_shapes], where)
        old = [rows[plan.rows_of_tables[client]] for rows in table.values()]
        clients.append(
            [
                before if values[position] is None else tf.where(inside[position] > 0, values[position], before)
                for position, before in zip(table, old)
            ]
        )
    return {position: tf.stack([rows[index] for rows in clients]) for index, position in enumerate(table)}


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
