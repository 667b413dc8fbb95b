"""Random damage to the files of two saved rounds, and of a run folder: one error message, or the correct values."""

import json
import os
import shutil
from collections import Counter

import numpy as np
import programs
import pytest
import runs
import saved_rounds
import stub_rounds
from refusals import refusal

from hetero_tf.base.errors import InputError, UserError
from hetero_tf.runs import checkpoints

pytestmark = pytest.mark.long

KINDS = ("flip", "truncate", "zero", "delete", "swap", "append")
# Without static batch normalisation, which only costs time here; round 3 is measured but has no checkpoint.
RECIPE = programs.RECIPE.replace("sbn", "none")
MORE = ("checkpoint.every=2", "rounds=5")
train_stub = runs.train_stub


def mutate(folder, kind, rng):
    """Damage one file (swap: two); return a description of the damage."""
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    name, other = rng.choice(names, 2, replace=False)
    path, data = folder / name, bytearray((folder / name).read_bytes())
    position = int(rng.integers(len(data)))
    if kind == "flip":
        data[position] ^= 1 << int(rng.integers(8))
    elif kind == "truncate":
        del data[position:]
    elif kind == "zero":
        data[position : position + 512] = bytes(len(data[position : position + 512]))
    elif kind == "append":
        data += rng.bytes(int(rng.integers(1, 600)))
    elif kind == "swap":
        data = bytearray((folder / other).read_bytes())
        (folder / other).write_bytes(path.read_bytes())
    path.write_bytes(data)
    if kind == "delete":
        path.unlink()
    return f"{kind} {name} at {position} ({other})"


def test_mutations_never_load_wrong_values(tmp_path):
    saved_rounds.fill(tmp_path / "template", [7, 8])
    rng, outcomes = np.random.default_rng(0), Counter()
    for number in range(200):
        folder, kind = tmp_path / str(number), KINDS[number % len(KINDS)]
        shutil.copytree(tmp_path / "template", folder)
        done = mutate(folder, kind, rng)
        if kind == "swap":
            with pytest.raises(InputError, match=r"all 2 checkpoints are damaged .*is not that of round 8; .* round 7"):
                checkpoints.load_newest(folder)
            continue
        loaded = checkpoints.load_newest(folder)
        saved_rounds.check(loaded, {7, 8})
        assert loaded.round == 7 or "8" not in done.split()[1] or kind in ("flip", "append"), done
        assert len(loaded.skipped) == (loaded.round == 7 and kind != "delete"), done
        outcomes[f"round {loaded.round}"] += 1
        # The run continues after the damage.
        saved_rounds.fill(folder, [loaded.round + 1])
        saved_rounds.check(checkpoints.load_newest(folder), {loaded.round + 1})
        shutil.rmtree(folder)
    assert outcomes["round 8"] > 50 and outcomes["round 7"] > 50, outcomes


def test_no_flipped_bit_changes_what_is_loaded(tmp_path):
    """The archive has bytes that nothing reads, such as times; a flip of any other one is reported."""
    saved_rounds.fill(tmp_path, [8])
    path = checkpoints.path_of(tmp_path, 8)
    data, refused = path.read_bytes(), 0
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        try:
            saved_rounds.check(checkpoints.read(tmp_path, 8), {8})
        except InputError:
            refused += 1
    assert refused > 0.8 * len(data)


@pytest.fixture
def folders(train_stub, tmp_path, monkeypatch):
    """A run stopped after round 3, and a finished one, without the files that no command reads; round 1 is the best."""
    monkeypatch.setattr(stub_rounds, "stub_metric", lambda name, round: -float(round))
    with pytest.raises(runs.Stopped):
        train_stub(tmp_path / "stopped", RECIPE, *MORE, console=runs.StoppingConsole(3))
    shutil.copytree(tmp_path / "stopped", tmp_path / "finished")
    train_stub(tmp_path / "finished", RECIPE, *MORE)
    assert len(runs.rows(tmp_path / "stopped")) == 3 and len(runs.rows(tmp_path / "finished")) == 5
    for name in ("stopped", "finished"):
        for unread in ("log.txt", "timings.jsonl", "costs.json", "data.json", "README.txt"):
            os.unlink(tmp_path / name / unread)
    return tmp_path


def assert_same_end(folder, unbroken, output):
    """Assert that all results equal those of the undisturbed run, or that the output reports the difference."""
    assert runs.arrays(folder / "checkpoints") == runs.arrays(unbroken / "checkpoints")
    for name in ("recipe.yaml", "environment.json"):
        assert (folder / name).read_bytes() == (unbroken / name).read_bytes()
    if "metrics.jsonl is missing" not in output:
        assert (folder / "metrics.jsonl").read_bytes() == (unbroken / "metrics.jsonl").read_bytes()
    if "note: the best state so far" not in output:
        assert runs.best_arrays(folder) == runs.best_arrays(unbroken)


