"""The comparison of runs, on run folders written here: two methods, seeds, costs and a target."""

import csv
import json

import pytest

from hetero_tf.reports.summaries import summarize
from hetero_tf.reports.tables import to_text
from hetero_tf.runs import environment, published
from hetero_tf.runs.history import differences, distinct_names, grouped, read
from hetero_tf.runs.published import PublishedValue
from hetero_tf.runs.run_folder import RunFolder


@pytest.fixture
def printed(command):
    """`(*words) -> (exit code, standard output, standard error)` of the command, by default as Markdown."""
    return lambda *words: command("compare", *words, *([] if "--as" in words else ["--as", "markdown"]))


@pytest.fixture
def table(printed):
    """`(*words) -> ([{head: cell} of each row], standard error)` of the command."""

    def rows(*words):
        code, out, err = printed(*words)
        assert code == 0, err
        head, _, *lines = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in out.splitlines())
        return [dict(zip(head, line, strict=True)) for line in lines if len(line) == len(head)], err

    return rows


def names(rows):
    return [row["run"] for row in rows]


def test_seeds_of_one_recipe_are_one_row(write_run, table):
    folders = [
        write_run("w0", [10.0, 40.0, 30.0], "name=wide"),
        write_run("w1", [20.0, 44.0, 36.0], "name=wide", "seed=1"),
        write_run("n0", [15.0, 25.0, 20.0], "name=narrow", "levels.mix=c", traffic=False),
    ]
    heads = ["run", "levels", "seeds", "rounds", "global_accuracy last", "global_accuracy best"]
    heads += ["global_accuracy to 36: rounds", "global_accuracy to 36: MB"]
    heads += ["total MB", "MB per client and round", "TFLOP"]
    wide = ["wide", "a-b-c", "2", "3", "**33.0 ± 4.2**", "**42.0 ± 2.8**", "2 ± 0", "8 ± 0", "12 ± 0"]
    wide += ["2 ± 0", "1.5 ± 0"]
    narrow = ["narrow", "c", "1", "3", "20", "25", "-", "-", "-", "-", "-"]
    rows, err = table(*folders, "--reach", "36")
    assert err == "" and [list(row.items()) for row in rows] == [list(zip(heads, wide)), list(zip(heads, narrow))]


def test_level_metrics_are_shown_by_default(write_run, table):
    one = write_run("one", [10.0], more={"level_accuracy_a": 50.0, "level_accuracy_c": 20.0})
    two = write_run("two", [30.0], "seed=1", more={"level_accuracy_a": 60.0})
    ((row,), _) = table(one)
    assert list(row)[4:8] == [
        "global_accuracy last", "global_accuracy best", "level_accuracy_a last", "level_accuracy_c last"
    ]  # fmt: skip
    # Only requested metrics are shown, as last and best value; a value of some seeds says of how many.
    ((row,), _) = table(one, two, "--metric", "level_accuracy_a,level_accuracy_c")
    assert list(row.values())[4:8] == ["55.0 ± 7.1", "55.0 ± 7.1", "20 (1 of 2)", "20 (1 of 2)"]


def test_runs_of_several_tasks_share_a_table(write_run, table):
    text = write_run("text", [None], "name=text", more={"global_perplexity": 12.5, "level_perplexity_a": 12.5})
    (image, text), _ = table(write_run("image", [60.0]), text)
    heads = ("global_accuracy last", "global_perplexity last", "level_perplexity_a last")
    assert [image[head] for head in heads] == ["60", "-", "-"]
    assert [text[head] for head in heads] == ["-", "12.5", "12.5"]


def test_validation_selects_the_best_round(write_run):
    run = read(write_run("one", [50.0, 70.0, 60.0]))
    assert summarize(run, "global_accuracy")["best"] == 70
    for row, validation in zip(run.rows, (30.0, None, 30.0)):
        row |= {"validation_accuracy": validation, "validation_loss": 1 / row["round"]}
    result = summarize(run, "global_accuracy")
    assert (result["best"], result["best_round"], result["last"]) == (60, 3, 60)
    # Validation of personal models selects their best round.
    for row, personal in zip(run.rows, (90.0, 80.0, 70.0)):
        row |= {"local_accuracy": personal + 1, "validation_local_accuracy": personal}
    assert [summarize(run, name)["best_round"] for name in ("local_accuracy", "global_accuracy")] == [1, 3]
    run.keys["evaluate.best"] = "validation_local_accuracy"
    assert summarize(run, "global_accuracy")["best_round"] == 1


