"""The comparison of runs, on run folders written here: two methods, seeds, costs and a target."""

import json

import programs
import pytest

from hetero_tf import recipe
from hetero_tf.store import metrics
from hetero_tf.store.run_folder import RunFolder

compare = programs.script("benchmarks/compare.py")


@pytest.fixture
def write(tmp_path):
    """`(folder, accuracies by round, *overrides, costs, more) -> path` of a run as `train` leaves it."""

    def written(name, accuracies, *overrides, costs=True, train_flops="train_flops", more=()):
        run = RunFolder(tmp_path / name)
        run.path.mkdir()
        run.recipe.write_text(recipe.load("tiny/digits", [f"rounds={len(accuracies)}", *overrides]).source)
        for number, accuracy in enumerate(accuracies, 1):
            row = {"round": number, "levels": {"a": 1, "c": 1}, "loss": 1 / number, **dict(more)}
            row |= {} if accuracy is None else {"global_accuracy": accuracy, "global_loss": 2 - accuracy / 100}
            row |= {"bytes_down": 3_000_000, "bytes_up": 1_000_000, train_flops: 5 * 10**11} if costs else {}
            metrics.append(run.metrics, row)
        return str(run.path)

    return written


def printed(capsys, *arguments):
    code = compare.main(list(arguments))
    return code, *capsys.readouterr()


def test_runs_that_differ_in_their_seed_are_one_row(write, capsys):
    folders = [
        write("w0", [10.0, 40.0, 30.0], "name=wide"),
        write("w1", [20.0, 44.0, 36.0], "name=wide", "seed=1"),
        write("n0", [15.0, 25.0, 20.0], "name=narrow", "levels.mix=c", costs=False),
    ]
    code, out, err = printed(capsys, *folders, "--target", "36")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "| run | seeds | rounds | global_accuracy last | global_accuracy best | global_accuracy rounds to target | "
        "global_accuracy MB to target | MB | MB a client and round | TFLOP |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        "| wide | 2 | 3 | 33 ± 4.2 | 42 ± 2.8 | 2 ± 0 | 8 ± 0 | 12 ± 0 | 2 ± 0 | 1.5 ± 0 |",
        "| narrow | 1 | 3 | 20 | 25 | - | - | - | - | - |",
    ]


def test_runs_with_the_former_names_of_the_columns_are_read(write):
    runs = [compare.read(write(name, [10.0], train_flops=name)) for name in ("flops", "train_flops")]
    assert compare.cost(runs[0])["train_flops"] == compare.cost(runs[1])["train_flops"] == 5 * 10**11


def test_runs_that_measured_every_level_show_it_without_being_asked(write, capsys):
    levels = {"level_accuracy_a": 50.0, "level_accuracy_c": 20.0}
    one, two = write("one", [10.0], more=levels), write("two", [30.0], "seed=1", more={"level_accuracy_a": 60.0})
    head, _, row = printed(capsys, one)[1].splitlines()
    assert "| level_accuracy_a last | level_accuracy_a best | level_accuracy_c last |" in head
    assert "| 10 | 10 | 50 | 50 | 20 | 20 |" in row
    # A level that some run has not measured is left out; what is asked for is shown alone.
    head, _, row = printed(capsys, one, two)[1].splitlines()
    assert "level_accuracy_a last" in head and "level_accuracy_c" not in head and "| 55 ± 7.1 |" in row
    head = printed(capsys, one, "--metric", "level_accuracy_c")[1].splitlines()[0]
    assert "| rounds | level_accuracy_c last | level_accuracy_c best | MB |" in head


def test_the_best_round_is_that_of_the_held_out_examples(write):
    folder = write("one", [50.0, 70.0, 60.0])
    run = compare.read(folder)
    assert compare.summary(run, "global_accuracy")["best"] == 70
    for row, validation in zip(run.rows, (10.0, None, 30.0)):
        row["validation_accuracy"] = validation
    found = compare.summary(run, "global_accuracy")
    assert (found["best"], found["best_round"], found["last"]) == (60, 3, 60)


