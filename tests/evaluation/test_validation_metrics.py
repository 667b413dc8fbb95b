"""Held-out examples: nobody trains on them, they are measured, and the best round is chosen by them."""

import dataclasses
import functools

import numpy as np
import programs
import pytest
import runs
import tiny
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.partitions import splitting
from hetero_tf.store import checkpoints

HELD = ("partition.held_out=0.3", "evaluate.every=1")


def held_out(data, share=0.5):
    """A data set and its partition, of whose training examples a share is held out."""
    dataset, partition = data
    train, validation = splitting.hold_out(partition.train, share)
    return dataset, dataclasses.replace(partition, train=train, held_out=validation)


@functools.cache
def process(base=tiny.IMAGES, *overrides):
    data = held_out(tiny.text((2, 3, 2, 4)) if base is tiny.TEXT else tiny.images())
    return tiny.process(base, "precision=float64", "evaluate.batch_size=4", *overrides, data=data)


def inputs(found, x):
    options = found.recipe.input.options
    return (x / 255 - np.asarray(options["mean"])) / np.asarray(options["std"])


def test_validation_metrics_equal_plain_keras_on_the_held_out_rows():
    found = process()
    state = found.next(found.initialize())[0]
    metrics, _ = found.evaluate(state)
    rows = found.partition.held_out.ids
    assert rows.tolist() == [4, 5, 6, 10, 11, 17, 18, 19, 20, 23, 24]
    x, y = found.dataset.train.x[rows], found.dataset.train.y[rows]
    logits = found.network(state).predict(inputs(found, x), verbose=0)
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert metrics["validation_loss"] == pytest.approx(-np.log(chances[range(len(y)), y]).mean(), rel=1e-6)
    assert metrics["validation_accuracy"] == pytest.approx(100 * np.mean(logits.argmax(1) == y))
    assert metrics["validation_loss"] != pytest.approx(metrics["global_loss"])
    assert "validation_loss" not in tiny.shared(tiny.DENSE).evaluate(tiny.shared(tiny.DENSE).initialize())[0]


def test_nobody_trains_on_them_and_no_statistic_sees_them():
    found = process()
    dataset, rows = found.dataset, found.partition.held_out.ids
    x = dataset.train.x.copy()
    x[rows] = 255 - x[rows]
    other = dataclasses.replace(dataset, train=dataclasses.replace(dataset.train, x=x))
    again = tiny.process(tiny.IMAGES, "precision=float64", "evaluate.batch_size=4", data=(other, found.partition))
    (one, _), (two, _) = (each.next(each.initialize()) for each in (found, again))
    assert tiny.same(tiny.arrays(one), tiny.arrays(two))
    (first, statistics), (second, same) = found.evaluate(one), again.evaluate(two)
    assert tiny.same(statistics["a"], same["a"]) and statistics["a"]
    assert {name for name in first if first[name] != second[name]} >= {"validation_loss"}
    assert all(first[name] == second[name] for name in first if not name.startswith("validation_"))


def test_held_out_rows_of_text_have_a_perplexity():
    found = process(tiny.TEXT, "evaluate.best=validation_perplexity")
    state = found.initialize()
    metrics, _ = found.evaluate(state)
    rows = found.partition.held_out.ids
    split = dataclasses.replace(found.dataset.train, x=found.dataset.train.x[rows])
    plain = tiny.process(
        tiny.TEXT,
        "precision=float64",
        "evaluate.batch_size=4",
        data=(dataclasses.replace(found.dataset, test=split), found.partition),
    )
    expected, _ = plain.evaluate(plain.initialize())
    assert metrics["validation_perplexity"] == expected["global_perplexity"] != metrics["global_perplexity"]
    assert found.selection_metric == found.default_selection_metric == "validation_perplexity"


def test_the_best_round_is_chosen_on_them_where_the_recipe_names_no_metric(train, tmp_path):
    summary, said = train(tmp_path, programs.RECIPE, *HELD, "rounds=6", "optimizer.learning_rate=0.1", "seed=4")
    rows = runs.rows(tmp_path)
    best = max(rows, key=lambda row: (row["validation_accuracy"], -row["round"]))
    assert summary["best"]["round"] == best["round"]
    on_the_tests = max(rows, key=lambda row: (row["global_accuracy"], -row["round"]))
    assert best["round"] != on_the_tests["round"], "the case must tell them apart"
    assert "validation: 36 examples that nobody trains on are held out; validation_accuracy chooses the best" in said
    assert f"validation_accuracy {best['validation_accuracy']:.4g}" in said


