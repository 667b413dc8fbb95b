"""Closes connections of slow clients, and the longest waiting one if too many are open.

uvicorn closes a connection that is idle after a response. It has no limit for a connection that never sends a request,
sends it byte by byte, or does not read the response; while such connections are open, `limit_concurrency` rejects every
client.
"""

import asyncio
import contextlib
import json
import os
import resource
import socket
from dataclasses import dataclass
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

# File descriptors that are not connections: files of a version during loading, and connections that open or close.
RESERVED = 64
# Connections that are accepted in one iteration of the event loop, before the oldest ones are closed.
ACCEPTED_AT_ONCE = 16
WAITING_TO_BE_ACCEPTED = 1024
# Bytes that are parsed in one iteration of the event loop: a chunk of one byte takes six bytes and about 0.1 ms.
RECEIVED_AT_ONCE = 2**12


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of connections.

    Attributes:
        count: Open connections; a further connection closes the one that has waited longest for its client.
        head_seconds: Time for the head of a request, since the connection opened or the last response ended.
        read_seconds: Time in which a client must read a part of its response.
    """

    count: int = 512
    head_seconds: float = 20.0
    read_seconds: float = 20.0

    def within_file_limit(self) -> "ConnectionLimits":
        """Return limits with at most the number of connections that the process may open (`ulimit -n`)."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        available = self.count if soft == resource.RLIM_INFINITY else soft - len(os.listdir("/dev/fd")) - RESERVED
        return ConnectionLimits(max(1, min(self.count, available)), self.head_seconds, self.read_seconds)


class LimitedConnection(H11Protocol):
    """A connection of uvicorn with `ConnectionLimits`."""

    def __init__(self, *args: Any, limits: ConnectionLimits, **keywords: Any):
        super().__init__(*args, **keywords)
        self.limits = limits
        # Part of the exchange that the client delays: "head", "body" or "response"; None while the server works.
        self.phase: str | None = None
        self.since = 0.0
        self.timer: asyncio.TimerHandle | None = None
        self.is_half_closed = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer of the first request, and close another connection if too many are open."""
        super().connection_made(transport)
        transport.max_size = RECEIVED_AT_ONCE  # type: ignore[attr-defined]
        self._enter("head", self.limits.head_seconds)
        if len(self.connections) > self.limits.count:
            self._make_room()

    def _make_room(self):
        waiting = [
            connection
            for connection in self.connections
            if isinstance(connection, LimitedConnection) and connection is not self and connection.phase is not None
        ]
        if waiting:
            oldest = min(waiting, key=lambda connection: connection.since)
            self.connections.discard(oldest)
            oldest.transport.abort()
        else:
            self.transport.write(_plain_response(503, "too many connections; try again"))
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._enter(None)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Handle received events, and update the phase of the connection."""
        super().handle_events()
        self._track()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection of a client that closed its side after a request, until the response is sent."""
        self.is_half_closed = True
        return self._is_working

    def on_response_complete(self) -> None:
        """Wait for the next request; close the connection if there is none."""
        super().on_response_complete()
        if self.is_half_closed and not self._is_working:
            self.transport.close()
        self._track()

    @property
    def _is_working(self):
        """True between the end of a request and the end of its response."""
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body

    def pause_writing(self) -> None:
        """Start the timer of a client that does not read."""
        super().pause_writing()
        self._enter("response", self.limits.read_seconds)

    def resume_writing(self) -> None:
        """Stop the timer of a client that does not read."""
        super().resume_writing()
        self._enter(None)
        self._track()

    def send_400_response(self, msg: str) -> None:
        """Send an error for malformed HTTP, unless a response has started."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_plain_response(400, "the request is not valid HTTP/1.1"))
        self.transport.close()

    def _track(self):
        if self.phase == "response":
            return
        if self.cycle is None or self.cycle.response_complete:
            self._enter("head", self.limits.head_seconds)
        else:
            self._enter("body" if self.cycle.more_body else None)

    def _enter(self, phase, seconds=None):
        """Set the phase of the connection; abort the connection if the phase lasts longer than `seconds`."""
        if phase is not None and phase == self.phase:
            return
        if self.timer is not None:
            self.timer.cancel()
        self.phase, self.since = phase, self.loop.time()
        self.timer = self.loop.call_later(seconds, self.transport.abort) if seconds else None


def _plain_response(status, message):
    """Return the bytes of a response that does not come from the application."""
    body = json.dumps({"error": message}).encode()
    reason = {400: "Bad Request", 503: "Service Unavailable"}[status]
    head = f"HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return f"{head}connection: close\r\n\r\n".encode() + body


class LimitedServer(uvicorn.Server):
    """A uvicorn server that accepts few connections at a time, so that the limit applies before files run out."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the server, with a longer queue of clients than are accepted at once."""
        await super().startup(sockets)
        for listener in sockets or ():
            with contextlib.suppress(OSError):
                listener.listen(WAITING_TO_BE_ACCEPTED)
