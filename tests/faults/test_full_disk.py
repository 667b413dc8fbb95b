"""Full disks, file size limits, read-only file systems, and two processes with one run folder."""

import os
import platform
import resource
import signal
import subprocess
import sys
import threading

import numpy as np
import programs
import pytest
import saved_rounds

from hetero_tf.base.errors import DiskProblem, Locked
from hetero_tf.runs import checkpoints, metrics_file
from hetero_tf.runs.run_folder import RunFolder

HOLD = """
import os, sys
from hetero_tf.base.errors import UserError
from hetero_tf.runs.run_folder import RunFolder
try:
    with RunFolder(sys.argv[1]).lock():
        print("locked", os.getpid(), flush=True)
        sys.stdin.readline()
except UserError as error:
    print(error, flush=True)
    sys.exit(error.code)
"""


def holder(folder):
    """Start a process that locks a run folder until its standard input ends."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", HOLD, folder], **pipes, text=True, env=programs.environment())


def stop(process):
    process.stdin.close()
    process.stdout.close()
    process.wait(timeout=600)


@pytest.fixture
def file_limit():
    """Limit the files of this process to 4 kB; Python ignores the signal, so writing fails with EFBIG."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_file_size_limit(tmp_path, file_limit):
    folder = tmp_path / "checkpoints"
    saved_rounds.fill(folder, [1, 2])
    with pytest.raises(
        DiskProblem, match=r"round-000003.npz: could not write: File too large; raise the file size limit"
    ):
        checkpoints.save(folder, 3, {"x": np.zeros(5000)}, {}, keep=2)
    assert sorted(os.listdir(folder)) == ["round-000001.npz", "round-000002.npz"]
    saved_rounds.fill(folder, [3])
    saved_rounds.check(checkpoints.load_newest(folder), {3})


def test_metrics_row_that_does_not_fit_leaves_no_half_row(tmp_path, file_limit):
    path = tmp_path / "metrics.jsonl"
    metrics_file.append(path, {"round": 1})
    with pytest.raises(DiskProblem, match="metrics.jsonl: could not append to: File too large"):
        metrics_file.append(path, {"round": 2, "text": "x" * 5000})
    metrics_file.append(path, {"round": 3})
    assert metrics_file.rows(path) == [{"round": 1}, {"round": 3}]


def run_in_small_mount(folder, script):
    """Run a shell script with a private 2 MB file system at `folder`."""
    if subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=2m", "none", folder], capture_output=True
    ).returncode:
        pytest.skip("no right to mount a small file system here")
    mounting = f"set -e; mount -t tmpfs -o size=2m none {folder}; {script}"
    options = {"capture_output": True, "text": True, "timeout": 600, "env": programs.environment()}
    return subprocess.run(["unshare", "-m", "sh", "-c", mounting], **options)


def child(folder, first, last, size):
    return " ".join(map(str, (sys.executable, "-B", saved_rounds.__file__, folder, first, last, size)))


def test_full_file_system(tmp_path):
    """2 MB have room for small rounds but not for a large one; small rounds are saved afterwards."""
    folder = tmp_path / "checkpoints"
    script = (
        f"{child(folder, 1, 2, 50)}; {child(folder, 3, 3, 200000)} || echo exit $?; "
        f"ls -A {folder}; {child(folder, 3, 3, 50)}; ls -A {folder}"
    )
    result = run_in_small_mount(tmp_path, script)
    assert result.returncode == 0, result.stderr
    full, rest = result.stdout.split("exit 3\n")
    assert (
        "round-000003.npz: could not write: No space left on device; free some space and run the same command" in full
    )
    assert rest == "".join(f"round-00000{number}.npz\n" for number in (1, 2, 2, 3))


def test_read_only_file_system(tmp_path):
    folder = tmp_path / "checkpoints"
    script = f"{child(folder, 1, 2, 50)}; mount -o remount,ro {tmp_path}; {child(folder, 3, 3, 50)} || echo exit $?; ls -A {folder}"
    result = run_in_small_mount(tmp_path, script)
    assert "Read-only file system; choose a folder that can be written\nexit 3\n" in result.stdout, result.stderr
    assert result.stdout.endswith("round-000001.npz\nround-000002.npz\n")


def test_vanished_run_folder(tmp_path):
    with pytest.raises(
        DiskProblem, match="checkpoints: could not create the folder: No such file.*its folder does not exist"
    ):
        saved_rounds.fill(tmp_path / "gone" / "checkpoints", [1])
    assert os.listdir(tmp_path) == []


def test_one_process_gets_the_lock(tmp_path):
    """The winner keeps the lock, so every other process must fail and name it."""
    processes = [holder(tmp_path / "run") for _ in range(6)]
    lines = [process.stdout.readline().strip() for process in processes]
    winners = [process for process, line in zip(processes, lines) if line.startswith("locked ")]
    try:
        assert len(winners) == 1, lines
        message = f"{tmp_path / 'run'}: process {winners[0].pid} works on this run folder; wait for it"
        losers = [process for process in processes if process is not winners[0]]
        assert [line for line in lines if not line.startswith(("locked ", message))] == []
        assert [process.wait(timeout=600) for process in losers] == [Locked.code] * 5
    finally:
        for process in processes:
            stop(process)


def test_lock_is_freed_by_kill(tmp_path):
    process = holder(tmp_path / "run")
    assert process.stdout.readline() == f"locked {process.pid}\n"
    with pytest.raises(Locked, match=f"process {process.pid} works"), RunFolder(tmp_path / "run").lock():
        pass
    process.send_signal(signal.SIGKILL)
    stop(process)
    with RunFolder(tmp_path / "run").lock():
        assert (tmp_path / "run" / "run.lock").read_text() == f"{os.getpid()} {platform.node()}\n"


def test_reads_while_checkpoints_are_pruned(tmp_path):
    """With keep=1 a file that a reader has listed is often deleted before it is read."""
    checkpoints.save(tmp_path, 0, {"x": np.full(100, 0)}, {}, keep=1)
    done, problems, reads = threading.Event(), [], []

    def read():
        while not done.is_set():
            try:
                loaded = checkpoints.load_newest(tmp_path)
                reads.append(loaded.round)
                assert set(loaded.arrays["x"]) == {loaded.round}
            except BaseException as problem:
                problems.append(repr(problem))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, 60):
        checkpoints.save(tmp_path, number, {"x": np.full(100, number)}, {}, keep=1)
    done.set()
    reader.join()
    assert not problems and reads == sorted(reads) and len(set(reads)) > 5, problems[:3]
