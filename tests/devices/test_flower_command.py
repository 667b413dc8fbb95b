"""The command `flower` and the processes it starts: keys, refusals, jobs, killed processes, the guard of the port."""

import asyncio
import os
import signal
import stat
import subprocess
import sys

import pytest
from refusals import refusal

from hetero_tf.base.errors import UserError, WorkerLost
from hetero_tf.cli.commands import flower
from hetero_tf.cli.flags import parse
from hetero_tf.devices import certificates, job, processes
from hetero_tf.devices.endpoints import MOST_BYTES, Guard
from hetero_tf.recipe import load

x509 = pytest.importorskip("cryptography.x509")
serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")


def flags_of(*words):
    return parse(["hetero_tf", "flower", *words])[1]


class Says:
    def say(self, sentence):
        self.output = sentence


def play(*words):
    console = Says()
    return flower.run(
        load("digits", ["partition.clients=3", "round.clients=3"]), flags_of(*words), console
    ), console.output


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet") / "keys"
    made, output = play("keys", "--recipe=digits", "--address=fleet.example.org:9092", f"--out={folder}")
    assert made == {"folder": str(folder), "clients": 3}
    assert "the keys of 3 devices" in output and "authority.pem" in output
    return folder


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "flower needs a subcommand; known: keys, server, client; try "),
        (["sever"], "flower needs a subcommand; did you mean 'server'?; try "),
        (["keys", "server"], "flower needs a subcommand; "),
        (["keys"], "--out is missing; flower keys needs --out, --address"),
        (["server", "--address=a:1"], "--certificates is missing; flower server needs --address, --certificates"),
        (["client", "--address=a:1", "--key=k"], "--client is missing; flower client needs --address, --key, --client"),
        (["keys", "--out=x", "--address=nowhere"], "--address: an address must be host:port. Received: 'nowhere'"),
        (
            ["keys", "--out=x", "--address=0.0.0.0:9"],
            "--address must be the host name or address that devices use to reach",
        ),
        (["keys", "--out=x", "--address=a:0"], "--address: an address must be host:port. Received: 'a:0'"),
        (
            ["server", "--address=a:1", "--certificates=x", "--deadline=700"],
            "--deadline must be at most --patience, after which a request is lost. "
            "Received: --deadline=700, --patience=600",
        ),
    ],
)
def test_missing_options_are_reported(words, sentence):
    assert sentence in refusal(play, *words)


