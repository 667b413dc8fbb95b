"""Requests and responses as JSON, and their limits."""

import asyncio
import json
import shutil
import socket
import struct
import subprocess
import sys
import time
import zlib
from concurrent.futures import CancelledError
from types import SimpleNamespace

import exports
import hostile_requests
import numpy as np
import pytest
import tensorflow as tf
from folders import png

from hetero_tf.base import picture_decoding
from hetero_tf.data.codecs import Field, category, number
from hetero_tf.export.serve import app as serve_app
from hetero_tf.export.serve import rest, run
from hetero_tf.export.serve.app import App
from hetero_tf.export.serve.loading import Serving, Version, VersionPolicy, table_columns
from hetero_tf.export.serve.rest import BadRequest
from hetero_tf.export.serve.run import ServerOptions
from hetero_tf.export.task import ExportTask, max_words

PAIRS, TEXTS, NUMBERS = tf.TensorSpec([None, 2]), tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.float64)


class Signature:
    """A signature of a SavedModel, which counts the examples of its calls."""

    def __init__(self, function, outputs, **inputs):
        self.function, self.examples, self.seconds = function, [], 0.0
        self.structured_input_signature, self.structured_outputs = ((), inputs), outputs

    def __call__(self, **inputs):
        self.examples.append(len(next(iter(inputs.values()))))
        time.sleep(self.seconds)
        return self.function(**inputs)


def doubled():
    """Signatures of a model that doubles numbers."""
    return {"serving_default": Signature(lambda x: {"y": 2 * x}, {"y": PAIRS}, x=PAIRS)}


@pytest.fixture
def serving(tmp_path):
    serving = Serving(tmp_path, VersionPolicy(2))
    serving._loaded["a"] = {1: Version("a", 1, {}, SimpleNamespace(signatures=doubled()))}
    return serving


@pytest.fixture
def app(serving):
    options = ServerOptions("10.1.2.3", 8501, 1, allow_hosts=("Model.example.org", "[2001:db8::7]"))
    return App(serving, 1, options.trusted_hosts(), print, 256)


GOOD = b'{"instances": [[1, 2]]}'


def call(app, *parts, method="POST", path="/v1/models/a:predict", end="done", **headers):
    """Send parts of a body to an application; `end`: "more" never sends the rest, "gone" disconnects, "done" ends.

    Returns:
        Status and JSON of the response.
    """
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    last = {"gone": {"type": "http.disconnect"}, "done": {"type": "http.request", "body": b"", "more_body": False}}
    messages += [last[end]] if end in last else []
    sent = []

    async def receive():
        return messages.pop(0) if messages else await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "method": method, "path": path, "scheme": "http", "server": ("10.1.2.3", 8501),
        "query_string": b"",
        "headers": [
            (name.replace("_", "-").encode(), value.encode()) for name, value in ({"host": "localhost"} | headers).items()
        ],
    }  # fmt: skip
    asyncio.run(asyncio.wait_for(app(scope, receive, send), 60))
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], json.loads(body) if body.startswith(b"{") else body.decode()


def test_only_requests_that_name_this_server_are_computed(app):
    accepted = ("127.0.0.1:8501", "LOCALHOST:8501", "[::1]:8501", "10.1.2.3:8501", "Model.Example.ORG", "[2001:db8::7]")
    rejected = ("evil.example:8501", "127.0.0.1.evil.example", "user@127.0.0.1", "10.1.2.4", "")
    expected = dict.fromkeys(accepted, 200) | dict.fromkeys(rejected, 400)
    assert {host: call(app, GOOD, host=host, x_forwarded_host="localhost")[0] for host in expected} == expected
    assert app.serving.versions("a")[1].model.signatures["serving_default"].examples == [1] * len(accepted)


def test_a_server_on_all_addresses_accepts_those_of_its_machine(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "pod-1")
    monkeypatch.setattr("socket.gethostbyname_ex", lambda name: (name, [], ["10.0.0.7"]))
    assert {"pod-1", "10.0.0.7", "localhost"} <= set(ServerOptions("0.0.0.0", 0, 1).trusted_hosts())
    assert "10.0.0.7" not in ServerOptions("127.0.0.1", 0, 1).trusted_hosts()


