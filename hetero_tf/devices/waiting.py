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

# Seconds between two polls of the network, and maximum number of times that a pause doubles.
EVERY, DOUBLINGS = 1.0, 5


@dataclass
class DeviceStatus:
    """A connected device.

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
        deadline: Seconds after which a step continues without the responses that are missing.
        patience: Seconds after which a request counts as lost; first pause of a device that did not respond.
        quorum: Number of devices that must be ready to start a round if others do not connect within `patience`.
    """

    network: FlowerNetwork
    recipe: Recipe
    classes: int
    deadline: float
    patience: float
    quorum: int
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _devices: dict[int, DeviceStatus] = field(default_factory=dict)
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
            ready = {
                client: each.member for client, each in self._devices.items() if each.member and self._is_free(each)
            }
            count = sum(device.member is not None for device in self._devices.values())
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
            action: One of `fleet_api.MESSAGE_TYPES`.

        Returns:
            Responses by client, with arrays as bytes; without devices that did not respond in time or disconnected.
        """
        ready = {client for client, device in self._devices.items() if device.member and self._is_free(device)}
        sent = self._send(action, {client: requests[client] for client in requests if client in ready})
        enough = min(len(sent), self.recipe.round.clients) if action == "training" else len(sent)
        responses: dict[int, Message | Refused] = {}
        until = self.clock() + self.deadline
        while True:
            received = self._update()
            responses |= {client: received[id] for client, id in sent.items() if id in received}
            requested = {client: device.request for client, device in self._devices.items()}
            pending = [client for client, id in sent.items() if requested.get(client) == id]
            if not pending or sum(isinstance(response, Message) for response in responses.values()) >= enough:
                break
            if self.clock() >= until:
                for client in pending:
                    self._miss(client)
                break
            self.sleep(EVERY)
        return {client: responses[client] for client in requests if client in responses}

    def _is_free(self, device):
        return device.request is None and self.clock() >= device.pause_until

    def _miss(self, client):
        """Report a device that did not respond in time, and pause requests to it."""
        device = self._devices[client]
        device.missed = True
        self._fail(device, self.patience)
        self.say(
            f"note: client {client} did not respond within {self.clock() - device.sent_at:.0f} s; next request after "
            f"its response, or in {device.pause_until - self.clock():.0f} s"
        )

    def _fail(self, device, pause):
        """Count a failure; the pause after it doubles each time."""
        device.pause_until = self.clock() + pause * 2 ** min(device.failures, DOUBLINGS)
        device.failures += 1

    def _update(self):
        """Update connections and return new responses, `{request: response}`; request introductions of new devices."""
        self._devices = {client: self._devices.get(client) or DeviceStatus() for client in self.network.connected()}
        received = {}
        for client, device in self._devices.items():
            if device.request is None:
                continue
            response = self.network.receive(device.request)
            if response is not None:
                if not isinstance(response, Lost):
                    received[device.request] = response
                self._respond(client, device, response)
            elif self.clock() - device.sent_at >= self.patience:
                device.request = None
                if device.action != "introduction" and not device.missed:
                    self._miss(client)
        new = [client for client, each in self._devices.items() if each.member is None and self._is_free(each)]
        self._send("introduction", dict.fromkeys(new, Message()))
        return received

    def _respond(self, client, device, response):
        """Process the response to a device's request, which may be late."""
        device.request = None
        try:
            if device.action == "introduction":
                if not isinstance(response, Message):
                    raise response if isinstance(response, Refused) else Refused("it failed to introduce itself")
                device.member = parse_member(response.metadata, client, self.recipe, self.classes)
            device.failures, device.pause_until = 0, 0.0
        except Refused as problem:
            # The device may be restarted with the right recipe.
            self._fail(device, 2 * EVERY)
            if self._reported.get(client) != str(problem):
                self._reported[client] = str(problem)
                self.say(f"note: client {client} does not take part: {problem}")

    def _send(self, action, requests):
        """Send requests and return their ids by client; retry unreachable devices later."""
        sent = self.network.send(action, requests) if requests else {}
        for client in requests:
            device = self._devices[client]
            if client in sent:
                device.request, device.action, device.sent_at, device.missed = sent[client], action, self.clock(), False
            else:
                self._fail(device, 2 * EVERY)
        return sent
