"""Predictions of a trained model for pictures, clips, series, rows and texts, by the function that an export has.

The readers of the data loaders read the items; one with an invalid value has its error.
"""

import csv
import io
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError, UserError, did_you_mean
from hetero_tf.base.files import check_write_target, disk_errors, read_bytes, read_errors, replace_file, write_atomic
from hetero_tf.base.processes import temporary_folder
from hetero_tf.data.arrow_files import ENDINGS as ARROW
from hetero_tf.data.codecs import Field, build_fields, series, words
from hetero_tf.data.columns import TextColumn, parse_number
from hetero_tf.data.folder import iterate_files
from hetero_tf.data.picture_files import LARGEST_FILE
from hetero_tf.data.table_files import EXCEL, JSON_LINES, TABLE_ENDINGS, read_table, read_text, table_ending
from hetero_tf.data.targets import LABEL_MAP, MAP, POSITIONS, find
from hetero_tf.export import task_of
from hetero_tf.run.learning_process import LearningProcess

# Endings of tables; a file with another one has a text in each line. A missing file with one of them is an error.
ROW_FORMATS = (*TABLE_ENDINGS, *JSON_LINES, *EXCEL, *ARROW)
ROW_FILES = (*ROW_FORMATS, ".txt")
# Ignored columns in a note.
MAX_LISTED = 10
# Largest batch: examples, the share of the examples that a request may have, and bytes of its examples.
BATCH_EXAMPLES, REQUEST_SHARE, BATCH_BYTES = 256, 16, 2**26
LONGEST_MESSAGE = 300


@dataclass(frozen=True)
class ItemForm:
    """Form of the items that a model predicts.

    Attributes:
        targets: Form of the targets, see `data.targets`.
        classes: Number of classes, targets or words.
        class_names: Names of the classes or targets; empty for words.
        fields: Fields of an item; a text has the name of its column in a file with several.
        header: Whether the first line of a table contains the column names.
    """

    targets: str
    classes: int
    class_names: tuple[str, ...]
    fields: tuple[Field, ...]
    header: bool

    @property
    def codec(self) -> Any:
        """The codec of the first field."""
        return self.fields[0].codec

    @property
    def is_text(self) -> bool:
        """True if the items are texts."""
        return isinstance(self.codec, words.Codec)

    @property
    def required(self) -> list[str]:
        """Columns that a file of rows or texts must have."""
        return [field.name for field in self.fields]


@dataclass(frozen=True)
class Item:
    """An input of `predict`, before and after its prediction.

    Attributes:
        source: Path of a picture or clip, FILE:LINE of a row or text in a file, or the row or text of the command line.
        value: Value of each field as its signature takes it; None if the item is invalid, and after the prediction.
        error: Reason why the item has no prediction; None if it is valid.
        columns: Texts of a row by column name.
        fields: Fields of the prediction such as "class", see `data.targets`; None for each if the item is invalid.
        class_map: Class of each pixel, int32 [height, width] in the size of the model, if it predicts label maps.
    """

    source: str
    value: tuple | None = None
    error: str | None = None
    columns: dict[str, str] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    class_map: np.ndarray | None = field(default=None, compare=False)

    def to_row(self, copy_columns: bool) -> dict[str, Any]:
        """Return the row of the prediction in a file.

        It has the columns of the input if `copy_columns` is set; a name that is already used gets the prefix `input.`.
        """
        row = {"input": self.source, **self.fields, "error": self.error}
        if not copy_columns:
            return row
        copies = {f"input.{name}" if name in row else name: text for name, text in self.columns.items()}
        return {"input": row.pop("input"), **copies, **row}


def _read_item(source, read, **facts):
    """Return the item of the value that `read` returns, or of the reason why it is invalid."""
    try:
        return Item(source, read(), **facts)
    except UserError as error:
        return Item(source, error=str(error).removeprefix(f"{source}: "), **facts)


def open_items(inputs: Sequence[str], form: ItemForm, on_note: Callable[[str], object]) -> Iterator[Item]:
    """Read the inputs, and return an iterator over their items in order.

    Args:
        inputs: For images and audio: files, and folders whose files are read with those of their subfolders. For
            series: tables with a column for each channel, whose last positions are read. For a table: files that
            `data: csv` reads, and rows in the form of `parse_row`. For text: such files, files with one text per
            line, and texts.
        form: Form of the items.
        on_note: Receives a note about each file with columns that are ignored.
    """
    if hasattr(form.codec, "FILES"):
        return itertools.chain.from_iterable([_open_files(path, form) for path in inputs])
    if isinstance(form.codec, series.Codec):
        return (_read_item(path, lambda path=path: _read_series(path, form.codec)) for path in inputs)
    return itertools.chain.from_iterable([_open_rows(text, form, on_note) for text in inputs])