def test_seconds_of_a_client_are_shown_where_they_were_measured(write, capsys):
    timed, other = write("timed", [10.0, 20.0], "name=timed"), write("other", [10.0], "name=other")
    for last, seconds, clients in ((1, 30.0, 2), (2, 3.0, 6), (3, 1.0, 0), (4, 0.6, 6)):
        metrics.append(RunFolder(timed).timings, {"round": last, "seconds": seconds, "clients": clients})
    head, _, *rows = printed(capsys, timed, other)[1].splitlines()
    assert head.endswith("| TFLOP | s a client and round |")
    assert [row.split(" | ")[-1] for row in rows] == ["0.5 |", "- |"]
    assert "s a client and round" not in printed(capsys, other)[1]


def test_a_target_that_only_some_seeds_reach_says_so(write, capsys):
    folders = [write("one", [50.0, 90.0]), write("two", [50.0, 60.0], "seed=1"), write("three", [95.0, 90.0], "seed=2")]
    _, out, _ = printed(capsys, *folders, "--target", "90")
    cells = out.splitlines()[2].split(" | ")
    assert cells[5:7] == ["1.5 ± 0.71 (2 of 3)", "6 ± 2.8 (2 of 3)"]


def test_a_curve_shows_the_first_metric_at_some_rounds(write, capsys):
    folders = [write("one", [10.0, 50.0, 90.0]), write("two", [20.0, None, 80.0], "seed=1")]
    _, out, _ = printed(capsys, *folders, "--metric", "global_accuracy", "global_loss", "--at", "1", "2", "9")
    head, _, row = (line.split(" | ") for line in out.splitlines())
    assert head[3:7] == ["global_accuracy at 1", "global_accuracy at 2", "global_accuracy at 9", "global_accuracy last"]
    assert row[3:6] == ["15 ± 7.1", "50 (1 of 2)", "-"]


def test_losses_are_better_when_lower(write, capsys):
    folder = write("one", [10.0, 60.0, None, 40.0])
    _, out, _ = printed(capsys, folder, "--metric", "global_loss", "global_accuracy", "--target", "1.6", "--json")
    (row,) = json.loads(out)
    assert row["global_loss best"]["mean"] == pytest.approx(1.4)
    assert row["global_loss last"]["mean"] == pytest.approx(1.6)
    assert row["global_loss best_round"] == {"mean": 2, "spread": None, "of": 1}
    assert row["global_loss target_round"]["mean"] == 2 and row["global_loss target_bytes"]["mean"] == 8_000_000
    assert row["global_accuracy best"]["mean"] == 60 and "global_accuracy target_round" not in row
    assert (row["name"], row["seeds"], row["rounds"]) == ("tiny_digits", [0], 4)


def test_rows_of_one_name_are_told_apart_by_their_folder(write, capsys):
    folders = [write("one", [10.0]), write("two", [20.0], "client.epochs=2")]
    _, out, _ = printed(capsys, *folders)
    assert [line.split(" | ")[0] for line in out.splitlines()[2:]] == [f"| {folder}" for folder in folders]


def test_runs_that_are_not_finished_are_named(write, capsys):
    folder = write("one", [10.0, 20.0])
    run = RunFolder(folder)
    run.recipe.write_text(run.recipe.read_text().replace("rounds: 2", "rounds: 9"))
    code, out, err = printed(capsys, folder)
    assert (code, err) == (0, f"not finished: {folder}, 2 of 9 rounds\n") and "| 9 | 20 |" in out


def test_the_same_run_twice_is_refused(write, capsys):
    one, two = write("one", [10.0]), write("two", [10.0])
    code, out, err = printed(capsys, one, two)
    assert (code, out) == (2, "")
    assert err == (
        f"error: {two} and {one} are the same recipe with the same seed, so their spread would say nothing; "
        "name one of them. Received: seed=0\n"
    )


def test_what_cannot_be_compared_is_refused_in_one_sentence(write, capsys, tmp_path):
    folder, empty = write("one", [10.0]), write("empty", [10.0])
    RunFolder(empty).metrics.unlink()
    assert printed(capsys, folder, "--metric", "local_std") == (
        2,
        "",
        f"error: {folder}: does not measure it; known: global_accuracy, global_loss, loss. "
        "Received: metric=local_std\n",
    )
    code, _, err = printed(capsys, empty)
    assert code == 2 and err == (
        f"error: {empty}: has no finished round yet. Received: an empty or missing metrics.jsonl\n"
    )
    code, _, err = printed(capsys, str(tmp_path / "none"))
    assert code == 2 and "is not a run folder" in err
