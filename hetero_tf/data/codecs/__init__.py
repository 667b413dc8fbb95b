"""Codecs: how the values of a field are sent to an exported model, decoded in its graph, and described.

A data set is a tuple of fields, each a name and a codec: one picture, one clip, one text, the columns of a table, or
several named arrays. Each module has a dataclass `Codec` whose attributes are plain values, so that a run folder or an
export stores them without code. The stored examples of several fields are their values side by side, float32 [n,
values].
"""

import dataclasses
import importlib
import itertools
import pkgutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from hetero_tf.base.constraints import Range
from hetero_tf.base.errors import InputError
from hetero_tf.base.typed_json import from_json
from hetero_tf.data.columns import Scale
from hetero_tf.data.inspection import MAX_COLUMNS, TableSummary, inspect_column

Positive = Annotated[int, Range(low=1)]

if TYPE_CHECKING:
    import tensorflow as tf
    from typing_extensions import Self


@dataclass(frozen=True)
class Form:
    """A way to send the values of a field to an exported model.

    Attributes:
        name: Name of the input.
        dtype: Type of the values, such as "float32" or "string".
        shape: Shape of one value; None for an axis of any size.
        decode: `values [n, *shape] -> stored values [n, ...]` in the graph; an invalid value becomes NaN, or -1 if
            whole numbers are stored.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]
    decode: Callable[["tf.Tensor"], "tf.Tensor"]

    @property
    def spec(self) -> "tf.TensorSpec":
        """The input of a batch of any size."""
        import tensorflow as tf

        return tf.TensorSpec((None, *self.shape), self.dtype, name=self.name)


@dataclass(frozen=True)
class Assets:
    """Resources of the signatures of an export.

    Attributes:
        folder: Folder for vocabulary files, which a SavedModel copies.
        tables: Lookup tables, which a SavedModel tracks; codecs add theirs.
    """

    folder: Path
    tables: list["tf.lookup.StaticHashTable"] = dataclasses.field(default_factory=list)


class BaseCodec:
    """Defaults of a codec.

    Attributes:
        KIND: Name of the data in recipes, which inputs list, see `data.inputs`.
        NOUN: Plural noun for examples in messages and limits.
        EXAMPLE: Noun for one example.
        STORED: Stored examples, for messages.
        DTYPES: Types of stored examples.
        IS_PACKED: Whether the values of several fields are side by side, float32 [n, values].
        PORTABLE: Signature without texts and files, which other formats convert.
        ITEMS: Signature for values as users have them.
        PREDICT: Signature for values that `predict` has read.
        ITEM_NEEDS: Property of the data that `ITEMS` requires.
        UNNAMED: Signatures without names of classes in their outputs.
        HAS_ONE_SCALE: Whether one 8-bit scale suits all values of an example.
        LOCAL: Attributes that a run folder stores, but not an export.
        PIPELINES: Pipeline of the Hub by the task, or by the kind of the input in `export.json`.
        STEPS: Optimizer, learning rate and rounds that suit the data.
        texts: Texts that files store, such as categories.
        shape: Shape of a stored value.
    """

    KIND: ClassVar[str]
    NOUN: ClassVar[str] = "rows"
    EXAMPLE: ClassVar[str] = "row"
    STORED: ClassVar[str] = ""
    DTYPES: ClassVar[tuple[type, ...]] = (np.float32,)
    IS_PACKED: ClassVar[bool] = False
    PORTABLE: ClassVar[str] = "serve_numbers"
    ITEMS: ClassVar[str] = "serving_default"
    PREDICT: ClassVar[str] = "serving_default"
    ITEM_NEEDS: ClassVar[str] = ""
    UNNAMED: ClassVar[tuple[str, ...]] = ("serve_numbers",)
    HAS_ONE_SCALE: ClassVar[bool] = False
    LOCAL: ClassVar[tuple[str, ...]] = ()
    PIPELINES: ClassVar[Mapping[str, str]] = {}
    STEPS: ClassVar[tuple[str, float, int]] = ("adam", 0.002, 30)
    texts: tuple[str, ...] = ()
    shape: Any

    @property
    def size(self) -> int:
        """Number of values of a stored value."""
        return int(np.prod(self.shape))

    @property
    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """Number to subtract from each stored value of the last axis, and its divisor; None before `fit`."""
        return ((), ())

    def features(self, name: str) -> tuple[str, ...]:
        """Return the names of the stored values of the last axis; empty if they are unknown."""
        return ()

    def fit(self, stored: np.ndarray) -> "Self":
        """Return the codec with the statistics of training examples [n, ...]."""
        return self

    def check(self, location: str, stored: np.ndarray) -> None:
        """Raise `InputError` for stored values [n, ...] of the right type that are invalid."""

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draw random stored values [count, ...]."""
        raise NotImplementedError

    def describe(self, fields: Sequence["Field"], x: Any, summary: Any) -> list[str]:
        """Return lines about the training examples.

        Args:
            fields: The fields of the data set, of which this codec is the first.
            x: The stored examples.
            summary: Summary of the files as read, see `inspection`; None if there is none.
        """
        raise NotImplementedError

    def forms(self, name: str, assets: Assets) -> dict[str, Form]:
        """Return the form of the field in each signature."""
        raise NotImplementedError

    def send(self, name: str, stored: np.ndarray) -> dict[str, np.ndarray]:
        """Return stored values [n, ...] as inputs of "serving_default", by name."""
        return {name: stored}

    @property
    def blank(self) -> np.ndarray:
        """A valid stored value that replaces an invalid one, whose prediction is then discarded."""
        return np.zeros(self.shape, np.float32)

    @property
    def limits(self) -> dict[str, int]:
        """Limits of a value in a request, by name."""
        return {}

    def notes(self, name: str, invalid: str) -> list[str]:
        """Return sentences for callers; `invalid` names the outputs of an invalid example."""
        return []

    def describe_inputs(self, fields: Sequence["Field"], invalid: str) -> list[str]:
        """Return the sentences of several fields, of which this codec is the first."""
        return [note for field in fields for note in field.codec.notes(field.name, invalid)]

    def subtract_base(self, x: Any) -> Any:
        """Return decoded examples as they are stored, if targets are relative to them; NumPy arrays or tensors."""
        return x

    def add_base(self, x: Any, values: Any) -> Any:
        """Return predictions for decoded examples in the unit of the data."""
        return values

    def parse(self, name: str, text: str) -> Any:
        """Return the value that a text denotes, in the form of the signature `ITEMS`.

        Raises:
            InputError: The text denotes no value of the field, whose name is in the message.
        """
        raise NotImplementedError

    def example(self) -> Any:
        """Return a valid value in the form of the signature `ITEMS`, which contains no data of clients."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class ColumnCodec(BaseCodec):
    """A column of a table, stored as one or more features.

    Attributes:
        scale: Scaling of the features.
        mean: Number to subtract from each feature: the mean, the minimum for "minmax", and 0 for "none".
        std: Divisor of each feature: the standard deviation, the range, or 1.
    """

    scale: Scale = "standard"
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    KIND, STORED = "table", "table rows float32 [n, features]"
    IS_PACKED = True
    LOCAL: ClassVar[tuple[str, ...]] = ("scale", "mean", "std")
    PIPELINES = dict.fromkeys(("classification", "binary"), "tabular-classification")
    PIPELINES |= {"regression": "tabular-regression"}

    def __post_init__(self):
        if {len(self.mean), len(self.std)} not in ({0}, {self.size}) or not all(self.std):
            raise ValueError(
                f"the statistics of a column must fit its {self.size} features. Received: {self.mean!r:.80}"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.features("")),)

    @property
    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        return (self.mean, self.std) if self.mean else None

    def fit_scaled(self, stored: np.ndarray, mean: np.ndarray, std: np.ndarray) -> "Self":
        """Return the codec with the statistics of training examples, of which the mean and the deviation are known."""
        low, high = stored.min(0).astype(np.float64), stored.max(0).astype(np.float64)
        scaled = {
            "standard": (mean, std),
            "minmax": (low, np.where(high == low, 1.0, high - low)),
            "none": (np.zeros_like(low), np.ones_like(low)),
        }
        offset, divisor = scaled[self.scale]
        return dataclasses.replace(self, mean=tuple(offset.tolist()), std=tuple(divisor.tolist()))

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        noise = rng.standard_normal((count, self.size))
        return self.repair(np.array(self.mean or 0.0) + np.array(self.std or 1.0) * noise).astype(np.float32)

    def describe(self, fields: Sequence["Field"], x: Any, summary: Any) -> list[str]:
        if summary is None:
            # The features of a table whose files were not inspected.
            is_plain = len(fields) == x.shape[1]
            names = [fields[index].name if is_plain else f"feature {index}" for index in range(x.shape[1])]
            columns = (inspect_column(name, x[:, index]) for index, name in enumerate(names[:MAX_COLUMNS]))
            summary = TableSummary(tuple(columns), len(names))
        return summary.lines()

    def describe_inputs(self, fields: Sequence["Field"], invalid: str) -> list[str]:
        return [
            "`serving_default` takes a number or text for each column, in the units of the data. The model encodes and "
            "normalises them.",
            f"A row with a number that is not finite, or a text that is not in the table, gets {invalid}.",
            *super().describe_inputs(fields, invalid),
            "`serve_numbers`, which other formats have, takes the encoded features of a row, float32.",
        ]

    def repair(self, stored: np.ndarray) -> np.ndarray:
        """Return arbitrary numbers [n, features] as valid stored values."""
        raise NotImplementedError


@dataclass(frozen=True)
class Field:
    """A named value of each example.

    Attributes:
        name: Name in the data, such as that of a column.
        codec: The codec of its values.
    """

    name: str
    codec: Any

    def describe(self, is_exported: bool = True) -> dict[str, Any]:
        """Return the field as plain values, ready for JSON; an export has no attributes in `LOCAL`."""
        local = self.codec.LOCAL if is_exported else ()
        options = {name: value for name, value in dataclasses.asdict(self.codec).items() if name not in local}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
        return {"name": self.name, "codec": type(self.codec).__module__.rpartition(".")[2], **plain}


def names() -> tuple[str, ...]:
    """Return the names of all codecs."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def build_fields(descriptions: Iterable[Any], source: object = "fields", advice: str = "") -> tuple[Field, ...]:
    """Return fields from the result of `Field.describe`.

    Args:
        descriptions: The descriptions.
        source, advice: See `typed_json.from_json`.

    Raises:
        InputError: A description was not written by `Field.describe`.
    """
    fields = []
    for index, value in enumerate(descriptions):
        name, codec = (value.get(key) if isinstance(value, Mapping) else None for key in ("name", "codec"))
        if not isinstance(name, str) or codec not in names():
            raise InputError(f"{source}: fields[{index}] has an unknown name or codec{advice}")
        kind = importlib.import_module(f"{__name__}.{codec}").Codec
        fields.append(Field(name, from_json(kind, value, f"{source}: field {name!r:.80}", advice)))
    return tuple(fields)


