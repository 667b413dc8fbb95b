"""Processes and devices that share the rounds of a run equal one process; a run ends with a message if one is gone."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import methods
import numpy as np
import programs
import pytest
from ports import free_ports
from refusals import refusal

from hetero_tf.base.errors import MemoryProblem
from hetero_tf.planning.packing import assign_jobs, pack_rounds, share_blocks
from hetero_tf.workers import worker_rounds
from hetero_tf.workers.cluster import Cluster, read_cluster

ADDRESSES = ("my_run_1:2000", "[::1]:2001", "10.0.0.3:65535")
# One of each kind of merge and memory; `python tests/support/shared_rounds.py NAME ...` compares any other method.
QUICK = ("dense",)
LONG = (
    *("images", "adapters", "on_disk", "text"),
    *("scaffold", "depthfl", "fedepth_peers", "fjord", "lg", "splitmix", "qfedavg"),
)
# Double precision, so that only the order of summation differs; as many threads in all as one process has.
EXACT = ("--set=precision=float64", "--threads=2")


@pytest.mark.parametrize("index", range(3))
def test_flags_and_tf_config_name_the_same_cluster(index):
    wanted = Cluster(ADDRESSES, index)
    assert read_cluster(ADDRESSES, index, {}) == wanted and wanted.leads == (index == 0)
    config = {"cluster": {"worker": ADDRESSES}, "task": {"type": "worker", "index": index}}
    assert read_cluster((), None, {"TF_CONFIG": json.dumps(config)}) == wanted
    task = {"type": "worker", "index": index - 1} if index else {"type": "chief", "index": 0}
    config = {"cluster": {"chief": ADDRESSES[:1], "worker": ADDRESSES[1:]}, "task": task}
    assert read_cluster((), None, {"TF_CONFIG": json.dumps(config)}) == wanted


def test_single_process_is_not_a_cluster():
    for text in ("", "{}", '{"cluster": {"worker": ["a:1"], "chief": []}, "task": {"type": "worker", "index": 0}}'):
        assert read_cluster((), None, {"TF_CONFIG": text}) is None
    assert read_cluster(("a:1",), 0, {}) is None and read_cluster((), None, {}) is None


@pytest.mark.parametrize(
    ("workers", "worker", "sentence"),
    [
        (ADDRESSES, None, "--workers needs --worker, the index of this process: 0 to 2"),
        ((), 1, "--worker needs --workers, the host:port of each"),
        (ADDRESSES, 3, "--workers: worker must be 0 to 2. Received: 3"),
        *((("a:1", address), 0, f"must be host:port. Received: {address!r}") for address in ("b", "b:70000", "b:0")),
    ],
)
def test_invalid_clusters_are_refused(workers, worker, sentence):
    assert sentence in refusal(read_cluster, workers, worker, {})


TWO = {"worker": ["a:1", "b:1"]}
TASKS = [
    *({"type": kind, "index": 0} for kind in ("evaluator", "WORKER", "ps", None, ["worker"])),
    *({"type": "worker", "index": index} for index in (-1, 2, None)),
    *({"type": "chief", "index": 0}, None),
]


@pytest.mark.parametrize(
    "text", [*(json.dumps({"cluster": TWO, "task": task}) for task in TASKS), "{", "[" * 100_000, '{"cluster": [1]}']
)
def test_no_other_task_becomes_the_leading_worker(text):
    assert refusal(read_cluster, (), None, {"TF_CONFIG": text}).startswith("TF_CONFIG must be JSON such as")


def test_blocks_are_assigned_by_cost_and_every_replica_gets_one():
    assert assign_jobs(np.array([1.0, 5.0, 3.0, 3.0]), 2).tolist() == [0, 0, 1, 1]
    assert assign_jobs(np.zeros(3), 3).tolist() == [0, 1, 2]
    rng = np.random.default_rng(0)
    for _ in range(100):
        replicas = int(rng.integers(1, 9))
        costs = rng.gamma(1.0, size=int(rng.integers(replicas, 40)))
        loads = np.bincount(assign_jobs(costs, replicas), costs, replicas)
        least = max(costs.max(), costs.sum() / replicas)
        assert loads.min() > 0 and loads.max() <= 4 / 3 * least * 1.5
        # Nobody who has finished could have taken over the last job of another.
        last = min(costs[np.flatnonzero(assign_jobs(costs, replicas) == loads.argmax())])
        assert loads.max() - last <= loads.min() + 1e-9


@pytest.mark.parametrize("replicas", [2, 3, 9])
def test_shared_blocks_have_the_same_clients(replicas):
    process = methods.built("fedprox")
    plan = process.plan(0)
    packed, (slots,) = pack_rounds([plan], process.setup.block_sizes, process.family.submodel_of)
    shared = share_blocks(packed, slots, np.arange(1.0, len(plan.clients) + 1), replicas)
    stacks = packed.clients.shape[1]
    assert shared.replicas.shape == shared.clients.shape[:2] == (1, max(stacks, replicas))
    assert set(shared.replicas.ravel().tolist()) == set(range(replicas))
    for old, new in zip(packed._replace(replicas=shared.replicas[:, :stacks]), shared):
        assert new.dtype == old.dtype and new[:, :stacks].tobytes() == old.tobytes()
    # Padding trains no client.
    assert (shared.clients[:, stacks:] == -1).all() and (shared.rows[:, stacks:] == -1).all()
    assert not shared.ticks[:, stacks:].any()


def test_a_message_is_what_was_sent_or_too_long(monkeypatch):
    values = np.array([np.nan, -0.0, 1e300])
    words, arrays = worker_rounds.unpack(worker_rounds.pack(("run", None), {"words": values, "a/b": values[:0]}))
    assert words == ["run", None] and arrays["words"].tobytes() == values.tobytes() and arrays["a/b"].shape == (0,)
    monkeypatch.setattr(worker_rounds, "MAX_BYTES", 100)
    with pytest.raises(MemoryProblem, match="the message to the workers is too long: .* train this recipe with one"):
        worker_rounds.pack((), {"x": np.zeros(100)})


def shared_rounds(*names):
    """Return the comparisons that `shared_rounds.py` prints for some recipes."""
    run = programs.shared().run(*names, script="tests/support/shared_rounds.py")
    assert run.code == 0, run.err[-3000:]
    return [json.loads(line) for line in run.out.splitlines()]


@pytest.mark.parametrize(
    "names", [pytest.param(QUICK, id="quick"), pytest.param(LONG, id="others", marks=pytest.mark.long)]
)
def test_two_devices_equal_one(names):
    results = shared_rounds(*names)
    assert [each["name"] for each in results] == list(names)
    for each in results:
        assert each["moved"] > 1e-3, each
        assert max(each[what] for what in ("state", "rows", "metrics", "statistics")) < 1e-12, each
        assert each["traces"] == 1, each


@contextlib.contextmanager
def cluster(recipe, folder, *more):
    """Two workers of one run on loopback addresses."""
    addresses = ",".join(f"127.0.0.1:{port}" for port in free_ports(2))
    command = [sys.executable, "-m", "hetero_tf", f"--recipe={recipe}", f"--workers={addresses}"]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": programs.environment()}
    with contextlib.ExitStack() as stack:
        workers = []
        for index in range(2):
            words = [*command, f"--worker={index}", f"--run_dir={folder}", "--threads=1"]
            words += [word.format(index=index) for word in more]
            workers.append(stack.enter_context(subprocess.Popen(words, **options)))
            stack.callback(workers[-1].kill)
        yield workers


def rows_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def trained_by_workers(recipe, folder):
    with cluster(recipe, folder, "--set=precision=float64", "--set=evaluate.levels=all") as workers:
        output, _ = workers[0].communicate(timeout=600)
        assert [worker.wait(timeout=600) for worker in workers] == [0, 0], output
    return output


def trained_by_launch(recipe, folder):
    done = programs.command(
        *("launch", "--local=2", f"--recipe={recipe}", f"--run_dir={folder}", *EXACT, "--set=evaluate.levels=all")
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


ALONE = (*EXACT, "--set=evaluate.levels=all")


@pytest.fixture(scope="module")
def trained_alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    run = programs.shared().run(f"--recipe={programs.recipe_file(folder)}", *ALONE, f"--run_dir={folder / 'run'}")
    assert run.code == 0, run.err
    return rows_of(folder / "run")


@pytest.mark.long
@pytest.mark.parametrize("trained", [trained_by_workers, trained_by_launch])
def test_shared_rounds_equal_those_of_one_process(tmp_path, trained, trained_alone):
    recipe, folder = programs.recipe_file(tmp_path), tmp_path / "two"
    output = trained(recipe, folder)
    assert "2 replicas share each round" in output and output.count("done in") == 1
    for one, two in zip(trained_alone, rows_of(folder), strict=True):
        assert one.keys() == two.keys() and one["levels"] == two["levels"]
        for name, value in one.items():
            assert two[name] == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value)
    assert json.loads((folder / "environment.json").read_text())["settings"]["replicas"] == 2
    # It goes on with another number of them, and says that bits may differ.
    again = programs.shared().run(f"--recipe={recipe}", *ALONE, f"--run_dir={folder}", "--set=rounds=5")
    assert again.code == 0, again.err
    assert "note: 1 process or device trains each round instead of 2: results" in again.out
    assert "resumed" in again.out and rows_of(folder)[-1]["round"] == 5


def listening_ports(pid):
    """TCP ports on which a process or one of its descendants listens."""
    pids, sockets = [pid], set()
    for each in pids:
        pids += children_of(each)
        for descriptor in Path(f"/proc/{each}/fd").iterdir():
            with contextlib.suppress(OSError):
                sockets.add(os.readlink(descriptor))
    tables = [Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    columns = [line.split() for table in tables for line in table]
    return {int(row[1].rpartition(":")[2], 16) for row in columns if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}


@pytest.mark.long
def test_a_launch_listens_on_no_port_and_ends_by_a_signal(tmp_path):
    recipe = programs.recipe_file(tmp_path, programs.RECIPE.replace("rounds: 4", "rounds: 5000"))
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert server.getsockname()[1] in listening_ports(os.getpid())
    run = programs.shared().start("launch", "--local=2", f"--recipe={recipe}", f"--run_dir={tmp_path / 'run'}")
    try:
        assert run.until(lambda: finished(tmp_path / "run") > 0), run.err
        assert "2 replicas share each round" in run.out and listening_ports(run.pid) == set()
    finally:
        run.kill(signal.SIGTERM)
    assert run.wait() == 143
    assert run.err == "\nstopped by SIGTERM; finished rounds are saved; the same command continues from there\n"


@pytest.mark.long
def test_workers_warn_of_their_port_and_refuse_different_recipes(tmp_path):
    recipe = programs.recipe_file(tmp_path)
    with cluster(recipe, tmp_path / "run", "--set=optimizer.learning_rate=0.{index}5") as workers:
        for worker in workers:
            output, _ = worker.communicate(timeout=300)
            port = re.search(r"--workers=(\S+)", " ".join(worker.args))[1].split(",")[workers.index(worker)][10:]
            assert worker.returncode == 2, output
            assert (
                f"warning: TensorFlow listens on port {port} of all network interfaces, without encryption or "
                "authentication; a program that can connect can run operations that read and write files as this "
                "user. Use a private network\n"
            ) in output
            assert "all workers must have the same settings; worker 1 has another recipe than worker 0" in output
    assert not (tmp_path / "run").exists()


def test_port_in_use_is_reported(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        run = programs.shared().run(
            *(f"--recipe={programs.recipe_file(tmp_path)}", f"--run_dir={tmp_path / 'run'}", "--worker=0"),
            f"--workers={address},127.0.0.1:{free_ports(1)[0]}",
        )
    assert run.code == 2 and f"worker 0 cannot listen at {address}; is the port in use?" in run.err


def children_of(parent):
    children = []
    for thread in Path(f"/proc/{parent}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the thread ended
            children += map(int, (thread / "children").read_text().split())
    return children


def finished(folder):
    file = folder / "metrics.jsonl"
    return len(file.read_bytes().splitlines()) if file.is_file() else 0


@pytest.mark.long
def test_killed_workers_end_the_run_with_a_message_and_the_same_command_resumes(tmp_path):
    """Random moments of a run; a worker that hangs is noticed by its heart beat, within half a minute."""
    rng = np.random.default_rng(7)
    recipe = programs.recipe_file(tmp_path, programs.RECIPE.replace("rounds: 4", "rounds: 5000"))
    folder, done = tmp_path / "run", 0
    for victim, number in ((0, signal.SIGKILL), (1, signal.SIGSTOP), (0, signal.SIGTERM)):
        with cluster(recipe, folder) as workers:
            programs.wait_for(lambda: finished(folder) > done or workers[0].poll() is not None, 120)
            time.sleep(rng.uniform(0, 1))
            workers[victim].send_signal(number)
            output, _ = workers[1 - victim].communicate(timeout=60)
        assert workers[1 - victim].returncode == 8, output
        assert "start the same command again on all workers" in output and "Traceback" not in output, output
        rows = rows_of(folder)
        assert [row["round"] for row in rows] == list(range(1, len(rows) + 1)) and len(rows) > done
        done = len(rows)
