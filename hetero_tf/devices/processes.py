"""Starts Flower's programs: the server of a run, or a device.

Every wait for a program also checks that it is alive, so no command hangs when one is killed.
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

CHILD = Path(__file__).with_name("flower_child.py")
# Seconds: limits for the start of Flower's server and for a command to it; between two checks of a run; until a
# rejected device retries.
START_TIMEOUT, COMMAND_TIMEOUT, POLL_INTERVAL, RETRY_PAUSE = 60.0, 600.0, 0.2, 5.0
# Output of Flower's program of a device if the server does not know its key, and after it was accepted.
UNKNOWN_KEY_MARK, ACTIVATED_MARK = "Failed to activate", "SuperNode ID"
# The app that Flower runs: two objects of `apps`.
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
# Flower's command line connects to the server through the Unix socket of the job.
CONNECTION = f"""\
[superlink]
default = "own"
[superlink.own]
address = "{ADDRESS}"
insecure = true
"""


@dataclass(frozen=True)
class Address:
    """Host and port of the server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def serve(work: Job, address: Address, folder: Path, say: Callable[[str], None]) -> dict:
    """Train the recipe of a job with the devices that connect, and return the summary.

    Args:
        work: Job of the server; its `clients` are filled in.
        address: Address for devices.
        folder: Folder written by `certificates.make`.
        say: Prints the output of the run.

    Raises:
        InputError: Certificates or keys are missing.
        UserError: Flower's server could not start, or the run was refused.
        WorkerLost: Flower's server or the training process ended before the run.
    """
    check_socket_path(work.socket)
    keys = certificates.public_keys(folder)
    authority, certificate, key = certificates.find_server_files(folder)
    work_dir = Path(work.work)
    app, flower_home = work_dir / "app", work_dir / "flwr"
    with files.disk_errors(work_dir, "create"):
        app.mkdir(parents=True)
        flower_home.mkdir()
    files.write_atomic(app / "pyproject.toml", APP.encode())
    files.write_atomic(flower_home / "config.toml", CONNECTION.encode())
    work.save()
    environment = _environment(work, flower_home)
    words = [
        *("superlink", "--host", address.host, "--port", str(address.port), "--enable-supernode-auth"),
        *("--ssl-ca-certfile", str(authority), "--ssl-certfile", str(certificate), "--ssl-keyfile", str(key)),
        *("--isolation", "process", "--disable-runtime-dependency-installation"),
    ]
    log = work_dir / "superlink.txt"
    with _FlowerProgram(words, environment, log) as server:
        clients = _register(keys, environment, server, log)
        Job(**{**work.__dict__, "clients": clients}).save()
        say(f"devices can connect to {address}: {len(clients)} keys are registered")
        _start_run(app, environment, log)
        with _FlowerProgram(["serverapp"], environment, work_dir / "serverapp.txt") as training:
            return _follow(work, {"Flower's server": server, "the training process": training}, say)


def connect(work: Job, server: str, key: Path, say: Callable[[str], None]) -> int:
    """Run a device until it is stopped, and return the exit code of Flower's program.

    Args:
        work: Job of the device.
        server: host:port of the server.
        key: Private key of this device.
        say: Prints messages.

    Raises:
        InputError: The key or the certificate of the server is missing.
    """
    check_socket_path(work.socket)
    authority, work_dir = certificates.find_authority(key), Path(work.work)
    with files.disk_errors(work_dir, "create"):
        (work_dir / "flwr").mkdir(parents=True)
    work.save()
    words = [
        *("supernode", "--superlink", server, "--root-certificates", str(authority)),
        *("--auth-supernode-private-key", str(key), "--isolation", "process"),
    ]
    say(f"client {work.client} takes part in the run of {server} until it is stopped")
    log, is_reported, environment = work_dir / "supernode.txt", False, _environment(work, work_dir / "flwr")
    while True:
        with files.disk_errors(work_dir, "write"):
            log.unlink(missing_ok=True)
            work.socket.unlink(missing_ok=True)
        with _FlowerProgram(words, environment, log) as node:
            code = _serve_messages(node, environment, work_dir / "clientapp.txt", say)
        output = log.read_text(errors="replace")
        if UNKNOWN_KEY_MARK not in output and ACTIVATED_MARK not in output:
            return code
        if code < 0:
            say(f"note: Flower's program of the device {children.describe_exit(code)}; it is restarted")
        # A restarted server ends the programs that the previous one had accepted.
        elif not is_reported:
            say(f"the server has not registered {key} (or was restarted); retrying every {RETRY_PAUSE:g} s")
            is_reported = True
        time.sleep(RETRY_PAUSE)