def test_responses_are_not_delayed():
    with run._listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_response_has_the_values_and_null_for_others():
    outputs = {
        "logits": np.array([[[1.5, np.nan], [np.inf, -1]]] * 3, np.float32),
        "class": np.arange(3),
        "name": np.array([b"a", b"\xff", b'"'], object),
    }
    logits = [[[1.5, None], [None, -1.0]]] * 3
    rows = [{"logits": row, "class": i, "name": 'a�"'[i]} for i, row in enumerate(logits)]
    columns = {name: [row[name] for row in rows] for name in outputs}

    def encoded(outputs, is_by_row):
        return json.loads(rest.encode(outputs, is_by_row))

    assert encoded(outputs, True) == {"predictions": rows} and encoded(outputs, False) == {"outputs": columns}
    for name, value in outputs.items():
        assert encoded({name: value}, True) == {"predictions": columns[name]}
        assert encoded({name: value}, False) == {"outputs": columns[name]}
    assert encoded({"scalar": np.array(np.float32(np.nan))}, False) == {"outputs": None}
    assert encoded({name: value[:0] for name, value in outputs.items()}, True) == {"predictions": []}


def test_many_examples_are_computed_in_chunks(monkeypatch):
    signatures = doubled()
    body = json.dumps({"instances": [[i, 1] for i in range(600)]}).encode()
    rows = json.loads(rest.respond(signatures, body, lambda: False))["predictions"]
    assert rows == [[2 * i, 2] for i in range(600)] and signatures["serving_default"].examples == [256, 256, 88]
    turns = iter((False, True))
    with pytest.raises(CancelledError):
        rest.respond(signatures, body, lambda: next(turns))
    assert signatures["serving_default"].examples[3:] == [256]
    monkeypatch.setattr(rest, "MAX_VALUES", 1199)
    with pytest.raises(BadRequest, match="would have 1200 values, but at most 1199 are allowed; send fewer examples"):
        rest.respond(signatures, body, lambda: False)


def test_bodies_have_limits_of_size_time_and_memory(app, monkeypatch):
    for name, value in (("MAX_BODY", 2**17), ("MAX_BODIES", 2**17 - 2**10), ("MAX_SECONDS", 0.2)):
        monkeypatch.setattr(serve_app, name, value)
    assert call(app, GOOD) == (200, {"predictions": [[2.0, 4.0]]})
    assert call(app, GOOD, end="more") == (408, {"error": "the body did not arrive in time"})
    assert call(app, *[b" " * 2**15] * 4) == (503, {"error": "too many large requests at the same time; try again"})
    monkeypatch.setattr(serve_app, "MAX_BODIES", 2**20)
    assert call(app, *[b" " * 2**17] * 4) == (413, {"error": "the body must have at most 131072 bytes"})
    app.serving.versions("a")[1].model.signatures["serving_default"].seconds = 0.5
    assert call(app, GOOD) == (503, {"error": "no response within 0.2 seconds; send fewer examples at a time"})
    # A client that disconnects is not a server error.
    assert call(app, b"{", end="gone") == (499, "")
    text = call(app, method="GET", path="/metrics")[1]
    assert 'hetero_tf_requests_total{endpoint="predict",level="a",status="408"} 1' in text
    assert 'hetero_tf_predict_seconds_bucket{le="60.0",level="a"} 6' in text
    assert app.body_bytes == 0 and "hetero_tf_requests_in_progress 1.0" in text


