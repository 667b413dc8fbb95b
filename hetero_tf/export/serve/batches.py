"""Calls of a model with the examples of several requests: while a call runs, requests wait and become the next one."""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple

import numpy as np

from hetero_tf.export.serve import rest


class Waiting(NamedTuple):
    """A request, and the future of its outputs."""

    request: rest.Prediction
    outputs: asyncio.Future


class Batches:
    """Predictions of requests that arrive at the same time. All methods run in the thread of the event loop."""

    def __init__(self, pool: Executor, examples: int):
        """Create the batches.

        Args:
            pool: Computes the calls.
            examples: Most examples of requests that share a call; 1 for a call for each request.
        """
        self.pool, self.examples = pool, examples
        self.running: set[Hashable] = set()
        self.waiting: dict[Hashable, list[Waiting]] = {}

    async def predict(
        self, version: Hashable, signatures: Mapping, request: rest.Prediction, is_cancelled: Callable[[], bool]
    ) -> dict[str, np.ndarray]:
        """Return the outputs of a request; see `rest.predict` for errors.

        Args:
            version: Names the model of the signatures.
        """
        if request.examples >= self.examples or not rest.has_independent_rows(signatures, request):
            work = partial(rest.predict, signatures, request, is_cancelled)
            return await asyncio.get_running_loop().run_in_executor(self.pool, work)
        shapes = tuple((name, array.shape[1:]) for name, array in sorted(request.arrays.items()))
        key = (version, request.name, shapes)
        waiting = Waiting(request, asyncio.get_running_loop().create_future())
        self.waiting.setdefault(key, []).append(waiting)
        self._start(key, signatures)
        return await waiting.outputs

    def _start(self, key, signatures):
        """Call the model with the requests that wait, unless a call runs."""
        if key in self.running:
            return
        # A request whose client has gone needs no outputs.
        queue = [each for each in self.waiting.pop(key, ()) if not each.outputs.done()]
        ends = np.cumsum([each.request.examples for each in queue])
        count = max(int(np.searchsorted(ends, self.examples, "right")), 1)
        if queue[count:]:
            self.waiting[key] = queue[count:]
        if queue:
            self.running.add(key)
            asyncio.get_running_loop().create_task(self._call(key, signatures, queue[:count]))

    async def _call(self, key, signatures, batch):
        requests = [each.request for each in batch]
        try:
            results = await asyncio.get_running_loop().run_in_executor(
                self.pool, predict_together, signatures, requests
            )
        except Exception as error:
            results = [error] * len(batch)
        self.running.remove(key)
        for waiting, result in zip(batch, results):
            if waiting.outputs.done():
                continue
            if isinstance(result, Exception):
                waiting.outputs.set_exception(result)
            else:
                waiting.outputs.set_result(result)
        self._start(key, signatures)


def predict_together(signatures: Mapping, requests: list[rest.Prediction]) -> list[dict[str, np.ndarray] | Exception]:
    """Return the outputs or the error of each request, by one call if the model rejects none of them.

    Args:
        requests: Of one signature, with equal shapes of an example.
    """
    first = requests[0]
    arrays = {name: np.concatenate([each.arrays[name] for each in requests]) for name in first.arrays}
    try:
        outputs = rest.predict(signatures, rest.Prediction(first.name, arrays, first.by_row), lambda: False)
    except Exception as error:
        if len(requests) == 1:
            return [error]
        return [result for each in requests for result in predict_together(signatures, [each])]
    ends = np.cumsum([each.examples for each in requests])[:-1]
    parts = {name: np.split(values, ends) for name, values in outputs.items()}
    return [{name: values[index] for name, values in parts.items()} for index in range(len(requests))]
