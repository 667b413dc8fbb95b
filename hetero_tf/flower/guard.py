"""Requests that the server's port accepts: Flower's paths for devices, with bodies of a limited size.

Whoever reaches Flower's other paths can run code on the server and on all devices. They are served at a Unix socket
instead (`endpoints`), so the port refuses them whatever address a request comes from.
"""

from collections.abc import Awaitable, Callable
from typing import Any

# Flower sends values in pieces of 5 MiB; nothing else that it sends is larger.
MOST_BYTES = 6 * 2**20
OF_DEVICES = "/v1/fleet/"


class Guard:
    """An ASGI application in front of Flower's.

    Args:
        app: Flower's.
        most_bytes: Limit of the body of a request.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], most_bytes: int = MOST_BYTES):
        self._app, self._most = app, most_bytes

    async def __call__(self, scope: dict[str, Any], receive: Callable, send: Callable) -> None:
        """Answers a request by 403, 411 or 413, or hands it on."""
        code = refusal(scope, self._most) if scope["type"] == "http" else None
        if code is None and scope["type"] in ("http", "lifespan"):
            await self._app(scope, receive, send)
        elif code is not None:
            await send({"type": "http.response.start", "status": code, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})


def refusal(scope: dict[str, Any], most_bytes: int) -> int | None:
    """Returns the status by which a request is refused, None where it is handed on.

    Args:
        scope: Of ASGI.
        most_bytes: See `Guard`.
    """
    if not scope["path"].startswith(OF_DEVICES):
        return 403
    lengths = [value for name, value in scope["headers"] if name.lower() == b"content-length"]
    # The server holds a body to the length that was announced; without one it could have any.
    if len(lengths) != 1 or not lengths[0].isdigit():
        return 411
    return 413 if int(lengths[0]) > most_bytes else None