def test_mutations_of_a_run_folder(train_stub, folders):
    rng, outcomes, touched = np.random.default_rng(5), Counter(), Counter()
    for number in range(80):
        folder = folders / str(number)
        shutil.copytree(folders / ("stopped", "finished")[number % 2], folder)
        done = mutate(folder, KINDS[number % len(KINDS)], rng)
        touched[done.split()[1].split("/")[0]] += 1
        try:
            _, output = train_stub(folder, RECIPE, *MORE)
        except UserError as problem:
            text = str(problem)
            assert text.startswith(str(folder)) and "\n" not in text and problem.code in (2, 3), (done, text)
            outcomes["refused"] += 1
        except Exception as error:
            raise AssertionError(f"{done}: {error!r}") from error
        else:
            try:
                assert_same_end(folder, folders / "finished", output)
            except AssertionError as error:
                raise AssertionError(f"{done}: {error}\n{output}") from error
            outcomes["same end"] += 1
        shutil.rmtree(folder)
    assert outcomes["refused"] > 5 and outcomes["same end"] > 20 and sum(outcomes.values()) == 80, outcomes
    names = "checkpoints environment.json metrics.jsonl partition.npz recipe.yaml run.lock"
    assert " ".join(sorted(set(touched))) == names


def test_changed_metrics_row_is_reported(train_stub, folders):
    path = folders / "stopped" / "metrics.jsonl"
    first, *rest = path.read_text().splitlines(keepends=True)
    position = first.index('"loss":') + len('"loss":')
    path.write_text("".join([first[:position] + str(9 - int(first[position])) + first[position + 1 :], *rest]))
    changed = path.read_bytes()
    assert refusal(train_stub, folders / "stopped", RECIPE, *MORE, kind=UserError) == (
        f"{path}: a row up to round 2 was changed, is damaged or missing; restore the file "
        "from a copy, or delete it to continue without these rows"
    )
    assert path.read_bytes() == changed
    path.unlink()
    _, output = train_stub(folders / "stopped", RECIPE, *MORE)
    assert f"note: {path} is missing; the rows up to round 2 are lost\n" in output
    rows = runs.rows(folders / "stopped")
    assert [row["round"] for row in rows] == [3, 4, 5]
    whole = {row["round"]: row["bytes"] for row in runs.rows(folders / "finished")}
    assert [row["bytes"] for row in rows] == [whole[number] for number in (3, 4, 5)]


def test_changed_stored_recipe_is_rejected_or_restored(train_stub, folders):
    """With a changed digit in recipe.yaml, that recipe is rejected; the original recipe continues and repairs the file."""
    path = folders / "stopped" / "recipe.yaml"
    good = path.read_text()
    path.write_text(good.replace("learning_rate: 0.05", "learning_rate: 0.07"))
    with pytest.raises(UserError, match=r"another recipe \(optimizer.learning_rate: 0.05 -> 0.07\); choose another"):
        train_stub(folders / "stopped", path.read_text())
    _, output = train_stub(folders / "stopped", RECIPE, *MORE)
    assert f"note: {path} was changed or damaged; it was restored\n" in output and path.read_text() == good
    assert_same_end(folders / "stopped", folders / "finished", output)


@pytest.mark.parametrize(
    "name", ["recipe.yaml", "environment.json", "partition.npz", "costs.json", "data.json", "README.txt"]
)
def test_lost_file_is_written_again(train_stub, folders, name):
    # The fixture has already removed the files that no command reads.
    (folders / "stopped" / name).unlink(missing_ok=True)
    _, output = train_stub(folders / "stopped", RECIPE, *MORE)
    assert (folders / "stopped" / name).is_file()
    assert_same_end(folders / "stopped", folders / "finished", output)


def test_other_environment_is_reported_without_environment_json(train_stub, folders):
    (folders / "stopped" / "environment.json").unlink()
    with pytest.raises(UserError, match=r"was started in another environment \(threads.inter_op was 2, is 3\)"):
        train_stub(folders / "stopped", RECIPE, *MORE, threads=3)


def test_other_environment_is_rejected_unless_allowed(tmp_path):
    words = ("--recipe", programs.recipe_file(tmp_path), "--run_dir", tmp_path / "run")

    def train(*more):
        run = programs.shared().run(*words, *more, stub=True)
        rows = (tmp_path / "run" / "metrics.jsonl").read_bytes().splitlines()
        return run, rows

    _, done = train("--set=rounds=3", "--threads=2")
    other, _ = train("--set=rounds=6", "--threads=1")
    assert other.code == 2
    assert other.err == (
        f"hetero_tf: {tmp_path / 'run'}: was started in another environment (threads.inter_op was 2, is 1), so its "
        "results would differ from those of an uninterrupted run; use --allow_other_machine to continue anyway\n"
    )
    allowed, rows_after = train("--set=rounds=6", "--threads=1", "--allow_other_machine")
    assert allowed.code == 0
    assert "note: threads.inter_op was 2, is 1\n" in allowed.out
    assert rows_after[:3] == done and [json.loads(row)["round"] for row in rows_after] == list(range(1, 7))
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["threads"] == {"inter_op": 1, "intra_op": 1}
