"""Starts Flower's programs: the server of a run, or a device."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hetero_tf.base import files
from hetero_tf.base.errors import Refusal
from hetero_tf.flower import certificates, job
from hetero_tf.flower.job import Job
from hetero_tf.workers.local import free_ports

CHILD = Path(__file__).with_name("child.py")
# Seconds that Flower's server may take to start, that it may take to be told something, between two looks at what a
# run says, and until a device that was not let in asks again.
START, TELLING, EVERY, AGAIN = 60.0, 600.0, 0.2, 5.0
# What Flower's program of a device says where the server does not know its key, and once it is let in.
UNKNOWN, KNOWN = "Failed to activate", "SuperNode ID"
# What Flower is told that a run is: two objects of `apps`.
APP = """\
[project]
name = "hetero-tf"
version = "1.0.0"
dependencies = []
[tool.flwr.app]
publisher = "hetero-tf"
[tool.flwr.app.components]
serverapp = "hetero_tf.flower.apps:server"
clientapp = "hetero_tf.flower.apps:client"
"""
CONNECTION = """\
[superlink]
default = "own"
[superlink.own]
address = {address}
root-certificates = {authority}
"""


@dataclass(frozen=True)
class Address:
    """Where the server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def serve(work: Job, address: Address, folder: Path, say: Callable[[str], None]) -> dict:
    """Trains the recipe of a job with the devices that connect, and returns the summary.

    Args:
        work: Of a server; its `clients` are filled in.
        address: Where devices reach it.
        folder: Of `certificates.make`.
        say: Shows a person what the run says.

    Raises:
        BadInput: Certificates or keys are missing.
        Refusal: Flower's server could not start, or the run was refused.
    """
    keys = certificates.public_keys(folder)
    authority, certificate, key = certificates.of_server(folder)
    place = Path(work.work)
    app, own = place / "app", place / "flwr"
    with files.disk(place, "create"):
        app.mkdir(parents=True)
        own.mkdir()
    here = Address("127.0.0.1" if address.host in ("0.0.0.0", "::") else address.host, address.port)
    files.write_atomic(app / "pyproject.toml", APP.encode())
    connection = CONNECTION.format(address=json.dumps(str(here)), authority=json.dumps(str(authority)))
    files.write_atomic(own / "config.toml", connection.encode())
    environment = _environment(work, own)
    words = [
        *("superlink", "--host", address.host, "--port", str(address.port), "--enable-supernode-auth"),
        *("--ssl-ca-certfile", str(authority), "--ssl-certfile", str(certificate), "--ssl-keyfile", str(key)),
        "--disable-runtime-dependency-installation",
    ]
    with _started(words, environment, place / "superlink.txt") as server:
        clients = _register(keys, environment, server, place)
        Job(**{**work.__dict__, "clients": clients}).save()
        say(f"devices may connect to {address}: {len(clients)} are known by their keys")
        _flwr("flwr", ["run", str(app), "own"], environment)
        return _follow(work, server, say)


def connect(work: Job, server: str, key: Path, say: Callable[[str], None]) -> int:
    """Is a device until somebody ends it, and returns the exit code of Flower's program.

    Args:
        work: Of a device.
        server: host:port of the server.
        key: The private key of this device.
        say: Shows a person what goes on.

    Raises:
        BadInput: The key or the certificate of the server is missing.
    """
    authority, place = certificates.authority_of(key), Path(work.work)
    with files.disk(place, "create"):
        (place / "flwr").mkdir(parents=True)
    work.save()
    words = [
        *("supernode", "--superlink", server, "--root-certificates", str(authority)),
        *("--auth-supernode-private-key", str(key), "--port", str(free_ports(1)[0])),
    ]
    say(f"client {work.client} asks {server} for work until it is stopped")
    log, told = place / "supernode.txt", False
    while True:
        with _started(words, _environment(work, place / "flwr"), log) as process:
            code = process.wait()
        said = log.read_text(errors="replace")
        if UNKNOWN not in said and KNOWN not in said:
            return code
        # A server that has begun anew ends the programs that the one before had let in.
        if not told:
            say(f"the server does not know {key} yet, or has begun anew; it is asked every {AGAIN:g} s")
            told = True
        time.sleep(AGAIN)


def _environment(work, own):
    """The variables of Flower's programs and of what they start, which they look for in the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    own_words = {job.VARIABLE: str(work.file), "FLWR_HOME": str(own), "FLWR_TELEMETRY_ENABLED": "0"}
    return {**os.environ, **own_words, "PATH": path}


class _started:
    """One of Flower's programs as a context; it ends with the block."""

    def __init__(self, words: Sequence[str], environment: dict, log: Path):
        self.words, self.environment, self.log = words, environment, log

    def __enter__(self) -> subprocess.Popen:
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, str(CHILD), *self.words],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                env=self.environment,
            )
        return self.process

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _flwr(program, words, environment):
    """Runs one of `child.PROGRAMS`, and returns what it printed."""
    # It ends when the other end of its standard input is closed, so that stays open until it has answered.
    reading, writing = os.pipe()
    try:
        return subprocess.run(
            [sys.executable, str(CHILD), program, *words],
            stdin=reading,
            capture_output=True,
            text=True,
            env=environment,
            timeout=TELLING,
        )
    finally:
        os.close(reading)
        os.close(writing)


def _register(keys, environment, server, place):
    """Tells the server which devices there are: `{id of a node: number of its client}`."""
    until = time.monotonic() + START
    while True:
        done = _flwr("register", [str(key) for key in keys.values()], environment)
        nodes = [line["node-id"] for line in _answers(done) if "node-id" in line]
        if len(nodes) == len(keys):
            return dict(zip(map(str, nodes), keys))
        if nodes or server.poll() is not None or time.monotonic() > until:
            raise Refusal(f"Flower's server did not take the keys; see {place / 'superlink.txt'}: {_last(done)}")
        time.sleep(EVERY)


def _answers(done):
    """What Flower's command line answered as JSON, one object after the other; it ends with 0 where it failed too."""
    found, rest = [], done.stdout
    while (start := rest.find("{")) >= 0:
        try:
            answer, end = json.JSONDecoder().raw_decode(rest, start)
        except ValueError:
            end = start + 1
        else:
            found.append(answer)
        rest = rest[end:]
    return found


def _last(done):
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


def _follow(work, server, say):
    """Shows what a run says until it has ended, and returns its summary."""
    shown = 0
    while True:
        ended = work.outcome.exists()
        if work.console.exists():
            text = work.console.read_text(encoding="utf-8", errors="replace")
            whole = text.rfind("\n") + 1
            if whole > shown:
                say(text[shown : whole - 1])
                shown = whole
        if ended:
            break
        if server.poll() is not None:
            raise Refusal(f"Flower's server ended; see {Path(work.work) / 'superlink.txt'}")
        time.sleep(EVERY)
    outcome = json.loads(work.outcome.read_bytes())
    if "refusal" in outcome:
        raise Refusal(outcome["refusal"], outcome["code"])
    return outcome["summary"]
