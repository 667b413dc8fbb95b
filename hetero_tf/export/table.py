"""Export of a model for tables: signatures for rows of numbers."""

from collections.abc import Callable, Collection
from pathlib import Path

import tensorflow as tf

from hetero_tf.data.columns import Column, encode_values, feature_names, parse_row
from hetero_tf.export.labelled import LabelledTask

# Notes list the names of at most this number of features.
MAX_LISTED_FEATURES = 50


class TableTask(LabelledTask):
    """Export of a model for tables. A row with a number that is not finite is invalid."""

    INPUT_NAME = "features"
    PREDICT_SIGNATURE, PREDICT_DATA = "serving_default", "columns"

    def endpoints(self, scratch: Path) -> tuple[dict, tuple]:
        """Return the signatures for `features` float32 [n, features], and no lookup tables."""
        specs = [tf.TensorSpec((None, *self.shape), tf.float32, name="features")]
        return {"serving_default": (self.serving_default, specs), "serve_numbers": (self.serve_numbers, specs)}, ()

    def serving_default(self, features: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return outputs with class names for values of the table."""
        return self.add_class_names(self.serve_numbers(features))

    def serve_numbers(self, features: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return outputs for values of the table."""
        return self.classify(self.check(features, *self.shape))

    @property
    def input_spec(self) -> dict:
        """Description of the model's input for `export.json`; "columns" is None if they are unknown."""
        columns = self.process.dataset.columns
        column_specs = columns and [
            {"name": column.name, "features": list(column.features), "categories": list(column.categories)}
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
            "A row with a number that is not finite gets NaN and class -1.",
        ]
        if columns is not None and features <= MAX_LISTED_FEATURES:
            sentences.append(f"Order of the features: {', '.join(f'`{name}`' for name in feature_names(columns))}.")
            sentences += [
                f"`{column.name}` is a number for each category: "
                f"{', '.join(f'{code} {name}' for code, name in enumerate(column.categories))}."
                for column in columns
                if column.categories and not column.one_hot
            ]
            if any(column.categories and column.one_hot for column in columns):
                sentences.append("`column=category` is 1 if the column has that category, else 0.")
        return sentences

    def example_call(self, signatures: Collection[str]) -> tuple[str, str, str]:
        return "serving_default", f"features=tf.zeros([1, {self.shape[0]}])", "probabilities"

    def predict(self, serve: Callable, item: str) -> list:
        """Return the most likely labels of a row in the form of `columns.parse_row`."""
        columns = self.process.dataset.columns or tuple(Column(f"feature {n}") for n in range(self.shape[0]))
        return self.top_labels(serve(tf.constant([encode_values(parse_row(item, columns), columns)], tf.float32)))
