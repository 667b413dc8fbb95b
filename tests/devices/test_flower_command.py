"""The command `flower`: keys, refusals, restarts of a device, and the requests that the port of the server accepts."""

import asyncio
import contextlib
import os
import signal
import stat
import subprocess
import sys

import pytest
from refusals import refusal

from hetero_tf import testing
from hetero_tf.base.console import Console, ProgressDisplay
from hetero_tf.cli.commands import devices
from hetero_tf.cli.flags import parse
from hetero_tf.devices import certificates, fleet_api, machine
from hetero_tf.devices.fleet_api import MAX_BODY_BYTES, Guard
from hetero_tf.recipe import load
from hetero_tf.run import experiment

x509 = pytest.importorskip("cryptography.x509")
serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")


def flags_of(*words):
    return parse(["hetero_tf", "flower", *words])[1]


class Says:
    def say(self, sentence):
        self.output = sentence


def play(*words):
    console = Says()
    return devices.run_role(
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
        ("", "flower needs a subcommand; known: keys, server, client; try "),
        ("sever", "flower needs a subcommand; did you mean 'server'?; try "),
        ("keys server", "flower needs a subcommand; "),
        ("keys", "--out is missing; flower keys needs --out, --address"),
        ("server --address=a:1", "--certificates is missing; flower server needs --address, --certificates"),
        ("client --address=a:1 --key=k", "--client is missing; flower client needs --address, --key, --client"),
        ("keys --out=x --address=nowhere", "--address: an address must be host:port. Received: 'nowhere'"),
        ("keys --out=x --address=0.0.0.0:9", "--address must be the host name or address that devices use to reach"),
        ("server --address=a:1 --certificates=x --deadline=700", "Received: --deadline=700, --patience=600"),
    ],
)
def test_missing_options_are_reported(words, sentence):
    assert sentence in refusal(play, *words.split())


