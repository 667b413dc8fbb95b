"""Invalid recipes, command lines and starts: a valid run, or one error message."""

import contextlib
import copy
import os
import re
import subprocess
import sys
import time

import programs
import pytest
import yaml
from each import for_each
from hypothesis import Phase, settings
from hypothesis import given as for_all
from hypothesis import strategies as st
from run_cases import CASES, IMAGES
from world import assert_sentences

from hetero_tf import recipe
from hetero_tf.base.console import escape_unprintable
from hetero_tf.base.errors import UserError

COSTLY = settings(max_examples=max(1, settings.default.max_examples // 40), phases=[Phase.explicit, Phase.generate])
ODD = (
    None, True, -1, 0, 1, 2, 1e308, -1e308, 1e-308, 10**30, -(10**30), float("nan"), float("inf"), 0.5, "", "x", "none",
    "a" * 2000, "../../etc/passwd", "/dev/zero", "/proc/kmsg", "\x1b[31m", "\u202e", "nul\0", "{}", "!w 4", "&a *a",
    "yaml.py", "__import__('os')", [], {}, [[]], [None], {"name": None}, {"name": "x"}, {"x": {"x": {}}}, ["a"] * 50,
)  # fmt: skip
RECIPES = sorted((programs.ROOT / "recipes").rglob("*.yaml"))
# The recipe's own tags are texts while a recipe is changed.
TAGS = r"!(w \S+?|setting [\w.]+|classes)(?=[\s,}\]])"
# Processor seconds for reading a recipe.
SECONDS = 2
OPTIONS = (
    "describe", "evaluate", "export", "--recipe", "--run_dir", "--threads", "--fleet", "--level", "--set", "--data_dir",
    "--plugin", "--state", "--out", "--json", "--overwrite", "--draw", "--", "-h", "--x",
)  # fmt: skip
EXTREMES = (
    "partition.clients=1", "round.clients=1", "client.batch_size=1", "client.batch_size=1000", "data.examples=6",
    "data.test_examples=1", "data.classes=2", "levels.mix=a", "levels.mix=a1-b999", "evaluate.batch_size=1",
    "client.epochs=3", "data.size=1", "data.channels=3", "input.mean=[0.1, 0.2, 0.3]", "optimizer.learning_rate=1e6",
    "fleet={devices: {any: {seconds_per_step: 1, dropout: 0.99}}}", "optimizer.learning_rate=1e-30", "engine=stacked",
    "partition={name: labels, clients: 6, per_client: 1}", "evaluate.every=100", "checkpoint.every=100",
    "precision=float64", "partition={name: dirichlet, clients: 6, alpha: 0.01}", "optimizer.clip_norm=1e-30",
    "data.examples=7", "levels.widths={a: 1.0, b: 0.001}",
)  # fmt: skip


def paths_of(tree, path=()):
    """Generate the paths of all values in a tree."""
    yield path
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, child in children:
        yield from paths_of(child, (*path, key))


def value_at(tree, path):
    for key in path:
        tree = tree[key]
    return tree


@st.composite
def changed(draw, text):
    """A recipe with one to three values that are replaced, removed, renamed, repeated or moved."""
    tree = yaml.safe_load(re.sub(TAGS, r"'!\1'", text))
    for _ in range(draw(st.integers(1, 3))):
        paths = [path for path in paths_of(tree) if path]
        path = draw(st.sampled_from(paths))
        parent, key, other = value_at(tree, path[:-1]), path[-1], draw(st.sampled_from(paths))
        action = draw(st.sampled_from(("replace", "replace", "remove", "rename", "move")))
        if action == "replace":
            parent[key] = copy.deepcopy(draw(st.sampled_from(ODD)))
        elif action == "remove":
            del parent[key]
        elif action == "rename" and isinstance(parent, dict):
            parent[draw(st.sampled_from((f"{key}s", str(key).upper(), "name", "x", str(key)[:-1])))] = parent.pop(key)
        else:
            parent[key] = copy.deepcopy(value_at(tree, other))
        if not tree:
            break
    return re.sub(r"'!([^']*)'", r"!\1", yaml.safe_dump(tree, allow_unicode=True, width=1000))


def any_of(texts):
    return st.sampled_from(texts).flatmap(changed)


@for_all(
    any_of([IMAGES, *(path.read_text() for path in RECIPES)]),
    st.lists(
        st.tuples(st.sampled_from(("seed", "rounds", "levels.mix", "x.y")), st.sampled_from(ODD)).map("%s=%s".__mod__),
        max_size=1,
    ),
)
def test_a_recipe_is_read_or_rejected_within_seconds(text, overrides):
    began = time.process_time()
    with contextlib.suppress(UserError):
        try:
            recipe.loads(text, "changed.yaml", overrides)
        except UserError as problem:
            assert_sentences(escape_unprintable(str(problem)))
            raise
    assert time.process_time() - began < SECONDS


@pytest.mark.long
@COSTLY
@for_all(st.sampled_from(list(CASES)), st.data(), st.booleans())
def test_a_readable_recipe_is_described_or_trained_or_rejected(world, case, data, is_trained):
    overrides = CASES[case][1]
    for _ in range(50):
        text = data.draw(changed(CASES[case][0]))
        with contextlib.suppress(UserError):
            recipe.loads(text, "changed.yaml", overrides)
            break
    path = world.folder / "changed.yaml"
    path.write_text(text)
    words = ["--set=rounds=1", "--run_dir", world.new_folder()] if is_trained else ["describe"]
    world.run(*words, "--recipe", path, *(f"--set={override}" for override in overrides))


@pytest.mark.long
@COSTLY
@for_all(
    st.lists(st.tuples(st.sampled_from(OPTIONS), st.sampled_from((*ODD, "tiny/digits"))), max_size=3), st.booleans()
)
def test_any_command_line_ends_with_one_message(world, words, has_recipe):
    line = ["--recipe", world.recipe("heterofl")] if has_recipe else []
    for number, (word, value) in enumerate(words):
        line += [word, str(value)] if number % 2 else [f"{word}={value}"]
    line = [str(word).replace("\0", "") for word in line]
    world.run(*line, "--set", "rounds=1", "--run_dir", world.new_folder())


@pytest.mark.long
@COSTLY
@for_all(st.lists(st.sampled_from(EXTREMES), min_size=1, max_size=5, unique=True))
def test_extreme_settings_train_or_are_rejected(world, extremes):
    folder = world.new_folder()
    run = world.finish(world.start("heterofl", folder, *(f"--set={each}" for each in (*extremes, "rounds=2"))))
    assert run.code or b"NaN" not in (folder / "metrics.jsonl").read_bytes()


# Redirections of the shell (bin/environment.sh opens closed streams as /dev/null), and changed variables; None removes
# one.
STARTS = {
    ">/dev/null": {"HOME": None},
    "2>/dev/null": {"LC_ALL": "C"},
    "</dev/null": {},
    ">/dev/null 2>/dev/null": {"TMPDIR": "/nowhere"},
    "| head -c 20": {},
    ">/dev/full": {"PYTHONIOENCODING": "ascii"},
    "": {"HOME": "/nowhere", "LC_ALL": "POSIX"},
}
# Runs a command with a read-only /dev/shm.
WITHOUT_SHARED_MEMORY = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o ro none /dev/shm && exec "$@"', "sh")


@pytest.mark.long
@for_each(STARTS)
def test_the_program_needs_no_streams_home_or_shared_memory(redirection, world):
    """Training ends with the same bits; a full standard output counts as a disk error."""
    folder, recipe_path = world.new_folder(), world.recipe("heterofl")
    env = programs.environment(**{"PYTHONPATH": None, **STARTS[redirection]})
    is_mounted = (
        not os.getuid() and not subprocess.run([*WITHOUT_SHARED_MEMORY, "true"], capture_output=True).returncode
    )
    for words in ("--help", f"--recipe {recipe_path} --run_dir {folder}"):
        # bin/hetero_tf ends with this start; before it, it might install an environment.
        line = f"{sys.executable} {programs.ROOT / 'bin' / 'start.py'} {words} {redirection}"
        command = [*(WITHOUT_SHARED_MEMORY if is_mounted else ()), "sh", "-c", line]
        done = subprocess.run(
            command, cwd=world.here, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        assert not re.search("Traceback|defect|Exception ignored", done.stderr), done.stderr
        assert done.returncode in ((0, 3) if "full" in redirection else (0,)), done.stderr
    assert programs.contents(folder) == programs.contents(world.undisturbed("heterofl")[0])
    assert not (world.folder / "EXECUTED").exists()
