"""Export of a model for tables: signatures for rows of numbers."""

import itertools
from collections.abc import Collection
from pathlib import Path

import numpy as np
import tensorflow as tf

from hetero_tf.base.escaping import escape_markdown, quote_markdown
from hetero_tf.data.columns import feature_names
from hetero_tf.export.labelled import LabelledTask
from hetero_tf.export.table_rows import build_tables, encode_rows

# Notes list the names of at most this number of features.
MAX_LISTED_FEATURES = 50


class TableTask(LabelledTask):
    """Export of a model for tables. A row with a number that is not finite is invalid."""

    INPUT_NAME = "features"
    PREDICT_SIGNATURE, PREDICT_DATA = "serving_default", "columns"

    def endpoints(self, scratch: Path) -> tuple[dict, tuple]:
        """Return the signatures for `features` float32 [n, features], and for `rows` string [n, columns].

        The latter is omitted if the columns are unknown.
        """
        specs = [tf.TensorSpec((None, *self.shape), tf.float32, name="features")]
        endpoints: dict = {
            "serving_default": (self.serving_default, specs),
            "serve_numbers": (self.serve_numbers, specs),
        }
        columns = self.process.dataset.columns
        if columns is None:
            return endpoints, ()
        tables = build_tables(columns)
        # `tf.function` would take a bound dictionary for an argument.
        endpoints["serve_rows"] = (
            lambda rows: self.serve_rows(rows, tables),
            [tf.TensorSpec((None, len(columns)), tf.string, name="rows")],
        )
        return endpoints, tuple(tables.values())

    def serve_rows(self, rows: tf.Tensor, tables: dict[str, tf.lookup.StaticHashTable]) -> dict[str, tf.Tensor]:
        """Return outputs with class names for the texts of table rows, in the order of the columns."""
        columns = self.process.dataset.columns or ()
        # Missing values are filled in already; NaN is an invalid text.
        return self.add_class_names(self.classify(encode_rows(self.check(rows, len(columns)), columns, tables)))

    def serving_default(self, features: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return outputs with class names for values of the table."""
        return self.add_class_names(self.serve_numbers(features))

    def serve_numbers(self, features: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return outputs for values of the table."""
        return self.classify(self.fill(self.check(features, *self.shape)))

    def fill(self, features: tf.Tensor) -> tf.Tensor:
        """Replace NaN by the fill value of its column, and mark it in the next feature if the column has marks."""
        columns = self.process.dataset.columns or ()
        first = list(itertools.accumulate((column.width for column in columns), initial=0))
        fills, marks = np.full(self.shape, np.nan, np.float32), np.zeros(self.shape, bool)
        for position, column in zip(first, columns):
            if column.fill is not None and column.type == "number":
                fills[position], marks[position + 1 : position + column.width] = float(column.fill), True
        if np.isnan(fills).all():
            return features
        is_missing = tf.math.is_nan(features)
        filled = tf.where(is_missing, fills, features)
        if not marks.any():
            return filled
        is_left_missing = tf.pad(is_missing[:, :-1], [[0, 0], [1, 0]])
        return tf.where(marks & is_left_missing, 1.0, filled)

    @property
    def input_spec(self) -> dict:
        """Description of the model's input for `export.json`; "columns" is None if they are unknown."""
        columns = self.process.dataset.columns
        column_specs = columns and [
            {
                "name": column.name,
                "features": list(column.features),
                "categories": list(column.categories),
                **{name: value for name in ("date", "fill") if (value := getattr(column, name)) is not None},
            }
            for column in columns
        ]
        return {
            "kind": "table",
            "features": self.shape[0],
            "columns": column_specs,
            "normalised_by": self.process.input.normalised_by,
        }

    def notes(self, signatures: Collection[str]) -> list[str]:
        (features,), columns = self.shape, self.process.dataset.columns
        sentences = [
            f"A row has {features} numbers with the values of the table. The model normalises them.",
            f"A row with a number that is not finite gets {self.invalid}.",
            *self._notes_on_values(columns or ()),
        ]
        if columns is not None and len(columns) <= MAX_LISTED_FEATURES:
            sentences.append(
                "`serve_rows` takes the texts of a row, like those of the table; an empty one is a missing value. "
                f"Order of the columns: {', '.join(quote_markdown(column.name) for column in columns)}."
            )
        if columns is not None and features <= MAX_LISTED_FEATURES:
            sentences.append(f"Order of the features: {', '.join(map(quote_markdown, feature_names(columns)))}.")
            sentences += [
                f"{quote_markdown(column.name)} is a number for each category: "
                f"{', '.join(f'{code} {escape_markdown(name)}' for code, name in enumerate(column.categories))}."
                for column in columns
                if column.categories and not column.one_hot
            ]
            if any(column.categories and column.one_hot for column in columns):
                sentences.append("`column=category` is 1 if the column has that category, else 0.")
        return sentences + self.target_notes

    def _notes_on_values(self, columns):
        """Return sentences on missing values and dates."""
        fills = [column for column in columns[:MAX_LISTED_FEATURES] if column.fill is not None]
        names = {column: quote_markdown(column.name) for column in fills}
        if numbers := [f"{names[column]} {float(column.fill):g}" for column in fills if column.type == "number"]:
            yield f"NaN is a missing number, which the model replaces: {', '.join(numbers)}."
        if others := [f"{names[column]} {escape_markdown(column.fill)}" for column in fills if column.type != "number"]:
            yield f"Send these values for missing ones: {', '.join(others)}."
        if any(column.date for column in columns):
            yield (
                "A date is its year, month (1 to 12), day and weekday (Monday is 0), then sine and cosine of 2 pi "
                "(month - 1) / 12 and of 2 pi weekday / 7."
            )

    def example_call(self, signatures: Collection[str]) -> tuple[str, str, str]:
        return "serving_default", f"features=tf.zeros([1, {self.shape[0]}])", self.targets.prediction_name