def test_costs_to_reach_a_value(write_run, printed, table):
    folders = [
        write_run("fast0", [50.0, 90.0, 95.0], "name=fast", device_seconds=90),
        write_run("fast1", [90.0, 91.0, 96.0], "name=fast", "seed=1", device_seconds=110),
        write_run("slow", [50.0, None, 90.0], "name=slow", device_seconds=3000),
    ]
    (fast, slow), _ = table(*folders, "--reach", "90,95")
    heads = [f"global_accuracy to {goal}: {name}" for goal in (90, 95) for name in ("device min", "Wh", "rounds", "MB")]
    assert [fast[head] for head in heads[:4]] == ["2.42 ± 0.82", "0.081 ± 0.027", "1.50 ± 0.71", "6.0 ± 2.8"]
    assert [slow[head] for head in heads] == ["150", "5", "3", "12", "-", "-", "-", "-"]
    assert (slow["device min"], slow["Wh"]) == ("150", "5")
    (*_, row) = json.loads(printed(*folders, "--reach", "90", "--json")[1])
    assert row["global_accuracy reach 90 device_seconds"] == {"mean": 9000, "spread": None, "of": 1}
    # A value that some seeds reach has no mean.
    ((row,), _) = table(*folders[:2], write_run("late", [1.0], "name=fast", "seed=2", "rounds=3"), "--reach", 2)
    assert row["global_accuracy to 2: rounds"] == "not by all seeds (2 of 3)"
    assert row["global_accuracy to 2: MB"] == "-"


def test_at_a_device_time_shows_the_last_evaluation_before_it(write_run, printed, table):
    folders = [
        write_run("one", [10.0, None, 30.0], device_seconds=60),
        write_run("two", [20.0, 40.0], "seed=1", "rounds=3", device_seconds=60),
        write_run("other", [5.0], "name=other"),
    ]
    heads = [f"global_accuracy at {time}" for time in ("59s", "2.5min", "3h")]
    (one, other), _ = table(folders[0], folders[2], "--at", "59s,2.5min,3h")
    assert list(one)[4:7] == heads and [one[head] for head in heads] == ["-", "10", "30 (ended at 180 s)"]
    assert {other[head] for head in heads} == {"-"}
    # The third round of one seed is missing, so that the group ends after two minutes.
    ((row,), _) = table(*folders[:2], "--at", "2min,3min")
    assert list(row.values())[4:6] == ["25 ± 21", "-"]
    assert printed(folders[2], "--at", "3h")[2] == (
        "hetero_tf: no run has device times; train with --fleet, or add --fleet NAME to time finished runs. Received: --at=3h\n"
    )


def test_a_seed_that_ended_before_a_device_time_is_not_averaged_with_those_that_reached_it(write_run, printed, table):
    fast = [write_run(f"f{seed}", [70.0, 80.0 + seed], f"seed={seed}", device_seconds=0.2 + seed) for seed in (0, 1)]
    slow = write_run("slow", [10.0, 20.0], "name=slow", device_seconds=3)
    (both, one), _ = table(*fast, slow, "--at", "2s,3s,1h")
    ended = "80.50 ± 0.71 (ended at 0.4 to 2.4 s)"
    assert list(both.values())[4:7] == ["70 (1 of 2; 1 ended at 0.4 s)", ended, ended]
    assert list(one.values())[4:7] == ["-", "10", "20 (ended at 6 s)"]
    (row, _) = json.loads(printed(*fast, slow, "--at", "2s,1h", "--json")[1])
    first = {"mean": 80, "spread": None, "of": 1, "seconds": [0.4, 0.4]}
    assert row["global_accuracy at 2s"] == {"mean": 70, "spread": None, "of": 1, "ended": first}
    # A table for machines has no value where no run has one.
    (row, _) = csv.DictReader(printed(*fast, slow, "--at", "1h", "--as", "csv")[1].splitlines())
    assert (row["global_accuracy at 1h"], row["global_accuracy at 1h runs"]) == ("", "0")
    assert ended in printed(*fast, "--at", "1h", "--as", "text")[1]
    # Rounds are those that were measured, and only the first metric is shown.
    seeds = [write_run("r0", [10.0, 50.0, 90.0]), write_run("r1", [20.0, None, 80.0], "seed=1")]
    ((row,), _) = table(*seeds, "--metric", "global_accuracy,global_loss", "--at", "1,2,9")
    assert list(row.values())[4:7] == ["15.0 ± 7.1", "50 (1 of 2)", "-"] and "global_loss at 1" not in row