def _open_files(path, form):
    kind = form.codec.FILES
    if not os.path.isdir(path):
        return (_read_file(file, form) for file in [path])
    endings = (*kind.endings, *kind.unsupported)
    with read_errors(path):
        files = sorted(file for file in iterate_files(Path(path)) if file.suffix.lower() in endings)
    if not files:
        raise InputError(f"{path}: expected {', '.join(kind.endings)} files. Received: none")
    return (_read_file(str(file), form) for file in files)


def _read_file(path, form):
    return _read_item(path, lambda: (form.codec.read(read_bytes(path, LARGEST_FILE, follow=True)),))


def _read_series(path, codec):
    """Return the last positions of a table with a column for each channel."""
    table = read_table(Path(path))
    columns = _columns(table, codec.channels or ())
    columns = {name: columns[name] for name in codec.channels or columns}
    time, count = codec.shape
    if len(columns) != count or table.rows < time:
        received = f"{len(columns)} columns, {table.rows} rows"
        expected = f"{count} columns of numbers and at least {time} rows, the oldest first"
        raise InputError(f"must have {expected}. Received: {received}")
    numbers = [
        [parse_number(column.texts[code], name) for code in column.codes[-time:]] for name, column in columns.items()
    ]
    return (np.transpose(numbers),)


def _open_rows(text, form, on_note):
    path, names = Path(text), form.required
    if not os.path.isfile(text):
        if text.lower().endswith(ROW_FILES) and "\n" not in text:
            raise InputError(f"{text}: no such file")
        try:
            return iter([_encode(text, {names[0]: text} if form.is_text else parse_row(text, names), form)])
        except InputError as error:
            return iter([Item(text, error=str(error))])
    if form.is_text and table_ending(path) not in ROW_FORMATS:
        lines = [(number, line.strip()) for number, line in enumerate(read_text(path).split("\n"), 1) if line.strip()]
        if not lines:
            raise InputError(f"{path}: expected at least one row. Received: none")
        return (_encode(f"{path}:{number}", {names[0]: line}, form) for number, line in lines)
    table = read_table(path, form.header)
    if not form.header and len(table.columns) == len(names):
        table = replace(table, columns=dict(zip(names, table.columns.values())))
    columns = _columns(table, names)
    ignored = [name for name in columns if name not in names]
    if ignored:
        more = f" and {len(ignored) - MAX_LISTED} more" if len(ignored) > MAX_LISTED else ""
        on_note(f"{path}: ignored columns: {', '.join(ignored[:MAX_LISTED])}{more}")
    return (
        _encode(table.locate(row), {name: column.texts[column.codes[row]] for name, column in columns.items()}, form)
        for row in range(table.rows)
    )


def _columns(table, required):
    """Return the columns of a table as texts; `InputError` if a required one is missing."""
    if missing := [name for name in required if name not in table.columns]:
        raise InputError(f"{table.source}: has no column {missing[0]!r}{did_you_mean(missing[0], table.columns)}")
    return {name: TextColumn.of(column) for name, column in table.columns.items()}


def _encode(source, row, form):
    """Return the item of texts by column."""
    return _read_item(
        source, lambda: tuple(field.codec.parse(field.name, row[field.name]) for field in form.fields), columns=row
    )


def parse_row(row: str, names: Sequence[str]) -> dict[str, str]:
    """Return the values of a row written as text by column name.

    Args:
        row: Comma-separated values in column order, `5.1,red`, or named values in any order, `size=5.1,colour=red`.
        names: Names of the columns.
    """
    values = next(csv.reader([row], skipinitialspace=True), [])
    fields = [value.partition("=") for value in values]
    if any(sign and name.strip() in names for name, sign, _ in fields):
        named = {name.strip(): value for name, _, value in fields}
    else:
        named = dict(zip(names, values))
    if len(values) != len(names) or set(named) != set(names):
        raise InputError(
            f"a row must have a value for each column, {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}, "
            f"separated by commas: `1,2`, or `NAME=1,NAME=2` in any order. Received: {row!r}"
        )
    return named


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


def predictor_of_process(process: LearningProcess, model: keras.Model) -> Predictor:
    """Return the predictor of a trained model.

    Args:
        process: `process.LearningProcess`.
        model: Keras model of a level, see `process.network`.
    """
    task, dataset, options = task_of(process, model), process.dataset, process.recipe.data.loader.options
    with temporary_folder() as scratch:
        endpoints, _ = task.endpoints(scratch)
        if task.codec.ITEMS not in endpoints:
            raise InputError(f"predict needs a data set with {task.codec.ITEM_NEEDS}. Received: {dataset.source}")
        function, specs = endpoints[task.codec.PREDICT]
        serve = tf.function(function, input_signature=specs, autograph=False)
    targets, fields = process.recipe.targets, build_fields(task.input_spec["fields"])
    if isinstance(fields[0].codec, words.Codec):
        fields = (Field(options.get("text", "text"), fields[0].codec),)
    class_names = () if targets == POSITIONS else tuple(dataset.class_names or map(str, range(dataset.classes)))
    form = ItemForm(targets, dataset.classes, class_names, fields, options.get("header", True))
    names = [spec.name for spec in specs]
    return Predictor(form, specs, lambda **inputs: serve(*(inputs[name] for name in names)), task.limits)


