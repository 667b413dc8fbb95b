"""What the leading process tells the others: a few words and arrays as bytes, sent by a collective."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import MemoryProblem
from hetero_tf.base.replicas import Replicas

# Bytes of one message, whose length is told in 32 bits.
LONGEST = 2**31 - 1


@dataclass(frozen=True)
class Message:
    """A call that all processes make together.

    Attributes:
        words: JSON, such as {"call": "evaluate", "levels": "all"}.
        arrays: By name.
    """

    words: dict
    arrays: dict[str, np.ndarray]


def pack(words: Mapping, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns a message as int32 words, the first of which says how many bytes follow.

    Raises:
        MemoryProblem: It is too long.
    """
    file = io.BytesIO()
    text = np.frombuffer(json.dumps(words).encode(), np.uint8)
    named: dict = {"words": text, **{f"array/{name}": np.asarray(value) for name, value in arrays.items()}}
    np.savez(file, **named)
    data = file.getvalue()
    if len(data) > LONGEST:
        raise MemoryProblem(
            f"what the workers must be told is too long: {len(data) / 2**30:.1f} GiB of {LONGEST / 2**30:.0f}; train "
            "this recipe with one process"
        )
    padded = data + bytes(-len(data) % 4)
    return np.concatenate([np.array([len(data)], np.int32), np.frombuffer(padded, np.int32)])


def unpack(packed: np.ndarray) -> Message:
    """Reads what `pack` has made."""
    data = packed[1:].tobytes()[: packed[0]]
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        arrays = {name.removeprefix("array/"): archive[name] for name in archive.files if name != "words"}
        return Message(json.loads(archive["words"].tobytes()), arrays)


class Channel:
    """Sends a message from the first process to all others.

    A sum over all processes carries it, to which only the sender adds more than zeros: so bits stay what they are.

    Args:
        replicas: Those of all processes.
        processes: How many processes there are.
    """

    def __init__(self, replicas: Replicas, processes: int):
        of_process = replicas.count // processes

        def summed(vector):
            # Of a process with several devices the first one speaks.
            return replicas.summed(vector * tf.cast(replicas.number % of_process == 0, tf.int32))

        self._summed = replicas.compiled(summed, input_signature=[tf.TensorSpec([None], tf.int32)])

    def send(self, words: Mapping, arrays: Mapping[str, np.ndarray]) -> None:
        """Sends a message, on the first process."""
        packed = pack(words, arrays)
        self._summed(tf.constant([len(packed)], tf.int32))
        self._summed(tf.constant(packed))

    def receive(self) -> Message:
        """Waits for the next message, on any other process."""
        length = int(self._summed(tf.zeros([1], tf.int32))[0])
        return unpack(self._summed(tf.zeros([length], tf.int32)).numpy())

    def gather(self, mine: np.ndarray, index: int, count: int) -> np.ndarray:
        """Every process gives a row, and all get all of them: int32 [count, len(mine)]."""
        rows = np.zeros((count, len(mine)), np.int32)
        rows[index] = mine
        return self._summed(tf.constant(rows.ravel())).numpy().reshape(rows.shape)
