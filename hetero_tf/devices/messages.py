"""What travels between a server and its devices, and what is refused of it: functions of NumPy arrays and bytes."""

import hashlib
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hetero_tf.base.errors import short
from hetero_tf.recipe.schema import Recipe

# Bytes of the header of an array, more than NumPy writes for eight dimensions.
HEADER = 1024
# More examples than this are no device's.
MOST_EXAMPLES = 10**9
# The largest float32.
LARGEST = float(np.finfo(np.float32).max)
# What a device can measure for the query for statistics of static batch normalization: no model, that of its level (it
# also receives the results, since its file infers by them), or that of its level and of each narrower one.
NOTHING, ITS_LEVEL, NARROWER_LEVELS = MEASURES = ("nothing", "its level", "narrower levels")
# What a server and its devices must have alike; data, partition and measuring are each one's own.
ALIKE = ("seed", "input", "model", "levels", "round", "client", "optimizer", "precision")


class Refused(Exception):
    """A device's answer is not what it must be; the message says why. `finite`: False where it held NaN or infinity."""

    def __init__(self, reason: str, finite: bool = True):
        super().__init__(reason)
        self.finite = finite


@dataclass(frozen=True)
class Member:
    """A device that takes part.

    Attributes:
        client: Its number, which its key has too.
        level: Name of its level.
        examples: How many training examples it has.
        labels: int32 [n], which labels these have, ascending.
        measures: One of `MEASURES`.
    """

    client: int
    level: str
    examples: int
    labels: np.ndarray
    measures: str


@dataclass(frozen=True)
class Message:
    """A question to a device, or its answer.

    Attributes:
        arrays: Values by variable path: arrays to send, or the bytes of .npy files that were received.
        told: Plain numbers, texts and lists of numbers.
    """

    arrays: Mapping[str, Any] = field(default_factory=dict)
    told: Mapping[str, Any] = field(default_factory=dict)


def agreement(recipe: Recipe) -> str:
    """Returns a digest of the keys that a server and its devices must have alike."""
    keys = [repr(getattr(recipe, name)) for name in ALIKE]
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()


def introduction(member: Member, recipe: Recipe) -> Message:
    """Returns what a device answers when it is asked who it is."""
    told = {"client": member.client, "level": member.level, "examples": member.examples, "measures": member.measures}
    return Message({}, {**told, "labels": member.labels.tolist(), "recipe": agreement(recipe)})


def member_of(told: Mapping[str, Any], client: int, recipe: Recipe, classes: int) -> Member:
    """Returns the device that introduces itself.

    Args:
        told: Of its `introduction`.
        client: The number that its key has.
        recipe: Of the server.
        classes: Length of the global label axis.

    Raises:
        Refused: It claims to be another client, has another recipe, or says what cannot be.
    """
    labels = told.get("labels")
    checks = {
        f"client must be {client}, the number of its key": _whole(told.get("client"), client, client),
        f"recipe must be the server's; keys that must be alike: {', '.join(ALIKE)}": told.get("recipe")
        == agreement(recipe),
        f"level must be one of {', '.join(recipe.levels.names)}": told.get("level") in recipe.levels.names,
        f"examples must be a whole number from 1 to {MOST_EXAMPLES}": _whole(told.get("examples"), 1, MOST_EXAMPLES),
        f"measures must be one of {', '.join(MEASURES)}": told.get("measures") in MEASURES,
        f"labels must be a list of different labels from 0 to {classes - 1}, in order": isinstance(labels, list)
        and 0 < len(labels) <= classes
        and all(_whole(label, 0, classes - 1) for label in labels)
        and labels == sorted(set(labels)),
    }
    for rule, kept in checks.items():
        if not kept:
            raise Refused(f"{rule}. Received: {short(told.get(rule.partition(' ')[0]), 60)}")
    return Member(client, told["level"], told["examples"], np.asarray(labels, np.int32), told["measures"])


def _whole(value, low, high):
    return type(value) is int and low <= value <= high


def taken(values: Mapping[str, np.ndarray], indices: Mapping[str, tuple]) -> dict[str, np.ndarray]:
    """Takes the values at some indices, `{path: np.ix_(...)}`, each contiguous."""
    return {path: np.ascontiguousarray(np.asarray(values[path])[index]) for path, index in indices.items()}


def shapes_of(indices: Mapping[str, tuple]) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of what `taken` gives."""
    return {path: tuple(len(part.ravel()) for part in index) for path, index in indices.items()}


def put(arrays: Mapping[str, np.ndarray], indices: Mapping[str, tuple], into: Mapping[str, np.ndarray]) -> None:
    """Writes values to some indices of arrays that can be written."""
    for path, index in indices.items():
        into[path][index] = arrays[path]


def packed(array: np.ndarray) -> bytes:
    """Returns the .npy file of an array, as Flower sends it."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def checked(
    received: Mapping[str, bytes], shapes: Mapping[str, tuple[int, ...]], dtype: np.dtype | str
) -> dict[str, np.ndarray]:
    """Returns the arrays of an answer.

    Args:
        received: The bytes of a .npy file for each value.
        shapes: What must come, by path.
        dtype: Of each value.

    Raises:
        Refused: A value is missing, unknown, of another type or shape, too large, damaged, or not finite.
    """
    for path in sorted(received.keys() ^ shapes.keys()):
        what = "is missing" if path in shapes else "is unknown"
        raise Refused(f"value {short(path, 60)} {what}")
    arrays = {path: unpacked(received[path], path, shape, np.dtype(dtype)) for path, shape in shapes.items()}
    for path, array in arrays.items():
        if not np.isfinite(array).all():
            raise Refused(f"value {path} holds NaN or infinity", finite=False)
    return arrays


def unpacked(data: bytes, path: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Returns one array of an answer; its header is compared before anything is read.

    Raises:
        Refused: See `checked`.
    """
    most = math.prod(shape) * dtype.itemsize + HEADER
    if not isinstance(data, bytes) or len(data) > most:
        size = len(data) if isinstance(data, bytes) else type(data).__name__
        raise Refused(f"value {path} must have at most {most} bytes. Received: {size}")
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        found, in_fortran_order, kind = read(file)
    # Crafted bytes make the reader fail in many ways: ValueError, SyntaxError, struct.error...
    except Exception as error:
        raise Refused(f"value {path} is no .npy file") from error
    if found != shape or kind != dtype:
        raise Refused(f"value {path} must be {dtype} {shape}. Received: {kind} {short(found, 60)}")
    content = data[file.tell() :]
    if len(content) != math.prod(shape) * dtype.itemsize:
        raise Refused(f"value {path} must hold {math.prod(shape)} numbers. Received: {len(content)} bytes")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if in_fortran_order else "C")


def number(told: Mapping[str, Any], name: str) -> float:
    """Returns a number that a device tells, finite as float32.

    Raises:
        Refused: It is missing, no number, or not finite.
    """
    value = told.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused(f"{name} must be a number. Received: {short(value, 60)}")
    # NaN is not less than anything; an integer of any size can be compared.
    if not abs(value) <= LARGEST:
        raise Refused(f"{name} is not finite", finite=False)
    return float(value)


def weighted_mean(arrays: Sequence[Mapping[str, np.ndarray]], weights: Sequence[float]) -> dict[str, np.ndarray]:
    """Returns the mean of several devices' float32 values, by path; each device counts as much as its weight."""
    return {
        path: np.average([each[path].astype(np.float64) for each in arrays], axis=0, weights=weights).astype(np.float32)
        for path in arrays[0]
    }
