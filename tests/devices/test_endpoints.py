"""Where Flower's server listens: devices reach a port with the paths of devices, its user a Unix socket with all."""

import http.client
import json
import os
import socket
import ssl
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import programs
import pytest
from ports import free_ports
from refusals import refusal

from hetero_tf.devices import endpoints, job

pytest.importorskip("uvicorn")
certificates = pytest.importorskip("hetero_tf.devices.certificates")
STRANGER = 65534
# Answers each request with its path, as Flower's application would with more.
SERVER = """
import sys
from pathlib import Path
from hetero_tf.devices.endpoints import serve_superlink
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        return await send({"type": "lifespan.shutdown.complete"})
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode()})
path, port, folder = sys.argv[1:]
tls = {"ssl_certfile": f"{folder}/server.pem", "ssl_keyfile": f"{folder}/server.key"}
serve_superlink(app, Path(path), host="127.0.0.1", port=int(port), workers=1, **tls)
"""
CONNECT = f"""
import os, socket, sys
os.setgroups([])
os.setgid({STRANGER})
os.setuid({STRANGER})
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
except OSError as error:
    print(type(error).__name__)
"""


class UnixConnection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.host)


def listens(path):
    with socket.socket(socket.AF_UNIX) as client:
        return path.exists() and client.connect_ex(str(path)) == 0


def start(folder, port):
    words = [sys.executable, "-c", SERVER, folder / "api.sock", str(port), folder / "fleet"]
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=programs.environment())


@pytest.fixture(scope="module")
def server():
    # The paths of Unix sockets are short, those of pytest are not.
    with tempfile.TemporaryDirectory() as name:
        folder, (port,) = Path(name), free_ports(1)
        certificates.make(folder / "fleet", ["127.0.0.1"], 1)
        with start(folder, port) as process:
            programs.wait_for(lambda: listens(folder / "api.sock") or process.poll() is not None, 120)
            yield folder, port
            process.terminate()


def over_port(server, path, **headers):
    folder, port = server
    context = ssl.create_default_context(cafile=folder / "fleet" / "authority.pem")
    return answer_of(http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=60), path, headers)


def answer_of(connection, path, headers):
    try:
        connection.request("POST", path, b"x", headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_devices_reach_the_paths_of_devices_at_the_port(server):
    assert over_port(server, "/v1/fleet/pull-messages") == (200, "/v1/fleet/pull-messages")


@pytest.mark.parametrize("path", ["/v1/control/start-run", "/v1/runtime/acquire-task", "/docs", "/v1/fleet"])
@pytest.mark.parametrize("headers", [{}, {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "http"}])
def test_the_port_refuses_every_other_path_also_of_this_machine(server, path, headers):
    assert over_port(server, path, **headers) == (403, "")


def test_the_user_of_the_server_reaches_every_path_at_the_socket(server):
    connection = UnixConnection(str(server[0] / "api.sock"), timeout=60)
    assert answer_of(connection, "/v1/control/start-run", {}) == (200, "/v1/control/start-run")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_another_user_of_the_machine_cannot_open_the_socket(server):
    folder = server[0]
    # The mode of the socket protects it by itself, without that of its folder.
    folder.chmod(0o755)
    words = [sys.executable, "-I", "-c", CONNECT, folder / "api.sock"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("PermissionError\n", "")


def test_a_port_that_is_taken_ends_the_server(server):
    folder, port = server
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "fleet").symlink_to(folder / "fleet")
        with start(Path(name), port) as process:
            _, output = process.communicate(timeout=120)
    assert "address already in use" in output


def test_sockets_are_private_whatever_the_umask(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    umask = os.umask(0)
    try:
        with endpoints.bind(Path("api.sock")):
            assert stat.S_IMODE(os.stat("api.sock").st_mode) == 0o600
        assert os.umask(0) == 0
    finally:
        os.umask(umask)


def test_a_path_that_is_too_long_for_a_socket_is_refused(tmp_path):
    path = job.Job("", "", (), None, 1, str(tmp_path / ("x" * 200))).socket
    assert refusal(endpoints.check_socket_path, path) == (
        f"{path}: a Unix socket needs a path of at most 103 bytes; set TMPDIR to a shorter folder"
    )
    endpoints.check_socket_path(Path("/tmp/api.sock"))


def test_httpx_reaches_the_socket_by_its_address_and_other_hosts_as_before(server):
    pytest.importorskip("httpx")
    script = f"""
import json, ssl, sys
from pathlib import Path
import httpx
from hetero_tf.devices import endpoints
endpoints.send_through(Path(sys.argv[1]) / "api.sock")
authority = ssl.create_default_context(cafile=f"{{sys.argv[1]}}/fleet/authority.pem")
urls = [f"http://{{endpoints.ADDRESS}}/v1/control/x", "https://127.0.0.1:{server[1]}/v1/control/x"]
print(json.dumps([httpx.Client(verify=authority).post(url).status_code for url in urls]))
"""
    words = [sys.executable, "-c", script, server[0]]
    done = subprocess.run(words, capture_output=True, text=True, env=programs.environment(), check=True)
    assert json.loads(done.stdout) == [200, 403]
