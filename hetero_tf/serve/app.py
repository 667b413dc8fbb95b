"""The HTTP side of serving: routes, limits, and a task that looks for new versions."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from hetero_tf.serve import rest
from hetero_tf.serve.serving import Serving, Version

PAGE = Path(__file__).with_name("page.html")
# Times the largest body, after which a connection is given up.
DRAINED = 8
# The page needs nothing from anywhere else.
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class Limits:
    """What one request may take.

    Attributes:
        body: Bytes of its body.
        seconds: Until it is answered with 503; what it computes ends by itself.
        at_once: Requests that are computed at the same time; others wait.
        poll: Seconds between two looks for new versions.
    """

    body: int = 32 * 2**20
    seconds: float = 60.0
    at_once: int = 2
    poll: float = 1.0


class _Refused(Exception):
    """An answer with an error."""

    def __init__(self, status, sentence):
        super().__init__(sentence)
        self.status = status


def build_app(serving: Serving, limits: Limits, say: Callable[[str], None]) -> Starlette:
    """Returns the ASGI application.

    Args:
        serving: What is served.
        limits: What one request may take.
        say: Gets a sentence for each version that begins to be served.
    """
    turns = anyio.CapacityLimiter(limits.at_once)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async def watch():
            while True:
                await asyncio.sleep(limits.poll)
                for sentence in await anyio.to_thread.run_sync(serving.refresh):
                    say(sentence)

        task = asyncio.create_task(watch())
        yield
        task.cancel()

    async def page(request: Request) -> Response:
        return HTMLResponse(PAGE.read_text("utf-8"), headers=HEADERS)

    async def health(request: Request) -> Response:
        return JSONResponse({"levels": list(serving.levels)}, 200 if serving.levels else 503)

    async def models(request: Request) -> Response:
        found = {level: serving.find(level, None) for level in serving.levels}
        return JSONResponse({level: _told(version) for level, version in found.items() if version is not None})

    async def status(request: Request) -> Response:
        level, number = _asked(request)
        version = _found(serving, level, number)
        numbers = [version.number] if number is not None else sorted(serving.versions(level), reverse=True)
        ok = {"error_code": "OK", "error_message": ""}
        return JSONResponse(
            {"model_version_status": [{"version": str(one), "state": "AVAILABLE", "status": ok} for one in numbers]}
        )

    async def metadata(request: Request) -> Response:
        version = _found(serving, *_asked(request))
        return JSONResponse(rest.metadata(version.level, version.number, version.signatures))

    async def predict(request: Request) -> Response:
        version = _found(serving, *_asked(request))
        body = _parsed(await _read(request, limits.body))
        try:
            with anyio.fail_after(limits.seconds):
                work = partial(rest.predict, version.signatures, body)
                answer = await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=turns)
        except rest.BadRequest as problem:
            raise _Refused(400, str(problem)) from problem
        except TimeoutError as problem:
            raise _Refused(503, f"no answer within {limits.seconds:g} seconds; send less at a time") from problem
        return JSONResponse(answer)

    async def refused(request: Request, problem: Exception) -> Response:
        return JSONResponse({"error": str(problem)}, getattr(problem, "status", 500))

    async def missing(request: Request, problem: Exception) -> Response:
        sentence = f"{request.method} {request.url.path}: no such address; see /v1/models"
        return JSONResponse({"error": sentence}, getattr(problem, "status_code", 404))

    of_model = ("/v1/models/{level:str}", "/v1/models/{level:str}/versions/{number:int}")
    routes = [
        Route("/", page),
        Route("/healthz", health),
        Route("/v1/models", models),
        *(Route(f"{path}:predict", predict, methods=["POST"]) for path in of_model),
        *(Route(f"{path}/metadata", metadata) for path in of_model),
        *(Route(path, status) for path in of_model),
    ]
    handlers = {_Refused: refused, 404: missing, 405: missing}
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)


def _told(version: Version) -> dict:
    """What the page needs to know of a version."""
    about = version.about
    names = ("recipe", "level", "width", "parameters", "measured", "input", "warning", "class_names")
    return {"version": version.number, **{name: about[name] for name in names if name in about}}


def _asked(request: Request) -> tuple[str, int | None]:
    return request.path_params["level"], request.path_params.get("number")


def _found(serving: Serving, level: str, number: int | None) -> Version:
    version = serving.find(level, number)
    if version is None:
        known = ", ".join(serving.levels) or "none"
        what = f"level {level!r}" + ("" if number is None else f", version {number}")
        raise _Refused(404, f"{what} is not served; levels: {known}")
    return version


async def _read(request: Request, most: int) -> bytes:
    """The body; one that is too long is not kept, but read to its end, up to a bound, so that its sender can listen."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size <= most:
            parts.append(part)
        else:
            parts.clear()
        if size > DRAINED * most:
            break
    if size > most:
        raise _Refused(413, f"the body must have at most {most} bytes")
    return b"".join(parts)


def _parsed(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as problem:
        raise _Refused(400, f"the body is not JSON: {problem}") from problem
