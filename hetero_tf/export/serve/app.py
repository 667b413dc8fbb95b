"""The HTTP application: routes, limits, metrics, and a task that polls the export folder."""

import asyncio
import contextlib
import http
import inspect
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError, shorten_repr
from hetero_tf.base.formatting import escape_line
from hetero_tf.base.version import __version__
from hetero_tf.export.card import example_request
from hetero_tf.export.serve import rest
from hetero_tf.export.serve.batches import Batches
from hetero_tf.export.serve.loading import Serving, Version

# Files of the page by path.
PAGE_FILES = {"": "page.html", "page.css": "page.css", "page.js": "page.js"}
# The page loads nothing from other origins.
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; media-src blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
# Bytes of a request body and of all request bodies in memory, and seconds for receiving a body and for its response.
MAX_BODY, MAX_BODIES, MAX_SECONDS = 32 * 2**20, 160 * 2**20, 60.0
# Smaller bodies are read by the thread of the event loop, and share calls of the model.
SMALL_BODY = 2**16
# Larger bodies are computed one at a time, which bounds their memory.
LARGE_BODY = 2**20
# Seconds between checks of the export folder.
POLL_SECONDS = 1.0
LONGEST_ERROR, MAX_DIGITS = 1000, 18
# Keys of export.json that the page shows.
SUMMARY = frozenset(
    {"recipe", "level", "width", "parameters", "round", "data", "task", "method", "measured", "input", "warning"}
    | {"classes", "class_names", "signatures", "method_name", "test_examples"}
)
# Status of a request whose client disconnected before the response, as in the logs of nginx.
CLIENT_CLOSED_REQUEST = 499
# Upper bounds of the histogram's buckets, in seconds.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Metrics for Prometheus."""

    def __init__(self):
        self.registry = CollectorRegistry()
        labels = ("endpoint", "level", "status")
        self.requests = Counter("hetero_tf_requests", "HTTP requests.", labels, registry=self.registry)
        meaning = "Time of predict requests in seconds."
        self.seconds = Histogram(
            "hetero_tf_predict_seconds", meaning, ("level",), buckets=BUCKETS, registry=self.registry
        )
        meaning = "1 for each served version of a level."
        self.versions = Gauge("hetero_tf_version_available", meaning, ("level", "version"), registry=self.registry)
        meaning = "Requests without a complete response."
        self.in_progress = Gauge("hetero_tf_requests_in_progress", meaning, registry=self.registry)


