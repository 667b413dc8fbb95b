"""Codecs: how the values of a field are sent to an exported model, decoded in its graph, and described.

A data set is a tuple of fields, each a name and a codec: one picture, one clip, one text, the columns of a table, or
several named arrays. Each module has a dataclass `Codec` whose attributes are plain values, so that a run folder or an
export stores them without code. The stored examples of several fields are their values side by side, float32 [n,
values].

Modules:

    category  One of the texts of a column, stored as its index or one feature for each category
    date      A day of the calendar, stored as features such as the month and the weekday
    number    A number of a column, stored as a feature
    picture   Pictures, stored as pixels
    raw       Numbers without a codec of their own, such as an array of a model with several inputs
    series    Numbers over time
    sound     Sound clips, stored as samples of one channel
    words     Texts, stored as ids of their tokens
"""

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf


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
        NOUN: Plural noun for examples in messages and limits.
        PORTABLE: Signature without texts and files, which other formats convert.
        ITEMS: Signature for values as users have them.
        PREDICT: Signature for values that `predict` has read.
        ITEM_NEEDS: Property of the data that `ITEMS` requires.
        UNNAMED: Signatures without names of classes in their outputs.
    """

    NOUN: ClassVar[str] = "rows"
    PORTABLE: ClassVar[str] = "serve_numbers"
    ITEMS: ClassVar[str] = "serving_default"
    PREDICT: ClassVar[str] = "serving_default"
    ITEM_NEEDS: ClassVar[str] = ""
    UNNAMED: ClassVar[tuple[str, ...]] = ("serve_numbers",)

    def options(self) -> dict[str, Any]:
        """Return the attributes that an export stores."""
        return dataclasses.asdict(self)  # type: ignore[call-overload]

    def forms(self, name: str, assets: Assets) -> dict[str, Form]:
        """Return the form of the field in each signature."""
        raise NotImplementedError

    def send(self, name: str, stored: np.ndarray) -> dict[str, np.ndarray]:
        """Return stored values [n, ...] as inputs of "serving_default", by name."""
        return {name: stored}

    @property
    def blank(self) -> np.ndarray:
        """A valid stored value that replaces an invalid one, whose prediction is then discarded."""
        raise NotImplementedError

    @property
    def limits(self) -> dict[str, int]:
        """Limits of a value in a request, by name."""
        return {}

    def notes(self, name: str, invalid: str) -> list[str]:
        """Return sentences for callers; `invalid` names the outputs of an invalid example."""
        return []

    def parse(self, name: str, text: str) -> Any:
        """Return the value that a text denotes, in the form of the signature `ITEMS`.

        Raises:
            InputError: The text denotes no value of the field, whose name is in the message.
        """
        raise NotImplementedError

    def example(self) -> Any:
        """Return a valid value in the form of the signature `ITEMS`, which contains no data of clients."""
        raise NotImplementedError

    def call(self, name: str) -> str:
        """Return Python that makes a batch of one value in the form of the signature `ITEMS`."""
        return f"{name}=tf.constant([{self.example()!r}])"


@dataclass(frozen=True)
class Field:
    """A named value of each example.

    Attributes:
        name: Name in the data, such as that of a column.
        codec: The codec of its values.
    """

    name: str
    codec: Any

    def describe(self) -> dict[str, Any]:
        """Return the field as plain values, ready for JSON."""
        kind = type(self.codec).__module__.rpartition(".")[2]
        return {"name": self.name, "codec": kind, **_to_lists(self.codec.options())}


def names() -> tuple[str, ...]:
    """Return the names of all codecs."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def build_fields(descriptions: Iterable[Mapping[str, Any]]) -> tuple[Field, ...]:
    """Return fields from the result of `Field.describe`.

    Raises:
        KeyError, TypeError, ValueError: A description was not written by `Field.describe`.
        InputError: A value of a codec is invalid.
    """
    fields = []
    for description in descriptions:
        options = {
            name: _to_tuples(value) for name, value in description.items() if name not in ("name", "codec", "input")
        }
        if not isinstance(description["name"], str) or description["codec"] not in names():
            raise ValueError(f"field {description['name']!r:.80} has an unknown codec")
        codec = importlib.import_module(f"{__name__}.{description['codec']}").Codec(**options)
        fields.append(Field(description["name"], codec))
    return tuple(fields)


def _to_lists(value):
    """Return JSON's form of nested tuples."""
    if isinstance(value, dict):
        return {name: _to_lists(each) for name, each in value.items()}
    return [_to_lists(each) for each in value] if isinstance(value, list | tuple) else value


def _to_tuples(value):
    return tuple(map(_to_tuples, value)) if isinstance(value, list) else value


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
