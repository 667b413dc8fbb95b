"""Requests to `serve`: allowed hosts, parsing, limits, and metrics."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from dataclasses import astuple

import numpy as np
import pytest
import uvicorn
from refusals import refusal
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from hetero_tf.data.columns import Column
from hetero_tf.export.serve import request_json, rest, run
from hetero_tf.export.serve.app import App, Limits
from hetero_tf.export.serve.connections import ConnectionLimits, LimitedConnection, LimitedServer
from hetero_tf.export.serve.hosts import HostPolicy, parse_allowed_hosts
from hetero_tf.export.serve.loading import Version
from hetero_tf.export.serve.prometheus import RequestMetrics
from hetero_tf.export.serve.request_json import BadRequest, Cancelled
from hetero_tf.export.serve.serving import Serving
from hetero_tf.export.serve.work import Busy, MemoryBudget, Reservation


def scope(method="GET", path="/v1/models", **headers):
    """Return an ASGI scope of a request to 10.1.2.3:8501."""
    return {
        "type": "http", "method": method, "path": path, "scheme": "http", "server": ("10.1.2.3", 8501), "query_string": b"",
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip


POLICY = HostPolicy("0.0.0.0", parse_allowed_hosts(["model.example.org", "other.example.org:8443", "2001:db8::7"]))
ACCEPTED = (
    {"host": "127.0.0.1:8501"}, {"host": "LOCALHOST:8501"}, {"host": "localhost."}, {"host": "[::1]:8501"},
    {"host": "[0:0:0:0:0:0:0:1]"}, {"host": "10.1.2.3:8501"}, {"host": "Model.Example.ORG."},
    {"host": "[2001:DB8::7]"},
    {"host": "localhost:8501", "x_forwarded_host": "evil.example"},
    {"host": "localhost:8501", "origin": "http://localhost:8501", "sec_fetch_site": "same-origin"},
    {"host": "localhost:9000", "origin": "http://127.0.0.1:9000"},
    {"host": "model.example.org", "origin": "https://model.example.org"},
    # A proxy may set Host to its address.
    {"host": "127.0.0.1:8501", "origin": "https://model.example.org"},
    {"host": "127.0.0.1:8501", "origin": "https://other.example.org:8443"},
    {"host": "localhost", "path": "http://localhost/v1/models"},
    # A link on another site that a user follows.
    {"host": "localhost", "sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"},
)  # fmt: skip
REJECTED = (
    {"host": "evil.example"}, {"host": "evil.example:8501"}, {"host": "127.0.0.1.evil.example"},
    {"host": "evil.example", "x_forwarded_host": "localhost"},
    {"host": "user@127.0.0.1"}, {"host": "127.0.0.1, evil.example"}, {"host": "10.1.2.4"}, {"host": "2130706433"},
    {"host": ""}, {},
    {"host": "localhost", "path": "http://evil.example/v1/models"},
    {"host": "evil.example", "path": "http://localhost/v1/models"},
    {"host": "localhost:8501", "origin": "null"},
    {"host": "localhost:8501", "origin": "http://evil.example"},
    {"host": "localhost:8501", "origin": "http://localhost:9000"},
    {"host": "localhost:8501", "origin": "https://localhost:8501"},
    {"host": "localhost:8501", "origin": "http://localhost:8501.evil.example"},
    {"host": "127.0.0.1:8501", "origin": "https://model.example.org:9000"},
    {"host": "localhost", "method": "POST", "sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"},
    {"host": "localhost", "method": "POST", "sec_fetch_site": "same-site"},
)  # fmt: skip


@pytest.mark.parametrize("headers", ACCEPTED, ids=str)
def test_requests_for_this_server_are_accepted(headers):
    assert POLICY.check(scope(**headers)) is None


@pytest.mark.parametrize("headers", REJECTED, ids=str)
def test_requests_of_other_sites_are_rejected(headers):
    status, message = POLICY.check(scope(**headers))
    assert status in (400, 403) and ("Received: " in message or "--allow_host" in message)


def test_allowed_hosts_are_names_or_addresses():
    for value in ("http://a.example", "a b", "*.example.org", ""):
        assert refusal(parse_allowed_hosts, [value]).startswith("--allow_host must be a host name or address")


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(request_json, "PIECE", 24)


VALUES = (
    [[1, 2], [3, 4]], [[0.5] * 40] * 9, [[[1]] * 3] * 30, ["a", 'b"],', "\\", "ü😀"] * 9, [{"b64": "QUJD" * 20}] * 5,
    [{"image": [[1, 2.5]] * 9}] * 5, list(range(50)), [True, False] * 20, [[]] * 40, [], "x" * 90,
    {"image": [[1.5, 2]] * 20, "other": [1]},
)  # fmt: skip


def as_lists(value):
    """Return a parsed value with arrays converted to lists."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: as_lists(one) for key, one in value.items()}
    return [as_lists(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("value", VALUES, ids=lambda value: str(value)[:20])
def test_body_parsed_in_pieces_is_unchanged(small_pieces, value, indent):
    body = {"signature_name": "serving_default", "instances": value}
    for separators in ((",", ":"), (", ", ": "), (" , ", " : ")):
        text = json.dumps(body, indent=indent, separators=separators).encode()
        assert as_lists(request_json.parse(text, lambda: False)) == body


@pytest.mark.parametrize(
    "text, message",
    [
        ('{"a": [%s 1]' % ("1," * 50), "Expecting ',' delimiter"),
        ('{"a": [%s]}' % ("1," * 50), "the body is not JSON: Expecting value"),
        ('{"a": [%s 1]} x' % ("1," * 50), "Extra data"),
        ('{"a": 1, %s "a": 2}' % (" " * 50), "a key appears twice"),
        ('{"a": [%s NaN]}' % ("1," * 50), "NaN is not a number"),
        ('{"a": [%s]}' % ("1," * 50 + "9" * 5000), "an integer with too many digits"),
        ('{"a": [%s 9999999999999999999999]}' % ("1," * 50), "a list cannot become a tensor: Python int too large"),
        ('{"a": [%s [1]]}' % ("[1,2]," * 20), "lists on the same level must have the same length"),
        ('{"a": [%s "x"]}' % ("1," * 50), "a list must not mix numbers with strings or objects"),
        ("[" * 100, "nested deeper than 32"),
        ("[" * 100_000, "nested"),
        ('{"a" %s 1}' % (" " * 50), "Expecting ':' delimiter"),
        ("{%s a}" % (" " * 50), "Expecting property name"),
    ],
)  # fmt: skip
def test_invalid_json_in_pieces_is_reported(small_pieces, text, message):
    with pytest.raises(BadRequest, match=message):
        request_json.parse(text.encode(), lambda: False)


def test_parsing_a_large_body_can_be_cancelled(monkeypatch):
    body = json.dumps({"instances": np.zeros((60, 60, 60)).tolist()}).encode()
    turns = iter(range(10**6))
    value = request_json.parse(body, lambda: next(turns) < 0)["instances"]
    assert value.shape == (60, 60, 60) and next(turns) > len(body) // request_json.PIECE // 2
    with pytest.raises(Cancelled):
        request_json.parse(body, lambda: next(turns) > 0)
    monkeypatch.setattr(request_json, "MAX_OBJECTS", 1000)
    with pytest.raises(BadRequest, match="at most 1000 strings and objects"):
        request_json.parse(b'{"instances": [' + b'"a",' * 50_000 + b'"a"]}', lambda: False)


@pytest.mark.parametrize("size", [1, 7, 5000])
def test_response_rendered_in_pieces_is_unchanged(monkeypatch, size):
    monkeypatch.setattr(rest, "VALUES_AT_ONCE", size)
    outputs = {
        "logits": np.array([[[1.5, np.nan], [np.inf, -1]]] * 3),
        "class": np.arange(3),
        "name": np.array([b"a", b"\xff", b'"'], object),
    }
    logits = [[[1.5, None], [None, -1.0]]] * 3
    rows = [{"logits": row, "class": i, "name": 'a�"'[i]} for i, row in enumerate(logits)]
    assert json.loads("".join(rest._rendered_rows(outputs))) == {"predictions": rows}
    assert json.loads("".join(rest._rendered_rows({"logits": outputs["logits"]}))) == {"predictions": logits}
    assert json.loads("".join(rest._rendered_columns(outputs)))["outputs"]["logits"] == logits
    empty = {name: value[:0] for name, value in outputs.items()}
    assert json.loads("".join(rest._rendered_rows(empty))) == {"predictions": []}


class Doubled:
    """A signature that doubles float32 [any, 2], and counts the examples of its calls."""

    def __init__(self):
        import tensorflow as tf

        self.structured_input_signature = ((), {"x": tf.TensorSpec([None, 2], tf.float32)})
        self.structured_outputs = {"y": tf.TensorSpec([None, 2], tf.float32)}
        self.examples = []

    def __call__(self, x):
        self.examples.append(len(x))
        return {"y": 2 * x}


def test_many_examples_are_computed_in_chunks():
    signature = Doubled()
    body = json.dumps({"instances": [[i, 1] for i in range(600)]}).encode()
    rows = json.loads(rest.respond({"serving_default": signature}, body, lambda: False))["predictions"]
    assert rows == [[2 * i, 2] for i in range(600)] and signature.examples == [256, 256, 88]
    with pytest.raises(BadRequest, match=r"inputs must be x\. Received: z"):
        rest.respond({"serving_default": signature}, b'{"instances": [{"z": 1}]}', lambda: False)


class Model:
    """A SavedModel with one signature."""

    def __init__(self):
        self.signatures = {"serving_default": Doubled()}


@pytest.fixture
def serving(tmp_path):
    serving = Serving(tmp_path)
    serving._loaded["a"] = {1: Version("a", 1, {}, Model())}
    return serving


def call(app, *parts, length=None, headers=(), method="POST", path="/v1/models/a:predict", end="more"):
    """Send parts of a body to an application; `end`: "more" never sends the rest, "gone" disconnects, "done" ends.

    Returns:
        Status and JSON of the response.
    """
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    last = {"gone": {"type": "http.disconnect"}, "done": {"type": "http.request", "body": b"", "more_body": False}}
    messages += [last[end]] if end in last else []
    sent = []

    async def receive():
        if messages:
            return messages.pop(0)
        return await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    request_scope = scope(method, path, host="localhost", **dict(headers))
    if length is not None:
        request_scope["headers"].append((b"content-length", str(length).encode()))
    asyncio.run(asyncio.wait_for(app(request_scope, receive, send), 60))
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], json.loads(body) if body.startswith(b"{") else body.decode()


def test_bodies_have_limits_of_size_time_and_memory(serving):
    limits = Limits(body=2**17, bodies=2**15, stalled_seconds=0.05, seconds=5)
    app = App(serving, limits, HostPolicy("127.0.0.1"), print)
    good = b'{"instances": [[1, 2]]}'
    assert call(app, good, end="done") == (200, {"predictions": [[2.0, 4.0]]})
    assert call(app, good) == (408, {"error": "the body did not arrive in time"})
    assert call(app, b" " * 2**16, b" " * 2**15, b" ") == (
        503, {"error": "too many large requests at the same time; try again"}
    )  # fmt: skip
    assert call(app, length=2**40) == (413, {"error": "the body must have at most 131072 bytes"})
    assert call(app, *[b" " * 2**16] * 40)[0] == 503
    assert call(app, good, headers={"content_encoding": "gzip"}, end="done") == (
        415, {"error": "Content-Encoding is not supported; send the body uncompressed. Received: 'gzip'"}
    )  # fmt: skip
    # A client that disconnects is not a server error.
    assert call(app, b"{", end="gone") == (499, "")
    text = call(app, method="GET", path="/metrics")[1]
    assert 'hetero_tf_requests_total{endpoint="predict",level="a",status="408"} 1' in text
    assert "hetero_tf_body_bytes 0" in text and "hetero_tf_requests_in_progress 1" in text


def test_probes_and_metrics_follow_the_versions(serving):
    app = App(serving, Limits(), HostPolicy("127.0.0.1"), print)
    assert call(app, method="GET", path="/livez") == (200, "ok\n")
    assert call(app, method="GET", path="/readyz") == (200, "ok\n")
    assert 'version_available{level="a",version="1"} 1' in call(app, method="GET", path="/metrics")[1]
    assert call(app, method="GET", path="http://localhost/livez") == (200, "ok\n")
    serving._loaded.clear()
    assert call(app, method="GET", path="/readyz") == (503, {"error": "no level is served yet"})
    assert call(app, method="GET", path="/livez") == (200, "ok\n")
    # Unknown level names create no time series.
    assert call(app, b"{}", path="/v1/models/nosuch:predict", end="done")[0] == 404
    assert "nosuch" not in call(app, method="GET", path="/metrics")[1]


def test_a_version_without_a_known_signature_has_no_example(serving):
    app, manifest = App(serving, Limits(), HostPolicy("127.0.0.1"), print), {"signatures": {"scores": {}}, "input": {}}
    serving._loaded["a"] = {1: Version("a", 1, manifest, Model())}
    status, body = call(app, method="GET", path="/v1/models/a/example")
    assert status == 404 and body["error"] == (
        "level a, version 1: an example is known for the signatures serve_bytes, serve_text, serve_rows, "
        "serving_default only. Received: scores"
    )
    assert app.metrics.in_progress == 0


class Rows:
    """A signature of table rows whose graph makes NaN of every row with an invalid text."""

    columns = (Column("size"), Column("colour", ("blue", "red")), Column("age", fill="3"))

    def __init__(self):
        import tensorflow as tf

        self.structured_input_signature = ((), {"rows": tf.TensorSpec([None, 3], tf.string)})
        self.structured_outputs = {"logits": tf.TensorSpec([None, 2], tf.float32)}

    def __call__(self, rows):
        import tensorflow as tf

        is_valid = [row[1] in (b"blue", b"red") and b"," not in row[0] for row in rows.numpy()]
        return {"logits": tf.constant([[1.0, 2.0] if valid else [np.nan, 0.0] for valid in is_valid])}


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (["1.5", "bleu", "4"], "column 'colour' must be one of blue, red. Received: 'bleu'; did you mean 'blue'?"),
        (["1,5", "blue", ""], "column 'size' must be a finite number. Received: '1,5'"),
    ],
)
def test_an_invalid_row_is_refused_with_its_column(serving, row, problem):
    app, model = App(serving, Limits(), HostPolicy("127.0.0.1"), print), Model()
    model.signatures = {"serve_rows": Rows()}
    fields = json.loads(json.dumps([astuple(column) for column in Rows.columns]))
    serving._loaded["a"] = {1: Version("a", 1, {"items": {"columns": fields}}, model)}
    for key in ("instances", "inputs"):
        body = {"signature_name": "serve_rows", key: [["1.5", "red", ""], row]}
        assert call(app, json.dumps(body).encode(), end="done") == (400, {"error": f"rows[1]: {problem}"})
    body = {"signature_name": "serve_rows", "instances": [["1.5", "red", ""]]}
    assert call(app, json.dumps(body).encode(), end="done") == (200, {"predictions": [[1.0, 2.0]]})
    # The columns of a version of another program are unknown.
    serving._loaded["a"] = {1: Version("a", 1, {"items": None}, model)}
    body["instances"] = [row]
    assert call(app, json.dumps(body).encode(), end="done") == (200, {"predictions": [[None, 0.0]]})


