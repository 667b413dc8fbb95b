"""Trials with `serve` over loopback: hostile requests."""

import base64
import contextlib
import http.client
import json
import re
import signal
import socket
from pathlib import Path

import numpy as np

from campaign.world import Failed

# Limit in seconds for any response, on a busy machine.
PATIENCE = 60
# Memory limit of a server after any number of requests: TensorFlow itself, and a budget of bytes in flight.
MEMORY = 3 * 2**30
REQUESTS = 25
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)")
PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b550000000a49444154789c6360000000020001e221bc33"
        "0000000049454e44ae426082"
    )
).decode()


class Server:
    """`serve` of a folder of exports, from `with` to its end.

    Args:
        world: `world.World`.
        folder: FOLDER of FOLDER/<level>/<version>/.
    """

    def __init__(self, world, folder):
        self.world, self.folder = world, folder

    def __enter__(self):
        self.run = self.world.programs.start("serve", "--out", self.folder, "--port", 0, cwd=self.world.here)
        if not self.run.until(lambda: ADDRESS.search(self.run.out), PATIENCE):
            raise Failed(f"does not serve: {self.run.err}")
        self.port = int(ADDRESS.search(self.run.out)[1])
        return self

    def __exit__(self, kind, *_):
        alive = self.run.alive()
        if alive:
            self.run.kill(signal.SIGTERM)
        self.run.wait()
        if kind is None:
            self.check(alive)

    def check(self, alive):
        """Check that the server survived and printed no traceback."""
        log = self.run.out + self.run.err
        if not alive:
            raise Failed(f"the server ended with {self.run.code}: {log[-400:]}")
        if "Traceback" in log or "Error:" in log or "defect" in log:
            raise Failed(f"the log has a traceback: {log[-800:]}")

    def send(self, data, seconds=PATIENCE):
        """Send bytes and return (status, body) of the first response, or (None, b"") if the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), seconds) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(data)
            response = http.client.HTTPResponse(connection)
            try:
                response.begin()
                return response.status, response.read()
            except (http.client.HTTPException, ConnectionError):
                return None, b""

    def request(self, method, path, body=None, headers=()):
        """Send a valid request: (status, JSON of the response)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            return response.status, json.loads(response.read() or b"null")
        finally:
            connection.close()

    def memory(self):
        """Peak memory of the server in bytes."""
        status = (Path("/proc") / str(self.run.pid) / "status").read_text()
        return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1])


def post(body, path="/v1/models/a:predict", host="127.0.0.1", **headers):
    """Bytes of a POST request."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"Host": host, "Content-Length": len(body), "Connection": "close", **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1", "replace") + body


def get(path, host="127.0.0.1", **headers):
    """Bytes of a GET request."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{lines}\r\n".encode("latin-1", "replace")


def nested(rng):
    """Very deep, wide or large JSON."""
    depth, width = rng.choice((100, 5_000, 200_000)), rng.choice((10, 100_000, 2_000_000))
    return rng.choice(
        (
            b"[" * depth,
            b'{"instances": ' + b"[" * depth + b"1" + b"]" * depth + b"}",
            b'{"a": ' * depth + b"1" + b"}" * depth,
            b'{"instances": [' + b"0," * width + b"0]}",
            b'{"instances": [' + b"[]," * width + b"[]]}",
            b'{"instances": "' + b"x" * width + b'"}',
            b'{"instances": [' + b"9" * min(width, 100_000) + b"]}",
            b"{" + b",".join(b'"%d": 1' % n for n in range(min(width, 100_000))) + b"}",
        )
    )


