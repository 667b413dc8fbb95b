"""Times the transfers of a device: Flower's program transfers the values, and another process responds.

The seconds are those in which at least one request for values is open, so a rate includes the cost of Flower's
protocol.
"""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hetero_tf.base import files

# Paths of Flower's requests for values, and of the one that follows the values of a message.
PATHS = {"/v1/fleet/pull-object": "download", "/v1/fleet/push-object": "upload"}
RECEIVED = "/v1/fleet/confirm-message-received"
LIMIT = 2**16


@dataclass
class Transfers:
    """Bytes and seconds of transfers in one direction.

    Attributes:
        clock: Returns monotonic seconds.
    """

    clock: Callable[[], float] = time.monotonic
    bytes: int = 0
    seconds: float = 0.0
    _open: int = 0
    _since: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, transfer: Callable[[], Any], size_of: Callable[[Any], int]) -> Any:
        """Return the result of a transfer; the seconds of overlapping transfers count once."""
        with self._lock:
            self._since = self._since if self._open else self.clock()
            self._open += 1
        size = 0
        try:
            result = transfer()
            size = size_of(result)
            return result
        finally:
            with self._lock:
                now = self.clock()
                self.bytes, self.seconds = self.bytes + size, self.seconds + now - self._since
                self._since, self._open = now, self._open - 1


def record(path: Path) -> None:
    """Make every httpx client of this process time its transfers of values, and write the totals for `read`."""
    import httpx

    totals = {way: Transfers() for way in PATHS.values()}

    class TimedClient(httpx.Client):
        """An httpx client that times transfers of values."""

        def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
            way = PATHS.get(request.url.path)
            if request.url.path == RECEIVED:
                values = {way: [each.bytes, each.seconds] for way, each in totals.items()}
                files.write_atomic(path, json.dumps(values).encode())
            if way is None:
                return super().send(request, **options)
            return totals[way].run(
                lambda: super(TimedClient, self).send(request, **options),
                lambda response: len(response.content if way == "download" else request.content),
            )

    httpx.Client = TimedClient


def read(path: Path) -> dict[str, float]:
    """Return the totals when the newest message was received, as metadata of its response; empty if there are none."""
    if not path.exists():
        return {}
    totals = json.loads(files.read_bytes(path, LIMIT))
    return {
        f"{way}_{unit}": value for way, values in totals.items() for unit, value in zip(("bytes", "seconds"), values)
    }
