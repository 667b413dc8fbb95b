"""Starts Flower's programs: the server of a run, or a device.

Every wait for one of them also checks that it lives, so that no command hangs when one is killed.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hetero_tf.base import children, files
from hetero_tf.base.errors import UserError, WorkerLost
from hetero_tf.devices import certificates, job
from hetero_tf.devices.endpoints import ADDRESS, check_socket_path
from hetero_tf.devices.job import Job

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
serverapp = "hetero_tf.devices.apps:server"
clientapp = "hetero_tf.devices.apps:client"
"""
# The command line reaches the server by the Unix socket of the job.
CONNECTION = f"""\
[superlink]
default = "own"
[superlink.own]
address = "{ADDRESS}"
insecure = true
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
        InputError: Certificates or keys are missing.
        UserError: Flower's server could not start, or the run was refused.
        WorkerLost: Flower's server or the training process ended before the run did.
    """
    check_socket_path(work.socket)
    keys = certificates.public_keys(folder)
    authority, certificate, key = certificates.of_server(folder)
    place = Path(work.work)
    app, own = place / "app", place / "flwr"
    with files.disk(place, "create"):
        app.mkdir(parents=True)
        own.mkdir()
    files.write_atomic(app / "pyproject.toml", APP.encode())
    files.write_atomic(own / "config.toml", CONNECTION.encode())
    work.save()
    environment = _environment(work, own)
    words = [
        *("superlink", "--host", address.host, "--port", str(address.port), "--enable-supernode-auth"),
        *("--ssl-ca-certfile", str(authority), "--ssl-certfile", str(certificate), "--ssl-keyfile", str(key)),
        *("--isolation", "process", "--disable-runtime-dependency-installation"),
    ]
    log = place / "superlink.txt"
    with _started(words, environment, log) as server:
        clients = _register(keys, environment, server, log)
        Job(**{**work.__dict__, "clients": clients}).save()
        say(f"devices may connect to {address}: {len(clients)} are known by their keys")
        _start_run(app, environment, log)
        with _started(["serverapp"], environment, place / "serverapp.txt") as training:
            return _follow(work, {"Flower's server": server, "the training process": training}, say)


def connect(work: Job, server: str, key: Path, say: Callable[[str], None]) -> int:
    """Is a device until somebody ends it, and returns the exit code of Flower's program.

    Args:
        work: Of a device.
        server: host:port of the server.
        key: The private key of this device.
        say: Shows a person what goes on.

    Raises:
        InputError: The key or the certificate of the server is missing.
    """
    check_socket_path(work.socket)
    authority, place = certificates.authority_of(key), Path(work.work)
    with files.disk(place, "create"):
        (place / "flwr").mkdir(parents=True)
    work.save()
    words = [
        *("supernode", "--superlink", server, "--root-certificates", str(authority)),
        *("--auth-supernode-private-key", str(key), "--isolation", "process"),
    ]
    say(f"client {work.client} asks {server} for work until it is stopped")
    log, told, environment = place / "supernode.txt", False, _environment(work, place / "flwr")
    while True:
        with files.disk(place, "write"):
            log.unlink(missing_ok=True)
            work.socket.unlink(missing_ok=True)
        with _started(words, environment, log) as node:
            code = _answer(node, environment, place / "clientapp.txt", say)
        said = log.read_text(errors="replace")
        if UNKNOWN not in said and KNOWN not in said:
            return code
        if code < 0:
            say(f"note: Flower's program of the device {children.ended(code)}; it is started again")
        # A server that has begun anew ends the programs that the one before had let in.
        elif not told:
            say(f"the server does not know {key} yet, or has begun anew; it is asked every {AGAIN:g} s")
            told = True
        time.sleep(AGAIN)


