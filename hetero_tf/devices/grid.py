"""Flower's messages, its connected devices, and the requests that its port accepts."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from hetero_tf.devices.messages import Lost, Message, Refused, to_npy

VALUES_KEY, METADATA_KEY = "values", "metadata"
# Flower requires that types begin with one of its own.
MESSAGE_TYPES = {"introduction": "query", "training": "train", "statistics": "query.statistics"}
# Path of the requests of devices, and the maximum size of their bodies: Flower sends values in chunks of 5 MiB.
FLEET_PATH, MAX_BODY_BYTES = "/v1/fleet/", 6 * 2**20
ACTIONS = {message_type: action for action, message_type in MESSAGE_TYPES.items()}


def to_records(message: Message) -> Any:
    """Return a message as Flower's records."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    arrays = {
        path: Array(str(value.dtype), tuple(value.shape), "numpy.ndarray", to_npy(value))
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


class FlowerNetwork:
    """The devices that are connected to Flower's grid, by the ids of their nodes.

    Args:
        grid: Flower's grid.
        say: Prints a message.
    """

    def __init__(self, grid: Any, say: Callable[[str], None]):
        self._grid, self._say = grid, say

    def connected(self) -> list[int]:
        """Return the ids of the nodes that are connected."""
        return list(self._grid.get_node_ids())

    def send(self, action: str, requests: Mapping[int, Message]) -> dict[int, str]:
        """Send requests; return the id of each that was sent, by node."""
        import flwr.app

        kind = MESSAGE_TYPES[action]
        messages = [flwr.app.Message(to_records(request), node, kind) for node, request in requests.items()]
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


class Guard:
    """An ASGI application that passes only requests of devices on to Flower's."""

    def __init__(self, app: Callable[..., Awaitable[None]]):
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Callable, send: Callable) -> None:
        """Respond with status 403, 411 or 413, or pass the request on."""
        if scope["type"] != "http":
            return
        lengths = [value for name, value in scope["headers"] if name.lower() == b"content-length"]
        if not scope["path"].startswith(FLEET_PATH):
            code = 403
        # The server enforces the announced length of a body; without it the size is unlimited.
        elif len(lengths) != 1 or not lengths[0].isdigit():
            code = 411
        elif int(lengths[0]) > MAX_BODY_BYTES:
            code = 413
        else:
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": code, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})