class App:
    """The ASGI application: counts requests and routes them to its methods."""

    def __init__(
        self, serving: Serving, concurrency: int, trusted_hosts: Sequence[str], say: Callable[[str], None], batch: int
    ):
        """Create the application.

        Args:
            concurrency: Requests that are computed at the same time; others wait.
            batch: Most examples of requests that share a call of the model; 1 for a call for each request.
            say: Receives a message for each change of the versions.
        """
        self.serving, self.say = serving, say
        self.body_bytes, self.metrics = 0, Metrics()
        self.pool, self.large_pool = ThreadPoolExecutor(concurrency), ThreadPoolExecutor(1)
        self.batches = Batches(self.pool, batch)
        # The metrics name an endpoint by its method.
        of_model = ("/v1/models/{level:str}", "/v1/models/{level:str}/versions/{number:str}")
        self.routes = [
            Route("/livez", self.live),
            Route("/readyz", self.ready),
            Route("/metrics", self.prometheus),
            Route("/v1/models", self.models),
            *(Route(f"{path}:predict", self.predict, methods=["POST"]) for path in of_model),
            *(Route(f"{path}/metadata", self.metadata) for path in of_model),
            *(Route(f"{path}/example", self.example) for path in of_model),
            *(Route(path, self.status) for path in of_model),
        ]
        pages = [*(Route(f"/{name}", self.page) for name in PAGE_FILES), Route("/openapi.json", self.openapi)]
        self.router = Starlette(
            routes=[*pages, *self.routes],
            # By DNS rebinding, a page can make its visitor's browser read responses of 127.0.0.1.
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=trusted_hosts, www_redirect=False)],
            exception_handlers=dict.fromkeys((HTTPException, rest.BadRequest, ClientDisconnect, Exception), _failed),
            lifespan=self._lifespan,
        )

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

        with self.metrics.in_progress.track_inprogress():
            try:
                await self.router(scope, receive, counted)
            finally:
                self._count(scope, status, time.monotonic() - began)

    def _count(self, scope, status, seconds):
        endpoint = getattr(scope.get("endpoint"), "__name__", "other")
        level = scope.get("path_params", {}).get("level", "")
        # Each unknown name would create a time series.
        level = level if level in self.serving.levels else ""
        self.metrics.requests.labels(endpoint, level, status).inc()
        if endpoint == "predict" and level:
            self.metrics.seconds.labels(level).observe(seconds)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(self._follow())
        yield
        task.cancel()

    async def _follow(self):
        """Poll the export folder until the task is cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                sentences = await asyncio.to_thread(self.serving.refresh)
            except Exception as error:
                # Served versions stay available despite errors of the folder.
                sentences = [f"{self.serving.folder}: could not look for new versions: {shorten_repr(error)}"]
            for sentence in sentences:
                self.say(sentence)

    async def page(self, request: Request) -> Response:
        """Return a file of the page for a browser."""
        return FileResponse(Path(__file__).with_name(PAGE_FILES[request.url.path[1:]]), headers=HEADERS)

    async def openapi(self, request: Request) -> Response:
        """Return the description of the API."""
        names = {name for version in self.serving.newest().values() for name in version.model.signatures}
        return JSONResponse(describe_api(self.routes, list(self.serving.levels), sorted(names)))

    async def live(self, request: Request) -> Response:
        """Return 200."""
        return PlainTextResponse("ok\n")

    async def ready(self, request: Request) -> Response:
        """Return 200 if a level is served."""
        if not self.serving.levels:
            raise HTTPException(503, "no level is served yet")
        return PlainTextResponse("ok\n")

    async def prometheus(self, request: Request) -> Response:
        """Return the metrics of the server."""
        self.metrics.versions.clear()
        for level in self.serving.levels:
            for number in self.serving.versions(level):
                self.metrics.versions.labels(level, number).set(1)
        text = generate_latest(self.metrics.registry)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def models(self, request: Request) -> Response:
        """Return the newest version of each level."""
        return JSONResponse({level: _summary(version) for level, version in self.serving.newest().items()})

    async def status(self, request: Request) -> Response:
        """Return the states of one or all versions of a level."""
        level, number = _requested(request)
        versions = self.serving.versions(level)
        errors = {**dict.fromkeys(versions, ""), **self.serving.errors(level)}
        if "number" in request.path_params:
            number = number or max(versions, default=0)
            errors = {key: error for key, error in errors.items() if key == number}
        if not errors:
            raise self._missing(level, number)
        return JSONResponse({"model_version_status": [_status(*item) for item in sorted(errors.items(), reverse=True)]})

    async def metadata(self, request: Request) -> Response:
        """Return the signatures of a version."""
        version = self._version(request)
        return JSONResponse(rest.metadata(version.level, version.number, version.model.signatures))

    async def example(self, request: Request) -> Response:
        """Return the body of a predict request with one example."""
        version = self._version(request)
        try:
            return JSONResponse(await asyncio.to_thread(example_request, version.manifest))
        except InputError as error:
            raise HTTPException(404, f"level {version.level}, version {version.number}: {error}") from error

    async def predict(self, request: Request) -> Response:
        """Return predictions of a version."""
        version, body, cancelled = self._version(request), bytearray(), threading.Event()
        try:
            await self._receive(request, body)
            response = await asyncio.wait_for(self._respond(version, bytes(body), cancelled.is_set), MAX_SECONDS)
        except asyncio.TimeoutError as error:
            message = f"no response within {MAX_SECONDS:g} seconds; send fewer examples at a time"
            raise HTTPException(503, message, {"Retry-After": "1"}) from error
        finally:
            cancelled.set()
            self.body_bytes -= len(body)
        return Response(response, media_type="application/json")

    async def _respond(self, version: Version, body: bytes, is_cancelled: Callable[[], bool]) -> bytes:
        """Return the response to a body; a small one shares a call of the model with others."""
        signatures = version.model.signatures
        if len(body) > SMALL_BODY:
            work = partial(rest.respond, signatures, body, is_cancelled, version.columns)
            pool = self.large_pool if len(body) > LARGE_BODY else self.pool
            return await asyncio.get_running_loop().run_in_executor(pool, work)
        request = rest.read(signatures, body, version.columns)
        outputs = await self.batches.predict((version.level, version.number), signatures, request, is_cancelled)
        if sum(value.size for value in outputs.values()) > SMALL_BODY:
            return await asyncio.get_running_loop().run_in_executor(self.pool, rest.encode, outputs, request.by_row)
        return rest.encode(outputs, request.by_row)

    async def _receive(self, request: Request, body: bytearray) -> None:
        """Append the body of a request to `body`, under the limits of its size and time."""
        size = 0
        try:
            with anyio.fail_after(MAX_SECONDS):
                # A body that is too long is read to its end, so that the client reads the response.
                async for chunk in request.stream():
                    size += len(chunk)
                    if size <= MAX_BODY:
                        body += chunk
                        self.body_bytes += len(chunk)
                    if self.body_bytes > MAX_BODIES:
                        message = "too many large requests at the same time; try again"
                        raise HTTPException(503, message, {"Retry-After": "1"})
        except TimeoutError as error:
            raise HTTPException(408, "the body did not arrive in time", {"Connection": "close"}) from error
        if size > MAX_BODY:
            raise HTTPException(413, f"the body must have at most {MAX_BODY} bytes")

    def _version(self, request: Request) -> Version:
        level, number = _requested(request)
        versions = self.serving.versions(level)
        version = versions.get(number or max(versions, default=0))
        if version is None:
            raise self._missing(level, number)
        return version

    def _missing(self, level, number):
        model = f"level {shorten_repr(level)}" + (f", version {number}" if number else "")
        return HTTPException(404, f"{model} is not served; levels: {', '.join(self.serving.levels) or 'none'}")


def _requested(request: Request) -> tuple[str, int | None]:
    """Return level and version of a path; None for the newest version, which version 0 also means."""
    level, number = request.path_params["level"], request.path_params.get("number", "0")
    if not number.isdecimal() or len(number) > MAX_DIGITS:
        received = shorten_repr(number, 30)
        raise HTTPException(404, f"a version must be a whole number of at most 18 digits. Received: {received}")
    return level, int(number) or None


async def _failed(request: Request, error: Exception) -> Response:
    """Return the response for an exception."""
    if isinstance(error, ClientDisconnect):
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    if isinstance(error, rest.BadRequest):
        return _error(400, str(error))
    if not isinstance(error, HTTPException):
        return _error(500, "internal server error; see the output of the server")
    if error.detail == http.HTTPStatus(error.status_code).phrase:
        # The exception comes from the router.
        message = f"{request.method} {shorten_repr(request.url.path)}: {error.detail.lower()}; see /v1/models"
        return _error(error.status_code, message, error.headers)
    return _error(error.status_code, error.detail, error.headers)


def _error(status, message, headers=None):
    """Return an error response; characters that cannot be printed, such as a lone surrogate, are escaped."""
    return JSONResponse({"error": escape_line(message)[:LONGEST_ERROR]}, status, headers)


def _summary(version: Version) -> dict[str, Any]:
    metrics = {name: value for name, value in version.manifest["measured"].items() if isinstance(value, (int, float))}
    units = {name: registry.constant("metrics", name, "UNIT") for name in metrics if name in registry.names("metrics")}
    shown = {name: value for name, value in version.manifest.items() if name in SUMMARY}
    return {"version": version.number, **shown, "units": units}


def _status(number: int, error: str) -> dict[str, Any]:
    """Return the state of a version in the format of TensorFlow Serving; `error` is empty for a served version."""
    code, state = ("UNKNOWN", "END") if error else ("OK", "AVAILABLE")
    status = {"error_code": code, "error_message": escape_line(error)}
    return {"version": str(number), "state": state, "status": status}


RESPONSES = {
    "200": {"description": "success"},
    "400": {"description": "the request does not match the signature"},
    "404": {"description": "unknown path, level or version"},
    "503": {"description": "no level is served, or the server is busy"},
}


def describe_api(routes: Sequence[Route], levels: list[str], signatures: list[str]) -> dict:
    """Return the OpenAPI document; the docstring of an endpoint is its summary."""
    parameters: dict[str, dict] = {
        "level": {"schema": {"type": "string", "enum": levels}},
        "number": {"schema": {"type": "integer", "minimum": 0}, "description": "a version; 0 is the newest one"},
    }
    properties = {
        "signature_name": {"type": "string", "enum": signatures, "default": "serving_default"},
        "instances": {"type": "array", "items": {}, "description": "one value for each example (row format)"},
        "inputs": {"description": "one array, or an object of arrays by name (column format)"},
    }
    request = {"type": "object", "description": "exactly one of instances and inputs", "properties": properties}
    paths: dict[str, dict] = {}
    for route in routes:
        operation: dict[str, Any] = {
            "summary": (inspect.getdoc(route.endpoint) or "").partition("\n")[0],
            "parameters": [
                {"name": name, "in": "path", "required": True, **parameters[name]} for name in route.param_convertors
            ],
            "responses": RESPONSES,
        }
        is_predict = "POST" in (route.methods or ())
        if is_predict:
            operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": request}}}
        paths[route.path_format] = {"post" if is_predict else "get": operation}
    info = {"title": "hetero_tf serve", "version": __version__, "description": "The REST API of TensorFlow Serving."}
    return {"openapi": "3.1.0", "info": info, "paths": paths}