def _answer(node, environment, log, say):
    """Starts a process for each message until Flower's program of the device ends, and returns its exit code."""
    while True:
        with _started(["clientapp"], environment, log) as app:
            while (code := node.poll()) is None and app.poll() is None:
                time.sleep(EVERY)
        if code is not None:
            return code
        if app.returncode:
            say(f"note: a message was not answered: its process {children.ended(app.returncode)}; see {log}")
            # Not at once: one that always fails would keep the machine busy.
            time.sleep(AGAIN)


def _environment(work, own):
    """The variables of Flower's programs: of Flower's own settings, those of this package only."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("FLWR_")}
    return {**others, job.VARIABLE: str(work.file), "FLWR_HOME": str(own), "FLWR_TELEMETRY_ENABLED": "0"}


class _started:
    """One of Flower's programs as a context; it ends with the block."""

    def __init__(self, words: Sequence[str], environment: dict, log: Path):
        self.words, self.environment, self.log = words, environment, log

    def __enter__(self) -> subprocess.Popen:
        with self.log.open("ab") as out:
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
    """Runs one of `child.CLIENTS`, and returns the JSON objects that it printed, and its last line.

    Raises:
        WorkerLost: It takes longer than `TELLING`.
    """
    # It ends when the other end of its standard input is closed, so that stays open until it has answered.
    reading, writing = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, str(CHILD), program, *words],
            stdin=reading,
            capture_output=True,
            text=True,
            env=environment,
            timeout=TELLING,
        )
    except subprocess.TimeoutExpired:
        raise WorkerLost(f"Flower's server did not answer within {TELLING:g} s; start the command again") from None
    finally:
        os.close(reading)
        os.close(writing)
    return _answers(done), _last((done.stdout + done.stderr).splitlines())


def _register(keys, environment, server, log):
    """Tells the server which devices there are: `{id of a node: number of its client}`."""
    until = time.monotonic() + START
    while True:
        answers, last = _flwr("register", [str(key) for key in keys.values()], environment)
        nodes = [line["node-id"] for line in answers if "node-id" in line]
        if len(nodes) == len(keys):
            return dict(zip(map(str, nodes), keys))
        if (code := server.poll()) is not None:
            last = _last(line for line in log.read_text(errors="replace").splitlines() if "ERROR" in line)
            raise UserError(f"Flower's server {children.ended(code)}; see {log}: {last}")
        if nodes or time.monotonic() > until:
            raise UserError(f"Flower's server did not take the keys; see {log}: {last}")
        time.sleep(EVERY)


def _start_run(app, environment, log):
    """Starts the run, whose task then waits for the training process."""
    answers, last = _flwr("flwr", ["run", str(app), "own", "--format", "json"], environment)
    if not any(answer.get("success") for answer in answers):
        raise UserError(f"Flower's server did not start the run; see {log}: {last}")


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


def _last(lines):
    lines = [line.strip() for line in lines if line.strip()]
    return lines[-1][:200] if lines else ""


def _follow(work: Job, processes: Mapping[str, subprocess.Popen], say: Callable[[str], None]) -> dict:
    """Shows the console of a run until it has ended, and returns its summary.

    Args:
        work: Of the server.
        processes: Processes without which the run cannot end, by their names in sentences.
        say: Shows lines of the console.

    Raises:
        UserError: The run was refused.
        WorkerLost: One of the processes ended before the run did.
    """
    shown = 0
    while True:
        # Read before the outcome: a process that writes the outcome may end at once.
        codes = {name: process.poll() for name, process in processes.items()}
        ended = work.outcome.exists()
        if work.console.exists():
            text = work.console.read_text(encoding="utf-8", errors="replace")
            whole = text.rfind("\n") + 1
            if whole > shown:
                say(text[shown : whole - 1])
                shown = whole
        if ended:
            break
        for name, code in codes.items():
            if code is not None:
                raise WorkerLost(
                    f"{name} {children.ended(code)}; see the logs in {work.work}; the same command goes on after the "
                    "last finished round"
                )
        time.sleep(EVERY)
    outcome = json.loads(work.outcome.read_bytes())
    if "refusal" in outcome:
        raise UserError(outcome["refusal"], outcome["code"])
    return outcome["summary"]