def stored_shape(fields: Sequence[Field]) -> tuple[int, ...]:
    """Return the shape of a stored example."""
    codec = fields[0].codec
    return (sum(field.codec.size for field in fields),) if codec.IS_PACKED else tuple(codec.shape)


def split_stored(fields: Sequence[Field], x: np.ndarray) -> list[np.ndarray]:
    """Return the stored values [n, ...] of each field."""
    if not fields[0].codec.IS_PACKED:
        return [x]
    ends = itertools.accumulate(field.codec.size for field in fields)
    return np.split(x, list(ends)[:-1], 1)


def is_column(field: Field) -> bool:
    """Return True for a column of a table."""
    return isinstance(field.codec, ColumnCodec)


def fit(fields: Sequence[Field], x: Any) -> tuple[Field, ...]:
    """Return the fields with the statistics of training examples."""
    if all(field.codec.statistics is not None for field in fields):
        return tuple(fields)
    parts = split_stored(fields, x)
    if not is_column(fields[0]):
        return tuple(Field(field.name, field.codec.fit(part)) for field, part in zip(fields, parts, strict=True))
    # NumPy rounds the sums of a single column differently.
    means, stds = (split_stored(fields, values[None]) for values in mean_and_std(x))
    codecs = (
        field.codec.fit_scaled(part, mean[0], std[0]) for field, part, mean, std in zip(fields, parts, means, stds)
    )
    return tuple(Field(field.name, codec) for field, codec in zip(fields, codecs, strict=True))


