"""Tables of client state between rounds: personal values, correction memories, and peers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from hetero_tf.models.cut import Cut
from hetero_tf.rounds.submodel_cut import Coordinates, SubmodelCut, concat_columns


@dataclass(frozen=True)
class TableCut:
    """The cut of a sub-model from the rows of one client table.

    Attributes:
        cut: From a row of the table; in an ensemble, from the row of one network.
        columns: Half-open ranges of the sub-model's row: the columns of the values that the table stores.
    """

    cut: SubmodelCut
    columns: tuple[tuple[int, int], ...]

    @classmethod
    def of(
        cls, cut: Cut, submodel: int, positions: Sequence[int], first_merged_stage: Sequence[int] | None = None
    ) -> "TableCut":
        """Build the cut of a sub-model from a table that stores the global values at these positions.

        Args:
            first_merged_stage: See `SubmodelCut.of`; None: 1 for each value.
        """
        columns: list[tuple[int, int]] = []
        end = 0
        for position, contained in enumerate(cut.contained):
            start, end = end, end + (math.prod(cut.shape_in(submodel, position)) if contained[submodel] else 0)
            if position in positions and end > start:
                # Adjacent values are one range.
                first = columns.pop()[0] if columns and columns[-1][1] == start else start
                columns.append((first, end))
        stages = [1] * len(positions) if first_merged_stage is None else first_merged_stage
        return cls(SubmodelCut.of(cut.select(positions), submodel, stages), tuple(columns))

    def read(self, stored: tf.Tensor, coordinates: Sequence[Coordinates], rows: tf.Tensor) -> tf.Tensor:
        """Return the rows of clients' sub-models with the stored values instead of those of `rows`.

        Args:
            stored: [clients, columns of the table].
            rows: [clients, values of the sub-model].
        """
        if not self.columns:
            return rows
        sizes = [end - start for start, end in self.columns]
        replacements = tf.split(self.cut.gather(stored, coordinates), sizes, axis=1)
        pieces, position = [], 0
        for (start, end), replacement in zip(self.columns, replacements):
            pieces += [rows[:, position:start], replacement]
            position = end
        return tf.concat([*pieces, rows[:, position:]], 1)

    def scatter(
        self, rows: tf.Tensor, coordinates: Sequence[Coordinates], completed_stages: tf.Tensor | None
    ) -> tf.Tensor:
        """Scatter the stored values of clients' rows into zeros of the global ones, see `SubmodelCut.scatter`."""
        return self.cut.scatter(self._columns(rows), coordinates, completed_stages)

    def write(self, stored: tf.Tensor, row: tf.Tensor, coordinates: Coordinates) -> tf.Tensor:
        """Return one client's row of the table, [columns], with the values of its sub-model's row, [values]."""
        if not self.columns:
            return stored
        return self.cut.overwrite(stored, self._columns(row), coordinates)

    def _columns(self, rows):
        return concat_columns([rows[..., start:end] for start, end in self.columns])


def read_tables(
    tables: dict[str, tf.Tensor], clients: tf.Tensor, members: tf.Tensor, is_ensemble: bool
) -> dict[str, tf.Tensor]:
    """Read the rows of a block's clients, `{table: [K, ...]}`.

    Args:
        tables: See `StateRows`.
        clients: int32 [K], rows of the tables.
        members: int32 [K], index of the ensemble network that each client trains.
        is_ensemble: Whether the tables have a row for each network.
    """
    rows = {name: tf.gather(table, clients) for name, table in tables.items()}
    return {name: tf.gather(each, members, batch_dims=1) for name, each in rows.items()} if is_ensemble else rows


def write_tables(
    tables: dict[str, tf.Tensor],
    new_rows: dict[str, tf.Tensor],
    clients: tf.Tensor,
    members: tf.Tensor,
    is_ensemble: bool,
    is_written: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """Write new rows of clients into the tables.

    Args:
        new_rows: `{table: [clients, ...]}`.
        clients, members: int32 [clients], see `read_tables`; client -1 = empty slot.
        is_written: bool [clients], False for clients whose rows do not change.
    """
    # Empty slots and excluded clients get an index past the table's end, which the scatter ignores.
    index = tf.where((clients >= 0) & is_written, clients, tf.int32.max)[:, None]
    if is_ensemble:
        # An ensemble client trains its networks separately; each of them has its row.
        index = tf.concat([index, members[:, None]], 1)
    return {
        name: tf.raw_ops.TensorScatterUpdate(
            tensor=table, indices=index, updates=new_rows[name], bad_indices_policy="IGNORE"
        )
        for name, table in tables.items()
    }
