"""Export of models that predict one target per example, from one or several fields."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from hetero_tf.base.escaping import quote_markdown
from hetero_tf.base.graph_limits import LARGEST_TENSOR, assert_in_graph, max_examples, pad_if_empty
from hetero_tf.data.codecs import Assets, Form, is_column, split_stored
from hetero_tf.data.fields import forms_of, input_names
from hetero_tf.data.inputs import all_labels
from hetero_tf.export.task import ExportTask
from hetero_tf.methods.tasks import Task

# Notes list the names of at most this number of targets, columns or features.
MAX_LISTED = 50


class LabelledTask(ExportTask):
    """Export of a model with one target per example.

    Signatures return the predictions of the task, such as "logits" and "probabilities" float32 [n, classes] and "class"
    int32 [n]; an invalid example gets NaN and class -1.
    """

    CHECKED_EXAMPLES = 32

    @property
    def targets(self) -> Task:
        """The task of the model, which converts its outputs to predictions."""
        return self.process.evaluator.measures.task

    @property
    def output_name(self) -> str:  # type: ignore[override]
        return self.targets.output_name

    @property
    def portable_signature(self) -> str:
        return self.codec.PORTABLE

    @property
    def is_table(self) -> bool:
        """True if the fields are columns."""
        return is_column(self.fields[0])

    @property
    def max_batch_size(self) -> int:
        spectrogram, limit = self.process.input.spectrogram, max_examples(self.model)
        if spectrogram is None:
            return limit
        frames = self.process.input.shape(self.process.dataset.train.x)[0]
        return max(min(limit, LARGEST_TENSOR // (frames * spectrogram.width)), 1)

    @property
    def limits(self) -> dict[str, int]:
        return {self.codec.NOUN: self.max_batch_size, **self.codec.limits}

    def endpoints(self, scratch: Path) -> tuple[dict, tuple]:
        assets = Assets(scratch)
        endpoints = {
            signature: (self._build(signature, forms), [form.spec for form in forms])
            for signature, forms in forms_of(self.fields, assets).items()
        }
        return endpoints, tuple(assets.tables)

    def _build(self, signature: str, forms: Sequence[Form]) -> Callable:
        """Return the function of a signature, with an argument for each form."""

        def serve(*sent):
            shaped = [tf.ensure_shape(values, (None, *form.shape)) for values, form in zip(sent, forms, strict=True)]
            count, limit = tf.shape(shaped[0])[0], self.max_batch_size
            message = f"a request must have at most {limit} {self.codec.NOUN}."
            shaped[0] = assert_in_graph(shaped[0], count <= limit, message, [count])
            parts = [form.decode(values) for values, form in zip(shaped, forms)]
            if len(parts) > 1:
                parts = [tf.reshape(part, [count, int(np.prod(part.shape[1:]))]) for part in parts]
            outputs = self.classify(parts[0] if len(parts) == 1 else tf.concat(parts, 1))
            return outputs if signature in self.codec.UNNAMED else self._add_class_names(outputs)

        return serve

    def classify(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the outputs for decoded examples, of which those with NaN, an infinite number or -1 are invalid."""
        is_element_valid = tf.abs(x) <= tf.float32.max if x.dtype.is_floating else x >= 0
        is_valid = tf.reduce_all(is_element_valid, list(range(1, x.shape.rank)))
        # A lookup of an invalid id would fail for the whole request.
        blank = np.concatenate([np.ravel(field.codec.blank) for field in self.fields]).reshape(x.shape[1:])
        x = tf.where(_expand(is_valid, x.shape.rank), x, blank if blank.any() else tf.zeros([], x.dtype))
        base = getattr(self.codec, "base_channels", None)
        inputs = self.model_inputs(pad_if_empty(x if base is None else self.codec.subtract_base(x)))
        raw_logits = tf.cast(self.model(inputs, training=False), tf.float32)[: tf.shape(is_valid)[0]]
        logits = tf.where(_expand(is_valid, raw_logits.shape.rank), raw_logits, np.nan)
        outputs, name = self.targets.predict(logits, is_valid), self.targets.prediction_name
        return outputs if base is None else {**outputs, name: outputs[name] + tf.gather(x[:, -1], base, axis=1)}

    def _add_class_names(self, outputs):
        """Add "class_name" string [n] to outputs if the data set names its classes; "" for class -1."""
        class_names = self.process.dataset.class_names
        # A text for each pixel of a map would be large.
        if class_names is None or "class" not in outputs or outputs["class"].shape.rank != 1:
            return outputs
        # Class -1 gets the last name, which is empty.
        names = tf.gather(tf.constant([*class_names, ""]), outputs["class"] % (len(class_names) + 1))
        return {**outputs, "class_name": names}

    def request(self, x: np.ndarray, signature: str = "serving_default") -> dict[str, np.ndarray]:
        if self.is_table and signature == self.portable_signature:
            return {"features": x}
        parts = zip(input_names(self.fields), self.fields, split_stored(self.fields, x), strict=True)
        return {key: sent for name, field, part in parts for key, sent in field.codec.send(name, part).items()}

    def model_inputs(self, x: tf.Tensor) -> tf.Tensor:
        """Return the inputs of the Keras model for examples of a request or data set, prepared as in training."""
        count, axis = tf.shape(x)[0], all_labels(self.process.dataset.classes)
        key, labels = tf.zeros([1], tf.int32), tf.zeros([count], tf.int32)
        inputs, _ = self.process.input.batch(x, labels, tf.range(count), 0, key, axis, training=False)
        return inputs

    def measure(self, predict: Callable, signature: str) -> dict[str, float]:
        test, size = self.process.dataset.test, self.process.recipe.evaluate.batch_size
        starts = range(0, len(test.x), size)
        requests = (self.request(test.x[start : start + size], signature) for start in starts)
        outputs = np.concatenate([self.outputs_of(predict(**request)) for request in requests])
        metrics = self.process.evaluator.measures.measure(tf.constant(outputs), test.labels)
        return {name: float(value) for name, value in metrics.items()}

    @property
    def input_spec(self) -> dict:
        return {**super().input_spec, "normalised_by": self.process.input.normalised_by}

    def notes(self, signatures: Collection[str]) -> list[str]:
        index = self.targets.index_name
        invalid = "NaN" if index is None else f"NaN and {index} -1"
        sentences = self._field_notes(invalid)
        names = self.process.dataset.class_names
        if names is not None and self.targets.index_name != "class" and len(names) <= MAX_LISTED:
            sentences.append(f"Order of the {self.targets.prediction_name}: {', '.join(map(quote_markdown, names))}.")
        return sentences

    def _field_notes(self, invalid):
        each = [note for field in self.fields[:MAX_LISTED] for note in field.codec.notes(field.name, invalid)]
        if not self.is_table:
            return each
        sentences = [
            "`serving_default` takes a number or text for each column, in the units of the data. The model encodes and "
            "normalises them.",
            f"A row with a number that is not finite, or a text that is not in the table, gets {invalid}.",
            *each,
            "`serve_numbers`, which other formats have, takes the encoded features of a row, float32.",
        ]
        features = [name for field in self.fields for name in field.codec.features(field.name)]
        if len(features) <= MAX_LISTED:
            sentences.append(f"Order of the features: {', '.join(map(quote_markdown, features))}.")
        return sentences

    def example_call(self, signatures: Collection[str]) -> tuple[str, str, str]:
        signature = self.codec.ITEMS if self.codec.ITEMS in signatures else "serving_default"
        calls = [field.codec.call(name) for name, field in zip(input_names(self.fields), self.fields)]
        return signature, ", ".join(calls), self.targets.prediction_name


def _expand(is_valid, rank):
    return tf.reshape(is_valid, [-1, *[1] * (rank - 1)])
