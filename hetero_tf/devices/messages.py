"""Messages between a server and its devices, as Flower's records, and their checks."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hetero_tf.base.errors import shorten_repr
from hetero_tf.data.targets import LABEL_SET
from hetero_tf.recipe.schema import Recipe

# Flower requires that types begin with one of its own.
MESSAGE_TYPES = {"introduction": "query", "training": "train", "statistics": "query.statistics"}
# Names of Flower's records of a message.
VALUES_KEY, METADATA_KEY = "values", "metadata"
# The largest float32.
LARGEST = float(np.finfo(np.float32).max)
# Largest number of seconds that a device may report for its local steps.
LARGEST_TIME = 1e6
# Models whose static batch normalization a device can measure: none, its level's (it also receives the results, which
# its file needs for inference), or its level's and those of narrower levels.
NOTHING, ITS_LEVEL, NARROWER_LEVELS = MEASURES = ("nothing", "its level", "narrower levels")
# Recipe keys that a server and its devices must share; data, partition and evaluation may differ.
SHARED_KEYS = ("seed", "task", "input", "model", "levels", "round", "client", "optimizer", "precision")


class Refused(Exception):
    """A response is invalid; the message gives the reason. `finite`: False if it contains NaN or infinity."""

    def __init__(self, reason: str, finite: bool = True):
        super().__init__(reason)
        self.finite = finite


class Lost:
    """Response of a device that failed."""


@dataclass(frozen=True)
class Member:
    """A participating device.

    Attributes:
        client: Client number, the same as that of its key.
        labels: int32 [n], the labels of these examples, ascending.
        measures: One of `MEASURES`.
    """

    client: int
    level: str
    examples: int
    labels: np.ndarray
    measures: str


@dataclass(frozen=True)
class Message:
    """A request to a device, or its response.

    Attributes:
        arrays: Values by variable path: arrays to send, or their received bytes.
        metadata: Numbers, strings and lists of numbers.
    """

    arrays: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


def to_records(message: Message) -> Any:
    """Return a message as Flower's records."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    arrays = {
        path: Array(str(value.dtype), tuple(value.shape), "bytes", value.tobytes())
        for path, value in message.arrays.items()
    }
    return RecordDict({VALUES_KEY: ArrayRecord(arrays), METADATA_KEY: ConfigRecord(dict(message.metadata))})


def from_records(records: Any) -> Message:
    """Return the message of received records, its arrays as bytes.

    Raises:
        Refused: The records are not those of a message.
    """
    from flwr.app import ArrayRecord, ConfigRecord

    if set(records) != {VALUES_KEY, METADATA_KEY}:
        raise Refused(f"a response must have the records {VALUES_KEY} and {METADATA_KEY}")
    values, metadata = records[VALUES_KEY], records[METADATA_KEY]
    if not isinstance(values, ArrayRecord) or not isinstance(metadata, ConfigRecord):
        raise Refused(f"a response must have arrays as {VALUES_KEY} and plain values as {METADATA_KEY}")
    return Message({path: array.data for path, array in values.items()}, dict(metadata))


def agreement_digest(recipe: Recipe) -> str:
    """Return a digest of the recipe keys that a server and its devices must share."""
    keys = [repr(getattr(recipe, name)) for name in SHARED_KEYS]
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()


def build_introduction(member: Member, recipe: Recipe) -> Message:
    """Return the message with which a device introduces itself."""
    return Message({}, {**vars(member), "labels": member.labels.tolist(), "recipe": agreement_digest(recipe)})


