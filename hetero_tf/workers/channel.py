"""Messages of the leading process to the others: JSON and arrays as bytes, sent by a collective."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import MemoryProblem
from hetero_tf.base.replicas import Replicas

# Maximum size of a message, whose length is sent as int32.
MAX_BYTES = 2**31 - 1


@dataclass(frozen=True)
class RemoteCall:
    """A call that all processes make together.

    Attributes:
        words: JSON header, such as {"call": "evaluate", "levels": "all"}.
        arrays: Arrays by name.
    """

    words: dict
    arrays: dict[str, np.ndarray]


def pack(words: Mapping, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return a message as int32 array; the first element is the number of bytes that follow.

    Raises:
        MemoryProblem: The message is too long.
    """
    file = io.BytesIO()
    text = np.frombuffer(json.dumps(words).encode(), np.uint8)
    named: dict = {"words": text, **{f"array/{name}": np.asarray(value) for name, value in arrays.items()}}
    np.savez(file, **named)
    data = file.getvalue()
    if len(data) > MAX_BYTES:
        raise MemoryProblem(
            f"the message to the workers is too long: {len(data) / 2**30:.1f} GiB of {MAX_BYTES / 2**30:.0f}; train "
            "this recipe with one process"
        )
    padded = data + bytes(-len(data) % 4)
    return np.concatenate([np.array([len(data)], np.int32), np.frombuffer(padded, np.int32)])


def unpack(packed: np.ndarray) -> RemoteCall:
    """Return the message that `pack` encoded."""
    data = packed[1:].tobytes()[: packed[0]]
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        arrays = {name.removeprefix("array/"): archive[name] for name in archive.files if name != "words"}
        return RemoteCall(json.loads(archive["words"].tobytes()), arrays)


class Channel:
    """Sends a message from the first process to all others.

    A sum over all processes transfers it: all but the sender add zeros, so the bits are preserved.

    Args:
        replicas: The replicas of all processes.
        processes: Number of processes.
    """

    def __init__(self, replicas: Replicas, processes: int):
        of_process = replicas.count // processes

        def summed(vector):
            # Only the first device of a process contributes.
            return replicas.all_reduce_sum(vector * tf.cast(replicas.number % of_process == 0, tf.int32))

        self._summed = replicas.compiled(summed, input_signature=[tf.TensorSpec([None], tf.int32)])

    def send(self, words: Mapping, arrays: Mapping[str, np.ndarray]) -> None:
        """Send a message; called by the first process."""
        packed = pack(words, arrays)
        self._summed(tf.constant([len(packed)], tf.int32))
        self._summed(tf.constant(packed))

    def receive(self) -> RemoteCall:
        """Wait for the next message; called by the other processes."""
        length = int(self._summed(tf.zeros([1], tf.int32))[0])
        return unpack(self._summed(tf.zeros([length], tf.int32)).numpy())

    def gather(self, row: np.ndarray, index: int, count: int) -> np.ndarray:
        """Gather a row of every process on all processes: int32 [count, len(row)]."""
        rows = np.zeros((count, len(row)), np.int32)
        rows[index] = row
        return self._summed(tf.constant(rows.ravel())).numpy().reshape(rows.shape)