def test_missing_flower_is_reported(monkeypatch, keys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for role in (["server", f"--certificates={keys}"], ["client", "--client=0", f"--key={keys}/devices/0.key"]):
        work = refusal(play, *role, "--address=127.0.0.1:1")
        assert work == "flower needs cryptography and flwr, which is not installed; pip install 'hetero_tf[flower]'"


def test_only_the_server_reads_its_certificates(keys):
    authority = x509.load_pem_x509_certificate((keys / "authority.pem").read_bytes())
    server = x509.load_pem_x509_certificate((keys / "server.pem").read_bytes())
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fleet.example.org"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert 364 <= (server.not_valid_after_utc - server.not_valid_before_utc).days <= 365
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    private = serialization.load_pem_private_key((keys / "server.key").read_bytes(), None)
    assert private.public_key() == server.public_key()
    assert sorted(path.name for path in keys.iterdir()) == ["authority.pem", "devices", "server.key", "server.pem"]
    for path in (keys / "server.key", keys / "devices" / "2.key"):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_every_device_has_a_key_pair(keys):
    paths = certificates.public_keys(keys)
    assert list(paths) == [0, 1, 2]
    for client, path in paths.items():
        private = serialization.load_ssh_private_key((keys / "devices" / f"{client}.key").read_bytes(), None)
        assert private.public_key() == serialization.load_ssh_public_key(path.read_bytes())
    assert len({path.read_bytes() for path in paths.values()}) == 3


def test_keys_are_never_written_over(keys):
    before = (keys / "server.key").read_bytes()
    work = refusal(play, "keys", "--recipe=digits", "--address=a:1", f"--out={keys}")
    assert work == f"{keys}: already exists; choose a new folder, since devices trust the existing keys"
    assert (keys / "server.key").read_bytes() == before


def test_files_that_are_missing_are_named(keys, tmp_path):
    assert refusal(certificates.public_keys, tmp_path).startswith(f"{tmp_path / 'devices'}: has no file N.pub")
    assert refusal(certificates.find_server_files, tmp_path).startswith(f"{tmp_path / 'authority.pem'}: is missing")
    key = tmp_path / "0.key"
    assert refusal(certificates.find_authority, key).startswith(f"{key}: is missing; name the private key")
    key.write_bytes(b"")
    assert refusal(certificates.find_authority, key).startswith(f"{tmp_path / 'authority.pem'}: is missing; copy")
    (tmp_path / "authority.pem").write_bytes(b"")
    assert certificates.find_authority(key) == tmp_path / "authority.pem"
    assert certificates.find_authority(keys / "devices" / "1.key") == keys / "authority.pem"


def test_job_is_read_as_written(tmp_path, monkeypatch):
    work = job.Job("name: x", "x.yaml", ("own.module",), None, 2, str(tmp_path), clients={"12": 0}, client=3, level="c")
    work.save()
    monkeypatch.setenv(job.VARIABLE, str(work.file))
    assert job.current() == work


def test_a_run_that_was_refused_is_refused_here_with_its_code(tmp_path):
    work = job.Job("", "", (), None, 1, str(tmp_path))
    work.console.write_text("one\ntwo\nhal")
    work.outcome.write_text('{"refusal": "no such data", "code": 2}')
    output = []
    with pytest.raises(UserError, match="no such data") as problem:
        processes._follow(work, {}, output.append)
    assert problem.value.code == 2 and output == ["one", "two"]
    work.outcome.write_text('{"summary": {"rounds": 3}}')
    assert processes._follow(work, {}, output.append) == {"rounds": 3}


@pytest.fixture
def killed():
    """A process that was killed."""
    process = subprocess.Popen(["sleep", "600"])
    process.kill()
    process.wait()
    return process


def test_a_killed_process_of_the_server_ends_the_command_with_a_sentence(tmp_path, killed):
    here = job.Job("", "", (), None, 1, str(tmp_path))
    with pytest.raises(WorkerLost) as problem:
        processes._follow(here, {"the training process": killed}, print)
    assert problem.value.code == 8
    assert str(problem.value) == (
        f"the training process was stopped by SIGKILL; see the logs in {tmp_path}; the same command resumes after the "
        "last finished round"
    )
    # One that has finished its work may end.
    here.outcome.write_text('{"summary": {"rounds": 3}}')
    assert processes._follow(here, {"the training process": killed}, print) == {"rounds": 3}


def test_a_killed_process_of_a_device_is_replaced(tmp_path, killed, monkeypatch):
    started, output, slept = [], [], []

    class Process:
        returncode = -signal.SIGKILL

        def __init__(self, words, environment, log):
            started.append(words)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def poll(self):
            return self.returncode

    class Node:
        def poll(self):
            return None if len(started) < 3 else 4

    monkeypatch.setattr(processes, "_FlowerProgram", Process)
    monkeypatch.setattr(processes.time, "sleep", slept.append)
    assert processes._serve_messages(Node(), {}, tmp_path / "log", output.append) == 4
    assert started == [["clientapp"]] * 3 and slept == [processes.RETRY_PAUSE] * 2
    assert (
        output == [f"note: a message got no response: its process was stopped by SIGKILL; see {tmp_path / 'log'}"] * 2
    )


def test_a_run_that_flower_does_not_start_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_flwr", lambda program, words, environment: ([{"success": False}], "no such app"))
    with pytest.raises(UserError) as problem:
        processes._start_run(tmp_path / "app", {}, tmp_path / "log")
    work = f"Flower's server did not start the run; see {tmp_path / 'log'}: no such app"
    assert str(problem.value) == work
    monkeypatch.setattr(processes, "_flwr", lambda program, words, environment: ([{"success": True}], ""))
    processes._start_run(tmp_path / "app", {}, tmp_path / "log")


def test_a_server_that_does_not_answer_the_command_line_is_lost(monkeypatch):
    def hangs(words, **options):
        raise subprocess.TimeoutExpired(words, options["timeout"])

    monkeypatch.setattr(processes.subprocess, "run", hangs)
    with pytest.raises(WorkerLost, match="did not respond within 600 s; start the command again"):
        processes._flwr("flwr", ["run"], {})


def test_settings_of_flower_come_from_the_command_alone(tmp_path, monkeypatch):
    # This one would open a port without a guard.
    monkeypatch.setenv("FLWR_INTERNAL_GRPC_CONTROL_API", "1")
    environment = processes._environment(job.Job("", "", (), None, 1, str(tmp_path)), tmp_path / "flwr")
    flowers = {name: value for name, value in environment.items() if name.startswith("FLWR_")}
    assert flowers == {"FLWR_HOME": str(tmp_path / "flwr"), "FLWR_TELEMETRY_ENABLED": "0"}
    assert environment["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(
    ("logs", "code"),
    [
        (["Failed to activate", "Failed to activate", "SuperNode ID: 7 ... terminated", "no such certificate"], 3),
        (["no such certificate"], 3),
    ],
)
def test_device_retries_if_the_server_rejects_it_or_was_restarted(logs, code, keys, tmp_path, monkeypatch):
    waiting, output, slept = list(logs), [], []

    class Ended:
        def __init__(self, words, environment, log):
            assert environment[job.VARIABLE] == str(tmp_path / "job.json")
            self.returncode = 0 if words == ["clientapp"] else code
            if words != ["clientapp"]:
                assert words[:3] == ["supernode", "--superlink", "a:1"]
                log.write_text(waiting.pop(0))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def poll(self):
            return self.returncode

    monkeypatch.setattr(processes, "_FlowerProgram", Ended)
    monkeypatch.setattr(processes.time, "sleep", slept.append)
    work = job.Job("", "", (), None, 1, str(tmp_path), client=1)
    assert processes.connect(work, "a:1", keys / "devices" / "1.key", output.append) == code
    assert waiting == [] and slept == [processes.RETRY_PAUSE] * (len(logs) - 1)
    # Said once, however often it happens.
    assert len(output) == 1 + (len(logs) > 1)


def status_for(path, client="10.0.0.9", headers=((b"content-length", b"10"),)):
    """The status with which a request is answered; 200 where Flower's application got it."""
    statuses = []

    async def flowers(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message):
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {"type": "http", "path": path, "headers": headers, "client": (client, 5), "server": ("10.0.0.1", 9092)}
    asyncio.run(Guard(flowers)(scope, None, send))
    (status,) = statuses
    return status


@pytest.mark.parametrize(
    ("status", "request_"),
    [
        (200, {"path": "/v1/fleet/push-messages"}),
        (200, {"path": "/v1/fleet/x", "headers": [(b"Content-Length", str(MOST_BYTES).encode())]}),
        (413, {"path": "/v1/fleet/x", "headers": [(b"content-length", str(MOST_BYTES + 1).encode())]}),
        (411, {"path": "/v1/fleet/x", "headers": []}),
        (411, {"path": "/v1/fleet/x", "headers": [(b"content-length", b"1"), (b"content-length", b"2")]}),
        (411, {"path": "/v1/fleet/x", "headers": [(b"content-length", b"-1")]}),
        (403, {"path": "/v1/control/start-run"}),
        (403, {"path": "/v1/runtime/push-messages"}),
        (403, {"path": "/"}),
        # An address is not an identity: every user and every proxy of this machine has these.
        (403, {"path": "/v1/control/start-run", "client": "127.0.0.1"}),
        (403, {"path": "/v1/control/list-runs", "client": "::1"}),
        (403, {"path": "/v1/runtime/acquire-task", "client": "10.0.0.1"}),
        (403, {"path": "/v1/control/start-run", "headers": [(b"x-forwarded-for", b"127.0.0.1")]}),
        (403, {"path": "/docs", "client": "127.0.0.1"}),
        (413, {"path": "/v1/fleet/x", "client": "127.0.0.1", "headers": [(b"content-length", b"99999999")]}),
    ],
)
def test_the_port_accepts_the_requests_of_devices_and_no_others(status, request_):
    assert status_for(**request_) == status


# Looks at the modes of all files whenever the program is about to touch another one.
WATCH = """
import os, stat, sys
from pathlib import Path
from hetero_tf.devices import certificates
folder, modes = Path(sys.argv[1]), set()
def look(*_):
    modes.update(stat.S_IMODE(os.lstat(path).st_mode) for path in [folder, *folder.rglob("*")] if path.exists())
looking = False
def hook(event, arguments):
    global looking
    if not looking and event.split(".")[0] in ("open", "os", "shutil"):
        looking = True
        look()
        looking = False
os.umask(0)
sys.addaudithook(hook)
certificates.make(folder, ["a"], 2)
looking = True
look()
print(sorted(map(oct, modes)))
"""


def test_secrets_are_private_from_their_first_byte(tmp_path):
    done = subprocess.run([sys.executable, "-c", WATCH, tmp_path / "fleet"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{sorted(map(oct, (0o600, 0o700)))}\n"


def test_programs_that_are_started_exist():
    assert processes.CHILD.is_file()
