"""Devices that connect and disconnect: which are ready, how long to wait for a response, and when to retry.

A device that does not respond delays one step by the deadline. The server sends it the next request after its late
response, or after a pause that doubles with every further failure.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hetero_tf.devices.fleet_api import FlowerNetwork
from hetero_tf.devices.messages import Lost, Member, Message, Refused, parse_member
from hetero_tf.recipe.schema import Recipe

# Seconds between two polls of the network.
EVERY = 1.0
# Maximum number of times that a pause doubles.
DOUBLINGS = 5


@dataclass(frozen=True)
class Waiting:
    """Time limits and quorum for the devices of a server.

    Attributes:
        deadline: Seconds after which a step continues without the responses that are missing.
        patience: Seconds after which a request counts as lost; first pause of a device that did not respond.
        quorum: Number of devices that must be ready to start a round if others do not connect within `patience`.
    """

    deadline: float
    patience: float
    quorum: int


@dataclass
class NodeStatus:
    """A connected node.

    Attributes:
        member: Its introduction; None before.
        request: Id of the pending request; None if there is none.
        missed: True if the deadline of that request has passed.
        failures: Number of consecutive requests without a valid response.
        pause_until: Earliest time of the next request.
    """

    member: Member | None = None
    request: str | None = None
    action: str = ""
    sent_at: float = 0.0
    missed: bool = False
    failures: int = 0
    pause_until: float = 0.0


@dataclass
class WaitingFleet:
    """The devices of a server, by client number.

    Attributes:
        clients: `{node id: client number}`; other nodes are ignored.
    """

    network: FlowerNetwork
    recipe: Recipe
    classes: int
    clients: Mapping[int, int]
    waiting: Waiting
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _devices: dict[int, NodeStatus] = field(default_factory=dict)
    _reported: dict[int, str] = field(default_factory=dict)
    _short_since: float | None = None
    _count: int = -1

    def members(self, least: int) -> dict[int, Member]:
        """Return the devices that are ready, by client.

        Waits until `least` devices are connected, but at most `waiting.patience` seconds after a quorum is ready; does
        not wait if `least` is 0.
        """
        while True:
            self._update()
            ready = {
                self.clients[node]: device.member
                for node, device in self._devices.items()
                if device.member is not None and self._is_free(device)
            }
            if least == 0 or self._is_enough(len(ready), least):
                return ready
            self.sleep(EVERY)

    def _is_enough(self, ready, least):
        """True if a round may start for which `least` devices should be connected and `ready` are ready."""
        quorum, now = min(self.waiting.quorum, least), self.clock()
        count = sum(device.member is not None for device in self._devices.values())
        if count >= least:
            self._short_since = None
            return ready >= quorum
        if count != self._count:
            self._count = count
            self.say(f"{count} of {least} devices are connected")
        if ready < quorum:
            return False
        if self._short_since is None:
            self._short_since = now
        return now - self._short_since >= self.waiting.patience

    def request(self, action: str, requests: Mapping[int, Message]) -> dict[int, Message | Refused]:
        """Send requests to devices and wait for their responses until the deadline.

        Training ends with as many responses as a round has clients; devices still busy then are late.

        Args:
            action: One of `grid.MESSAGE_TYPES`.

        Returns:
            Responses by client, with arrays as bytes; without devices that did not respond in time or disconnected.
        """
        nodes = {
            node: requests[self.clients[node]]
            for node, device in self._devices.items()
            if self.clients[node] in requests and device.member is not None and self._is_free(device)
        }
        request_ids = self._send(action, nodes)
        enough = min(len(request_ids), self.recipe.round.clients) if action == "training" else len(request_ids)
        responses: dict[int, Message | Refused] = {}
        until = self.clock() + self.waiting.deadline
        while True:
            received = self._update()
            for node, request_id in request_ids.items():
                response = received.get(request_id)
                if isinstance(response, Message | Refused):
                    responses[self.clients[node]] = response
            sent = {node: self._devices[node].request for node in request_ids if node in self._devices}
            pending = [node for node, request_id in sent.items() if request_id == request_ids[node]]
            if not pending or sum(isinstance(response, Message) for response in responses.values()) >= enough:
                break
            if self.clock() >= until:
                for node in pending:
                    self._miss(node)
                break
            self.sleep(EVERY)
        return {client: responses[client] for client in requests if client in responses}

    def _is_free(self, device):
        return device.request is None and self.clock() >= device.pause_until

    def _miss(self, node):
        """Report a device that did not respond in time, and pause requests to it."""
        device = self._devices[node]
        device.missed = True
        seconds = self.clock() - device.sent_at
        self._fail(device, self.waiting.patience)
        self.say(
            f"note: client {self.clients[node]} did not respond within {seconds:.0f} s; next request after its "
            f"response, or in {device.pause_until - self.clock():.0f} s"
        )

    def _fail(self, device, pause):
        """Count a failure; the pause after it doubles each time."""
        device.pause_until = self.clock() + pause * 2 ** min(device.failures, DOUBLINGS)
        device.failures += 1

    def _update(self):
        """Update connections and return new responses, `{request: response}`; request introductions of new devices."""
        connected = set(self.network.connected()) & self.clients.keys()
        self._devices = {node: self._devices.get(node) or NodeStatus() for node in sorted(connected)}
        received = {}
        for node, device in self._devices.items():
            if device.request is None:
                continue
            response = self.network.receive(device.request)
            if response is not None:
                received[device.request] = response
                self._respond(node, device, response)
            elif self.clock() - device.sent_at >= self.waiting.patience:
                device.request = None
                if device.action != "introduction" and not device.missed:
                    self._miss(node)
        new = [node for node, each in self._devices.items() if each.member is None and self._is_free(each)]
        self._send("introduction", dict.fromkeys(new, Message()))
        return received

    def _respond(self, node, device, response):
        """Process the response to a device's request, which may be late."""
        device.request = None
        if device.action != "introduction":
            device.failures, device.pause_until = 0, 0.0
            return
        client = self.clients[node]
        try:
            if isinstance(response, Lost):
                raise Refused("it failed to introduce itself")
            if isinstance(response, Refused):
                raise response
            device.member = parse_member(response.metadata, client, self.recipe, self.classes)
            device.failures, device.pause_until = 0, 0.0
        except Refused as problem:
            # The device may be restarted with the right recipe.
            self._fail(device, 2 * EVERY)
            if self._reported.get(client) != str(problem):
                self._reported[client] = str(problem)
                self.say(f"note: client {client} does not take part: {problem}")

    def _send(self, action, requests):
        """Send requests and return their ids, `{node: id}`; retry unreachable devices later."""
        if not requests:
            return {}
        sent = self.network.send(action, requests)
        for node in requests:
            device = self._devices[node]
            if node in sent:
                device.request, device.action, device.sent_at, device.missed = sent[node], action, self.clock(), False
            else:
                self._fail(device, 2 * EVERY)
        return sent