def test_an_error_of_the_program_is_a_response(app, monkeypatch):
    monkeypatch.setattr(rest, "encode", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        call(app, GOOD)
    assert 'endpoint="predict",level="a",status="500"} 1' in call(app, method="GET", path="/metrics")[1]


def test_unknown_methods_paths_and_examples(app):
    assert call(app, method="HEAD", path="/v1/models/a")[0] == 200
    for method, status in (("OPTIONS", 405), ("DELETE", 405), ("GET", 404)):
        assert call(app, method=method)[0] == status
    assert call(app, method="GET", path="/nosuch") == (404, {"error": "GET '/nosuch': not found; see /v1/models"})
    manifest = {"signatures": {"scores": {}}, "input": {}}
    app.serving._loaded["a"] = {1: Version("a", 1, manifest, SimpleNamespace(signatures=doubled()))}
    status, body = call(app, method="GET", path="/v1/models/a/example")
    assert status == 404 and body["error"] == ("level a, version 1: an example is known for exports of hetero_tf only")


def test_probes_and_metrics_follow_the_versions(app):
    assert call(app, method="GET", path="/livez") == call(app, method="GET", path="/readyz") == (200, "ok\n")
    assert 'version_available{level="a",version="1"} 1' in call(app, method="GET", path="/metrics")[1]
    app.serving._loaded.clear()
    assert call(app, method="GET", path="/readyz") == (503, {"error": "no level is served yet"})
    assert call(app, method="GET", path="/livez") == (200, "ok\n")
    # Unknown level names create no time series.
    assert call(app, b"{}", path="/v1/models/nosuch:predict")[0] == 404
    metrics = call(app, method="GET", path="/metrics")[1]
    assert "nosuch" not in metrics and 'version_available{level="a"' not in metrics


@pytest.mark.parametrize("is_known", [True, False])
def test_rows_of_a_table_are_typed_by_its_columns(app, is_known):
    rows = Signature(lambda colour, age: {"ages": age}, {"ages": NUMBERS}, colour=TEXTS, age=NUMBERS)
    model = SimpleNamespace(signatures={"serving_default": rows})
    fields = Field("colour", category.Codec(("blue", "red"))), Field("age", number.Codec(fill=3.0))
    # The columns of a version of another program are unknown.
    spec = {"fields": json.loads(json.dumps([field.describe() for field in fields]))} if is_known else None
    app.serving._loaded["a"] = {1: Version("a", 1, {}, model, table_columns({"input": spec}))}

    def predict(rows):
        return call(app, json.dumps({"instances": rows}).encode())

    assert predict([{"colour": "red", "age": 1.5}]) == (200, {"predictions": [1.5]})
    if is_known:
        assert predict([["red", "2"], ["blue", None]]) == (200, {"predictions": [2.0, None]})
        problem = "instance 0: column 'colour' must be one of blue, red. Received: 'bleu'; did you mean 'blue'?"
        assert predict([["bleu", 1]]) == (400, {"error": problem})
    else:
        assert predict([["red", 2]]) == (400, {"error": "instances must name age and colour. Received: nothing"})


VERSIONS = {"images": exports.images, "text": exports.text}


def pictures(*contents):
    return np.array([*contents, b""], object)[:-1]


def pixels(*values):
    return np.stack([np.full((8, 8, 1), value, np.float32) for value in values])


JPEG = tf.io.encode_jpeg(np.zeros((7000, 5000, 1), np.uint8)).numpy()
BMP = b"BM" + bytes(16) + struct.pack("<ii", 10**5, -(10**5)) + bytes(28)
# Signature, request, and expected outputs or part of the expected error.
REQUESTS = {
    "images": [
        ("serving_default", np.zeros((8, 8), np.float32), "[8,8] is not compatible with expected shape [?,8,8,1]"),
        ("serving_default", np.zeros((1, 8, 8, 1, 1), np.float32), "is not compatible with expected shape"),
        ("serving_default", np.zeros((1, 9, 8, 1), np.float32), "is not compatible with expected shape"),
        ("serving_default", np.float32(0), "[] is not compatible with expected shape"),
        ("serving_default", np.zeros((0, 8, 8, 1), np.float32), {"class": "[]"}),
        ("serving_default", np.zeros((10**6, 8, 8, 1), np.float32), "at most 524288 images. Received:] [1000000]"),
        ("serving_default", pixels(np.nan, np.inf, 3e38), {"class": str([-1] * 3), "logits": str([[np.nan] * 10] * 3)}),
        ("serve_bytes", pictures(), {"class": "[]", "class_name": "[]"}),
        ("serve_bytes", pictures(b"x").reshape(1, 1), "is not compatible with expected shape [?]"),
        ("serve_bytes", pictures(png(2**31 - 1, 2**31 - 1)), {"class": "[-1]", "class_name": "[b'']"}),
        ("serve_bytes", pictures(png(12000, 12000), JPEG, BMP), {"class": "[-1, -1, -1]"}),
        ("serve_bytes", pictures(b"GIF89a" + bytes(40), b"", b"B"), {"class": "[-1, -1, -1]"}),
        ("serve_bytes", pictures(png(8, 8)[:18], png(8, 8)[:9], b"BM\xff"), {"class": "[-1, -1, -1]"}),
        ("serve_bytes", pictures(png(8, 8)[:30], JPEG[:20], JPEG[:3000]), {"class": "[-1, -1, -1]"}),
        ("serve_bytes", pictures(png(0, 8), png(8, 0), b"BM" + bytes(60)), {"class": "[-1, -1, -1]"}),
    ],
    "text": [
        ("serving_default", np.zeros(5, np.int32), "[5] is not compatible with expected shape [?,?]"),
        ("serving_default", np.zeros((1, 5, 2), np.int32), "is not compatible with expected shape"),
        ("serving_default", np.zeros((0, 5), np.int32), {"logits": "[]"}),
        ("serving_default", np.zeros((7, 10**4), np.int32), "at most 65536 words"),
        ("serving_default", np.array([[51], [-1]], np.int32), {"logits": str([[[np.nan] * 50]] * 2)}),
        ("serve_text", pictures(b"a").reshape(1, 1), "is not compatible with expected shape [?]"),
        ("serve_text", pictures(), {"topk_tokens": "[]", "lengths": "[]"}),
        ("serve_text", pictures(b"a " * 70_000), "[texts and words of the longest] [1 70000]"),
        ("serve_text", pictures(b"a " * 400, *[b""] * 200), "[texts and words of the longest] [201 400]"),
        ("serve_text", pictures(b"\xff\xfe <mask>"), {"token_ids": "[[0, 50]]", "lengths": "[2]"}),
    ],
}


@pytest.fixture(scope="module")
def signatures():
    """The signatures of an export of images."""
    loaded = tf.saved_model.load(str(exports.images().folder))
    # The signatures do not keep the variables alive.
    yield loaded.signatures
    del loaded


LONG = {"text": pytest.mark.long}


@pytest.fixture(scope="module", params=[pytest.param(name, marks=LONG.get(name, ())) for name in VERSIONS])
def requests_and_responses(request, tmp_path_factory):
    """`(requests, responses)` of an export whose placeholders accept any shape, so that the graph must reject them."""
    folder, requests = tmp_path_factory.mktemp("export"), REQUESTS[request.param]
    model = shutil.copytree(VERSIONS[request.param]().folder, folder / "model")
    hostile_requests.loosen(model)
    np.savez(folder / "cases.npz", **{f"{n} {name}": value for n, (name, value, _) in enumerate(requests)})
    command = [sys.executable, hostile_requests.__file__, str(model), str(folder / "cases.npz")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return requests, [json.loads(line) for line in done.stdout.splitlines()]


def test_invalid_request_neither_aborts_the_server_nor_gets_valid_outputs(requests_and_responses):
    requests, responses = requests_and_responses
    for (name, value, expected), actual in zip(requests, responses, strict=True):
        if isinstance(expected, dict):
            assert expected.items() <= actual.items(), (name, value)
        else:
            assert isinstance(actual, str) and expected in actual, (name, value, actual)


def test_damaged_picture_does_not_change_other_outputs(signatures):
    rng, serve = np.random.default_rng(0), signatures["serve_bytes"]
    pixels = rng.integers(0, 256, (40, 40, 3), np.uint8)
    bmp = b"BM" + struct.pack("<IHHIIiiHHIIiiII", 4854, 0, 0, 54, 40, 40, 40, 1, 24, 0, 4800, 0, 0, 0, 0)
    for good in [tf.io.encode_png(pixels).numpy(), tf.io.encode_jpeg(pixels).numpy(), bmp + pixels.tobytes()]:
        truncated = [good[: len(good) * twentieths // 20] for twentieths in range(20)]
        flips = [
            (at := rng.integers(len(good))) and good[:at] + bytes([good[at] ^ 255]) + good[at + 1 :] for _ in truncated
        ]
        outputs = serve(tf.constant([good, *truncated, *flips, good]))
        intact = serve(tf.constant([good] * (len(truncated) + len(flips) + 2)))
        for name in ("logits", "class"):
            np.testing.assert_array_equal(outputs[name][0], intact[name][0])
            np.testing.assert_array_equal(outputs[name][-1], intact[name][-1])
        assert outputs["class"][1:21].numpy().tolist() == [-1] * 20
        assert np.isnan(outputs["logits"][1:21]).all()


def test_picture_at_the_size_limit_is_decoded():
    pixels = picture_decoding.decode(tf.constant(png(8192, 4096, zlib.compress(bytes(8193 * 4096), 1))), (8, 8, 1))
    assert picture_decoding.LARGEST_PICTURE == 8192 * 4096 and not np.any(pixels)
    process = exports.process(*exports.IMAGES)
    export_limits = ExportTask(process, process.family.predictor("a")).limits
    assert export_limits == {"images": 524288, "pixels_of_a_picture": 2**25}
    assert max_words(33_279) == 2**28 // 33_279