def predict(predictor: Predictor, inputs: Sequence[str], top: int, on_note: Callable[[str], object]) -> Iterator[Item]:
    """Yield the items with their predictions in the order of the inputs, computed in batches.

    Args:
        predictor: Result of `predictor_of_process`.
        inputs, on_note: See `open_items`.
        top: Number of classes or words of a prediction, most likely first; at most `targets.TOP` words.

    Raises:
        InputError: A file or folder is missing or empty, or a table lacks a column. An item that cannot be read does
            not raise an error.
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
    """Return an item with its prediction; `outputs` is None if it is invalid."""
    targets, error, values = find(form.targets), item.error, []
    names = targets.names(form.class_names, form.classes, top)
    if outputs is not None:
        try:
            values = targets.read(outputs, form.class_names, len(names) // 2)
        except InputError as problem:
            error = str(problem)
    # A map may have fewer classes than ranks.
    fields = {**dict.fromkeys(names), **dict(zip(names, values))}
    class_map = outputs["class"] if form.targets == LABEL_MAP and error is None else None
    return replace(item, value=None, fields=fields, error=error, class_map=class_map)


# Formats of written predictions by the ending: the delimiter of a table, or None for JSON lines.
DELIMITERS = {".csv": ",", ".tsv": "\t", ".jsonl": None, ".ndjson": None}


def check_output(path: Path, inputs: Sequence[str]) -> None:
    """Check the path of a file of predictions before anything is computed."""
    if path.suffix.lower() not in DELIMITERS:
        raise InputError(f"--out must end in one of {', '.join(DELIMITERS)}. Received: --out={path}")
    check_write_target(path)
    for name in inputs:
        if path.exists() and os.path.exists(name) and os.path.samefile(path, name):
            raise InputError(f"--out must not be an input, which would be lost. Received: --out={path}")


def write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows to a file, which replaces an earlier one when it is complete.

    Args:
        path: Path whose ending selects the format. JSON lines have lists as lists; in tables their entries are
            separated by semicolons.
        rows: At least one row; a table has the columns of the first one.
    """
    delimiter = DELIMITERS.get(path.suffix.lower())
    with replace_file(path) as file:
        # Names of files may have bytes outside UTF-8.
        text = io.TextIOWrapper(file, "utf-8", errors="backslashreplace", newline="")
        if delimiter is None:
            text.writelines(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
        else:
            joined = (
                {name: "; ".join(map(str, value)) if isinstance(value, list) else value for name, value in row.items()}
                for row in rows
            )
            first = next(joined)
            writer = csv.DictWriter(text, list(first), "", "ignore", delimiter=delimiter, lineterminator="\n")
            writer.writeheader()
            writer.writerows(itertools.chain([first], joined))
        text.detach()


MAX_CLASSES = 256


def encode_class_map(classes: np.ndarray, size: tuple[int, int]) -> bytes:
    """Return a palette PNG of width and height `size`, of which each pixel has the nearest class [height, width].

    Class 0 is black. Bits 0, 1 and 2 of a class are the highest bits of red, green and blue, bits 3, 4 and 5 the next
    ones, and so on.

    Reference: the color map of the PASCAL VOC devkit.
    """
    from PIL import Image

    # At a tie, Pillow's nearest pixel depends on rounding.
    rows, columns = (
        ((np.arange(new) + 0.5) * old / new).astype(int) for new, old in zip(size[::-1], classes.shape, strict=True)
    )
    bits = np.arange(MAX_CLASSES)[:, None] >> np.arange(3)
    palette = np.sum([(bits >> 3 * bit & 1) << 7 - bit for bit in range(3)], 0).astype(np.uint8)
    image, file = Image.fromarray(classes.astype(np.uint8)[np.ix_(rows, columns)]), io.BytesIO()
    image.putpalette(palette.tobytes())
    image.save(file, "PNG")
    return file.getvalue()


def write_maps(folder: Path, form: ItemForm, predictions: Iterable[Item]) -> Iterator[Item]:
    """Write the map of each prediction into a folder, named by its position; yield it with the field "map"."""
    from PIL import Image, ImageOps

    if form.targets != LABEL_MAP or form.classes > MAX_CLASSES:
        raise InputError(f"--maps needs a model of the task segmentation with at most {MAX_CLASSES} classes")
    check_write_target(folder, folder=True)
    with disk_errors(folder, "create"):
        folder.mkdir(parents=True, exist_ok=True)
    for number, prediction in enumerate(predictions, 1):
        path = None
        if prediction.class_map is not None:
            path = folder / f"{number:04}.png"
            with Image.open(prediction.source) as picture:
                size = ImageOps.exif_transpose(picture).size
            write_atomic(path, encode_class_map(prediction.class_map, size), is_one_of_many=True)
        yield replace(prediction, fields={**prediction.fields, MAP: path and str(path)})