def test_a_run_goes_on_only_by_the_metric_that_it_began_with(train, tmp_path):
    train(tmp_path, programs.RECIPE, *HELD, "rounds=1")
    train(tmp_path, programs.RECIPE, *HELD, "rounds=2", "evaluate.best=validation_accuracy", "evaluate.levels=all")
    assert "level_accuracy_b" in runs.rows(tmp_path)[1]
    assert refusal(train, tmp_path, programs.RECIPE, *HELD, "rounds=3", "evaluate.best=global_accuracy") == (
        f"{tmp_path}: holds a run of another recipe (evaluate.best: 'validation_accuracy' -> 'global_accuracy'); choose "
        "another folder by --run_dir, or give the recipe that the run began with"
    )
    train(tmp_path / "open", programs.RECIPE, *HELD, "rounds=1")
    assert refusal(train, tmp_path / "open", programs.RECIPE, *HELD, "rounds=2", "evaluate.best=global_accuracy") == (
        f"{tmp_path / 'open'}: its best round is chosen by validation_accuracy; set evaluate.best to it, "
        "or choose another folder by --run_dir. Received: global_accuracy"
    )


def as_before(text):
    """A resolved recipe as versions without validation wrote it."""
    for added in (", levels: global, members: first, best: null", ", held_out: 0.0"):
        assert added in text
        text = text.replace(added, ", best: global_accuracy" if "best" in added else "")
    return text


def test_a_run_of_before_there_was_validation_goes_on(train, tmp_path):
    train(tmp_path, programs.RECIPE, "rounds=2")
    for folder in ("checkpoints", "best"):
        found = checkpoints.load_newest(tmp_path / folder)
        info = {**found.info, "recipe": as_before(found.info["recipe"])}
        checkpoints.save(tmp_path / folder, found.round, found.arrays, info, keep=1)
    info["best_seal"] = checkpoints.load_newest(tmp_path / "best").seal
    found = checkpoints.load_newest(tmp_path / "checkpoints")
    checkpoints.save(
        tmp_path / "checkpoints", found.round, found.arrays, {**found.info, "best_seal": info["best_seal"]}, keep=1
    )
    (tmp_path / "recipe.yaml").write_text(as_before((tmp_path / "recipe.yaml").read_text()))
    summary, said = train(tmp_path, programs.RECIPE, "rounds=3", "evaluate.levels=all")
    assert "note:" not in said and "resumed" in said and summary["rounds"] == 3
    assert [row["round"] for row in runs.rows(tmp_path)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (("evaluate.best=validation_accuracy",), "evaluate.best"),
        (("evaluate.best=validation_loss",), "evaluate.best"),
        (
            ("levels.widths={a: 0.5, b: 0.5}", "levels.members={a: 2, b: 1}", "evaluate.members=best"),
            "evaluate.members",
        ),
    ],
)
def test_without_held_out_examples_nothing_is_chosen_by_them(overrides, key):
    text = programs.RECIPE.replace("sbn", "none")
    told = refusal(runs.built, text, *overrides)
    assert told == (
        f"--set {overrides[-1]}: {key}: no client holds examples out, so there is nothing to choose by; give "
        f"partition.held_out, such as 0.1, or another value. Received: {overrides[-1].split('=')[1]}"
    )


def test_a_share_that_holds_nothing_out_is_refused():
    told = refusal(runs.built, programs.RECIPE, "partition.held_out=0.04")
    assert told == (
        "--set partition.held_out=0.04: partition.held_out: must be 0, or large enough that a client holds an example "
        "out: the largest has 20. Received: held_out=0.04"
    )


def test_the_default_is_the_perplexity_for_text():
    assert recipe.loads(tiny.TEXT.replace("best: global_perplexity, ", ""), "tiny").evaluate.best is None
    text = tiny.process(tiny.TEXT.replace("best: global_perplexity, ", ""))
    assert (
        text.selection_metric == "global_perplexity" and tiny.shared(tiny.DENSE).selection_metric == "global_accuracy"
    )
