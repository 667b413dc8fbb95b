"""Processes and devices that share the rounds of a run: equal to one process, and what happens where one is gone."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import methods
import numpy as np
import programs
import pytest

from hetero_tf.base.errors import BadInput, MemoryProblem, Refusal
from hetero_tf.planning.packing import pack_rounds
from hetero_tf.planning.sharing import deal, share_stacks
from hetero_tf.workers import local, messages
from hetero_tf.workers.cluster import Cluster, read_cluster

ADDRESSES = ("one:2000", "[::1]:2001", "10.0.0.3:65535")
# One of each kind of merge and memory; `python tests/shared_rounds.py NAME ...` tells about any other method.
QUICK = ("images", "scaffold")
LONG = ("on_disk", "text", "depthfl", "fedepth_peers", "fjord", "lg", "splitmix")
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


def test_a_process_alone_is_no_cluster():
    for text in ("", "{}", '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}'):
        assert read_cluster((), None, {"TF_CONFIG": text}) is None
    assert read_cluster(("a:1",), 0, {}) is None and read_cluster((), None, {}) is None


@pytest.mark.parametrize(
    ("workers", "worker", "config", "sentence"),
    [
        (ADDRESSES, None, "", "--workers needs --worker, which of them this process is: 0 to 2"),
        ((), 1, "", "--worker needs --workers, the host:port of each"),
        (ADDRESSES, 3, "", "--workers: worker must be 0 to 2. Received: 3"),
        (("a:1", "b"), 0, "", "--workers: an address must be host:port. Received: 'b'"),
        (("a:1", "b:70000"), 0, "", "must be host:port. Received: 'b:70000'"),
        (("a:1", "b:0"), 0, "", "must be host:port. Received: 'b:0'"),
        (("a:1", "a:1"), 0, "", "there may be 1024 different addresses. Received: 2, or one twice"),
        ((), None, "{", "TF_CONFIG must be JSON such as"),
        ((), None, '{"cluster": {"worker": ["a:1", "b:1"]}}', "TF_CONFIG must be JSON such as"),
        ((), None, '{"cluster": [1]}', "TF_CONFIG must be JSON such as"),
        (
            *((), None, '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "worker", "index": 0}}'),
            "TF_CONFIG may have the jobs chief and worker. Received: ps",
        ),
        (
            *((), None, '{"cluster": {"worker": ["a:1", 5]}, "task": {"type": "worker", "index": 0}}'),
            "TF_CONFIG: an address must be host:port. Received: 5",
        ),
    ],
)
def test_what_names_no_cluster_is_refused(workers, worker, config, sentence):
    with pytest.raises(BadInput, match=re.escape(sentence)):
        read_cluster(workers, worker, {"TF_CONFIG": config})


def test_stacks_are_dealt_by_cost_and_everyone_gets_one():
    assert deal(np.array([1.0, 5.0, 3.0, 3.0]), 2).tolist() == [0, 0, 1, 1]
    assert deal(np.zeros(3), 3).tolist() == [0, 1, 2]
    rng = np.random.default_rng(0)
    for _ in range(100):
        replicas = int(rng.integers(1, 9))
        costs = rng.gamma(1.0, size=int(rng.integers(replicas, 40)))
        loads = np.bincount(deal(costs, replicas), costs, replicas)
        least = max(costs.max(), costs.sum() / replicas)
        assert loads.min() > 0 and loads.max() <= 4 / 3 * least * 1.5
        # Nobody who has finished could have taken over the last job of another.
        last = min(costs[np.flatnonzero(deal(costs, replicas) == loads.argmax())])
        assert loads.max() - last <= loads.min() + 1e-9


@pytest.mark.parametrize("replicas", [2, 3, 9])
def test_shared_stacks_hold_the_same_clients(replicas):
    process = methods.built("fedprox")
    plan = process.plan(0)
    sizes = [stack.clients for stack in process.parts.engine.stacks]
    packed = pack_rounds([plan], sizes, process.family.submodel_of)
    shared = share_stacks(packed, np.arange(1.0, len(plan.clients) + 1), replicas)
    stacks = packed.clients.shape[1]
    assert shared.replicas.shape == shared.clients.shape[:2] == (1, max(stacks, replicas))
    assert set(shared.replicas.ravel().tolist()) == set(range(replicas))
    for old, new in zip(packed.arrays(), shared.arrays()):
        assert new.dtype == old.dtype and new[:, :stacks].tobytes() == old.tobytes()
    # What fills up trains nobody.
    assert (shared.clients[:, stacks:] == -1).all() and (shared.rows[:, stacks:] == -1).all()
    assert not shared.ticks[:, stacks:].any()


def test_a_message_is_what_was_sent():
    arrays = {
        "a/b": np.arange(5, dtype=np.int32),
        "x": np.array([np.nan, -0.0, 1e300]),
        "empty": np.zeros((0, 3), bool),
    }
    message = messages.unpack(messages.pack({"call": "run", "round": 3, "level": None}, arrays))
    assert message.words == {"call": "run", "round": 3, "level": None} and message.arrays.keys() == arrays.keys()
    for name, value in arrays.items():
        assert message.arrays[name].dtype == value.dtype and message.arrays[name].tobytes() == value.tobytes()


def test_a_message_that_is_too_long_is_refused(monkeypatch):
    monkeypatch.setattr(messages, "LONGEST", 100)
    with pytest.raises(MemoryProblem, match="what the workers must be told is too long: .* train this recipe with one"):
        messages.pack({}, {"x": np.zeros(100)})


def shared_rounds(*names):
    """What `shared_rounds.py` tells about some recipes."""
    path = os.pathsep.join([str(programs.ROOT), str(programs.ROOT / "tests")])
    done = subprocess.run(
        [sys.executable, str(programs.ROOT / "tests" / "shared_rounds.py"), *names],
        **{"capture_output": True, "text": True, "env": programs.environment(PYTHONPATH=path), "timeout": 1500},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    "names", [pytest.param(QUICK, id="quick"), pytest.param(LONG, id="others", marks=pytest.mark.long)]
)
def test_two_devices_equal_one(names):
    told = shared_rounds(*names)
    assert [each["name"] for each in told] == list(names)
    for each in told:
        assert each["moved"] > 1e-3, each
        assert max(each[what] for what in ("state", "rows", "metrics", "statistics")) < 1e-12, each
        assert each["traces"] == 1, each


def launched(processes, recipe, folder, *more, **options):
    return programs.command(
        "launch", f"--local={processes}", f"--recipe={recipe}", f"--run_dir={folder}", *EXACT, *more, **options
    )


def rows_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.long
def test_processes_equal_one_process(tmp_path):
    recipe = programs.recipe_file(tmp_path)
    more = "--set=evaluate.levels=all"
    done = launched(2, recipe, tmp_path / "two", more)
    assert done.returncode == 0, done.stderr
    assert "2 replicas share each round" in done.stdout and done.stdout.count("done in") == 1
    alone = programs.command(f"--recipe={recipe}", f"--run_dir={tmp_path / 'one'}", *EXACT, more)
    assert alone.returncode == 0, alone.stderr
    for one, two in zip(rows_of(tmp_path / "one"), rows_of(tmp_path / "two"), strict=True):
        assert one.keys() == two.keys() and one["levels"] == two["levels"]
        for name, value in one.items():
            assert two[name] == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value)
    facts = json.loads((tmp_path / "two" / "environment.json").read_text())
    assert facts["settings"]["replicas"] == 2
    # It goes on with another number of them, and says that bits may differ.
    again = programs.command(f"--recipe={recipe}", f"--run_dir={tmp_path / 'two'}", "--set=rounds=5", *EXACT, more)
    assert again.returncode == 0, again.stderr
    assert "note: 1 process or device trains each round in place of 2: the numbers" in again.stdout
    assert "resumed" in again.stdout and rows_of(tmp_path / "two")[-1]["round"] == 5


def test_workers_that_were_given_something_else_are_refused(tmp_path):
    recipe = programs.recipe_file(tmp_path)
    addresses = ",".join(f"127.0.0.1:{port}" for port in local.free_ports(2))
    command = [sys.executable, "-m", "hetero_tf", f"--recipe={recipe}", f"--workers={addresses}", "--threads=1"]
    started = [
        subprocess.Popen(
            [
                *command,
                f"--worker={index}",
                f"--run_dir={tmp_path / 'run'}",
                f"--set=optimizer.learning_rate=0.{5 + index}",
            ],
            **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": programs.environment()},
        )
        for index in range(2)
    ]
    for process in started:
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 2, said
        assert "all workers must be given the same; worker 1 has another recipe than worker 0" in said
    assert not (tmp_path / "run").exists()


def test_a_taken_port_is_told(tmp_path):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = programs.command(
            *(f"--recipe={programs.recipe_file(tmp_path)}", f"--run_dir={tmp_path / 'run'}", "--worker=0"),
            f"--workers={address},127.0.0.1:{local.free_ports(1)[0]}",
        )
    assert done.returncode == 2 and f"worker 0 cannot listen at {address}; is the port taken?" in done.stderr


def test_a_launch_tells_how_its_workers_ended():
    end = [sys.executable, "-c", "import sys; print('hetero_tf: no'); sys.exit(int('worker=1' in sys.argv[-1]) * 4)"]
    with pytest.raises(
        Refusal, match=r"^worker 0 ended well; worker 1 ended with exit code 4 \(no\); the same command"
    ):
        local.run_together(end, 2)
    assert local.run_together([sys.executable, "-c", ""], 3) is None


@contextlib.contextmanager
def running(recipe, folder):
    """A launch of two workers, and their process ids."""
    command = [sys.executable, "-m", "hetero_tf", "launch", "--local=2", f"--recipe={recipe}", f"--run_dir={folder}"]
    out = folder.parent / "out"
    with (
        out.open("w") as file,
        subprocess.Popen([*command, *EXACT], stdout=file, stderr=file, env=programs.environment()) as process,
    ):
        try:
            programs.wait_for(lambda: len(workers_of(process.pid)) == 2, 120)
            yield process, workers_of(process.pid), out
        finally:
            process.kill()


def workers_of(parent):
    """Process ids of the children of a process, whichever of its threads started them, in that order."""
    threads = Path(f"/proc/{parent}/task").iterdir()
    return sorted(int(pid) for thread in threads for pid in (thread / "children").read_text().split())


def finished(folder):
    """Rounds that a run has told about."""
    file = folder / "metrics.jsonl"
    return len(file.read_bytes().splitlines()) if file.is_file() else 0


@pytest.mark.long
def test_killed_workers_end_the_run_in_a_sentence_and_the_same_command_goes_on(tmp_path):
    """Random moments of a run; a worker that hangs is noticed by its heart beat, within half a minute."""
    rng = np.random.default_rng(7)
    recipe = programs.recipe_file(tmp_path, programs.RECIPE.replace("rounds: 4", "rounds: 5000"))
    folder, done = tmp_path / "run", 0
    for victim, number in ((0, signal.SIGKILL), (1, signal.SIGSTOP), (0, signal.SIGTERM)):
        with running(recipe, folder) as (process, workers, out):
            programs.wait_for(lambda: finished(folder) > done or process.poll() is not None, 120)
            time.sleep(rng.uniform(0, 1))
            os.kill(workers[victim], number)
            assert process.wait(60) != 0, out.read_text()
        said = out.read_text()
        assert "the same command goes on after the last finished round" in said and "Traceback" not in said, said
        rows = rows_of(folder)
        assert [row["round"] for row in rows] == list(range(1, len(rows) + 1)) and len(rows) > done
        done = len(rows)
        assert not [pid for pid in workers if os.path.exists(f"/proc/{pid}")]
