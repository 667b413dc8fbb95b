"""Random damage to the files of a run folder: a refusal in a sentence, or the very same end; never another one."""

import os
import shutil
from collections import Counter

import numpy as np
import programs
import pytest
import runs
from refusals import refusal
from test_mutations import KINDS, mutate

from hetero_tf.base.errors import UserError

pytestmark = pytest.mark.long

MUTATIONS = 60
SEED = 5
# Without static batch normalisation, which only costs time here; round 3 is measured but not sealed.
RECIPE = programs.RECIPE.replace("sbn", "none")
MORE = ("checkpoint.every=2", "rounds=5")


@pytest.fixture
def folders(train, tmp_path):
    """A run that was stopped after round 3, and a finished one; without what nothing reads."""
    with pytest.raises(runs.Stopped):
        train(tmp_path / "stopped", RECIPE, *MORE, console=runs.StoppingConsole(3))
    shutil.copytree(tmp_path / "stopped", tmp_path / "finished")
    train(tmp_path / "finished", RECIPE, *MORE)
    assert len(runs.rows(tmp_path / "stopped")) == 3 and len(runs.rows(tmp_path / "finished")) == 5
    for name in ("stopped", "finished"):
        for unread in ("log.txt", "timings.jsonl", "costs.json", "data.json", "README.txt"):
            os.unlink(tmp_path / name / unread)
    return tmp_path


def assert_same_end(folder, unbroken, said):
    """Everything a person may use afterwards is as in the untouched run, or it was said that it is not."""
    assert runs.arrays(folder / "checkpoints") == runs.arrays(unbroken / "checkpoints")
    for name in ("recipe.yaml", "environment.json"):
        assert (folder / name).read_bytes() == (unbroken / name).read_bytes()
    if "metrics.jsonl is gone" not in said:
        assert (folder / "metrics.jsonl").read_bytes() == (unbroken / "metrics.jsonl").read_bytes()
    if "note: the best state so far" not in said:
        assert runs.arrays(folder / "best") == runs.arrays(unbroken / "best")


def test_mutations_of_a_run_folder(train, folders):
    rng, outcomes, touched = np.random.default_rng(SEED), Counter(), Counter()
    for number in range(MUTATIONS):
        folder = folders / str(number)
        shutil.copytree(folders / ("stopped", "finished")[number % 2], folder)
        done = mutate(folder, KINDS[number % len(KINDS)], rng)
        touched[done.split()[1].split("/")[0]] += 1
        try:
            _, said = train(folder, RECIPE, *MORE)
        except UserError as problem:
            text = str(problem)
            assert text.startswith(str(folder)) and "\n" not in text and problem.code in (2, 3), (done, text)
            outcomes["refused"] += 1
        except Exception as error:
            raise AssertionError(f"{done}: {error!r}") from error
        else:
            try:
                assert_same_end(folder, folders / "finished", said)
            except AssertionError as error:
                raise AssertionError(f"{done}: {error}\n{said}") from error
            outcomes["same end"] += 1
        shutil.rmtree(folder)
    assert outcomes["refused"] > 5 and outcomes["same end"] > 20 and sum(outcomes.values()) == MUTATIONS, outcomes
    names = "best checkpoints environment.json metrics.jsonl partition.npz recipe.yaml run.lock"
    assert " ".join(sorted(set(touched))) == names


def test_a_digit_changed_in_an_earlier_row_is_found(train, folders):
    path = folders / "stopped" / "metrics.jsonl"
    first, *rest = path.read_text().splitlines(keepends=True)
    place = first.index('"loss":') + len('"loss":')
    path.write_text("".join([first[:place] + str(9 - int(first[place])) + first[place + 1 :], *rest]))
    changed = path.read_bytes()
    assert refusal(train, folders / "stopped", RECIPE, *MORE, kind=UserError) == (
        f"{path}: a row up to round 2 was changed, is damaged or missing; put the file back "
        "from a copy, or delete it to go on without these rows"
    )
    assert path.read_bytes() == changed
    path.unlink()
    _, said = train(folders / "stopped", RECIPE, *MORE)
    assert f"note: {path} is gone; the rows up to round 2 are lost\n" in said
    rows = runs.rows(folders / "stopped")
    assert [row["round"] for row in rows] == [3, 4, 5]
    whole = {row["round"]: row["bytes"] for row in runs.rows(folders / "finished")}
    assert [row["bytes"] for row in rows] == [whole[number] for number in (3, 4, 5)]


def test_a_changed_stored_recipe_cannot_become_the_run(train, folders):
    """A digit flipped in recipe.yaml: that recipe is refused, the right one goes on and repairs the file."""
    path = folders / "stopped" / "recipe.yaml"
    good = path.read_text()
    path.write_text(good.replace("learning_rate: 0.05", "learning_rate: 0.07"))
    with pytest.raises(UserError, match=r"another recipe \(optimizer.learning_rate: 0.05 -> 0.07\); choose another"):
        train(folders / "stopped", path.read_text())
    _, said = train(folders / "stopped", RECIPE, *MORE)
    assert f"note: {path} was changed or damaged; it is written again\n" in said and path.read_text() == good
    assert_same_end(folders / "stopped", folders / "finished", said)


@pytest.mark.parametrize(
    "name", ["recipe.yaml", "environment.json", "partition.npz", "costs.json", "data.json", "README.txt"]
)
def test_a_lost_file_is_written_again(train, folders, name):
    # The fixture has removed what nothing reads already.
    (folders / "stopped" / name).unlink(missing_ok=True)
    _, said = train(folders / "stopped", RECIPE, *MORE)
    assert (folders / "stopped" / name).is_file()
    assert_same_end(folders / "stopped", folders / "finished", said)


def test_without_environment_json_other_conditions_are_still_noticed(train, folders):
    (folders / "stopped" / "environment.json").unlink()
    with pytest.raises(UserError, match=r"was begun under other conditions \(threads.inter_op was 2, is 3\)"):
        train(folders / "stopped", RECIPE, *MORE, threads=3)
