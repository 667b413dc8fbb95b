"""Rows of benchmarks: written from sweeps, replayed, compared, and refused if a file was changed."""

import dataclasses
import getpass
import hashlib
import json
import platform
import re
import shutil
from pathlib import Path

import programs
import pytest
import runs
import stub_rounds

from hetero_tf.base.errors import UserError
from hetero_tf.recipe import load
from hetero_tf.sweeps import bench_rows, pool
from hetero_tf.sweeps.bench_rows import SeedResult, compare, compute_bands, read_row, write_row
from hetero_tf.sweeps.definition import SweepRun

ROWS = programs.ROOT / "benchmarks" / "rows"
SWEEP = "{recipe: small.yaml, grid: {optimizer.learning_rate: [0.05, 0.1]}, seeds: 0-1, set: {rounds: 2}}\n"
SLOW, FAST = (Path("rows/rates") / f"small-optimizer.learning_rate={rate}.json" for rate in ("0.05", "0.1"))
train_stub = runs.train_stub


@pytest.fixture
def folder(train_stub, tmp_path, monkeypatch):
    """A working folder with a sweep; its runs train in this process by the stub, each seed with other metrics."""
    monkeypatch.chdir(tmp_path)
    programs.recipe_file(tmp_path)
    (tmp_path / "rates.yaml").write_text(SWEEP)
    metric = stub_rounds.stub_metric

    def run(launcher, words):
        options = [word.removeprefix("--").partition("=")[::2] for word in words]
        values, overrides = dict(options), [value for name, value in options if name == "set"]
        seed = int(dict(each.split("=") for each in overrides)["seed"])
        monkeypatch.setattr(stub_rounds, "stub_metric", lambda name, round: metric(name, round) + seed / 10)
        if (tmp_path / f"fail-{seed}").exists():
            return 6, "no luck today", 0.0
        text, threads = Path(values["recipe"]).read_text(), int(values["threads"])
        try:
            train_stub(Path(values["run_dir"]), text, *overrides, threads=threads)
        except UserError as problem:
            return problem.code, str(problem), 0.0
        return 0, "", 0.0

    monkeypatch.setattr(pool.Launcher, "run", run)
    return tmp_path


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A folder that the first test with `rows` fills, and the others copy."""
    return tmp_path_factory.mktemp("stored")


@pytest.fixture
def rows(folder, command, stored):
    """The working folder, with the runs and the rows of its sweep."""
    if not list(stored.iterdir()):
        code, _, err = command("bench", "rates.yaml", "--quiet")
        assert code == 0, err
        shutil.copytree(folder, stored, dirs_exist_ok=True)
    shutil.copytree(stored, folder, dirs_exist_ok=True)
    return folder


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_each_group_of_seeds_has_a_row_that_replays_bit_for_bit(folder, command):
    code, out, err = command("bench", "rates.yaml", "--json")
    assert code == 0 and json.loads(out)["rows"] == [str(SLOW), str(FAST)]
    assert "\nrows in rows/rates: 2 written, 0 unchanged, 0 missing\nnext: hetero_tf bench verify rows/" in err
    row, text = read_row(SLOW), SLOW.read_text()
    assert (row.sweep, row.name, [each.seed for each in row.runs]) == ("rates", SLOW.stem, [0, 1])
    assert row.recipe in (folder / "runs/sweep-rates" / f"{row.name}-seed=0" / "recipe.yaml").read_text().replace(
        "seed: 0\n", ""
    )
    written = [runs.rows(Path("runs/sweep-rates") / f"{row.name}-seed={seed}") for seed in (0, 1)]
    for result, lines in zip(row.runs, written):
        assert result.rounds == 2 and result.last["global_accuracy"] == lines[-1]["global_accuracy"]
        assert result.totals["bytes_up"] == sum(line["bytes_up"] for line in lines)
    low, high = row.band["last"]["global_accuracy"]
    values = [result.last["global_accuracy"] for result in row.runs]
    assert (low + high) / 2 == pytest.approx(sum(values) / 2)
    assert (high - low) / 6 == pytest.approx(abs(values[1] - values[0]) / 2**0.5)
    private = (str(folder), str(Path.home()), platform.node(), getpass.getuser())
    assert [word for word in private if f"{word}/" in text or f'"{word}"' in text] == []
    before = SLOW.stat().st_mtime_ns
    assert "rows in rows/rates: 0 written, 2 unchanged, 0 missing\n" in command("bench", "rates.yaml")[1]
    assert SLOW.stat().st_mtime_ns == before
    code, out, _ = command("bench", "verify", SLOW, FAST, "--seeds=0-1")
    assert code == 0 and out.count("equal, bit for bit\n") == 4


def test_documented_keys_of_rows_are_those_of_the_files(rows, command):
    text = (programs.ROOT / "AGENTS.md").read_text("utf-8")
    (cell,) = re.findall(r"^\| `bench` \| (.*) \|$", text, re.MULTILINE)
    of_command, of_file, of_seed, of_replay = (re.findall("`([^`]+)`", part) for part in cell.split("; of a "))
    row = json.loads(SLOW.read_text())
    assert (of_file, of_seed) == (list(row), list(row["runs"][0]))
    assert of_command == list(json.loads(command("bench", "rates.yaml", "--json")[1]))
    result = json.loads(command("bench", "verify", SLOW, "--json")[1])
    assert of_replay == ["verify", *result, *result["rows"][0]]


@pytest.mark.parametrize("shift, code, result", [(0.001, 0, "within the band"), (-50.0, 9, "outside of the band")])
def test_replay_with_other_numbers_is_compared_with_the_band(rows, command, monkeypatch, shift, code, result):
    """The stub differs between the row and the replay, as another version or machine would."""
    edit(SLOW, '"numpy": "', '"numpy": "0.')
    evaluate = stub_rounds.StubRounds.evaluate

    def shifted(self, *arguments):
        metrics, statistics = evaluate(self, *arguments)
        return {name: value + shift for name, value in metrics.items()}, statistics

    monkeypatch.setattr(stub_rounds.StubRounds, "evaluate", shifted)
    done, out, err = command("bench", "verify", SLOW, "--json")
    (replay,) = json.loads(out)["rows"]
    assert (done, replay["result"], replay["seed"]) == (code, result, 0)
    (numpy,) = replay["environment"]
    assert numpy.startswith("numpy was '0.") and f"environment: {numpy}\n" in err
    accuracy = next(each for each in replay["metrics"] if each["metric"] == "global_accuracy")
    assert accuracy["replay"] == pytest.approx(accuracy["row"] + shift)
    assert accuracy["band"] == list(read_row(SLOW).band["last"]["global_accuracy"])
    if code:
        sentence = (
            r"seed 0: last global_accuracy is -33\.\d+ instead of 16\.\d+, outside of the band 16\.\d+ to 17\.\d+; "
            r"\d more values are outside"
        )
        assert re.fullmatch(f"hetero_tf: {re.escape(str(SLOW))}: {sentence}", err.splitlines()[-1])


@pytest.mark.parametrize(
    "old, new, message",
    [
        ('"format": 1', '"format": 2', "format must be 1. Received: 2; restore the file"),
        ("learning_rate: 0.05", "learning_rate: 0.06", "recipe does not fit recipe_sha256: the text was changed"),
        ('"global_accuracy": 16', '"global_accuracy": 17', "band does not fit the values of best and last: a number"),
        ('"runs": [', '"walks": [', "runs is missing; restore the file"),
        ('"name": "small', '"name": "../small', "name must be text like "),
        ('"environment": {', '"environment": ', "is not plain JSON: "),
    ],
)
def test_changed_file_is_refused_before_a_run_starts(rows, command, old, new, message):
    edit(SLOW, old, new)
    code, out, err = command("bench", "verify", FAST, SLOW)
    assert (code, out) == (2, "") and err.startswith(f"hetero_tf: {SLOW}: {message}") and err.count("\n") == 1


def test_recipe_that_cannot_be_loaded_is_refused_with_its_version(rows, command):
    """A row of a version whose recipes have another key."""
    row = read_row(SLOW)
    recipe = f"{row.recipe}turns: 2\n"
    digest = hashlib.sha256(recipe.encode()).hexdigest()
    write_row(dataclasses.replace(row, recipe=recipe, recipe_sha256=digest), Path("old.json"))
    code, out, err = command("bench", "verify", "old.json")
    message = r"hetero_tf: old\.json: its recipe, of hetero_tf '[^']+', cannot be loaded: recipe:\d+:1: turns: unknown"
    assert (code, out) == (2, "") and re.match(message, err)


def test_groups_with_an_unfinished_or_failed_seed_have_no_row(folder, command):
    code, out, _ = command("bench", "rates.yaml", "--only=1/2", "--json")
    assert code == 0 and json.loads(out)["rows"] == [] and not Path("rows").exists()
    assert json.loads(out)["missing"] == {path.stem: "seed 1 has 0 of 2 rounds" for path in (SLOW, FAST)}
    (folder / "fail-1").touch()
    code, out, err = command("bench", "rates.yaml", "--json")
    assert code == 7 and json.loads(out)["failed"] == 2 and len(json.loads(out)["missing"]) == 2
    (folder / "fail-1").unlink()
    shutil.rmtree(folder / "runs/sweep-rates" / f"{FAST.stem}-seed=0" / "checkpoints")
    code, out, err = command("bench", "rates.yaml", "--json")
    assert code == 7 and json.loads(out)["rows"] == [str(SLOW)] and list(json.loads(out)["missing"]) == [FAST.stem]
    (folder / "runs/sweep-rates" / f"{SLOW.stem}-seed=1" / "metrics.jsonl").unlink()
    missing = json.loads(command("bench", "rates.yaml", "--json")[1])["missing"]
    assert missing[SLOW.stem].endswith("-seed=1: has no metrics of all its rounds") and len(missing) == 2


def test_replay_that_fails_is_reported_with_its_reason(rows, command):
    (rows / "fail-0").touch()
    code, out, err = command("bench", "verify", SLOW, "--seeds=0,1", "--json", "--run_dir=replays")
    assert code == 7 and err.endswith(f"hetero_tf: {SLOW}: seed 0: no luck today\n")
    assert [each["result"] for each in json.loads(out)["rows"]] == ["failed", "equal"]
    (rows / "fail-0").unlink()
    code, out, _ = command("bench", "verify", SLOW, "--seeds=0,1", "--run_dir=replays")
    assert code == 0 and "seed=1  skipped" in out and out.count("equal, bit for bit") == 2


@pytest.mark.long
def test_seeds_with_other_threads_have_their_entries_and_replay_with_them(folder, command):
    assert command("bench", "rates.yaml", "--only=1/2", "--threads=1")[0] == 0
    assert command("bench", "rates.yaml", "--threads=2")[0] == 0
    row = read_row(SLOW)
    assert [result.environment["threads.inter_op"] for result in row.runs] == [1, 2]
    assert "threads.inter_op" not in row.environment and row.environment["threads.intra_op"] == 1
    code, out, _ = command("bench", "verify", SLOW, "--seeds=1", "--threads=1", "--json")
    (result,) = json.loads(out)["rows"]
    assert code == 0 and result["environment"] == ["threads.inter_op was 2, is 1"]
    assert json.loads(command("bench", "verify", SLOW, "--seeds=1", "--json")[1])["rows"][0]["environment"] == []


@pytest.mark.parametrize(
    "words, message",
    [
        ((), "the file of a sweep is missing; try bench mine.yaml"),
        (("rates.yaml", "--seeds=0"), "--seeds has no effect on the file of a sweep; "),
        (("verify",), "bench verify needs files of rows, such as rows/"),
        (("verify", SLOW, "--out=x"), "--out has no effect on bench verify, which writes no rows"),
        (("verify", SLOW, "--only=1/2"), "--only has no effect on bench verify"),
        (("verify", SLOW, "--seeds=0,7"), f"{SLOW}: the row has the seeds 0, 1. Received: --seeds=7"),
        (("verify", "none.json"), "none.json: could not read: No such file"),
    ],
)
def test_refused_commands(rows, command, words, message):
    code, out, err = command("bench", *words)
    assert (code, out) == (2, "") and err.startswith(f"hetero_tf: {message}")


def result_of(seed, **last):
    return SeedResult(seed, 2, "00", {}, {"round": 2, **last}, {}, {})


def test_metrics_without_a_band_must_be_equal(rows):
    one, other = result_of(0, loss=1.0, error=None), result_of(0, loss=2.0, error=1.0)
    assert compute_bands([one]) == {"best": {}, "last": {}}
    assert compute_bands([one, other])["last"].keys() == {"loss"}
    row = read_row(SLOW)
    object.__setattr__(row, "band", {})
    assert [(each.metric, each.is_within) for each in compare(row, one, other)[1]] == [
        ("error", False),
        ("loss", False),
    ]
    assert compare(row, one, one)[0]
    # Numbers of a row that are not those of its digest.
    for forged in (result_of(0, loss=9.0, error=None), dataclasses.replace(one, totals={"bytes_up": 1})):
        is_equal, metrics, _ = compare(row, forged, one)
        assert not is_equal and len(metrics) == 1


def test_names_that_collide_and_absolute_paths_are_refused(folder, command):
    listed = "list: [{name: x, client.epochs: 1}], seeds: [0]}, {list: [{name: x, client.epochs: 2}], seeds: [1]}"
    (folder / "same.yaml").write_text(f"{{recipe: small.yaml, set: {{rounds: 1}}, parts: [{{{listed}]}}")
    code, _, err = command("bench", "same.yaml")
    assert code == 2 and "same: two recipes have runs of the name x; rename one of them in the list\n" in err
    trace = folder / "trace.csv"
    trace.write_text("seconds_per_step,down_mbit,up_mbit\n" + "0.1,1,1\n" * 6)
    (folder / "paths.yaml").write_text(
        f"{{recipe: small.yaml, set: {{rounds: 1, fleet: {{trace: {trace}}}}}, seeds: [0]}}"
    )
    code, out, err = command("bench", "paths.yaml", "--json")
    assert code == 0, err
    assert json.loads(out)["missing"] == {
        "small": f"a row may not contain an absolute path. Received: fleet.trace={trace}"
    }


@pytest.mark.parametrize(
    "run, name",
    [("a-seed=0", "a"), ("a-seed=0-x=1", "a-x=1"), ("seed=0", "small"), ("a-seed=01",) * 2, ("long-1234abcd",) * 2],
)
def test_name_of_a_group_is_that_of_its_first_run_without_the_seed(tmp_path, run, name):
    recipe = load(programs.recipe_file(tmp_path), ["seed=0"])
    assert bench_rows._group_name(SweepRun(run, "", (), recipe)) == name


def check_row(path):
    """A row is readable, its recipe loads with each seed, and its name is that of the file."""
    row = read_row(path)
    assert (path.parent.name, path.stem) == (row.sweep, row.name)
    assert [row.load_recipe(result.seed).seed for result in row.runs] == [result.seed for result in row.runs]


def test_rows_of_this_repository_are_valid(rows):
    for path in (SLOW, *sorted(ROWS.rglob("*.json"))):
        check_row(path)


@pytest.mark.long
def test_row_of_real_rounds_is_equal_in_another_process(tmp_path):
    programs.recipe_file(tmp_path)
    (tmp_path / "one.yaml").write_text("{recipe: small.yaml, set: {rounds: 2}, seeds: 0-1}")
    done = programs.command("bench", "one.yaml", "--out=out", "--threads=2", cwd=tmp_path)
    assert done.returncode == 0 and "rows in out/one: 1 written, 0 unchanged, 0 missing\n" in done.stdout
    (path,) = (tmp_path / "out").rglob("*.json")
    check_row(path)
    done = programs.command("bench", "verify", path, "--seeds=1", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["rows"]
    assert (result["result"], result["seed"], result["environment"]) == ("equal", 1, [])
