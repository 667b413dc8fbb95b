"""Limits of the work for requests: threads, seconds, and bytes in memory."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import Request

Result = TypeVar("Result")
# Bytes of each body that do not count, so that large bodies never block small ones.
FREE_BYTES = 2**16


class Busy(Exception):
    """The server lacks the memory or time for a request."""


class Disconnected(Exception):
    """The client closed its connection."""


@dataclass(eq=False)
class MemoryBudget:
    """Bytes of request and response bodies that may be in memory at the same time.

    Attributes:
        size: Limit in bytes, without the first `FREE_BYTES` of each body.
        used: Bytes in use.
    """

    size: int
    used: int = 0


class Reservation:
    """Bytes of a `MemoryBudget` that one request uses; leaving the context releases them."""

    def __init__(self, budget: MemoryBudget):
        self.budget, self.amount = budget, 0

    def resize(self, size: int) -> None:
        """Reserve or release bytes, so that the request has `size` bytes.

        Raises:
            Busy: Other requests use the rest of the budget.
        """
        amount = max(0, size - FREE_BYTES)
        if self.budget.used - self.amount + amount > self.budget.size:
            raise Busy("too many large requests at the same time; try again")
        self.budget.used += amount - self.amount
        self.amount = amount

    def __enter__(self) -> "Reservation":
        return self

    def __exit__(self, *_: object) -> None:
        self.budget.used -= self.amount
        self.amount = 0


class Workers:
    """Threads that compute responses.

    A computation that is too late is cancelled, but occupies its thread until it ends, so late ones cannot pile up.
    """

    def __init__(self, count: int, large_body: int):
        """Create the threads.

        Args:
            count: Requests that are computed at the same time.
            large_body: Requests with larger bodies, in bytes, are computed one at a time in a separate thread.
        """
        self.large_body = large_body
        self._small = ThreadPoolExecutor(count, "predict")
        self._large = ThreadPoolExecutor(1, "predict-large")

    async def compute(
        self, work: Callable[[bytes, Callable[[], bool]], Result], body: bytes, request: Request, seconds: float
    ) -> Result:
        """Call `work(body, is_cancelled)` in a thread.

        Raises:
            Busy: The call takes longer than `seconds`.
            Disconnected: The client closed its connection.
        """
        cancelled = threading.Event()
        pool = self._large if len(body) > self.large_body else self._small
        future: Future = pool.submit(work, body, cancelled.is_set)
        result = asyncio.wrap_future(future)
        disconnect = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait({result, disconnect}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if result.done():
                return result.result()
            if disconnect.done():
                raise Disconnected
            raise Busy(f"no response within {seconds:g} seconds; send fewer examples at a time")
        finally:
            cancelled.set()
            result.cancel()
            disconnect.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await disconnect


async def _disconnected(request):
    while (await request.receive())["type"] != "http.disconnect":
        pass
