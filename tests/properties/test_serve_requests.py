"""Random requests to `serve`: no internal error, /livez responds after each, and the memory stays bounded.

schemathesis sends requests that follow, or break, the document /openapi.json; the others are no JSON, or no HTTP.
"""

import contextlib
import http.client
import json
import re
import signal
import socket
from pathlib import Path
from urllib.parse import quote

import numpy as np
import programs
import pytest
import schemathesis
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import positive_data_acceptance

pytestmark = pytest.mark.long

SLOW = settings(max_examples=max(1, settings.default.max_examples // 4))
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)")
# Bytes of memory of a server after any number of requests: TensorFlow itself, and the bodies in flight.
MEMORY = 3 * 2**30
PICTURE = np.zeros((1, 6, 6, 1)).tolist()
BODIES = (
    "[" * 200_000, '{"a":' * 100_000, '{"instances": [' + "0," * 2_000_000 + "0]}", b"\x00", b"\xff\xfe", b"", b"\xef\xbb\xbf{}",
    '{"instances": [1e999]}', '{"instances": [NaN]}', '{"instances": [[[[' + "9" * 400 + "]]]]}", '{"\\ud800": 1}',
    '{"a":1,"a":2,"instances":[0]}', '{"instances": [{"b64": "' + "A" * 99 + '"}]}', '{"signature_name": "\\ud800", "instances": [1]}',
)  # fmt: skip
RAW = (
    b"", b"\r\n" * 500, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300), b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: 9\r\n\r\n12345", b"G" * 200_000,
    b"POST /v1/models/a:predict HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n\r\n",
)  # fmt: skip


class Server:
    def __init__(self, folder):
        self.run = programs.shared().start("serve", "--out", folder, "--port", 0)
        assert self.run.until(lambda: ADDRESS.search(self.run.out)), self.run.err
        self.port = int(ADDRESS.search(self.run.out)[1])

    def request(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body)
            response = connection.getresponse()
            return response.status, response.read()

    def check(self, status=None):
        """The response was no internal error, and the server still responds."""
        assert status is None or status < 500 or status == 503
        assert self.request("GET", "/livez")[0] == 200


@pytest.fixture(scope="module")
def server(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports")
    world.run("export", "--run_dir", world.undisturbed("heterofl")[0], "--level", "all", "--out", folder, codes=(0,))
    running = Server(folder)
    yield running
    assert running.run.alive(), running.run.err
    assert 1024 * int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{running.run.pid}/status").read_text())[1]) < MEMORY
    code, body = running.request("POST", "/v1/models/a:predict", json.dumps({"instances": PICTURE}))
    assert code == 200 and np.isfinite(json.loads(body)["predictions"][0]["logits"]).all()
    running.run.kill(signal.SIGTERM).wait()
    assert not re.search("Traceback|Error:|defect", running.run.out + running.run.err), running.run.err


def call_and_validate(case):
    # The document does not state the shapes of a model, so the server may reject bodies that follow it.
    case.call_and_validate(excluded_checks=[positive_data_acceptance])


def test_requests_of_the_documented_api_get_documented_responses(server):
    document = schemathesis.openapi.from_url(f"http://127.0.0.1:{server.port}/openapi.json")
    operations = [result.ok() for result in document.get_all_operations()]
    assert len(operations) > 3
    for operation in operations:
        SLOW(for_all(operation.as_strategy())(call_and_validate))()


@SLOW
@for_all(
    st.one_of(
        st.sampled_from(BODIES),
        st.binary(max_size=300),
        st.recursive(
            st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), st.text()),
            lambda inner: st.one_of(
                st.lists(inner),
                st.dictionaries(st.sampled_from(("instances", "inputs", "signature_name", "b64")), inner),
            ),
        ).map(json.dumps),
    )
)
def test_any_body_gets_a_response(server, body):
    server.check(server.request("POST", "/v1/models/a:predict", body)[0])


@SLOW
@for_all(
    st.sampled_from(("GET", "POST", "PUT", "HEAD")),
    st.one_of(
        st.text().map(quote), st.sampled_from(("a/versions/" + "9" * 5000, "../../etc/passwd", "%ff%fe", "x" * 60_000))
    ),
)
def test_any_path_gets_a_response(server, method, path):
    server.check(server.request(method, f"/v1/models/{path}")[0])


@SLOW
@for_all(st.one_of(st.sampled_from(RAW), st.binary(max_size=300)), st.booleans())
def test_bytes_that_are_no_request_and_clients_that_leave_do_not_end_the_server(server, data, is_reset):
    with socket.create_connection(("127.0.0.1", server.port), 60) as connection, contextlib.suppress(OSError):
        connection.sendall(data)
        if is_reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    server.check()