def test_histogram_is_cumulative():
    metrics = RequestMetrics()
    for seconds in (0.0001, 0.2, 100):
        metrics.observe("predict", "a", 200, seconds)
    lines = metrics.render([('q"\\\n', 1)], 7, 1.5).splitlines()
    assert 'hetero_tf_predict_seconds_bucket{level="a",le="0.001"} 1' in lines
    assert 'hetero_tf_predict_seconds_bucket{level="a",le="60.0"} 2' in lines
    assert 'hetero_tf_predict_seconds_bucket{level="a",le="+Inf"} 3' in lines
    assert 'hetero_tf_version_available{level="q\\"\\\\\\n",version="1"} 1' in lines


def test_memory_budget_is_shared_and_released():
    budget = MemoryBudget(1000)
    with Reservation(budget) as one, Reservation(budget) as other:
        one.resize(2**16 + 900)
        other.resize(2**16)
        with pytest.raises(Busy):
            other.resize(2**16 + 101)
        one.resize(0)
        other.resize(2**16 + 1000)
    assert budget.used == 0


@pytest.fixture
def limited():
    """The port of a server that allows three connections."""
    app = Starlette(routes=[Route("/", lambda request: PlainTextResponse("x" * 2**24))])
    with serve(app, ConnectionLimits(3, 0.3, 0.3)) as port:
        yield port