def test_losses_are_better_when_lower(write_run, printed):
    folder = write_run("one", [10.0, 60.0, None, 40.0])
    _, out, _ = printed(folder, "--metric", "global_loss,global_accuracy", "--reach", "1.6", "--json")
    (row,) = json.loads(out)
    assert row["global_loss best"]["mean"] == pytest.approx(1.4)
    assert row["global_loss last"]["mean"] == pytest.approx(1.6)
    assert row["global_loss best_round"] == {"mean": 2, "spread": None, "of": 1}
    assert row["global_loss reach 1.6 round"]["mean"] == 2 and row["global_loss reach 1.6 bytes"]["mean"] == 8_000_000
    assert row["global_accuracy best"]["mean"] == 60 and "global_accuracy reach 1.6 round" not in row
    assert (row["name"], row["levels"], row["seeds"], row["rounds"], row["done"]) == ("tiny_digits", "a-b-c", [0], 4, 4)


def test_rows_of_equal_names_show_their_differences(write_run, table):
    folders = [write_run("one", [10.0]), write_run("two", [20.0], "client.epochs=2", "levels.mix=a1-c9")]
    assert names(table(*folders)[0]) == [
        "tiny_digits (client.epochs=1, mix=a-b-c)", "tiny_digits (client.epochs=2, mix=a1-c9)"
    ]  # fmt: skip
    # By their folder where that would be too long.
    many = ["client.epochs=3", "optimizer.momentum=0.5", "round.clients=3", "checkpoint.keep=7"]
    folders.append(write_run("three", [20.0], *many))
    assert names(table(*folders)[0]) == folders


def test_names_leave_out_keys_that_a_plugin_implies(write_run, table):
    decay = ("schedule.name=cosine", "schedule.rounds=4", "client.epochs=2")
    folders = [write_run("one", [10.0]), write_run("two", [20.0], *decay, "optimizer.momentum=0.5")]
    folders.append(write_run("three", [30.0], *decay, "optimizer.momentum=0"))
    assert names(table(*folders)[0]) == [
        "tiny_digits (optimizer.momentum=0.9, schedule=steps)",
        "tiny_digits (optimizer.momentum=0.5, schedule=cosine)",
        "tiny_digits (optimizer.momentum=0.0, schedule=cosine)",
    ]


@pytest.mark.parametrize(
    ("change", "key", "values"),
    [
        ("client.update={name: clip, norm: 2}", "client.update", ("null", "clip")),
        ("early_stopping.patience=3", "early_stopping.patience", ("null", "3")),
        ("fleet=phones", "fleet", ("null", "budget-midrange-flagship")),
    ],
)
def test_a_part_that_is_null_in_one_run_is_one_difference(write_run, change, key, values):
    runs = [read(write_run("one", [10.0])), read(write_run("two", [20.0], change))]
    assert differences(runs, ("name", "seed")) == [f"{key}={value}" for value in values]
    lines = to_text(grouped(runs)).splitlines()
    (line,) = lines[lines.index("the recipes differ in") + 1 :]
    assert line.replace(".name:", ":") == f"  {key}: {', '.join(values)}"


def test_options_of_one_plugin_are_a_difference_also_beside_runs_without_it(write_run):
    changes = ["schedule=constant", "schedule.at=[1]", "schedule.at=[2]"]
    runs = [read(write_run(str(number), [10.0], change)) for number, change in enumerate(changes)]
    assert distinct_names(runs) == [
        "tiny_digits (schedule=constant)",
        "tiny_digits (schedule=steps, schedule.at=[1])",
        "tiny_digits (schedule=steps, schedule.at=[2])",
    ]
    fleets = ["seed=0", "fleet=phones", "fleet={devices: {phone: {seconds_per_step: 0.1}}, jitter: 0.5}"]
    fleets = [read(write_run(f"fleet{number}", [10.0], change)) for number, change in enumerate(fleets)]
    assert differences(fleets, ("name", "seed")) == ["fleet=null", "fleet=budget-midrange-flagship", "fleet=phone"]


