"""`ExportTask`: the signatures, requests and descriptions of an exported model with one target per example."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.formatting import quote_markdown
from hetero_tf.data.codecs import Assets, Field, Form, is_column, split_stored
from hetero_tf.data.fields import forms_of, input_names
from hetero_tf.data.graph_tokenizer import assert_in_graph
from hetero_tf.data.inputs import all_labels
from hetero_tf.methods.tasks import Task
from hetero_tf.run.learning_process import LearningProcess

# Notes list the names of at most this number of targets, columns or features.
MAX_LISTED = 50
# Entries of the largest tensor that a request may create, so that one cannot exhaust the memory of a server; 1 GiB as
# float32.
LARGEST_TENSOR = 2**28


class ExportTask:
    """Export of the model of one level, from one or several fields; `positions` has those of running text.

    Signatures return the predictions of the task, such as "logits" and "probabilities" float32 [n, classes] and "class"
    int32 [n]. Servers do not check shapes, and a wrong rank may abort the process inside a kernel, so signatures begin
    with `tf.ensure_shape`. An invalid example gets NaN and class -1, and does not affect the other examples.

    Attributes:
        CHECKED_EXAMPLES: Test examples in one request when outputs are compared with those of the Keras model.
        fields: Fields of the data set.
        targets: The task of the model, which converts its outputs to predictions.
    """

    CHECKED_EXAMPLES = 32

    def __init__(self, process: LearningProcess, model: keras.Model):
        self.process, self.model = process, model
        self.fields: tuple[Field, ...] = process.dataset.fitted_fields
        self.codec = self.fields[0].codec
        self.targets: Task = process.evaluator.measures.task

    @property
    def portable_signature(self) -> str:
        """Signature without loops and strings, which other formats convert."""
        return self.codec.PORTABLE

    @property
    def checked_signature(self) -> str:
        """Signature whose outputs are compared with those of the Keras model."""
        return "serving_default" if self.process.functions.strings is None else self.portable_signature

    @property
    def portable_input(self) -> str:
        """Name of the first input of that signature."""
        return next(iter(self.request(self.process.dataset.train.x[:1], self.portable_signature)))

    @property
    def max_batch_size(self) -> Any:
        """Examples of a request, or of several that a server batches; None if batching would change the outputs."""
        limit = max_examples(self.model, max(self.process.example_shape, default=1))
        if (spectrogram := self.process.input.spectrogram) is None:
            return limit
        frames = self.process.input.shape(self.process.dataset.train.x)[0]
        return max(min(limit, LARGEST_TENSOR // (frames * spectrogram.width)), 1)

    @property
    def limits(self) -> dict[str, int]:
        """Limits of a request for `export.json`."""
        return {self.codec.NOUN: self.max_batch_size, **self.codec.limits}

    def endpoints(self, scratch: Path) -> tuple[dict[str, tuple[Callable, list[tf.TensorSpec]]], tuple]:
        """Return `{signature: (function, input specs)}` and the lookup tables of the signatures.

        Args:
            scratch: Folder for the vocabulary file, which the SavedModel copies.
        """
        assets = Assets(scratch)
        endpoints = {
            signature: (self._build(signature, forms), [form.spec for form in forms])
            for signature, forms in forms_of(self.fields, assets).items()
        }
        if (strings := self.process.functions.strings) is not None:
            endpoints["serving_default"] = _reading_strings(strings, *endpoints["serving_default"])
            assets.tables.extend(strings.layers)
        return endpoints, tuple(assets.tables)

    def _build(self, signature: str, forms: Sequence[Form]) -> Callable:
        """Return the function of a signature, with an argument for each form."""

        def serve(*sent):
            shaped = [tf.ensure_shape(values, (None, *form.shape)) for values, form in zip(sent, forms, strict=True)]
            count, limit = tf.shape(shaped[0])[0], self.max_batch_size
            message = f"a request must have at most {limit} {self.codec.NOUN}."
            shaped[0] = assert_in_graph(shaped[0], count <= limit, message, [count])
            parts = [form.decode(values) for values, form in zip(shaped, forms)]
            if len(parts) > 1 or self.codec.IS_PACKED and parts[0].shape.rank != 2:
                parts = [tf.reshape(part, [count, int(np.prod(part.shape[1:]))]) for part in parts]
            outputs = self.classify(parts[0] if len(parts) == 1 else tf.concat(parts, 1))
            return outputs if signature in self.codec.UNNAMED else self._add_class_names(outputs)

        return serve

    def classify(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the outputs for decoded examples; those with NaN, -1, an infinite number or logit are invalid."""
        is_element_valid = tf.abs(x) <= tf.float32.max if x.dtype.is_floating else x >= 0
        is_valid = tf.reduce_all(is_element_valid, list(range(1, x.shape.rank)))
        # A lookup of an invalid id would fail for the whole request.
        blank = np.concatenate([np.ravel(field.codec.blank) for field in self.fields]).reshape(x.shape[1:])
        x = tf.where(_expand(is_valid, x.shape.rank), x, blank if blank.any() else tf.zeros([], x.dtype))
        inputs = self.model_inputs(pad_if_empty(self.codec.subtract_base(x)))
        raw_logits = tf.cast(self.model(inputs, training=False), tf.float32)[: tf.shape(is_valid)[0]]
        # A softmax is NaN beside infinity or NaN; 8 bits have no scale for a comparison with the largest number.
        is_valid &= tf.reduce_all(tf.nn.softmax(raw_logits) >= 0, list(range(1, raw_logits.shape.rank)))
        logits = tf.where(_expand(is_valid, raw_logits.shape.rank), raw_logits, np.nan)
        outputs, name = self.targets.predict(logits, is_valid), self.targets.prediction_name
        return {**outputs, name: self.codec.add_base(x, outputs[name])}

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
        """Return the request of a signature for stored examples."""
        if is_column(self.fields[0]) and signature == self.portable_signature:
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
        """Measure an exported model on the whole test set: "loss", and "accuracy" in percent or "perplexity".

        Args:
            predict: `(**inputs) -> outputs` of a signature.
            signature: Its name.
        """
        test, size = self.process.dataset.test, self.process.recipe.evaluate.batch_size
        starts = range(0, len(test.x), size)
        requests = (self.request(test.x[start : start + size], signature) for start in starts)
        outputs = np.concatenate([self.outputs_of(predict(**request)) for request in requests])
        metrics = self.process.evaluator.measures.measure(tf.constant(outputs), test.labels)
        return {name: float(value) for name, value in metrics.items()}

    @property
    def input_spec(self) -> dict[str, Any]:
        """Description of the model's input for `export.json`: its kind, and the fields with their inputs."""
        fields = zip(self.fields, input_names(self.fields))
        described = [{**field.describe(), "input": name} for field, name in fields]
        return {"kind": self.codec.KIND, "fields": described, "normalised_by": self.process.input.normalised_by}

    def notes(self, signatures: Collection[str]) -> list[str]:
        """Return sentences on the inputs for callers of the model."""
        invalid = f"NaN and {index} -1" if (index := self.targets.index_name) is not None else "NaN"
        sentences = self.codec.describe_inputs(self.fields[:MAX_LISTED], invalid)
        if (strings := self.process.functions.strings) is not None:
            texts = ", ".join(map(quote_markdown, strings.input))
            sentences.append(f"`serving_default` takes texts as {texts}, and other formats take their numbers.")
        features = [name for field in self.fields for name in field.codec.features(field.name)]
        if is_column(self.fields[0]) and len(features) <= MAX_LISTED:
            sentences.append(f"Order of the features: {', '.join(map(quote_markdown, features))}.")
        names = None if self.process.dataset.outputs else self.process.dataset.class_names
        if names is not None and self.targets.index_name != "class" and len(names) <= MAX_LISTED:
            sentences.append(f"Order of the {self.targets.prediction_name}: {', '.join(map(quote_markdown, names))}.")
        return sentences

    def outputs_of(self, results: dict) -> np.ndarray:
        """Return the model's unchanged outputs among the results of a call; a Keras file has no others."""
        if names := [field.name for field in self.process.dataset.outputs]:
            return np.concatenate([np.reshape(results[name], [len(results[name]), -1]) for name in names], 1)
        return results.get(self.targets.output_name, next(iter(results.values())))


