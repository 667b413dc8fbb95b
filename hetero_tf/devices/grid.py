"""The devices that Flower connects, as a `fleet.Fleet`."""

from collections.abc import Callable, Mapping

from flwr.app import Array, ArrayRecord, ConfigRecord, MessageType, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.serverapp import Grid

from hetero_tf.devices.messages import Message, Refused, packed
from hetero_tf.devices.waiting import Lost, Waiting, WaitingFleet
from hetero_tf.recipe.schema import Recipe

VALUES, TOLD = "values", "told"
TYPES = {
    "introduction": MessageType.QUERY,
    "training": MessageType.TRAIN,
    "statistics": f"{MessageType.QUERY}.statistics",
}


def to_records(message: Message) -> RecordDict:
    """Returns what Flower sends of a message."""
    arrays = {
        path: Array(str(value.dtype), tuple(value.shape), "numpy.ndarray", packed(value))
        for path, value in message.arrays.items()
    }
    return RecordDict({VALUES: ArrayRecord(arrays), TOLD: ConfigRecord(dict(message.told))})


def from_records(records: RecordDict) -> Message:
    """Returns the message of what Flower received, its arrays as bytes.

    Raises:
        Refused: It has other records.
    """
    if set(records) != {VALUES, TOLD}:
        raise Refused(f"an answer must have the records {VALUES} and {TOLD}")
    values, told = records[VALUES], records[TOLD]
    if not isinstance(values, ArrayRecord) or not isinstance(told, ConfigRecord):
        raise Refused(f"an answer must have arrays as {VALUES} and plain values as {TOLD}")
    return Message({path: array.data for path, array in values.items()}, dict(told))


class FlowerNetwork:
    """Flower's grid, as a `waiting.Network`.

    Args:
        grid: Flower's.
        say: Shows a sentence.
    """

    def __init__(self, grid: Grid, say: Callable[[str], None]):
        self._grid, self._say = grid, say

    def connected(self) -> list[int]:
        """Return the ids of the nodes that are connected."""
        return list(self._grid.get_node_ids())

    def send(self, action: str, requests: Mapping[int, Message]) -> dict[int, str]:
        """Send requests; return the id of each that was sent, by node."""
        messages = [FlowerMessage(to_records(request), node, TYPES[action]) for node, request in requests.items()]
        names = list(self._grid.push_messages(messages))
        # Flower returns None for a message that it does not take, and nothing at all where all are too large.
        return {node: name for node, name in zip(requests, names) if name is not None}

    def receive(self, request: str) -> Message | Refused | Lost | None:
        """Return the response to a request, None where it has not come."""
        try:
            # One by one: what one device sent may be more than Flower can read.
            replies = list(self._grid.pull_messages([request]))
            if not replies:
                return None
            (reply,) = replies
            if reply.has_error():
                self._say(f"note: a device did not answer: {' '.join(str(reply.error.reason).split())[:300]}")
                return Lost()
            return from_records(reply.content)
        except Refused as problem:
            return problem
        except Exception as problem:
            return Refused(f"it cannot be read: {type(problem).__name__}: {' '.join(str(problem).split())[:200]}")


class FlowerFleet(WaitingFleet):
    """The devices of a run.

    Args:
        grid: Flower's.
        recipe: What they take part in.
        classes: Length of the global label axis.
        clients: `{id of a node: number of its client}`; others are ignored.
        patience: See `Waiting`.
        say: Shows a sentence.
        deadline: See `Waiting`; None: as long as the patience.
        quorum: See `Waiting`.
    """

    def __init__(
        self,
        grid: Grid,
        recipe: Recipe,
        classes: int,
        clients: Mapping[int, int],
        patience: float,
        say: Callable[[str], None],
        deadline: float | None = None,
        quorum: int = 1,
    ):
        waiting = Waiting(patience if deadline is None else deadline, patience, quorum)
        super().__init__(FlowerNetwork(grid, say), recipe, classes, clients, waiting, say)
