"""Trials with requests outside the shapes of an export's signatures, and with starts in a hostile folder."""

import json
import os
import subprocess
import sys

import hostile_requests
import numpy as np
import programs

from campaign.world import Failed

TYPES = {"image": np.float32, "token_ids": np.int32, "image_bytes": object, "text": object}
TEXTS = (
    b"",
    b"x",
    b"a <mask> b",
    b"\xff\xfe",
    b"\0",
    b"a " * 70_000,
    b"\x89PNG\r\n\x1a\n",
    b"\xff\xd8\xff\xe0",
    b"BM",
    b"GIF89a",
)
REQUESTS = 30
# Prefix that runs a command with a read-only /dev/shm.
WITHOUT_SHARED_MEMORY = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o ro none /dev/shm && exec "$@"', "sh")


def request(rng, name, shape):
    """Return an array for an input: often with the right rank, with random sizes and values."""
    sizes = [rng.choice((0, 1, 2, 3, 8)) if size is None or rng.random() < 0.2 else size for size in shape]
    if rng.random() < 0.4:
        sizes = [rng.choice((0, 1, 2, 8)) for _ in range(rng.randint(0, 6))]
    if TYPES[name] is object:
        values = [rng.choice(TEXTS) + rng.randbytes(rng.choice((0, 0, 5, 200))) for _ in range(int(np.prod(sizes)))]
        array = np.empty(sizes, object)
        array.ravel()[:] = values
        return array
    wild = rng.choice((0, 0.5, 1, -1, 7, 1e9, -1e9, *((np.nan, np.inf) if TYPES[name] is np.float32 else ())))
    return np.full(sizes, wild, TYPES[name])


def served(world, rng):
    """Random requests to one process: each gets a result of the right rank or an error, and the process survives."""
    case = rng.choice(("heterofl", "text"))
    model = exported(world, case)
    kinds = hostile_requests.inputs(model)
    requests = [(name, rng.choice(kinds[name])) for name in rng.choices(list(kinds), k=REQUESTS)]
    path = world.folder / "requests.npz"
    np.savez(
        path, **{f"{n} {name}": request(rng, *input_of_request) for n, (name, input_of_request) in enumerate(requests)}
    )
    command = [sys.executable, str(programs.ROOT / "tests" / "support" / "hostile_requests.py"), str(model), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode or len(done.stdout.splitlines()) != REQUESTS:
        raise Failed(
            f"the server ended with {done.returncode} at request {len(done.stdout.splitlines())}: {done.stderr[-300:]}"
        )
    responses = [json.loads(line) for line in done.stdout.splitlines()]
    return f"{sum(isinstance(answer, dict) for answer in responses)} of {REQUESTS} answered"


def exported(world, case):
    """Export of an undisturbed run, created once, whose placeholders accept any shape."""
    folder = world.folder / f"export {case}"
    if not folder.exists():
        run = world.command("export", "--run_dir", world.unbroken(case)[2], "--out", folder)
        if run.code:
            raise Failed(f"does not export: {run.err}")
        hostile_requests.loosen(folder / "a" / "1")
    return folder / "a" / "1"


def started_among_strangers(world, rng):
    """Start the program with closed streams, without a home or shared memory, beside modules with well-known names."""
    shell = rng.choice((">&-", "2>&-", "<&-", ">&- 2>&-", ">&- 2>&- <&-", "| head -c 20", ">/dev/full", ""))
    variables = rng.choice(
        (
            {},
            {"HOME": None},
            {"LC_ALL": "C"},
            {"PYTHONPATH": ""},
            {"PYTHONPATH": ":"},
            {"TMPDIR": "/nowhere"},
            {"PYTHONIOENCODING": "ascii"},
            {"HOME": "/nowhere", "LC_ALL": "POSIX"},
        )
    )
    folder, whole = world.fresh(), world.unbroken("heterofl")[0]
    command, alone = rng.choice(("train", "describe", "help")), rng.random() < 0.3
    arguments = {
        "train": f"--recipe {world.recipes['heterofl']} --run_dir {folder}",
        "describe": f"describe --recipe {world.recipes['heterofl']}",
        "help": "--help",
    }[command]
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = {name: value for name, value in {**inherited, **variables}.items() if value is not None}
    line = f"{programs.ROOT / 'bin' / 'hetero_tf'} {arguments} {shell}"
    shared_memory = WITHOUT_SHARED_MEMORY if alone and not os.getuid() else ()
    done = subprocess.run([*shared_memory, "sh", "-c", line], cwd=world.here, env=environment, capture_output=True, text=True, timeout=600,
                          stdin=subprocess.DEVNULL, check=False)  # fmt: skip
    if "Traceback" in done.stderr or "defect" in done.stderr or "Exception ignored" in done.stderr:
        raise Failed(f"{line}, {variables}: {done.stderr[-400:]}")
    # A full standard output counts as a disk error; the results of a training are complete.
    if done.returncode not in ((0, 3) if "full" in shell else (0,)):
        raise Failed(f"{line}, {variables}: exit code {done.returncode}: {done.stderr[-400:]}")
    if command == "train" and programs.contents(folder) != whole:
        raise Failed(f"{line}, {variables}: other results")
    world.drop(folder)
    return f"{command} {shell}{' without shared memory' * bool(shared_memory)}".strip()


TRIALS = (served, started_among_strangers)
