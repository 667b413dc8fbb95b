"""Trials with invalid recipes, overrides, flags and starts: one message within seconds, or a valid run."""

import copy
import os
import re
import subprocess
import time
from pathlib import Path

import programs
import yaml

from campaign.cases import CASES, IMAGES
from campaign.world import Failed, is_sentence
from hetero_tf import recipe
from hetero_tf.base.console import escape_unprintable
from hetero_tf.base.errors import UserError
from hetero_tf.recipe.nodes import MAX_PRINTED_ERRORS

NASTY = (
    None, True, -1, 0, 1, 2, 1e308, -1e308, 1e-308, 10**30, -(10**30), float("nan"), float("inf"), 0.5, "", "x", "none",
    "a" * 2000, "../../etc/passwd", "/dev/zero", "/proc/kmsg", "\x1b[31m", "\u202e", "nul\0", "{}", "!w 4", "&a *a",
    "yaml.py", "__import__('os')", [], {}, [[]], [None], {"name": None}, {"name": "x"}, {"x": {"x": {}}}, ["a"] * 50,
)  # fmt: skip
RECIPES = sorted((Path(__file__).parents[2] / "recipes").rglob("*.yaml"))
# Limit of processor seconds for reading a recipe or a file.
SECONDS = 2
# Prefix that runs a command with a read-only /dev/shm.
WITHOUT_SHARED_MEMORY = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o ro none /dev/shm && exec "$@"', "sh")
# The recipe's own tags are texts while a recipe is mutated.
TAGS = r"!(w \S+?|setting [\w.]+|classes)(?=[\s,}\]])"


def value_paths(tree, path=()):
    """Generate the paths of all values of a tree."""
    yield path
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, child in children:
        yield from value_paths(child, (*path, key))


def change(tree, rng, deepest=100):
    """Replace, remove, move or repeat a value, key or item of a tree with a path of at most `deepest` keys."""
    paths = [path for path in value_paths(tree) if path and len(path) <= deepest]
    if not paths:
        return
    path, parent = rng.choice(paths), tree
    for key in path[:-1]:
        parent = parent[key]
    key, action = path[-1], rng.random()
    if action < 0.5:
        parent[key] = copy.deepcopy(rng.choice(NASTY))
    elif action < 0.65:
        del parent[key]
    elif action < 0.8 and isinstance(parent, dict):
        parent[rng.choice((str(key) + "s", str(key).upper(), "name", "x", str(key)[:-1]))] = parent.pop(key)
    elif isinstance(parent, list):
        parent.insert(rng.randint(0, len(parent)), parent[key])
    else:
        value = tree
        for step in rng.choice(paths):
            value = value[step]
        parent[key] = copy.deepcopy(value)


def mutated(text, rng):
    """Return a recipe with one to three changes."""
    tree = yaml.safe_load(re.sub(TAGS, r"'!\1'", text))
    for _ in range(rng.randint(1, 3)):
        change(tree, rng)
    return re.sub(r"'!([^']*)'", r"!\1", yaml.safe_dump(tree, allow_unicode=True, width=1000))


def sentence(problem):
    """Check that an error is one printable message, or the errors of a recipe after their number.

    A message is optionally followed by the line of the recipe and a mark below it.
    """
    text = escape_unprintable(str(problem))
    first, *lines = text.split("\n")
    if count := re.fullmatch(r".+: (\d+) errors", first):
        marks = [index for index, line in enumerate(lines) if line.strip() == "^"]
        messages = [line for index, line in enumerate(lines) if not {index, index + 1} & set(marks)]
        expected = min(int(count[1]), MAX_PRINTED_ERRORS) + (int(count[1]) > MAX_PRINTED_ERRORS)
        if len(messages) == expected and all(map(is_sentence, messages)):
            return
    if not is_sentence(text):
        raise Failed(f"not one printable sentence: {str(problem)!r}")


