"""The HTTP application: routes, limits, and a task that polls the export folder."""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError, shorten_repr
from hetero_tf.base.escaping import escape_line
from hetero_tf.export.examples import example_request
from hetero_tf.export.serve import rest
from hetero_tf.export.serve.hosts import HostPolicy
from hetero_tf.export.serve.loading import Version
from hetero_tf.export.serve.openapi import describe_api, render_page
from hetero_tf.export.serve.prometheus import CONTENT_TYPE, RequestMetrics
from hetero_tf.export.serve.request_json import BadRequest
from hetero_tf.export.serve.serving import Serving, VersionState
from hetero_tf.export.serve.work import Busy, Disconnected, MemoryBudget, Reservation, Workers

# Files of the page, with their types.
PAGE_FILES = {"": "page.html", "page.css": "page.css", "page.js": "page.js"}
MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
# The page loads nothing from other origins.
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; media-src blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
HTTP_VERSIONS = ("1.0", "1.1")
# A body that is too long is read and dropped up to this multiple of the limit, so that the client reads the response.
DRAINED = 8
LONGEST_ERROR = 1000
# Keys of export.json that the page shows.
SUMMARY = frozenset(
    {"recipe", "level", "width", "parameters", "round", "data", "task", "method", "measured", "input", "warning"}
    | {"classes", "class_names", "signatures"}
)
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