def _reading_strings(layers, function, specs):
    """Return a function that takes the strings of a model instead of numbers, and its input specs."""
    others = [spec for spec in specs if spec.name not in layers.output]
    texts = [tf.TensorSpec(tensor.shape, tf.string, name) for name, tensor in layers.input.items()]

    def serve(*sent):
        values = dict(zip([spec.name for spec in (*texts, *others)], sent))
        values |= layers({spec.name: values[spec.name] for spec in texts})
        return function(*(tf.cast(values[spec.name], spec.dtype) for spec in specs))

    return serve, [*texts, *others]


def _expand(is_valid, rank):
    return tf.reshape(is_valid, [-1, *[1] * (rank - 1)])


def pad_if_empty(batch: tf.Tensor) -> tf.Tensor:
    """Return the batch, or one blank example if it is empty, since some kernels fail for empty batches."""
    shape = tf.shape(batch)
    missing = tf.cast(shape[:1] == 0, tf.int32)
    return tf.concat([batch, tf.zeros(tf.concat([missing, shape[1:]], 0), batch.dtype)], 0)


def max_examples(model: keras.Model, open_size: int) -> int:
    """Return the number of examples for which no layer's output exceeds `LARGEST_TENSOR` entries.

    Args:
        open_size: Size of the axes that may have any size.
    """
    shapes = [output.shape[1:] for layer in model.layers for output in tf.nest.flatten(layer.output)]
    widest = max(int(np.prod([open_size if size is None else size for size in shape])) for shape in shapes)
    return max(LARGEST_TENSOR // widest, 1)


def max_words(classes: int) -> int:
    """Return the largest number of words of a request, with padding: each takes one logit per class."""
    return LARGEST_TENSOR // max(classes, 4096)
