"""The HTTP application: routes, limits, and a task that polls the export folder."""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import anyio
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hetero_tf.base.console import escape_unprintable
from hetero_tf.base.errors import shorten_repr
from hetero_tf.export.serve import rest
from hetero_tf.export.serve.hosts import HostPolicy
from hetero_tf.export.serve.loading import Version
from hetero_tf.export.serve.prometheus import CONTENT_TYPE, RequestMetrics
from hetero_tf.export.serve.request_json import BadRequest
from hetero_tf.export.serve.serving import Serving, VersionState
from hetero_tf.export.serve.work import Busy, Disconnected, MemoryBudget, Reservation, Workers

PAGE = Path(__file__).with_name("page.html")
# The page loads nothing from other origins.
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
# A body that is too long is read and dropped up to this multiple of the limit, so that the client reads the response.
DRAINED = 8
LONGEST_ERROR = 1000
# Status of a request whose client disconnected before the response, as in the logs of nginx.
CLIENT_CLOSED_REQUEST = 499
_NUMBER = re.compile("[0-9]{1,18}")


@dataclass(frozen=True)
class Limits:
    """Limits of requests.

    Attributes:
        body: Bytes of a request's body.
        bodies: Bytes of all request and response bodies in memory, without the first 64 KiB of each.
        large_body: Requests with larger bodies, in bytes, are computed one at a time.
        seconds: Time until a request gets a response or the status 503; also the time for receiving a body.
        stalled_seconds: Time until a client must send the next part of a body.
        concurrency: Requests that are computed at the same time; others wait.
        poll: Seconds between checks of the export folder.
    """

    body: int = 32 * 2**20
    bodies: int = 160 * 2**20
    large_body: int = 2**20
    seconds: float = 60.0
    stalled_seconds: float = 10.0
    concurrency: int = 2
    poll: float = 1.0


class _HttpError(Exception):
    """An error response: its status, message and headers."""

    def __init__(self, status, message, headers=None):
        super().__init__(message)
        self.status, self.headers = status, headers


