"""Flower's messages, and its connected devices as a `waiting.Network`."""

from collections.abc import Callable, Mapping

from flwr.app import Array, ArrayRecord, ConfigRecord, MessageType, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.serverapp import Grid

from hetero_tf.devices.messages import Message, Refused, to_npy
from hetero_tf.devices.waiting import Lost

VALUES_KEY, METADATA_KEY = "values", "metadata"
MESSAGE_TYPES = {
    "introduction": MessageType.QUERY,
    "training": MessageType.TRAIN,
    "statistics": f"{MessageType.QUERY}.statistics",
}


def to_records(message: Message) -> RecordDict:
    """Return a message as Flower's records."""
    arrays = {
        path: Array(str(value.dtype), tuple(value.shape), "numpy.ndarray", to_npy(value))
        for path, value in message.arrays.items()
    }
    return RecordDict({VALUES_KEY: ArrayRecord(arrays), METADATA_KEY: ConfigRecord(dict(message.metadata))})


def from_records(records: RecordDict) -> Message:
    """Return the message of received records, its arrays as bytes.

    Raises:
        Refused: The records are not those of a message.
    """
    if set(records) != {VALUES_KEY, METADATA_KEY}:
        raise Refused(f"a response must have the records {VALUES_KEY} and {METADATA_KEY}")
    values, metadata = records[VALUES_KEY], records[METADATA_KEY]
    if not isinstance(values, ArrayRecord) or not isinstance(metadata, ConfigRecord):
        raise Refused(f"a response must have arrays as {VALUES_KEY} and plain values as {METADATA_KEY}")
    return Message({path: array.data for path, array in values.items()}, dict(metadata))


class FlowerNetwork:
    """Flower's grid as a `waiting.Network`.

    Args:
        grid: Flower's grid.
        say: Prints a message.
    """

    def __init__(self, grid: Grid, say: Callable[[str], None]):
        self._grid, self._say = grid, say

    def connected(self) -> list[int]:
        """Return the ids of the nodes that are connected."""
        return list(self._grid.get_node_ids())

    def send(self, action: str, requests: Mapping[int, Message]) -> dict[int, str]:
        """Send requests; return the id of each that was sent, by node."""
        messages = [
            FlowerMessage(to_records(request), node, MESSAGE_TYPES[action]) for node, request in requests.items()
        ]
        names = list(self._grid.push_messages(messages))
        # Flower returns None for a rejected message, and an empty list if all are too large.
        return {node: name for node, name in zip(requests, names) if name is not None}

    def receive(self, request: str) -> Message | Refused | Lost | None:
        """Return the response to a request; None if it has not arrived."""
        try:
            # One by one, since Flower may be unable to read the response of one device.
            replies = list(self._grid.pull_messages([request]))
            if not replies:
                return None
            (reply,) = replies
            if reply.has_error():
                self._say(f"note: a device did not respond: {' '.join(str(reply.error.reason).split())[:300]}")
                return Lost()
            return from_records(reply.content)
        except Refused as problem:
            return problem
        except Exception as problem:
            return Refused(f"it cannot be read: {type(problem).__name__}: {' '.join(str(problem).split())[:200]}")