def recipe_is_read(world, rng):
    """A mutated recipe is read or rejected within seconds."""
    text = mutated(rng.choice(RECIPES).read_text() if rng.random() < 0.5 else IMAGES, rng)
    began, result = time.process_time(), "read"
    try:
        recipe.loads(
            text,
            "fuzz.yaml",
            [f"{rng.choice(('seed', 'rounds', 'levels.mix', 'x.y'))}={rng.choice(NASTY)}"]
            if rng.random() < 0.3
            else [],
        )
    except UserError as problem:
        sentence(problem)
        result = "refused"
    if time.process_time() - began > SECONDS:
        raise Failed(f"took {time.process_time() - began:.1f} s:\n{text}")
    return result


def recipe_is_described(world, rng):
    """The program describes a readable mutated recipe, trains it for a round, or rejects it."""
    for _ in range(300):
        original, overrides = CASES[rng.choice(list(CASES))]
        text = mutated(original, rng)
        try:
            recipe.loads(text, "fuzz.yaml", overrides)
        except UserError:
            continue
        break
    path = world.folder / "fuzz.yaml"
    path.write_text(text)
    settings = [f"--set={override}" for override in overrides]
    folder = world.fresh()
    command = rng.choice((("describe",), ("--set=rounds=1", "--run_dir", folder)))
    run = world.programs.start(*command, "--recipe", path, *settings, cwd=world.here)
    world.soon(run, f"{command}\n{text}")
    world.drop(folder)
    return f"{'described' if command[0] == 'describe' else 'trained'}, exit {run.code}"


def flags(world, rng):
    """Random flags and arguments."""
    words = ["describe", "evaluate", "export", "--recipe", "--run_dir", "--threads", "--engine", "--level", "--set",
             "--data_dir", "--plugin", "--state", "--out", "--json", "--overwrite", "--draw", "--", "-h", "--x"]  # fmt: skip
    arguments = rng.choice(([], ["--recipe", world.recipes["heterofl"]]))
    for _ in range(rng.randint(0, 3)):
        word = rng.choice(words)
        arguments.append(rng.choice((word, f"{word}={str(rng.choice(NASTY))}")).replace("\0", ""))
        if rng.random() < 0.5:
            arguments.append(str(rng.choice((*NASTY, world.recipes["heterofl"], "tiny/digits"))).replace("\0", ""))
    run = world.programs.start(*arguments, "--set", "rounds=1", "--run_dir", world.fresh(), cwd=world.here)
    world.soon(run, arguments)
    return f"exit {run.code}"


def extreme_runs(world, rng):
    """One client, one example, one class, levels without clients, batches larger than the data: runs or is rejected."""
    settings = [
        *rng.sample(
            ["partition.clients=1", "round.clients=1", "client.batch_size=1", "client.batch_size=1000",
             "data.examples=6", "data.test_examples=1", "data.classes=2", "levels.mix=a", "levels.mix=a1-b999",
             "evaluate.batch_size=1", "client.epochs=3", "data.size=1", "data.channels=3", "input.mean=[0.1, 0.2, 0.3]",
             "fleet={devices: {any: {seconds_per_step: 1, dropout: 0.99}}}", "optimizer.learning_rate=1e6", "optimizer.learning_rate=1e-30",
             "partition={name: labels, clients: 6, per_client: 1}", "evaluate.every=100", "checkpoint.every=100",
             "engine=stacked", "precision=float64", "partition={name: dirichlet, clients: 6, alpha: 0.01}",
             "optimizer.clip_norm=1e-30", "rounds=1", "data.examples=7", "levels.widths={a: 1.0, b: 0.001}"],
            rng.randint(1, 5),
        ),
        "rounds=2",
    ]  # fmt: skip
    folder = world.fresh()
    run = world.start("heterofl", folder, *(f"--set={setting}" for setting in settings))
    world.soon(run, settings)
    if run.code == 0 and b"NaN" in (folder / "metrics.jsonl").read_bytes():
        raise Failed(f"{settings}: NaN in the metrics")
    world.drop(folder)
    return f"exit {run.code}"


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


TRIALS = (recipe_is_read, recipe_is_described, flags, extreme_runs, started_among_strangers)