def test_unfinished_runs_are_compared_at_common_rounds_and_those_that_stopped_early_at_their_ends(write_run, table):
    ahead, behind = write_run("one", [10.0, 20.0, 90.0]), write_run("two", [30.0, 40.0], "seed=1", "rounds=3")
    ((row,), err) = table(ahead, behind)
    assert err == f"not finished: {behind}, 2 of 3 rounds\n"
    assert list(row.values())[2:7] == ["2", "2 of 3", "30 ± 14", "30 ± 14", "8 ± 0"]
    early = ("rounds=9", "early_stopping.patience=1")
    folders = [write_run("e0", [10.0, 50.0, 40.0], *early), write_run("e1", [30.0, 20.0], "seed=1", *early)]
    ((row,), err) = table(*folders)
    assert err == "" and list(row.values())[2:6] == ["2", "2 (stopped early)", "30 ± 14", "40 ± 14"]
    ((row,), err) = table(*folders, write_run("e2", [1.0, 2.0, 3.0], "seed=2", *early))
    assert err.startswith("not finished: ") and row["rounds"] == "2 of 9"


def test_folders_of_runs_are_expanded_and_runs_without_rounds_are_omitted(write_run, printed, table, tmp_path):
    one, empty = write_run("sweep/0", [10.0]), write_run("empty", [10.0], "seed=2")
    write_run("sweep/1", [20.0], "seed=1")
    (tmp_path / "sweep" / "sweep.yaml").write_text("anything")
    (begun := tmp_path / "sweep" / "begun").mkdir()
    ((row,), err) = table(tmp_path / "sweep", tmp_path / "sweep" / "1")
    assert err == "" and (row["seeds"], row["global_accuracy last"]) == ("2", "15.0 ± 7.1")
    RunFolder(empty).metrics.unlink()
    omitted = f"left out: {empty}, it has no finished round yet"
    assert table(one, empty)[1] == f"{omitted}\n"
    # Without the first rounds, their traffic would be missing in the total.
    lost = write_run("lost", [10.0, 20.0], "seed=3")
    (metrics := RunFolder(lost).metrics).write_text(metrics.read_text().partition("\n")[2])
    assert table(one, lost)[1] == f"left out: {lost}, it has no metrics of 1 of its rounds\n"
    for words, message in (
        ([empty], f"no run remains. Received: {omitted}"),
        ([begun], f"{begun}: is not a run folder: it has no recipe.yaml; name a folder that `train` wrote"),
    ):
        assert printed(*words) == (2, "", f"hetero_tf: {message}\n")


def test_incomparable_runs_are_refused(write_run, printed, tmp_path):
    folder, twin = write_run("one", [10.0, 20.0]), write_run("two", [10.0, 20.0])
    known = "bytes, bytes_down, bytes_up, global_accuracy, global_loss, loss, train_flops"
    cases = {
        (folder, "--metric", "local_std"): f"no run has this metric; known: {known}. Received: metric=local_std",
        (folder, "--at", "1,x"): "--at must be comma-separated rounds, or device times in s, min or h, such as "
        "10,90s,20min,3h. Received: --at=x",
        (folder, "--reach", "95,nan"): "--reach must be comma-separated values of the first metric, such as 95,98. "
        "Received: --reach=95,nan",
        (folder, "--published", "heterofl_tabel7"): "no published table or row has that name; did you mean "
        "'heterofl_table7'? Received: heterofl_tabel7",
        (): "compare needs a run folder, such as runs/digits, or a folder of runs",
        (folder, twin): f"{twin} and {folder} are the same recipe with the same seed, so their spread would be "
        "meaningless; name only one of them. Received: seed=0",
    }
    for words, sentence in cases.items():
        assert printed(*words) == (2, "", f"hetero_tf: {sentence}\n")
    path = RunFolder(folder).metrics
    path.write_text("{}\n" + path.read_text())
    assert printed(folder)[2] == f"hetero_tf: {path}:1: has no integer 'round'; remove or repair that line\n"


