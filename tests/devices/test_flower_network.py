"""A round over Flower's network, with TLS and keys: it is the simulator's, and whoever lies is refused."""

import json
import ssl
import subprocess
import sys
import sysconfig
import urllib.error
import urllib.request
import venv

import programs
import pytest
from fleets import LocalFleet, check_equal
from ports import free_ports

import hetero_tf
from hetero_tf import export
from hetero_tf.devices.device_rounds import deployed
from hetero_tf.devices.fleet_api import MAX_BODY_BYTES
from hetero_tf.devices.machine import share_of
from hetero_tf.devices.tensorflow_client import TensorFlowClient
from hetero_tf.recipe import load

pytestmark = [pytest.mark.long, pytest.mark.skipif(sys.version_info < (3, 11), reason="Flower needs Python 3.11")]
OVERRIDES = (
    "partition={name: iid, clients: 3}",
    *("round.clients=3", "rounds=1", "levels.mix=a-c", "levels.assignment=fixed"),
    *("evaluate.statistics=clients", "evaluate.best=global_accuracy"),
)
# The rounds are compared with those of other programs, which use the graph optimizer and oneDNN too.
OPTIMIZE_GRAPHS = True
WORDS = ("--recipe=tiny/digits", *(f"--set={override}" for override in OVERRIDES))
# A plug-in whose import makes its device answer with another shape.
LIAR = """
import numpy as np
from hetero_tf.devices import messages
from hetero_tf.devices import machine
honest = machine.LiteRTClient.respond
def multiplier(round):
    return 1.0
def respond(self, action, request):
    response = honest(self, action, request)
    if action == "training":
        wrong = {**response.arrays, next(iter(response.arrays)): np.zeros(3, np.float32)}
        response = messages.Message(wrong, response.metadata)
    return response
machine.LiteRTClient.respond = respond
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A Python with Flower in front of what this one has: Flower holds some packages back that others want newer."""
    folder = tmp_path_factory.mktemp("flower")
    venv.create(folder, symlinks=True)
    bin_, site_packages = folder / "bin", next(folder.glob("lib/python*/site-packages"))
    (site_packages / "beside.pth").write_text(sysconfig.get_path("purelib"))
    subprocess.run([bin_ / "python", "-m", "pip", "install", "-q", "flwr>=1.41,<1.43"], check=True, capture_output=True)
    return bin_ / "python"


def start(python, folder, name, *words):
    """Starts `hetero_tf flower WORDS`; what it says goes to a file."""
    environment = programs.environment(PYTHONPATH=f"{programs.ROOT}:{folder}", TF_ENABLE_ONEDNN_OPTS=None)
    with (folder / f"{name}.txt").open("wb") as out:
        command = [python, "-m", "hetero_tf", "flower", *WORDS, "--threads=1", *words]
        return subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=folder)


def status_of(url, authority, size, headers):
    """The status with which the server answers a request of some bytes."""
    context = ssl.create_default_context(cafile=authority)
    request = urllib.request.Request(url, data=bytes(size), headers=headers, method="POST")
    try:
        return urllib.request.urlopen(request, context=context, timeout=20).status
    except urllib.error.HTTPError as error:
        return error.code


def test_a_round_over_the_network_is_the_simulators_and_a_liar_is_refused(python, tmp_path):
    process = hetero_tf.learning_process(load("tiny/digits", (*OVERRIDES, "engine=sequential")))
    state, levels = process.initialize(), [share_of(process.recipe, 3, n, None)[1] for n in range(3)]
    assert levels == ["a", "c", "c"]
    version, _ = export.export(
        process, state, process.statistics(state, "c"), tmp_path, {}, "c", others=["litert_train"]
    )
    (tmp_path / "liar.py").write_text(LIAR)
    address, (port,) = "127.0.0.1", free_ports(1)
    server = f"--address={address}:{port}"
    assert start(python, tmp_path, "keys", "keys", server, "--out=fleet").wait(60) == 0
    run = start(python, tmp_path, "server", "server", server, "--certificates=fleet", "--run_dir=run")
    flags = {0: [], 1: [f"--litert={version}"], 2: [f"--litert={version}", "--plugin=liar"]}
    devices = [
        start(python, tmp_path, f"device{n}", "client", server, f"--client={n}", f"--key=fleet/devices/{n}.key", *words)
        for n, words in flags.items()
    ]
    try:
        output_file = tmp_path / "server.txt"
        programs.wait_for(lambda: "devices can connect" in output_file.read_text() or run.poll() is not None, 120)
        authority = tmp_path / "fleet" / "authority.pem"
        url = f"https://{address}:{port}/v1/fleet/push-messages"
        assert status_of(url, authority, MAX_BODY_BYTES + 1, {}) == 413
        # Without the signature of a registered key.
        assert status_of(url, authority, 0, {"content-type": "application/protobuf"}) == 401
        for path in ("control/start-run", "control/list-runs", "runtime/acquire-task"):
            assert status_of(f"https://{address}:{port}/v1/{path}", authority, 10, {}) == 403
        with pytest.raises(urllib.error.URLError, match="certificate verify failed"):
            urllib.request.urlopen(url, timeout=20)
        assert run.wait(300) == 0, output_file.read_text()
    finally:
        for each in (run, *devices):
            each.terminate()
        for each in (run, *devices):
            each.wait(30)
    (row,) = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    assert (row["refused"], row["dropped"], row["non_finite"], row["levels"]) == (1, 0, 0, {"a": 1, "c": 2})
    assert "client 2 was refused: value" in output_file.read_text() and row["global_accuracy"] > 20
    # Only client 1 reports the time of its steps: client 0 trains with TensorFlow.
    ((level, device),) = load("tiny/digits", (f"fleet={tmp_path}/run/fleet.yaml", "levels.mix=c")).fleet.devices.items()
    assert level == "c" and 0 < device.seconds_per_step < 60
    _, actual = hetero_tf.load_run(tmp_path / "run", "last", threads=1)
    fleet = LocalFleet(
        process, {n: TensorFlowClient(process, n, n, levels[n]) for n in range(3)}, {2: lambda answer: None}
    )
    expected, (alone,) = deployed(process, fleet).run(state, [process.plan(0)])
    check_equal(actual, expected)
    assert [alone[name] for name in ("bytes_down", "loss")] == [row["bytes_down"], pytest.approx(row["loss"], rel=1e-5)]


def test_devices_continue_with_a_restarted_server(python, tmp_path):
    rounds, (port,) = ("--set=rounds=4", "--set=round.clients=1"), free_ports(1)
    address = f"--address=127.0.0.1:{port}"
    assert start(python, tmp_path, "keys", "keys", address, "--out=fleet").wait(60) == 0
    device = start(python, tmp_path, "device", "client", address, "--client=0", "--key=fleet/devices/0.key", *rounds)
    metrics = tmp_path / "run" / "metrics.jsonl"
    server = ("server", address, "--certificates=fleet", "--run_dir=run")
    try:
        with start(python, tmp_path, "first", *server, *rounds) as first:
            # The second row follows the checkpoint of the first round.
            programs.wait_for(lambda: metrics.exists() and metrics.read_text().count("\n") == 2, 300)
            first.kill()
        assert start(python, tmp_path, "second", *server, *rounds).wait(300) == 0
    finally:
        device.terminate()
    assert "resumed run after round" in (tmp_path / "second.txt").read_text()
    assert [json.loads(line)["dropped"] for line in metrics.read_text().splitlines()] == [0] * 4
    assert "was restarted; retrying" in (tmp_path / "device.txt").read_text()
    assert device.wait(30) == 143
