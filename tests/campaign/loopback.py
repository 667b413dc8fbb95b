"""Trials with `serve` over loopback: hostile requests, and versions that change while it serves."""

import base64
import contextlib
import http.client
import json
import re
import shutil
import signal
import socket
import threading
import time
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
# Host names of a page of another site that reaches the server (DNS rebinding).
FOREIGN_HOSTS = (
    "evil.example",
    "evil.example:80",
    "127.0.0.1.evil.example",
    "0.0.0.0",
    "169.254.169.254",
    "localhost.evil.example",
    "",
)


def bodies(server, rng, pending):
    """A body that is odd, large or deep."""
    kind = rng.random()
    body = nested(rng) if kind < 0.4 else rng.choice(RAW_BODIES) if kind < 0.6 else rng.choice(BODIES)
    return server.send(post(body))[0]


def paths(server, rng, pending):
    """An odd path, by GET or POST."""
    path = rng.choice(PATHS)
    return server.send(get(path) if rng.random() < 0.6 else post(rng.choice(BODIES), path))[0]


def nonsense(server, rng, pending):
    """Bytes that form no request; the server may wait for more, so do not wait for a response."""
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as connection, contextlib.suppress(OSError):
        connection.sendall(rng.choice(NONSENSE))


def foreign_names(server, rng, pending):
    """A request from a page of another site, which must be rejected."""
    name = rng.choice(FOREIGN_HOSTS)
    if rng.random() < 0.5:
        data = post({"instances": []}, host=name) if rng.random() < 0.5 else get("/v1/models", host=name)
    else:
        origin = rng.choice((f"http://{name or 'evil.example'}", "null", "https://127.0.0.1.evil.example"))
        data = post({"instances": []}, host=f"127.0.0.1:{server.port}", Origin=origin)
    status, _ = server.send(data)
    if status is not None and status < 400:
        raise Failed(f"answers a foreign page with {status}: {data[:120]}")
    return status


def idle(server, rng, pending):
    """Open connections without a request, or with half of one."""
    data = rng.choice(
        (b"", b"GET / HT", b"POST /v1/models/a:predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999\r\n\r\n{")
    )
    for _ in range(rng.randint(1, 40)):
        connection = socket.create_connection(("127.0.0.1", server.port), PATIENCE)
        connection.sendall(data)
        pending.append(connection)


def disconnects(server, rng, pending):
    """A client that disconnects after or during its request, with or without a reset."""
    data = post({"instances": np.zeros((rng.choice((1, 200)), 6, 6, 1)).tolist()})
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as connection, contextlib.suppress(OSError):
        connection.sendall(data[: rng.choice((len(data), rng.randrange(len(data))))])
        if rng.random() < 0.5:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")


def too_large(server, rng, pending):
    """A body that exceeds the limit, or whose announced length does."""
    size = rng.choice((33 * 2**20, 2**33, 10**30))
    return server.send(
        post(b" " * min(size, 33 * 2**20), Content_Length=size) if size < 2**30 else post(b"{}", Content_Length=size), 5
    )[0]


