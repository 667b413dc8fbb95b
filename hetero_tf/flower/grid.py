"""The devices that Flower connects, as a `fleet.Fleet`."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, MessageType, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.serverapp import Grid

from hetero_tf.flower.messages import Member, Message, Refused, member_of, packed
from hetero_tf.recipe.schema import Recipe

VALUES, TOLD = "values", "told"
TYPES = {
    "introduction": MessageType.QUERY,
    "training": MessageType.TRAIN,
    "statistics": f"{MessageType.QUERY}.statistics",
}
# Seconds between two looks for answers and for devices.
EVERY = 1.0


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


@dataclass
class FlowerFleet:
    """The devices of a run.

    Attributes:
        grid: Flower's.
        recipe: What they take part in.
        classes: Length of the global label axis.
        clients: `{id of a node: number of its client}`; others are not spoken to.
        patience: Seconds that an answer may take.
        say: Tells a person.
    """

    grid: Grid
    recipe: Recipe
    classes: int
    clients: Mapping[int, int]
    patience: float
    say: Callable[[str], None]
    _members: dict[int, Member] = field(default_factory=dict)
    _nodes: dict[int, int] = field(default_factory=dict)
    _refused: set[int] = field(default_factory=set)
    _told: int = -1
    _lock: Any = field(default_factory=threading.RLock)

    def members(self, least: int) -> dict[int, Member]:
        """Returns the devices by client; waits until there are `least`. See `Fleet`."""
        while True:
            with self._lock:
                if len(self._members) < least or not self._members:
                    self._meet()
                if len(self._members) >= least:
                    return dict(self._members)
                count = len(self._members)
            if count != self._told:
                self._told = count
                self.say(f"{count} of {least} devices are connected")
            time.sleep(EVERY)

    def ask(self, action: str, questions: Mapping[int, Message]) -> dict[int, Message | Refused]:
        """Asks devices and waits for their answers, see `Fleet`."""
        with self._lock:
            nodes = {self._nodes[client]: client for client in questions if client in self._nodes}
            found = self._exchange(action, {node: questions[client] for node, client in nodes.items()})
            self._meet()
            return {nodes[node]: answer for node, answer in found.items()}

    def _meet(self):
        """Drops the devices that are gone, and asks new ones who they are."""
        present = set(self.grid.get_node_ids()) & self.clients.keys()
        self._nodes = {client: node for client, node in self._nodes.items() if node in present}
        self._members = {client: each for client, each in self._members.items() if client in self._nodes}
        new = present - set(self._nodes.values()) - self._refused
        for node, answer in self._exchange("introduction", dict.fromkeys(sorted(new), Message())).items():
            client = self.clients[node]
            try:
                if isinstance(answer, Refused):
                    raise answer
                self._members[client] = member_of(answer.told, client, self.recipe, self.classes)
                self._nodes[client] = node
            except Refused as problem:
                self._refused.add(node)
                self.say(f"note: client {client} does not take part: {problem}")

    def _exchange(self, action, questions):
        """What nodes answer, `{node: Message | Refused}`."""
        asked = [FlowerMessage(to_records(question), node, TYPES[action]) for node, question in questions.items()]
        if not asked:
            return {}
        waiting = dict(zip(self.grid.push_messages(asked), questions))
        found, until = {}, time.monotonic() + self.patience
        while waiting and time.monotonic() < until:
            for name, node in list(waiting.items()):
                answer = self._pulled(name)
                if answer is not None:
                    found[node] = answer
                    del waiting[name]
            if waiting:
                time.sleep(EVERY)
        return {node: answer for node, answer in found.items() if not isinstance(answer, _Lost)}

    def _pulled(self, name):
        """The answer to a message; None where it has not come."""
        try:
            # One by one: what one device sent may be more than Flower can read.
            replies = list(self.grid.pull_messages([name]))
            if not replies:
                return None
            (reply,) = replies
            if reply.has_error():
                self.say(f"note: a device did not answer: {' '.join(str(reply.error.reason).split())[:300]}")
                return _Lost()
            return from_records(reply.content)
        except Refused as problem:
            return problem
        except Exception as problem:
            return Refused(f"it cannot be read: {type(problem).__name__}: {' '.join(str(problem).split())[:200]}")


class _Lost:
    """Stands for a device that could not answer."""