BODIES = (
    {}, [], None, 1, "x", True, {"instances": None}, {"instances": {}}, {"instances": []}, {"instances": [[]]}, {"inputs": []},
    {"instances": [1, "a", None]}, {"instances": [{"b64": "!"}]}, {"instances": [{"b64": 5}]}, {"instances": [{"image": 1}]},
    {"inputs": {"b64": PNG}}, {"signature_name": "image_bytes", "instances": [{"b64": PNG}]},
    {"signature_name": "image_bytes", "instances": [{"b64": PNG[:40]}] * 3},
    {"signature_name": "\ud800", "instances": [1]}, {"\ud800": 1}, {"instances": [{"\ud800": 1}]}, {"inputs": {"\ud800": 1}},
    {"signature_name": [], "instances": [1]}, {"signature_name": "x" * 10**5, "instances": [1]}, {"instances": [1], "inputs": [1]},
    {"instances": [[[["\ud800"]]]]}, {"instances": [float("nan"), float("inf")]}, {"instances": [1e308, -1e308]},
    {"instances": [[[[10**400]]]]}, {"instances": [[1], [1, 2]]}, {"instances": np.zeros((2, 6, 6, 1)).tolist()},
    {"instances": np.zeros((0, 6, 6, 1)).tolist()}, {"instances": np.zeros((1, 2, 3, 4, 5)).tolist()},
)  # fmt: skip
RAW_BODIES = (
    b"", b"\x00", b"\xff\xfe", b'{"instances": [1e999]}', b'{"instances": [NaN, Infinity]}', b'{"\\ud800": 1}', b"{" * 9,
    '{"instances": "\u202e"}'.encode("utf-16"), b'{"instances": [0]}' * 2, b"\xef\xbb\xbf{}", b'{"a":1,"a":2,"instances":[0]}',
)  # fmt: skip
PATHS = (
    "/v1/models/a/versions/" + "9" * 5000, "/v1/models/a/versions/-1", "/v1/models/a/versions/0", "/v1/models/a/versions/1e3",
    "/v1/models/a/versions/\u0663", "/v1/models/../../etc/passwd", "/v1/models/%2e%2e%2f%2e%2e", "/v1/models/a%00", "/%ff%fe",
    "/v1/models/%F0%9F%98%80/metadata", "/v1/models/a/metadata", "/v1/models/a", "/v1/models", "/", "/v1/models/" + "x" * 60_000,
    "/v1/models/a/versions/1/metadata", "//127.0.0.1/", "*", "http://evil.example/v1/models", "/metrics", "/livez", "/readyz",
    "/v1/models/a:predict", "/v1/models/a:classify", "/v1/models/%ED%A0%80", "/?" + "a=b&" * 9000,
)  # fmt: skip
NONSENSE = (
    b"", b"\r\n" * 500, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300), b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: 9\r\n\r\n12345", b"G" * 200_000,
    b"POST /v1/models/a:predict HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n",
    b"POST /v1/models/a:predict HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n\r\n",
)  # fmt: skip


def bodies(server, rng):
    """A body that is odd, large or deep."""
    kind = rng.random()
    body = nested(rng) if kind < 0.4 else rng.choice(RAW_BODIES) if kind < 0.6 else rng.choice(BODIES)
    return server.send(post(body))[0]


def paths(server, rng):
    """An odd path, by GET or POST."""
    path = rng.choice(PATHS)
    return server.send(get(path) if rng.random() < 0.6 else post(rng.choice(BODIES), path))[0]


def nonsense(server, rng):
    """Bytes that form no request; the server may wait for more, so do not wait for a response."""
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as connection, contextlib.suppress(OSError):
        connection.sendall(rng.choice(NONSENSE))


def disconnects(server, rng):
    """A client that disconnects after or during its request, with or without a reset."""
    data = post({"instances": np.zeros((rng.choice((1, 200)), 6, 6, 1)).tolist()})
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as connection, contextlib.suppress(OSError):
        connection.sendall(data[: rng.choice((len(data), rng.randrange(len(data))))])
        if rng.random() < 0.5:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")


ACTIONS = {bodies: 8, paths: 6, nonsense: 4, disconnects: 4}


def hostile_requests_arrive(world, rng):
    """Random requests; /healthz responds after each, and at the end memory is bounded and the log is clean."""
    statuses = []
    with Server(world, exports(world)) as server:
        for action in rng.choices(list(ACTIONS), list(ACTIONS.values()), k=REQUESTS):
            # A server may close a connection without a response.
            with contextlib.suppress(TimeoutError, ConnectionError):
                status = action(server, rng)
                statuses.append(status)
                if status is not None and status >= 500 and status != 503:
                    raise Failed(f"{action.__name__}: HTTP {status}")
            health(server, action.__name__)
        if server.memory() > MEMORY:
            raise Failed(f"took {server.memory() / 2**30:.1f} GiB")
        picture = (np.arange(36).reshape(1, 6, 6, 1) / 36).tolist()
        status, answer = server.request("POST", "/v1/models/a:predict", json.dumps({"instances": picture}))
        if status != 200 or not np.isfinite(answer["predictions"][0]["logits"]).all():
            raise Failed(f"does not predict any more: {status} {answer}")
    return f"{sum(status is not None for status in statuses)} of {REQUESTS} with a response"


def health(server, action):
    """Check that /healthz responds with 200."""
    try:
        status, _ = server.request("GET", "/healthz")
    except OSError as problem:
        raise Failed(f"{action}: /healthz does not respond: {problem}") from problem
    if status != 200:
        raise Failed(f"{action}: /healthz responds with {status}")


def exports(world):
    """Exports of the case "heterofl", created once: levels a and b, each with version 1."""
    folder = world.folder / "served exports"
    if not folder.exists():
        whole = world.unbroken("heterofl")[2]
        run = world.command("export", "--run_dir", whole, "--level", "all", "--out", folder)
        if run.code:
            raise Failed(f"does not export: {run.err}")
    return folder


TRIALS = (hostile_requests_arrive,)
