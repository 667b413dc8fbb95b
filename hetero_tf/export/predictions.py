"""Predictions of a trained model for pictures, clips, rows and texts, by its export."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.base.processes import temporary_folder
from hetero_tf.data.codecs import Field, build_fields, words
from hetero_tf.data.fields import input_names
from hetero_tf.data.targets import LABEL_MAP, POSITIONS, find
from hetero_tf.export import task_of
from hetero_tf.export.prediction_files import ClassMap
from hetero_tf.export.prediction_items import Item, ItemForm, open_items
from hetero_tf.export.serve.loading import read_manifest, verify_files
from hetero_tf.run.learning_process import LearningProcess

# Largest batch: examples, the share of the examples that a request may have, and bytes of its examples.
BATCH_EXAMPLES, REQUEST_SHARE, BATCH_BYTES = 256, 16, 2**26
LONGEST_MESSAGE = 300


@dataclass(frozen=True)
class Predictor:
    """A model that predicts items.

    Attributes:
        form: Form of the items.
        specs: Inputs of the signature for items, one for each field.
        serve: The signature: `(**inputs) -> {output: tensor [n, ...]}`.
        limits: Limits of a request, as in `export.json`.
    """

    form: ItemForm
    specs: Sequence[tf.TensorSpec]
    serve: Callable[..., dict[str, tf.Tensor]]
    limits: dict[str, int]

    def fits(self, count: int, longest: int) -> bool:
        """Return True if a batch of `count` items of at most `longest` bytes or features fits into memory."""
        nouns = ("clips", "images", "rows", "series")
        examples = min(self.limits.get(noun, BATCH_EXAMPLES * REQUEST_SHARE) for noun in nouns)
        # A word has at least one byte, and short texts are padded to the longest.
        size = self.limits["words"] // REQUEST_SHARE if "words" in self.limits else BATCH_BYTES
        return count <= min(BATCH_EXAMPLES, examples // REQUEST_SHARE) and count * longest <= size


@dataclass(frozen=True)
class Prediction:
    """The prediction for an item.

    Attributes:
        item: The item, without its content.
        fields: Fields such as "class", see `data.targets`; their values are None if the item is invalid.
        error: Reason why the item has no prediction; None if it has one.
        class_map: The class of each pixel of a picture, if the model predicts label maps.
    """

    item: Item
    fields: dict[str, Any]
    error: str | None
    class_map: ClassMap | None = None

    @property
    def is_correct(self) -> bool | None:
        """True if the predicted class is the label of the item; None if the label or the prediction is missing."""
        return None if self.error or self.item.label is None else self.fields["class"] == self.item.label

    def to_row(self, copy_columns: bool) -> dict[str, Any]:
        """Return the row of the prediction in a file.

        Args:
            copy_columns: Include the columns of the input; a name that is already used gets the prefix `input.`.
        """
        row = {"input": self.item.source, **self.fields, "error": self.error}
        if not copy_columns:
            return row
        copies = {f"input.{name}" if name in row else name: text for name, text in self.item.fields.items()}
        return {"input": row.pop("input"), **copies, **row}


def predictor_of_process(process: LearningProcess, model: keras.Model) -> Predictor:
    """Return the predictor of a trained model.

    Args:
        process: `process.LearningProcess`.
        model: Keras model of a level, see `process.network`.
    """
    task, dataset = task_of(process, model), process.dataset
    with temporary_folder() as scratch:
        endpoints, _ = task.endpoints(scratch)
        if task.codec.ITEMS not in endpoints:
            raise InputError(f"predict needs a data set with {task.codec.ITEM_NEEDS}. Received: {dataset.source}")
        function, specs = endpoints[task.codec.PREDICT]
        serve = tf.function(function, input_signature=specs, autograph=False)
    form = _build_form(build_fields(task.input_spec["fields"]), task.items, dataset.classes, dataset.class_names)
    names = [spec.name for spec in specs]
    return Predictor(form, specs, lambda **inputs: serve(*(inputs[name] for name in names)), task.limits)


def predictor_of_export(folder: Path) -> Predictor:
    """Verify the version of an exported level, and return its predictor.

    Args:
        folder: `FOLDER/<level>/<version>` of an export.
    """
    try:
        manifest = read_manifest(folder)
        verify_files(folder, manifest)
    except InputError as error:
        raise InputError(f"{folder}: cannot be loaded: {error}") from error
    if "items" not in manifest:
        raise InputError(f"{folder}: is an export of an earlier version; export the run again, or use --run_dir")
    signature = manifest["items"]["signature"]
    fields = build_fields(manifest["input"]["fields"], folder)
    form = _build_form(fields, manifest["items"], manifest["classes"], manifest["class_names"])
    if not {signature, form.codec.ITEMS} <= manifest["signatures"].keys():
        raise InputError(f"{folder}: predict needs a model for {form.codec.ITEM_NEEDS}")
    loaded = tf.saved_model.load(str(folder))
    inputs = loaded.signatures[signature].structured_input_signature[1]
    specs = [inputs[name] for name in input_names(form.fields)] if len(inputs) > 1 else list(inputs.values())
    # The loaded model keeps the variables of its signatures alive.
    return Predictor(form, specs, lambda **values: loaded.signatures[signature](**values), manifest["limits"])


def _build_form(fields, items, classes, class_names):
    names = () if items["targets"] == POSITIONS else tuple(class_names or map(str, range(classes)))
    if isinstance(fields[0].codec, words.Codec):
        fields = (Field(items["text"], fields[0].codec),)
    return ItemForm(items["targets"], classes, names, fields, tuple(items["labels"]), items["header"])


def predict(
    predictor: Predictor, inputs: Sequence[str], top: int, on_note: Callable[[str], object]
) -> Iterator[Prediction]:
    """Yield the prediction of each item in the order of the inputs, computed in batches.

    Args:
        predictor: Result of `predictor_of_process` or `predictor_of_export`.
        inputs: Files, folders, rows or texts, see `prediction_items.open_items`.
        top: Number of classes or words of a prediction, most likely first; at most `positions.TOP` words.
        on_note: Receives a note about each file with columns that are ignored.
    """
    for batch in _batches(predictor, open_items(inputs, predictor.form, on_note)):
        yield from _predict_batch(predictor, batch, top)


def _batches(predictor, items):
    """Yield lists of consecutive items whose valid ones fit into memory together."""
    batch: list[Item] = []
    longest = 0
    for item in items:
        size = sum(getattr(value, "nbytes", None) or len(str(value)) for value in item.value or ())
        if batch and not predictor.fits(len(batch) + 1, max(longest, size)):
            yield batch
            batch, longest = [], 0
        batch.append(item)
        longest = max(longest, size)
    if batch:
        yield batch


def _predict_batch(predictor, batch, top):
    valid = [item for item in batch if item.error is None]
    try:
        outputs = iter(_compute(predictor, [item.value for item in valid]) if valid else ())
    except tf.errors.OpError as error:
        if len(batch) > 1:
            # An item exceeds a limit of the model; compute the others without it.
            return [prediction for item in batch for prediction in _predict_batch(predictor, [item], top)]
        # `limits.assert_in_graph` quotes the sentence of a limit; the other lines of TensorFlow name operations.
        limit = re.search(r"assertion failed: \[(.*?) Received:", error.message)
        reason = limit[1] if limit else f"cannot be computed: {' '.join(error.message.split())[:LONGEST_MESSAGE]}"
        batch = [replace(valid[0], error=reason)]
    return [_read_outputs(predictor.form, item, None if item.error else next(outputs), top) for item in batch]


def _compute(predictor, values):
    columns = zip(predictor.specs, zip(*values))
    outputs = predictor.serve(
        **{spec.name: tf.constant(np.array(each, spec.dtype.as_numpy_dtype)) for spec, each in columns}
    )
    arrays = {name: output.numpy() for name, output in outputs.items()}
    return [{name: array[index] for name, array in arrays.items()} for index in range(len(values))]


def _read_outputs(form, item, outputs, top):
    """Return the prediction of an item; `outputs` is None if it is invalid."""
    error, values, names = item.error, [], form.names(top)
    if outputs is not None:
        try:
            values = find(form.targets).read(outputs, form.class_names, len(names) // 2)
        except InputError as problem:
            error = str(problem)
    # A map may have fewer classes than ranks.
    fields = {**dict.fromkeys(names), **dict(zip(names, values))}
    has_map = form.targets == LABEL_MAP and error is None
    class_map = ClassMap(outputs["class"], item.size) if has_map else None
    return Prediction(replace(item, value=None), fields, error, class_map)