class App:
    """The ASGI application: checks hosts, counts requests, limits their memory, and routes them to its methods."""

    def __init__(self, serving: Serving, limits: Limits, hosts: HostPolicy, say: Callable[[str], None]):
        """Create the application.

        Args:
            serving: Served versions.
            limits: Limits of requests.
            hosts: Names under which clients may address the server.
            say: Receives a message for each change of the versions.
        """
        self.serving, self.limits, self.hosts, self.say = serving, limits, hosts, say
        self.workers, self.budget = Workers(limits.concurrency, limits.large_body), MemoryBudget(limits.bodies)
        self.metrics, self.started = RequestMetrics(), time.monotonic()
        # The metrics name an endpoint by its method.
        of_model = ("/v1/models/{level:str}", "/v1/models/{level:str}/versions/{number:str}")
        routes = [
            *(Route(f"/{name}", self.page, include_in_schema=False) for name in PAGE_FILES),
            Route("/docs", self.docs, include_in_schema=False),
            Route("/openapi.json", self.openapi, include_in_schema=False),
            Route("/healthz", self.health),
            Route("/livez", self.live),
            Route("/readyz", self.ready),
            Route("/metrics", self.prometheus),
            Route("/v1/models", self.models),
            *(Route(f"{path}:predict", self.predict, methods=["POST"]) for path in of_model),
            *(Route(f"{path}/metadata", self.metadata) for path in of_model),
            *(Route(f"{path}/example", self.example) for path in of_model),
            *(Route(path, self.status) for path in of_model),
        ]
        handlers: dict[Any, Any] = {404: _unknown, 405: _unknown, ClientDisconnect: _gone, Disconnected: _gone}
        handlers |= dict.fromkeys((_HttpError, Busy, Exception), _failed)
        self.router = Starlette(routes=routes, lifespan=self._lifespan, exception_handlers=handlers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a connection: a request, or the start and end of the server."""
        if scope["type"] != "http":
            await self.router(scope, receive, send)
            return
        status, began = CLIENT_CLOSED_REQUEST, time.monotonic()

        async def counted(message):
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        problem = _check_framing(scope) or self.hosts.check(scope)
        self.metrics.in_progress += 1
        try:
            if problem is not None:
                await _error(*problem, {"Connection": "close"})(scope, receive, counted)
                return
            if not scope["path"].startswith("/"):
                scope["path"] = urlsplit(scope["path"]).path or "/"
            with Reservation(self.budget) as scope["reservation"]:
                await self.router(scope, receive, counted)
        finally:
            self.metrics.in_progress -= 1
            level = scope.get("path_params", {}).get("level", "")
            endpoint = getattr(scope.get("endpoint"), "__name__", "other")
            # Each unknown name would create a time series.
            level = level if level in self.serving.levels else ""
            self.metrics.observe(endpoint, level, status, time.monotonic() - began)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(_follow(self.serving, self.limits.poll, self.say))
        yield
        task.cancel()

    async def page(self, request: Request) -> Response:
        """Return a file of the page for a browser."""
        file = Path(__file__).with_name(PAGE_FILES[request.url.path[1:]])
        return Response(file.read_bytes(), headers=HEADERS, media_type=MEDIA_TYPES[file.suffix])

    async def docs(self, request: Request) -> Response:
        """Return the description of the API as a page."""
        level = next(iter(self.serving.levels), "LEVEL")
        return HTMLResponse(render_page(self._api(), str(request.base_url).rstrip("/"), level), headers=HEADERS)

    async def openapi(self, request: Request) -> Response:
        """Return the description of the API as OpenAPI."""
        return JSONResponse(self._api())

    def _api(self) -> dict:
        names = {name for version in self._newest().values() for name in version.signatures}
        routes = [route for route in self.router.routes if isinstance(route, Route)]
        return describe_api(routes, list(self.serving.levels), sorted(names))

    def _newest(self) -> dict[str, Version]:
        """Return the newest version of each level."""
        newest = {level: self.serving.find(level, None) for level in self.serving.levels}
        return {level: version for level, version in newest.items() if version is not None}

    async def health(self, request: Request) -> Response:
        """Return the served levels; 503 if there are none."""
        return JSONResponse({"levels": list(self.serving.levels)}, 200 if self.serving.levels else 503)

    async def live(self, request: Request) -> Response:
        """Return 200."""
        return PlainTextResponse("ok\n")

    async def ready(self, request: Request) -> Response:
        """Return 200 if a level is served."""
        if not self.serving.levels:
            raise _HttpError(503, "no level is served yet")
        return PlainTextResponse("ok\n")

    async def prometheus(self, request: Request) -> Response:
        """Return the metrics of the server."""
        versions = [(level, number) for level in self.serving.levels for number in self.serving.versions(level)]
        text = self.metrics.render(versions, self.budget.used, time.monotonic() - self.started)
        return Response(text, media_type=CONTENT_TYPE)

    async def models(self, request: Request) -> Response:
        """Return the newest version of each level."""
        return JSONResponse({level: _summary(version) for level, version in self._newest().items()})

    async def status(self, request: Request) -> Response:
        """Return the states of one or all versions of a level."""
        level, number = _requested(request)
        states = self.serving.states(level)
        if number is None and "number" in request.path_params:
            number = max(self.serving.versions(level), default=None)
        if number is not None:
            states = {key: state for key, state in states.items() if key == number}
        if not states:
            raise _missing(self.serving, level, number)
        report = {"model_version_status": [_status(key, state) for key, state in states.items()]}
        if all(state.state == "END" and not state.error for state in states.values()):
            # TensorFlow Serving returns 200 for unloaded versions.
            return JSONResponse({"error": str(_missing(self.serving, level, number)), **report}, 404)
        return JSONResponse(report)

    async def metadata(self, request: Request) -> Response:
        """Return the signatures of a version."""
        version = self._version(request)
        return JSONResponse(rest.metadata(version.level, version.number, version.signatures))

    async def example(self, request: Request) -> Response:
        """Return the body of a predict request with one example."""
        version = self._version(request)
        try:
            return JSONResponse(await asyncio.to_thread(example_request, version.manifest))
        except InputError as error:
            raise _HttpError(404, f"level {version.level}, version {version.number}: {error}") from error

    async def predict(self, request: Request) -> Response:
        """Return predictions of a version."""
        version, reservation = self._version(request), request.scope["reservation"]
        body = await _read_body(request, self.limits, reservation)
        work = partial(rest.respond, version.signatures, columns=version.row_columns)
        try:
            response = await self.workers.compute(work, body, request, self.limits.seconds)
        except BadRequest as error:
            raise _HttpError(400, str(error)) from error
        reservation.resize(len(response))
        return Response(response, media_type="application/json")

    def _version(self, request: Request) -> Version:
        level, number = _requested(request)
        version = self.serving.find(level, number)
        if version is None:
            raise _missing(self.serving, level, number)
        return version


def _check_framing(scope: Scope) -> tuple[int, str] | None:
    """Return status and message for a request whose end another server may see elsewhere; None for others."""
    version, names = scope.get("http_version", "1.1"), {name for name, _ in scope["headers"]}
    if version not in HTTP_VERSIONS:
        return 505, f"the HTTP version must be {' or '.join(HTTP_VERSIONS)}. Received: {version}"
    if {b"content-length", b"transfer-encoding"} <= names:
        # RFC 9112, 6.3: the connection must be closed.
        return 400, "a request must not have both Content-Length and Transfer-Encoding"
    return None


async def _failed(request: Request, error: Exception) -> Response:
    if isinstance(error, Busy):
        return _error(503, str(error), {"Retry-After": "1", "Connection": "close"})
    if isinstance(error, _HttpError):
        return _error(error.status, str(error), error.headers)
    return _error(500, "internal server error; see the output of the server")


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def _unknown(request: Request, error: Exception) -> Response:
    message = f"{request.method} {shorten_repr(request.url.path)}: unknown URL; see /v1/models"
    return _error(getattr(error, "status_code", 404), message, getattr(error, "headers", None))


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
    return JSONResponse({"error": escape_line(message)[:LONGEST_ERROR]}, status, headers)


def _summary(version: Version) -> dict:
    """Return the data of a version that the page shows."""
    metrics = {name: value for name, value in version.manifest["measured"].items() if isinstance(value, (int, float))}
    units = {name: registry.constant("metrics", name, "UNIT") for name in metrics if name in registry.names("metrics")}
    return {
        "version": version.number,
        **{name: value for name, value in version.manifest.items() if name in SUMMARY},
        "units": units,
    }


def _status(number: int, state: VersionState) -> dict:
    """Return the state of a version in the format of TensorFlow Serving."""
    code = "UNKNOWN" if state.error else "OK"
    return {
        "version": str(number),
        "state": state.state,
        "status": {"error_code": code, "error_message": escape_line(state.error)},
    }


def _requested(request: Request) -> tuple[str, int | None]:
    """Return level and version of a path; None for the newest version, which version 0 also means."""
    level, number = request.path_params["level"], request.path_params.get("number", "0")
    if not _NUMBER.fullmatch(number):
        raise _HttpError(
            404, f"a version must be a whole number of at most 18 digits. Received: {shorten_repr(number, 30)}"
        )
    return level, int(number) or None


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