@contextlib.contextmanager
def serve(app, limits):
    """Run an application in a thread; yield the port."""
    listener = run._listening("127.0.0.1", 0)

    def connection(**keywords):
        return LimitedConnection(limits=limits, **keywords)

    server = LimitedServer(uvicorn.Config(app, http=connection, loop="asyncio", log_level="error", backlog=2))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join(30)
    assert not thread.is_alive()


GET = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def received(connection):
    """Return all bytes until the server closes the connection."""
    parts = []
    while part := connection.recv(2**16):
        parts.append(part)
    return b"".join(parts)


def test_waiting_connections_are_closed(limited):
    def connect():
        return socket.create_connection(("127.0.0.1", limited), 30)

    idle = [connect() for _ in range(9)]
    with connect() as connection:
        connection.sendall(GET)
        assert received(connection).startswith(b"HTTP/1.1 200")
    # The server closes idle connections, also after half a request.
    with connect() as connection:
        connection.sendall(GET[:20])
        assert received(connection) == b""
    # The server aborts the connection of a client that does not read.
    with connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(GET)
        with connect() as other:
            assert received(other) == b""
        with pytest.raises(ConnectionResetError):
            connection.sendall(b"x")
            received(connection)
    with connect() as connection:
        connection.sendall(b"nonsense\r\n\r\n")
        assert b'{"error": "the request is not valid HTTP/1.1"}' in received(connection)
    for connection in idle:
        connection.close()