def parse_member(metadata: Mapping[str, Any], client: int, recipe: Recipe, classes: int, max_examples: int) -> Member:
    """Return the device of an introduction.

    Args:
        max_examples: Maximum number of examples that a device may claim.

    Raises:
        Refused: The device claims another client number, has another recipe, or sends invalid values.
    """
    labels = metadata.get("labels")
    checks = {
        f"client must be {client}, the number of its key": _is_int_between(metadata.get("client"), client, client),
        f"recipe must be the server's; keys that must be equal: {', '.join(SHARED_KEYS)}": metadata.get("recipe")
        == agreement_digest(recipe),
        f"level must be one of {', '.join(recipe.levels.names)}": metadata.get("level") in recipe.levels.names,
        f"examples must be a whole number from 1 to {max_examples}, the number of the server's training data": (
            _is_int_between(metadata.get("examples"), 1, max_examples)
        ),
        f"measures must be one of {', '.join(MEASURES)}": metadata.get("measures") in MEASURES,
        f"labels must be a list of different labels from 0 to {classes - 1}, in order": isinstance(labels, list)
        and (recipe.loss_targets != LABEL_SET) <= len(labels) <= classes
        and all(_is_int_between(label, 0, classes - 1) for label in labels)
        and labels == sorted(set(labels)),
    }
    for rule, is_met in checks.items():
        if not is_met:
            raise Refused(f"{rule}. Received: {shorten_repr(metadata.get(rule.partition(' ')[0]), 60)}")
    return Member(client, metadata["level"], metadata["examples"], np.asarray(labels, np.int32), metadata["measures"])


def _is_int_between(value, low, high):
    return type(value) is int and low <= value <= high


def gather(values: Mapping[str, np.ndarray], indices: Mapping[str, tuple]) -> dict[str, np.ndarray]:
    """Return the values at some indices, `{path: np.ix_(...)}`, as contiguous arrays."""
    return {path: np.ascontiguousarray(np.asarray(values[path])[index]) for path, index in indices.items()}


def shapes_of(indices: Mapping[str, tuple]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays that `gather` returns."""
    return {path: tuple(len(part.ravel()) for part in index) for path, index in indices.items()}


def scatter(arrays: Mapping[str, np.ndarray], indices: Mapping[str, tuple], into: Mapping[str, np.ndarray]) -> None:
    """Write values to some indices of writable arrays."""
    for path, index in indices.items():
        into[path][index] = arrays[path]


def parse_arrays(
    received: Mapping[str, bytes], shapes: Mapping[str, tuple[int, ...]], dtype: np.dtype | str
) -> dict[str, np.ndarray]:
    """Return the arrays of a response after all checks.

    Args:
        received: Bytes of each value.

    Raises:
        Refused: A value is missing, unknown, of another size, or not finite.
    """
    for path in sorted(received.keys() ^ shapes.keys()):
        what = "is missing" if path in shapes else "is unknown"
        raise Refused(f"value {shorten_repr(path, 60)} {what}")
    arrays = {path: parse_array(received[path], path, shape, np.dtype(dtype)) for path, shape in shapes.items()}
    for path, array in arrays.items():
        if not np.isfinite(array).all():
            raise Refused(f"value {path} holds NaN or infinity", finite=False)
    return arrays


def parse_array(data: bytes, path: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an array of a response, which is sent as its bytes in row-major order."""
    size = math.prod(shape) * dtype.itemsize
    if not isinstance(data, bytes) or len(data) != size:
        received = len(data) if isinstance(data, bytes) else type(data).__name__
        raise Refused(f"value {path} must have {size} bytes, {dtype} {shape}. Received: {received}")
    return np.frombuffer(data, dtype).reshape(shape)


def number(metadata: Mapping[str, Any], name: str) -> float:
    """Return a number of a response, finite as float32.

    Raises:
        Refused: The value is missing, not a number, or not finite.
    """
    value = metadata.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused(f"{name} must be a number. Received: {shorten_repr(value, 60)}")
    # False for NaN; integers of any size can be compared.
    if not abs(value) <= LARGEST:
        raise Refused(f"{name} is not finite", finite=False)
    return float(value)


def parse_seconds(metadata: Mapping[str, Any]) -> float | None:
    """Return the seconds of the local steps of a response; None if the device did not report them.

    Raises:
        Refused: The time is negative, too large, or not a number.
    """
    if "train_seconds" not in metadata:
        return None
    value = metadata["train_seconds"]
    # False for NaN; integers of any size can be compared.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST_TIME:
        raise Refused(f"train_seconds must be a number from 0 to {LARGEST_TIME:g}. Received: {shorten_repr(value, 60)}")
    return value