def test_missing_flower_is_reported(monkeypatch, keys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for role in (["server", f"--certificates={keys}"], ["client", "--client=0", f"--key={keys}/devices/0.key"]):
        work = refusal(play, *role, "--address=127.0.0.1:1")
        assert work == "flower needs cryptography and flwr, which is not installed; pip install 'hetero_tf[flower]'"


def test_plugins_of_a_server_are_checked(keys, monkeypatch, tmp_path):
    """The contracts of --plugin files are tested as in `train`, also if the model cannot be built."""
    checked = []
    monkeypatch.setattr(testing, "violated_contracts", lambda recipe: checked.append(recipe) or [])
    monkeypatch.setattr(devices, "require_modules", lambda *_: None)
    monkeypatch.setattr(fleet_api, "serve", lambda *_: contextlib.nullcontext((None, ())))

    def fail(strategy, devices):
        raise ZeroDivisionError

    def train(recipe, settings, console, execution):
        with pytest.raises(ZeroDivisionError), execution(fail, console, ProgressDisplay(console)):
            pass
        return None, None, {}

    monkeypatch.setattr(experiment, "train", train)
    flags = (f"--certificates={keys}", "--address=127.0.0.1:1", f"--run_dir={tmp_path / 'run'}")
    for words in ((), ("--plugin=any.py",)):
        recipe = load("digits")
        devices.run_role(recipe, flags_of("server", *flags, *words), Console(quiet=True))
        assert checked == [recipe] * len(words)


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
    public = certificates.read_public_keys(keys)
    assert list(public) == [0, 1, 2] and len(set(public.values())) == 3
    for client, pem in public.items():
        authority, private = certificates.read_device_files(keys / "devices" / f"{client}.key")
        assert private.public_key() == serialization.load_pem_public_key(pem)
        assert authority == (keys / "authority.pem").read_bytes()


def test_keys_are_private_from_their_first_byte_and_never_written_over(keys, tmp_path):
    before = (keys / "server.key").read_bytes()
    work = refusal(play, "keys", "--recipe=digits", "--address=a:1", f"--out={keys}")
    assert work == f"{keys}: already exists; choose a new folder, since devices trust the existing keys"
    assert (keys / "server.key").read_bytes() == before
    done = subprocess.run([sys.executable, "-c", WATCH, tmp_path / "fleet"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{sorted(map(oct, (0o600, 0o700)))}\n"


def test_files_that_are_missing_or_damaged_are_named(keys, tmp_path):
    assert refusal(certificates.read_public_keys, tmp_path).startswith(f"{tmp_path / 'devices'}: has no file N.pub")
    assert refusal(certificates.find_server_files, tmp_path).startswith(f"{tmp_path / 'server.pem'}: is missing")
    key = tmp_path / "0.key"
    assert refusal(certificates.read_device_files, key) == (
        f"{key}: is missing; copy it from the folder that `flower keys` wrote"
    )
    key.write_bytes((keys / "devices" / "0.key").read_bytes())
    assert refusal(certificates.read_device_files, key).startswith(f"{tmp_path / 'authority.pem'}: is missing; copy")
    key.write_bytes(b"")
    assert refusal(certificates.read_device_files, key).startswith(f"{key}: is not a key that `flower keys` wrote")


def test_a_key_of_two_clients_is_refused(keys, tmp_path):
    (tmp_path / "devices").mkdir()
    for client in (0, 4):
        (tmp_path / "devices" / f"{client}.pub").write_bytes((keys / "devices" / "2.pub").read_bytes())
    assert refusal(certificates.read_public_keys, tmp_path) == (
        f"{tmp_path / 'devices' / '4.pub'}: is also the key of another client; each device needs a key of its own"
    )


@pytest.mark.parametrize(
    ("codes", "messages"),
    [
        ([machine.DISCONNECTED, machine.DISCONNECTED, 2], ["the server does not accept the key, or was restarted"]),
        ([-signal.SIGKILL, 0], ["note: the process of the device was stopped by SIGKILL; it is restarted"]),
    ],
)
def test_a_device_is_restarted_until_it_fails(codes, messages, monkeypatch):
    waiting, output, slept = list(codes), [], []
    monkeypatch.setattr(machine, "run_fork", lambda work: waiting.pop(0))
    monkeypatch.setattr(machine.time, "sleep", slept.append)
    settings = machine.DeviceSettings(load("digits"), None, 1, client=3)
    with pytest.raises(SystemExit) as end:
        machine.connect(settings, "a:1", b"", None, output.append)
    assert end.value.code == codes[-1] and slept == [machine.RETRY_PAUSE] * (len(codes) - 1)
    # Each is reported once.
    assert output[0] == "client 3 takes part in the run of a:1 until it is stopped"
    assert [line.split("; retrying")[0] for line in output[1:]] == messages


def test_an_error_of_a_device_is_its_exit_code(capsys, tmp_path):
    pytest.importorskip("ai_edge_litert")
    settings = machine.DeviceSettings(load("digits"), None, 1, client=0, litert=str(tmp_path))
    assert machine._run(settings, "a:1", b"", None) == 2
    assert capsys.readouterr().err.startswith(f"hetero_tf: --litert {tmp_path}: [Errno 2] No such file")


def test_a_fork_ends_with_its_work_or_a_signal():
    assert machine.run_fork(lambda: 3) == 3
    assert machine.run_fork(lambda: os.kill(os.getpid(), signal.SIGKILL)) == -signal.SIGKILL


LENGTHS = {200: (["10"], [str(MAX_BODY_BYTES)]), 413: ([str(MAX_BODY_BYTES + 1)],), 411: ([], ["1", "2"], ["-1"])}
OTHERS = ("control/start-run", "control/list-runs", "runtime/push-messages", "runtime/acquire-task", "docs", "")


# An address is not an identity: every user and every proxy of this machine has the second one.
@pytest.mark.parametrize("client", ["10.0.0.9", "127.0.0.1"])
@pytest.mark.parametrize(
    ("status", "path", "lengths"),
    [
        *((status, "fleet/push-messages", each) for status, lengths in LENGTHS.items() for each in lengths),
        *((403, path, ["10"]) for path in OTHERS),
    ],
)
def test_the_port_accepts_the_requests_of_devices_and_no_others(status, path, lengths, client):
    statuses = []

    async def flowers(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message):
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    headers = [(b"Content-Length", length.encode()) for length in lengths] + [(b"x-forwarded-for", b"127.0.0.1")]
    scope = {"type": "http", "path": f"/v1/{path}", "headers": headers, "client": (client, 5)}
    asyncio.run(Guard(flowers)(scope, None, send))
    assert statuses == [status]


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