def several_large(server, rng, pending):
    """Several simultaneous large bodies."""
    body = b'{"instances": [' + b"[0.5]," * rng.choice((200_000, 2_000_000)) + b"[0]]}"
    statuses = []
    threads = [threading.Thread(target=lambda: statuses.append(server.send(post(body))[0])) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max((status for status in statuses if status is not None), default=None)


ACTIONS = {bodies: 8, paths: 6, nonsense: 4, foreign_names: 4, idle: 1, disconnects: 4, too_large: 1, several_large: 1}


def hostile_requests_arrive(world, rng):
    """Random requests; /healthz responds after each, and at the end memory is bounded and the log is clean."""
    statuses, pending = [], []
    with Server(world, exports(world)) as server:
        for action in rng.choices(list(ACTIONS), list(ACTIONS.values()), k=REQUESTS):
            # A server may close a connection without a response.
            with contextlib.suppress(TimeoutError, ConnectionError):
                status = action(server, rng, pending)
                statuses.append(status)
                if status is not None and status >= 500 and status != 503:
                    raise Failed(f"{action.__name__}: HTTP {status}")
            health(server, action.__name__)
        for connection in pending:
            connection.close()
        if server.memory() > MEMORY:
            raise Failed(f"took {server.memory() / 2**30:.1f} GiB")
        status, answer = server.request("POST", "/v1/models/a:predict", json.dumps({"instances": picture()}))
        if (
            status != 200
            or answer["predictions"]
            != server.request("POST", "/v1/models/a:predict", json.dumps({"instances": picture()}))[1]["predictions"]
        ):
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


def picture():
    """One image of the small recipe as JSON."""
    return (np.arange(36).reshape(1, 6, 6, 1) / 36).tolist()


def exports(world):
    """Exports of the case "heterofl", created once: levels a and b, each with version 1."""
    folder = world.folder / "served exports"
    if not folder.exists():
        whole = world.unbroken("heterofl")[2]
        run = world.command("export", "--run_dir", whole, "--level", "all", "--out", folder)
        if run.code:
            raise Failed(f"does not export: {run.err}")
    return folder


def other_versions(world):
    """Another model of the same shape for level a, from another seed, created once."""
    folder = world.folder / "other exports"
    if not folder.exists():
        other = world.fresh()
        for command in (
            ("--recipe", world.recipes["heterofl"], "--set=seed=4", "--set=rounds=1", "--run_dir", other),
            ("export", "--run_dir", other, "--level", "a", "--out", folder),
        ):
            run = world.command(*command)
            if run.code:
                raise Failed(f"does not export: {run.err}")
    return folder / "a" / "1"


def versions_change(world, rng):
    """Versions are added, deleted, replaced or copied file by file; the newest complete one must soon respond."""
    models = {"first": exports(world) / "a" / "1", "second": other_versions(world)}
    folder = world.fresh()
    shutil.copytree(exports(world), folder)
    present, events = {1: "first"}, []
    with Server(world, folder) as server:
        expected = {"first": answer_of(server)}
        for _ in range(rng.randint(2, 4)):
            action = rng.choice(("add", "add in pieces", "remove", "replace", "half", "odd"))
            number, name = rng.randint(2, 9), rng.choice(list(models))
            path = folder / "a" / str(number)
            events.append(f"{action} {number} {name}")
            if action == "add" and number not in present:
                arrive(models[name], path)
                present[number] = name
            elif action == "add in pieces" and number not in present:
                in_pieces(models[name], path, rng)
                present[number] = name
            elif action == "remove" and len(present) > 1:
                number = max(present)
                shutil.rmtree(folder / "a" / str(number))
                del present[number]
            elif action == "replace" and max(present) > 1:
                number = max(present)
                shutil.rmtree(folder / "a" / str(number))
                time.sleep(2 * rng.random())
                arrive(models[name], folder / "a" / str(number))
                present[number] = name
            elif action == "half" and number not in present:
                arrive(models[name], path)
                (path / "saved_model.pb").write_bytes(models[name].joinpath("saved_model.pb").read_bytes()[:500])
                shutil.rmtree(path / "variables")
                time.sleep(1.5)
                shutil.rmtree(path)
            elif action == "odd" and number not in present:
                path.mkdir()
                (path / "export.json").write_bytes(
                    rng.choice((b"[]", b"", b"{}", b'"x"', b"[" * 9999, b"\xff", b"null"))
                )
                time.sleep(1.5)
                shutil.rmtree(path)
            settle(server, present, expected, events)
            health(server, "; ".join(events))
    world.drop(folder)
    return f"{len(events)} changes"


def arrive(source, path):
    """Move a complete copy to its name in one step."""
    copy = path.parent / f".copy-{path.name}"
    shutil.copytree(source, copy)
    copy.rename(path)


def in_pieces(source, path, rng):
    """Copy a version slowly, file by file, in random order."""
    files = [file for file in sorted(source.rglob("*")) if file.is_file()]
    rng.shuffle(files)
    for file in files:
        copy = path / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        data = file.read_bytes()
        copy.write_bytes(data[: len(data) // 2])
        time.sleep(0.5 * rng.random())
        copy.write_bytes(data)


def answer_of(server, path="/v1/models/a"):
    """Predictions of the newest version for one image."""
    return server.request("POST", f"{path}:predict", json.dumps({"instances": picture()}))[1].get("predictions")


def settle(server, present, expected, events):
    """Wait until the newest version is reported and predicts like its model; deleted versions respond with 404."""
    newest, end = max(present), time.monotonic() + PATIENCE
    while True:
        status, body = server.request("GET", "/v1/models/a")
        reported = [
            int(each["version"]) for each in body.get("model_version_status", []) if each["state"] == "AVAILABLE"
        ]
        answer = answer_of(server)
        right = expected.get(present[newest], answer)
        if status == 200 and max(reported, default=0) == newest and set(reported) <= present.keys() and answer == right:
            break
        if time.monotonic() > end:
            raise Failed(
                f"{'; '.join(events)}: present {present}, reported {reported}, right answer: {answer == right}"
            )
        time.sleep(0.3)
    expected.setdefault(present[newest], answer)
    if len(expected) == 2 and expected["first"] == expected["second"]:
        raise Failed(f"{'; '.join(events)}: both models have equal predictions")
    gone = next(number for number in range(2, 11) if number not in present)
    path = f"/v1/models/a/versions/{gone}"
    status, body = server.request("GET", path)
    states = {each["state"] for each in body.get("model_version_status", [])}
    # A version that could not be loaded keeps its state END, with the reason.
    if not (status == 404 or status == 200 and states == {"END"}):
        raise Failed(f"{'; '.join(events)}: version {gone} is gone, but its status is {status} {sorted(states)}")
    status, _ = server.request("POST", f"{path}:predict", json.dumps({"instances": picture()}))
    if status != 404:
        raise Failed(f"{'; '.join(events)}: version {gone} is gone, but answers {status}")


TRIALS = (hostile_requests_arrive, versions_change)