def test_stored_costs_are_columns(write_run, printed, table):
    folders = [write_run("one", [10.0], "name=one", sizes={"a": 4000, "c": 2000}), write_run("two", [10.0], "name=two")]
    (one, two), _ = table(*folders)
    heads = ["parameters (thousands)", "MFLOPs", "size vs. global"]
    assert list(one)[-3:] == heads and "parameters (thousands)" not in table(folders[1])[0][0]
    assert [one[head] for head in heads] == ["3", "2.25", "0.75"] and {two[head] for head in heads} == {"-"}
    path = RunFolder(folders[0]).costs
    path.write_text(path.read_text().replace('"budget_share": null', '"budget_share": 1.664'))
    assert table(folders[0])[0][0]["% of budget"] == "166.4"
    for text, problem in (
        ("[]", "levels is missing"),
        ('{"levels": {"a": {}}, "mix": {}}', "levels.a.width is missing"),
        ('{"levels": {}, "mix": {"parameters": "many"}}', "mix.parameters must be a number. Received: 'many'"),
    ):
        path.write_text(text)
        assert printed(folders[0])[2] == (
            f"hetero_tf: {path}: {problem}; delete the file, and run the training command again to restore it\n"
        )


def test_published_values_are_shown_for_matching_runs(write_run, printed, table, monkeypatch):
    folders = [write_run("one", [10.0], "name=one", "levels.mix=a1-c9"), write_run("two", [20.0], "name=two")]
    runs = {published.fingerprint(read(folders[0]).keys): ""}
    values = [
        PublishedValue("mine/a1-c9", "global_accuracy", 91.0, "A paper", "digits", runs=runs),
        PublishedValue("mine/a1-c9", "local_accuracy", 92.0, "A paper", "digits", runs=runs),
        PublishedValue("mine/bc", "global_accuracy", 90.0, "A paper", "digits"),
        *published.read_published(),
    ]
    monkeypatch.setattr(published, "read_published", lambda: values)
    words = (*folders, "--published", "mine/bc,heterofl_table7/e")
    (one, two, *others), _ = table(*words)
    assert (one["published"], two["published"]) == ("91 (-81.00) \\[1\\]", "-")
    assert [(row["run"], row["global_accuracy last"]) for row in others] == [
        ("mine/bc \\[1\\]", "90"), ("heterofl_table7/e \\[2\\]", "**98.66**"), ("heterofl_table7/e \\[3\\]", "92.84")
    ]  # fmt: skip
    source = "HeteroFL (Diao et al. 2021, arXiv 2010.01264), Table 1, Table 7"
    assert printed(*words)[1].splitlines()[-4:] == [
        "\\[1\\] A paper: digits  ",
        f"\\[2\\] {source}: MNIST IID  ",
        f"\\[3\\] {source}: MNIST two labels  ",
        "published, in brackets: best value of the run minus the published one  ",
    ]


def test_recipe_with_plugins_is_read_without_them(write_run, printed, table):
    """As the run wrote it; one that names none of them is checked like any recipe."""
    folder = RunFolder(write_run("one", [10.0]))
    text = folder.recipe.read_text()
    folder.recipe.write_text(text.replace("submodel: {name: prefix}", "submodel: {name: windows, step: 2}"))
    assert printed(folder.path)[0] == 2
    environment.save(folder.environment, environment.environment({}, {}, ["windows"]))
    assert names(table(folder.path)[0]) == ["tiny_digits"]
    for changed, message in (
        (folder.recipe.read_text().replace("seed: 0", "seed: none"), "seed must be a whole number. Received: 'none'"),
        (
            text.replace("prefix", "windows").replace("mix: {a: 1, b: 1, c: 1}", "mix: {a: -1}"),
            "mix.a must be a number above 0. Received: -1",
        ),
    ):
        folder.recipe.write_text(changed)
        assert printed(folder.path)[2] == f"hetero_tf: {folder.recipe}: {message}\n"


def test_table_is_written_atomically(write_run, printed, tmp_path):
    folder, out = write_run("one", [10.0]), tmp_path / "table.tex"
    out.write_text("old")
    assert printed(folder, "--as", "latex", "--out", out) == (0, f"wrote {out}\n", "")
    assert out.read_text().startswith("\\begin{tabular}{@{}llrrrrrrr@{}}\n") and out.read_text().endswith("{tabular}\n")
    code, _, err = printed(folder, "--out", tmp_path / "none" / "table.md")
    assert code == 3 and err.startswith(f"hetero_tf: {tmp_path}/none/table.md: could not write: No such file")
    assert "expected a file or nothing. Received: a folder" in printed(folder, "--out", tmp_path)[2]
