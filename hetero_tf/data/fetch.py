"""Downloads a published file of some megabytes and verifies its SHA-256."""

import hashlib
import time
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException

SECONDS = 10
# Average bytes per second, measured after `SECONDS`, below which a connection counts as broken. Without it a very slow
# server would block the program for days.
MIN_RATE = 1000
BLOCK = 2**16


class Unreachable(Exception):
    """No address delivered the published bytes.

    Args:
        failures: Pairs `(server, reason)`.
    """

    def __init__(self, failures: Sequence[tuple[str, str]]):
        servers: dict[str, list[str]] = {}
        for server, reason in failures:
            servers.setdefault(reason, []).append(server)
        super().__init__(", ".join(f"{', '.join(names)}: {reason}" for reason, names in servers.items()))
        self.failures = failures


def fetch(addresses: Sequence[str], size: int, sha256: str) -> bytes:
    """Returns the bytes of a published file.

    `keras.utils.get_file` has neither a limit of the size nor of the time, so any server could block the program.

    Args:
        addresses: URLs, tried in order.
        size: Size of the file, or an upper bound.
        sha256: Hex digest of its bytes.

    Raises:
        Unreachable: No address delivered the file.
    """
    failures = []
    for address in addresses:
        try:
            content = _read(address, size)
            if hashlib.sha256(content).hexdigest() == sha256:
                return content
            reason = "it sent a file that differs from the published one"
        except (OSError, HTTPException, ValueError) as error:
            cause = getattr(error, "reason", error)
            reason = str(getattr(cause, "strerror", None) or cause)
        failures.append((address.split("/")[2], reason))
    raise Unreachable(failures)


def _read(address, size):
    with urllib.request.urlopen(address, timeout=SECONDS) as response:
        content, began = bytearray(), time.monotonic()
        while block := response.read1(BLOCK):
            content += block
            if len(content) > size:
                raise ValueError("it sent more bytes than the published file has")
            if time.monotonic() - began > SECONDS + len(content) / MIN_RATE:
                raise TimeoutError(f"it sent fewer than {MIN_RATE} bytes per second")
        if len(content) < int(response.headers.get("Content-Length", 0)):
            raise OSError("the connection broke")
    return content
