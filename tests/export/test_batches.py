"""Requests that arrive while a model computes share its next call."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.export.serve import batches, rest
from hetero_tf.export.serve.rest import BadRequest, Prediction

PAIRS, WORDS = tf.TensorSpec([None, 2]), tf.TensorSpec([None, None])


class Signature:
    """A signature that doubles numbers, rejects negative ones, and waits until it may compute."""

    def __init__(self, outputs=PAIRS):
        self.examples, self.open, self.called = [], threading.Event(), threading.Event()
        self.structured_input_signature, self.structured_outputs = ((), {"x": outputs}), {"y": outputs}

    def __call__(self, x):
        self.examples.append(len(x))
        self.called.set()
        assert self.open.wait(10)
        if np.any(x < 0):
            raise ValueError("numbers must not be negative")
        return {"y": 2 * x}


def request(*rows):
    return Prediction("s", {"x": np.array(rows, np.float32)}, True)


def run(signature, requests, *, cancel=(), examples=8):
    """The outputs or errors of requests; the first one computes while the others arrive."""

    async def all_requests():
        with ThreadPoolExecutor(2) as pool:
            shared = batches.Batches(pool, examples)

            def start(each):
                return asyncio.create_task(shared.predict("v", {"s": signature}, each, lambda: False))

            tasks = [start(requests[0])]
            await asyncio.to_thread(signature.called.wait, 10)
            tasks += map(start, requests[1:])
            await asyncio.sleep(0)
            for index in cancel:
                tasks[index].cancel()
            signature.open.set()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        assert not shared.waiting and not shared.running
        return results

    return asyncio.run(all_requests())


def values(results):
    return [result["y"].tolist() for result in results]


def test_waiting_requests_share_a_call_and_get_their_rows():
    signature = Signature()
    results = run(signature, [request([1, 2]), request([3, 4]), request([5, 6], [7, 8]), request([9, 0])])
    assert values(results) == [[[2, 4]], [[6, 8]], [[10, 12], [14, 16]], [[18, 0]]]
    assert signature.examples == [1, 4]


@pytest.mark.parametrize("examples, expected", [(1, [1, 1, 1, 1]), (2, [1, 2, 1]), (3, [1, 3])])
def test_a_call_has_at_most_the_examples_of_a_batch(examples, expected):
    signature = Signature()
    results = run(signature, [request([i, i]) for i in range(4)], examples=examples)
    assert values(results) == [[[2 * i, 2 * i]] for i in range(4)] and signature.examples == expected


def test_a_rejected_request_fails_alone():
    good, bad, other = run(Signature(), [request([1, 1]), request([-1, 0]), request([2, 2])])
    assert isinstance(bad, BadRequest) and "must not be negative" in str(bad)
    assert values([good, other]) == [[[2, 2]], [[4, 4]]]


def test_a_client_that_has_gone_is_not_computed():
    signature = Signature()
    first, gone, last = run(signature, [request([1, 1]), request([2, 2]), request([3, 3])], cancel=[1])
    assert isinstance(gone, asyncio.CancelledError) and values([first, last]) == [[[2, 2]], [[6, 6]]]
    assert signature.examples == [1, 1]


def test_examples_of_other_shapes_and_padded_ones_have_separate_calls():
    """Sentences are padded to the longest of a call, which may change outputs of the others."""
    signature = Signature(WORDS)
    results = run(signature, [request([1]), request([2]), request([3, 4])])
    assert values(results) == [[[2]], [[4]], [[6, 8]]] and signature.examples == [1, 1, 1]


def test_outputs_of_a_model_are_those_of_single_calls(tmp_path):
    """Up to the rounding of products of other sizes."""
    rng = np.random.default_rng(0)
    kernel = tf.constant(rng.normal(size=(50, 30)), tf.float32)
    function = tf.function(lambda x: {"y": tf.nn.softmax(x @ kernel)})
    module = tf.Module()
    module.function = function
    tf.saved_model.save(module, tmp_path, {"s": function.get_concrete_function(tf.TensorSpec([None, 50], name="x"))})
    signatures = tf.saved_model.load(tmp_path).signatures
    requests = [Prediction("s", {"x": rng.normal(size=(count, 50)).astype("f")}, True) for count in (1, 3, 2)]
    together = batches.predict_together(signatures, requests)
    for each, outputs in zip(requests, together):
        alone = rest.predict(signatures, each, lambda: False)
        np.testing.assert_allclose(outputs["y"], alone["y"], rtol=1e-5)