PREDICT = b"POST /v1/models/a:predict HTTP/1.1\r\nHost: localhost\r\n"
BODY = b'{"instances": [[1, 2]]}'
LENGTH = b"Content-Length: %d\r\n" % len(BODY)


@pytest.mark.parametrize(
    ("request_bytes", "status", "message"),
    [
        (
            PREDICT + LENGTH + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY),
            400,
            "a request must not have both Content-Length and Transfer-Encoding",
        ),
        (b"GET /livez HTTP/2.0\r\nHost: localhost\r\n\r\n", 505, "the HTTP version must be 1.0 or 1.1. Received: 2.0"),
        (b"GET /livez HTTP/1.2\r\nHost: localhost\r\n\r\n", 505, "the HTTP version must be 1.0 or 1.1. Received: 1.2"),
        (b"PRI * HTTP/2.0\r\n\r\n", 505, "the HTTP version must be 1.0 or 1.1. Received: 2.0"),
    ],
)
def test_ambiguous_framing_closes_the_connection(serving, request_bytes, status, message):
    app = App(serving, Limits(), HostPolicy("127.0.0.1"), print)
    with serve(app, ConnectionLimits()) as port, socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.sendall(request_bytes + b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head, _, body = received(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status) and b"connection: close" in head.lower()
    assert json.loads(body) == {"error": message}


def test_a_client_that_half_closes_gets_its_responses(serving):
    class Slow(Doubled):
        def __call__(self, x):
            time.sleep(0.2)
            return super().__call__(x)

    serving.find("a", 1).model.signatures["serving_default"] = Slow()
    app = App(serving, Limits(), HostPolicy("127.0.0.1"), print)
    with serve(app, ConnectionLimits()) as port:
        for count in (1, 2):
            with socket.create_connection(("127.0.0.1", port), 30) as connection:
                connection.sendall((PREDICT + LENGTH + b"\r\n" + BODY) * count)
                connection.shutdown(socket.SHUT_WR)
                assert received(connection).count(b'{"predictions":[[2.0,4.0]]}') == count
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.sendall(PREDICT + LENGTH + b"\r\n{")
            connection.shutdown(socket.SHUT_WR)
            assert received(connection) == b""
    assert app.metrics.in_progress == 0


def test_responses_are_not_delayed():
    with run._listening("127.0.0.1", 0) as listener:
        # asyncio sets TCP_NODELAY only if the socket has the protocol TCP.
        assert listener.proto == socket.IPPROTO_TCP


def test_connections_reserve_file_descriptors(monkeypatch):
    monkeypatch.setattr("resource.getrlimit", lambda kind: (256, 256))
    assert 0 < ConnectionLimits().within_file_limit().count < 200
