"""Endpoints of Flower's servers: a port for devices, and a Unix socket for the processes of the server's user.

Flower serves devices, its processes and its command line at one port. An address does not authenticate a user: every
user of this machine, and every proxy on it, connects from 127.0.0.1. A Unix socket of mode 0600 in a folder of mode
0700 can only be opened by its owner.
"""

import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from hetero_tf.base.errors import InputError

# The address of the socket in Flower's settings. It has no DNS entry, so it never resolves to another host.
ADDRESS = "unix-socket.invalid:80"
# The limit of macOS; Linux allows 107.
MAX_PATH_BYTES = 103
# Seconds between two checks of the port.
PAUSE = 0.05
# Flower sends values in chunks of 5 MiB; its other messages are smaller.
MOST_BYTES = 6 * 2**20
OF_DEVICES = "/v1/fleet/"


def check_socket_path(path: Path) -> None:
    """Check that the system can bind a Unix socket to a path.

    Raises:
        InputError: The path is too long.
    """
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise InputError(
            f"{path}: a Unix socket needs a path of at most {MAX_PATH_BYTES} bytes; set TMPDIR to a shorter folder"
        )


def bind(path: Path) -> socket.socket:
    """Return a Unix socket at a path, of mode 0600 from its creation."""
    listener = socket.socket(socket.AF_UNIX)
    umask = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(umask)
    return listener


def serve_superlink(
    app: Callable[..., Any],
    path: Path,
    *,
    host: str,
    port: int,
    ssl_certfile: str | None,
    ssl_keyfile: str | None,
    **settings: Any,
) -> None:
    """Serve Flower's application until a signal: to devices at a port behind a `Guard`, and in full at a socket.

    Args:
        app: ASGI application.
        path: Path of the Unix socket.
        host: Interface of the port.
        port: Port for devices.
        ssl_certfile: Certificate of the port.
        ssl_keyfile: Private key of the port.
        settings: Further settings of `uvicorn.Config`, for both listeners.
    """
    import uvicorn

    # The application starts and stops with the local server. No proxy is trusted, so proxy headers are ignored.
    tls: dict[str, Any] = {"host": host, "port": port, "ssl_certfile": ssl_certfile, "ssl_keyfile": ssl_keyfile}
    devices = uvicorn.Server(uvicorn.Config(Guard(app), lifespan="off", proxy_headers=False, **tls, **settings))
    listener = bind(path)
    local = uvicorn.Server(uvicorn.Config(app, fd=listener.fileno(), **settings))

    def serve_devices():
        try:
            devices.run()
        finally:
            # Stop if devices cannot connect, so that the parent process detects it.
            local.should_exit = True

    thread = threading.Thread(target=serve_devices, name="port for devices", daemon=True)
    thread.start()
    while thread.is_alive() and not devices.started:
        time.sleep(PAUSE)
    local.run()


def send_through(path: Path) -> None:
    """Make every httpx client of this process send requests for `ADDRESS` through a Unix socket."""
    import httpx

    class LocalClient(httpx.Client):
        """An httpx client with one more transport."""

        def __init__(self, **options: Any):
            super().__init__(**options, mounts={f"http://{ADDRESS}": httpx.HTTPTransport(uds=str(path))})

    httpx.Client = LocalClient


class Guard:
    """An ASGI application in front of Flower's.

    Args:
        app: Flower's application.
        most_bytes: Maximum size of a request body.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], most_bytes: int = MOST_BYTES):
        self._app, self._most = app, most_bytes

    async def __call__(self, scope: dict[str, Any], receive: Callable, send: Callable) -> None:
        """Respond with status 403, 411 or 413, or passes the request to the application."""
        code = refusal(scope, self._most) if scope["type"] == "http" else None
        if code is None and scope["type"] in ("http", "lifespan"):
            await self._app(scope, receive, send)
        elif code is not None:
            await send({"type": "http.response.start", "status": code, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})


def refusal(scope: dict[str, Any], most_bytes: int) -> int | None:
    """Return the status with which a request is refused; None if it is passed on.

    Args:
        scope: The ASGI scope.
        most_bytes: See `Guard`.
    """
    if not scope["path"].startswith(OF_DEVICES):
        return 403
    lengths = [value for name, value in scope["headers"] if name.lower() == b"content-length"]
    # The server enforces the announced length of a body; without it the size is unlimited.
    if len(lengths) != 1 or not lengths[0].isdigit():
        return 411
    return 413 if int(lengths[0]) > most_bytes else None