def build_app(serving: Serving, limits: Limits, hosts: HostPolicy, say: Callable[[str], None]) -> ASGIApp:
    """Return the ASGI application.

    Args:
        serving: Served versions.
        limits: Limits of requests.
        hosts: Names under which clients may address the server.
        say: Receives a message for each change of the versions.
    """
    workers = Workers(limits.concurrency, limits.large_body)
    budget, metrics, started = MemoryBudget(limits.bodies), RequestMetrics(), time.monotonic()

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(_follow(serving, limits.poll, say))
        yield
        task.cancel()

    async def page(request: Request) -> Response:
        return HTMLResponse(PAGE.read_text("utf-8"), headers=HEADERS)

    async def health(request: Request) -> Response:
        return JSONResponse({"levels": list(serving.levels)}, 200 if serving.levels else 503)

    async def live(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(request: Request) -> Response:
        if not serving.levels:
            raise _HttpError(503, "no level is served yet")
        return PlainTextResponse("ok\n")

    async def prometheus(request: Request) -> Response:
        versions = [(level, number) for level in serving.levels for number in serving.versions(level)]
        text = metrics.render(versions, budget.used, time.monotonic() - started)
        return Response(text, media_type=CONTENT_TYPE)

    async def models(request: Request) -> Response:
        newest = {level: serving.find(level, None) for level in serving.levels}
        return JSONResponse({level: _summary(version) for level, version in newest.items() if version is not None})

    async def status(request: Request) -> Response:
        level, number = _requested(request)
        states = serving.states(level)
        if number is None and "number" in request.path_params:
            number = max(serving.versions(level), default=None)
        if number is not None:
            states = {key: state for key, state in states.items() if key == number}
        if not states:
            raise _missing(serving, level, number)
        report = {"model_version_status": [_status(key, state) for key, state in states.items()]}
        if all(state.state == "END" and not state.error for state in states.values()):
            # TensorFlow Serving returns 200 for unloaded versions.
            return JSONResponse({"error": str(_missing(serving, level, number)), **report}, 404)
        return JSONResponse(report)

    async def metadata(request: Request) -> Response:
        version = _find(serving, *_requested(request))
        return JSONResponse(rest.metadata(version.level, version.number, version.signatures))

    async def predict(request: Request) -> Response:
        version = _find(serving, *_requested(request))
        reservation = request.scope["reservation"]
        body = await _read_body(request, limits, reservation)
        work = partial(rest.respond, version.signatures)
        try:
            response = await workers.compute(work, body, request, limits.seconds)
        except BadRequest as error:
            raise _HttpError(400, str(error)) from error
        reservation.resize(len(response))
        return Response(response, media_type="application/json")

    async def failed(request: Request, error: Exception) -> Response:
        if isinstance(error, Busy):
            return _error(503, str(error), {"Retry-After": "1", "Connection": "close"})
        if isinstance(error, _HttpError):
            return _error(error.status, str(error), error.headers)
        return _error(500, "internal server error; see the output of the server")

    async def gone(request: Request, error: Exception) -> Response:
        return Response(status_code=CLIENT_CLOSED_REQUEST)

    async def unknown(request: Request, error: Exception) -> Response:
        message = f"{request.method} {shorten_repr(request.url.path)}: unknown URL; see /v1/models"
        return _error(getattr(error, "status_code", 404), message, getattr(error, "headers", None))

    of_model = ("/v1/models/{level:str}", "/v1/models/{level:str}/versions/{number:str}")
    routes = [
        Route("/", page),
        Route("/healthz", health),
        Route("/livez", live),
        Route("/readyz", ready),
        Route("/metrics", prometheus, name="metrics"),
        Route("/v1/models", models),
        *(Route(f"{path}:predict", predict, methods=["POST"]) for path in of_model),
        *(Route(f"{path}/metadata", metadata) for path in of_model),
        *(Route(path, status) for path in of_model),
    ]
    handlers = {
        _HttpError: failed, Busy: failed, Exception: failed, ClientDisconnect: gone, Disconnected: gone,
        404: unknown, 405: unknown,
    }  # fmt: skip
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    return _Gate(app, serving, hosts, budget, metrics)


class _Gate:
    """Middleware that checks hosts, counts requests, and limits their memory."""

    def __init__(
        self, app: ASGIApp, serving: Serving, hosts: HostPolicy, budget: MemoryBudget, metrics: RequestMetrics
    ):
        self.app, self.serving, self.hosts, self.budget, self.metrics = app, serving, hosts, budget, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, began = CLIENT_CLOSED_REQUEST, time.monotonic()

        async def counted(message):
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        problem = self.hosts.check(scope)
        self.metrics.in_progress += 1
        try:
            if problem is not None:
                await _error(*problem, {"Connection": "close"})(scope, receive, counted)
                return
            if not scope["path"].startswith("/"):
                scope["path"] = urlsplit(scope["path"]).path or "/"
            with Reservation(self.budget) as scope["reservation"]:
                await self.app(scope, receive, counted)
        finally:
            self.metrics.in_progress -= 1
            level = scope.get("path_params", {}).get("level", "")
            endpoint = getattr(scope.get("endpoint"), "__name__", "other")
            # Each unknown name would create a time series.
            level = level if level in self.serving.levels else ""
            self.metrics.observe(endpoint, level, status, time.monotonic() - began)


async def _follow(serving, poll, say):
    """Poll the export folder until the task is cancelled."""
    while True:
        await asyncio.sleep(poll)
        try:
            for sentence in await asyncio.to_thread(serving.refresh):
                say(sentence)
        except Exception as error:
            # Served versions stay available despite errors of the folder.
            say(
                f"{serving.folder}: could not look for new versions: {type(error).__name__}: {shorten_repr(str(error))}"
            )


def _error(status, message, headers=None):
    """Return an error response; characters that cannot be printed, such as a lone surrogate, are escaped."""
    return JSONResponse({"error": escape_unprintable(message)[:LONGEST_ERROR]}, status, headers)


def _summary(version: Version) -> dict:
    """Return the data of a version that the page shows."""
    names = ("recipe", "level", "width", "parameters", "measured", "input", "warning", "class_names")
    return {
        "version": version.number,
        **{name: version.manifest[name] for name in names if name in version.manifest},
        "signatures": sorted(version.signatures),
    }


def _status(number: int, state: VersionState) -> dict:
    """Return the state of a version in the format of TensorFlow Serving."""
    code = "UNKNOWN" if state.error else "OK"
    return {
        "version": str(number),
        "state": state.state,
        "status": {"error_code": code, "error_message": escape_unprintable(state.error)},
    }


def _requested(request: Request) -> tuple[str, int | None]:
    """Return level and version of a path; None for the newest version, which version 0 also means."""
    level, number = request.path_params["level"], request.path_params.get("number", "0")
    if not _NUMBER.fullmatch(number):
        raise _HttpError(
            404, f"a version must be a whole number of at most 18 digits. Received: {shorten_repr(number, 30)}"
        )
    return level, int(number) or None


def _find(serving: Serving, level: str, number: int | None) -> Version:
    version = serving.find(level, number)
    if version is None:
        raise _missing(serving, level, number)
    return version


def _missing(serving, level, number):
    model = f"level {shorten_repr(level)}" + ("" if number is None else f", version {number}")
    return _HttpError(404, f"{model} is not served; levels: {', '.join(serving.levels) or 'none'}")


async def _read_body(request: Request, limits: Limits, reservation: Reservation) -> bytes:
    """Read a body under the limits of its size and time.

    Raises:
        _HttpError: The body is too large, too slow, or compressed.
        Busy: The memory budget is exhausted.
        ClientDisconnect: The client closed its connection.
    """
    close = {"Connection": "close"}
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise _HttpError(
            415,
            f"Content-Encoding is not supported; send the body uncompressed. Received: {shorten_repr(encoding)}",
            close,
        )
    length = request.headers.get("content-length", "0")
    too_large = _HttpError(413, f"the body must have at most {limits.body} bytes", close)
    if length.isdecimal() and int(length[:19]) > DRAINED * limits.body:
        raise too_large
    body, size, deadline = bytearray(), 0, time.monotonic() + limits.seconds
    stream = request.stream().__aiter__()
    while size <= DRAINED * limits.body:
        try:
            wait = min(limits.stalled_seconds, deadline - time.monotonic())
            with anyio.fail_after(wait):
                chunk = await stream.__anext__()
        except StopAsyncIteration:
            break
        except TimeoutError as error:
            raise _HttpError(408, "the body did not arrive in time", close) from error
        size += len(chunk)
        if size <= limits.body:
            reservation.resize(size)
            body += chunk
        else:
            body.clear()
            reservation.resize(0)
    if size > limits.body:
        raise too_large
    return bytes(body)