def mean_and_std(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the standard deviation of each column [n, values]; a constant one has its value and 1."""
    mean, std = x.mean(0, dtype=np.float64), x.std(0, dtype=np.float64)
    constant = (x == x[0]).all(0)
    return np.where(constant, x[0], mean), np.where(constant | (std == 0), 1.0, std)


def decode_files(data: "tf.Tensor", decode: Callable, shape: Sequence[int]) -> "tf.Tensor":
    """Decode files independently to float32 [n, *shape]; a file that `decode` rejects becomes NaN.

    Args:
        data: string [n].
        decode: `scalar string -> float32 [*shape]`.
        shape: Shape of a decoded file.
    """
    import tensorflow as tf

    count, blank = tf.shape(data, tf.int64)[0], tf.fill(shape, np.float32(np.nan))
    # A graph cannot catch errors of operations, but a dataset can drop elements that raise one. It decodes one file at
    # a time, since ten large pictures in parallel would take ten times the memory.
    numbered = tf.data.Dataset.from_tensor_slices(data).enumerate()
    decoded = numbered.map(lambda index, file: (index, decode(file))).ignore_errors()
    # The extra element, at the index after the last file, keeps the batch from being empty.
    extra = tf.data.Dataset.from_tensors((count, blank))
    indices, examples = decoded.concatenate(extra).batch(count + 1).get_single_element()
    blanks = tf.fill(tf.concat([tf.shape(data) + 1, shape], 0), np.float32(np.nan))
    return tf.tensor_scatter_nd_update(blanks, indices[:, None], examples)[:-1]


def lookup_table(texts: Collection[str]) -> "tf.lookup.StaticHashTable":
    """Return a lookup table `text -> index`, -1 for other texts."""
    import tensorflow as tf

    # LiteRT converts tables of int64 only.
    indices = tf.range(len(texts), dtype=tf.int64)
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(tf.constant(list(texts)), indices), -1)


def typical(mean: Any, std: Any, shape: Sequence[int]) -> list:
    """Return the means of the last axis; with more axes, waves of one standard deviation around them."""
    # Different phases, so that the lines of the channels differ in a figure.
    phases = np.add.outer(np.arange(int(np.prod(shape[:-1]))) / 2, np.arange(shape[-1]))
    values = (np.asarray(mean) + np.asarray(std) * (np.sin(phases) if len(shape) > 1 else 0 * phases)).reshape(shape)
    return np.vectorize(lambda value: float(f"{value:.4g}"))(values).tolist()