def _serve_messages(node, environment, log, say):
    """Start a process for each message until Flower's program of the device ends, and return its exit code."""
    while True:
        with _FlowerProgram(["clientapp"], environment, log) as app:
            while (code := node.poll()) is None and app.poll() is None:
                time.sleep(POLL_INTERVAL)
        if code is not None:
            return code
        if app.returncode:
            say(f"note: a message got no response: its process {children.describe_exit(app.returncode)}; see {log}")
            # Pause: a process that always fails would keep the machine busy.
            time.sleep(RETRY_PAUSE)


def _environment(work, flower_home):
    """The environment variables of Flower's programs, without FLWR_ variables of the user."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("FLWR_")}
    return {**others, job.VARIABLE: str(work.file), "FLWR_HOME": str(flower_home), "FLWR_TELEMETRY_ENABLED": "0"}


class _FlowerProgram:
    """Context manager that runs one of Flower's programs; the program ends with the block."""

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
    """Run one of `flower_child.CLIENTS`; return the JSON objects that it printed, and its last line.

    Raises:
        WorkerLost: It takes longer than `COMMAND_TIMEOUT`.
    """
    # It ends at the end of its standard input, so keep that open until it has responded.
    reading, writing = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, str(CHILD), program, *words],
            stdin=reading,
            capture_output=True,
            text=True,
            env=environment,
            timeout=COMMAND_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        raise WorkerLost(
            f"Flower's server did not respond within {COMMAND_TIMEOUT:g} s; start the command again"
        ) from None
    finally:
        os.close(reading)
        os.close(writing)
    return _parse_json_objects(done), _last((done.stdout + done.stderr).splitlines())


def _register(keys, environment, server, log):
    """Register the keys of the devices with the server: `{node id: client number}`."""
    until = time.monotonic() + START_TIMEOUT
    while True:
        responses, last = _flwr("register", [str(key) for key in keys.values()], environment)
        nodes = [line["node-id"] for line in responses if "node-id" in line]
        if len(nodes) == len(keys):
            return dict(zip(map(str, nodes), keys))
        if (code := server.poll()) is not None:
            last = _last(line for line in log.read_text(errors="replace").splitlines() if "ERROR" in line)
            raise UserError(f"Flower's server {children.describe_exit(code)}; see {log}: {last}")
        if nodes or time.monotonic() > until:
            raise UserError(f"Flower's server did not register the keys; see {log}: {last}")
        time.sleep(POLL_INTERVAL)


def _start_run(app, environment, log):
    """Start the run; its task then waits for the training process."""
    responses, last = _flwr("flwr", ["run", str(app), "own", "--format", "json"], environment)
    if not any(response.get("success") for response in responses):
        raise UserError(f"Flower's server did not start the run; see {log}: {last}")


def _parse_json_objects(done):
    """The JSON objects that Flower's command line printed; its exit code is 0 even after a failure."""
    objects, rest = [], done.stdout
    while (start := rest.find("{")) >= 0:
        try:
            value, end = json.JSONDecoder().raw_decode(rest, start)
        except ValueError:
            end = start + 1
        else:
            objects.append(value)
        rest = rest[end:]
    return objects


def _last(lines):
    lines = [line.strip() for line in lines if line.strip()]
    return lines[-1][:200] if lines else ""


def _follow(work: Job, processes: Mapping[str, subprocess.Popen], say: Callable[[str], None]) -> dict:
    """Print the console of a run until it has ended, and return its summary.

    Args:
        work: Job of the server.
        processes: Processes that the run needs, by their names in messages.
        say: Prints lines of the console.

    Raises:
        UserError: The run was refused.
        WorkerLost: One of the processes ended before the run.
    """
    printed = 0
    while True:
        # Poll before checking the outcome: a process may end right after it writes the outcome.
        codes = {name: process.poll() for name, process in processes.items()}
        ended = work.outcome.exists()
        if work.console.exists():
            text = work.console.read_text(encoding="utf-8", errors="replace")
            complete = text.rfind("\n") + 1
            if complete > printed:
                for line in text[printed : complete - 1].split("\n"):
                    say(line)
                printed = complete
        if ended:
            break
        for name, code in codes.items():
            if code is not None:
                raise WorkerLost(
                    f"{name} {children.describe_exit(code)}; see the logs in {work.work}; the same command resumes "
                    "after the last finished round"
                )
        time.sleep(POLL_INTERVAL)
    outcome = json.loads(work.outcome.read_bytes())
    if "refusal" in outcome:
        raise UserError(outcome["refusal"], outcome["code"])
    return outcome["summary"]
