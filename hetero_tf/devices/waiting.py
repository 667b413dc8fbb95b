"""Devices that connect and disconnect: which are ready, how long to wait for a response, and when to retry.

A device that does not respond delays one step by the deadline. The server sends it the next request after its late
response, or after a pause.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hetero_tf.devices.messages import (
    MESSAGE_TYPES,
    Lost,
    Member,
    Message,
    Refused,
    from_records,
    parse_member,
    to_records,
)
from hetero_tf.recipe.schema import Recipe

# Seconds between two polls of the network, and until a device without a valid introduction gets the next request.
EVERY, RETRY_PAUSE = 1.0, 10.0


class FlowerNetwork:
    """The devices that are connected to Flower's grid, by client number.

    Args:
        nodes: Id of the node of each client.
    """

    def __init__(self, grid: Any, nodes: Mapping[int, int], say: Callable[[str], None]):
        self._grid, self._nodes, self._say = grid, nodes, say

    def connected(self) -> list[int]:
        """Return the clients that are connected."""
        connected = set(self._grid.get_node_ids())
        return [client for client, node in self._nodes.items() if node in connected]

    def send(self, action: str, requests: Mapping[int, Message]) -> dict[int, str]:
        """Send requests; return the id of each that was sent, by client."""
        import flwr.app

        kind = MESSAGE_TYPES[action]
        messages = [
            flwr.app.Message(to_records(request), self._nodes[client], kind) for client, request in requests.items()
        ]
        names = list(self._grid.push_messages(messages))
        # Flower returns None for a rejected message, and an empty list if all are too large.
        return {client: name for client, name in zip(requests, names) if name is not None}

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


@dataclass
class WaitingFleet:
    """The devices of a server, by client number.

    Attributes:
        max_examples: Maximum number of training examples that a device may claim.
        deadline: Seconds after which a step continues without the responses that are missing.
        patience: Seconds after which a request counts as lost; pause of a device that did not respond.
        quorum: Number of devices that must be ready to start a round if others do not connect within `patience`.
    """

    network: FlowerNetwork
    recipe: Recipe
    classes: int
    max_examples: int
    deadline: float
    patience: float
    quorum: int
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    # Connected devices that introduced themselves.
    _members: dict[int, Member] = field(default_factory=dict)
    # Id and time of the open request of a device.
    _requests: dict[int, tuple[str, float]] = field(default_factory=dict)
    # Time before which a device gets no request.
    _not_before: dict[int, float] = field(default_factory=dict)
    _reported: dict[int, str] = field(default_factory=dict)
    _short_since: float | None = None

    def members(self, least: int) -> dict[int, Member]:
        """Return the devices that are ready, by client.

        Waits until `least` devices are connected, but at most `patience` seconds after a quorum is ready; does
        not wait if `least` is 0.
        """
        quorum, reported = min(self.quorum, least), -1
        while True:
            self._update()
            ready = {client: member for client, member in self._members.items() if self._is_free(client)}
            count = len(self._members)
            if count >= least:
                self._short_since = None
            elif len(ready) >= quorum and self._short_since is None:
                self._short_since = self.clock()
            is_late = self._short_since is not None and self.clock() - self._short_since >= self.patience
            if least == 0 or len(ready) >= quorum and (count >= least or is_late):
                return ready
            if count < least and count != reported:
                reported = count
                self.say(f"{count} of {least} devices are connected")
            self.sleep(EVERY)

    def request(self, action: str, requests: Mapping[int, Message]) -> dict[int, Message | Refused]:
        """Send requests to devices and wait for their responses until the deadline.

        Training ends with as many responses as a round has clients; devices still busy then are late.

        Args:
            action: One of `messages.MESSAGE_TYPES`.

        Returns:
            Responses by client, with arrays as bytes; without devices that did not respond in time or disconnected.
        """
        ready = {client for client in self._members if self._is_free(client)}
        sent = self._send(action, {client: requests[client] for client in requests if client in ready})
        enough = min(len(sent), self.recipe.round.clients) if action == "training" else len(sent)
        responses: dict[int, Message | Refused] = {}
        until = self.clock() + self.deadline
        while True:
            received = self._update()
            responses |= {client: received[id] for client, id in sent.items() if id in received}
            pending = [client for client, id in sent.items() if self._requests.get(client, ("", 0.0))[0] == id]
            if not pending or sum(isinstance(response, Message) for response in responses.values()) >= enough:
                break
            if self.clock() >= until:
                for client in pending:
                    self._pause(client)
                break
            self.sleep(EVERY)
        return {client: responses[client] for client in requests if client in responses}

    def _is_free(self, client):
        return client not in self._requests and self.clock() >= self._not_before.get(client, 0.0)

    def _pause(self, client):
        """Report a device that did not respond in time, and pause requests to it, once for each request."""
        if client in self._not_before:
            return
        self._not_before[client] = self.clock() + self.patience
        self.say(
            f"note: client {client} did not respond within {self.clock() - self._requests[client][1]:.0f} s; next "
            f"request after its response, or in {self.patience:.0f} s"
        )

    def _update(self):
        """Update connections and return new responses, `{request: response}`; request introductions of new devices."""
        connected = self.network.connected()
        for state in (self._members, self._requests, self._not_before):
            for client in state.keys() - set(connected):
                del state[client]
        received = {}
        for client, (request, sent_at) in list(self._requests.items()):
            response = self.network.receive(request)
            if response is None:
                if self.clock() - sent_at >= self.patience:
                    if client in self._members:
                        self._pause(client)
                    del self._requests[client]
                continue
            del self._requests[client]
            if client not in self._members:
                self._introduce(client, response)
                continue
            self._not_before.pop(client, None)
            if not isinstance(response, Lost):
                received[request] = response
        new = [client for client in connected if client not in self._members and self._is_free(client)]
        self._send("introduction", dict.fromkeys(new, Message()))
        return received

    def _introduce(self, client, response):
        """Add the device of an introduction, or report why it does not take part."""
        try:
            if not isinstance(response, Message):
                raise response if isinstance(response, Refused) else Refused("it failed to introduce itself")
            self._members[client] = parse_member(
                response.metadata, client, self.recipe, self.classes, self.max_examples
            )
        except Refused as problem:
            # The device may be restarted with the right recipe.
            self._not_before[client] = self.clock() + RETRY_PAUSE
            if self._reported.get(client) != str(problem):
                self._reported[client] = str(problem)
                self.say(f"note: client {client} does not take part: {problem}")

    def _send(self, action, requests):
        """Send requests and return their ids by client; retry unreachable devices later."""
        sent = self.network.send(action, requests) if requests else {}
        for client in requests:
            self._not_before.pop(client, None)
            if client in sent:
                self._requests[client] = sent[client], self.clock()
            else:
                self._not_before[client] = self.clock() + RETRY_PAUSE
        return sent
