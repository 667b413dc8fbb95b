"""Validation examples: excluded from training, measured, and used to select the best round."""

import dataclasses
import functools

import numpy as np
import programs
import pytest
import runs
import tiny
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.data.partitions import partition as partitions

pytestmark = pytest.mark.usefixtures("eager")
train_stub = runs.train_stub

VALIDATION = ("partition.held_out=0.3", "evaluate.every=1")


def held_out(data, share=0.5):
    """A data set and its partition, with a share of the training examples held out."""
    dataset, partition = data
    train, validation = partitions.hold_out(partition.train, share)
    return dataset, dataclasses.replace(partition, train=train, held_out=validation)


@functools.cache
def build_process(base=tiny.IMAGES, *overrides):
    data = held_out(tiny.text((2, 3, 2, 4)) if base is tiny.TEXT else tiny.images())
    return tiny.process(base, "precision=float64", "evaluate.batch_size=4", *overrides, data=data)


def inputs(validation_process, x):
    options = validation_process.recipe.input.options
    return (x / 255 - np.asarray(options["mean"])) / np.asarray(options["std"])


def measure_plain(process, state, level, x, y):
    """Loss and accuracy of the exported model of a level, by Keras."""
    logits = process.network(state, level)(inputs(process, x), training=False).numpy()
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return {"loss": -np.log(chances[range(len(y)), y]).mean(), "accuracy": 100 * np.mean(logits.argmax(1) == y)}


def test_validation_metrics_equal_plain_keras():
    validation_process = build_process()
    state = validation_process.next(validation_process.initialize())[0]
    metrics, _ = validation_process.evaluate(state)
    rows = validation_process.partition.held_out.ids
    assert rows.tolist() == [4, 5, 6, 10, 11, 17, 18, 19, 20, 23, 24]
    x, y = validation_process.dataset.train.x[rows], validation_process.dataset.train.y[rows]
    for name, value in measure_plain(validation_process, state, None, x, y).items():
        assert metrics[f"validation_{name}"] == pytest.approx(value, rel=1e-6)
    assert metrics["validation_loss"] != pytest.approx(metrics["global_loss"])
    assert "validation_loss" not in tiny.shared(tiny.DENSE).evaluate(tiny.shared(tiny.DENSE).initialize())[0]


def test_validation_examples_are_excluded_from_training_and_statistics():
    validation_process = build_process()
    dataset, rows = validation_process.dataset, validation_process.partition.held_out.ids
    x = dataset.train.x.copy()
    x[rows] = 255 - x[rows]
    other = dataclasses.replace(dataset, train=dataclasses.replace(dataset.train, x=x))
    again = tiny.process(
        tiny.IMAGES, "precision=float64", "evaluate.batch_size=4", data=(other, validation_process.partition)
    )
    (one, _), (two, _) = (each.next(each.initialize()) for each in (validation_process, again))
    assert tiny.same(tiny.arrays(one), tiny.arrays(two))
    (first, statistics), (second, same) = validation_process.evaluate(one), again.evaluate(two)
    assert tiny.same(statistics["a"], same["a"]) and statistics["a"]
    assert {name for name in first if first[name] != second[name]} >= {"validation_loss"}
    assert all(first[name] == second[name] for name in first if not name.startswith("validation_"))


def test_validation_of_text_has_a_perplexity_which_is_the_default_metric():
    validation_process = build_process(tiny.TEXT, "evaluate.best=validation_perplexity")
    metrics, _ = validation_process.evaluate(validation_process.initialize())
    rows = validation_process.partition.held_out.ids
    split = dataclasses.replace(validation_process.dataset.train, x=validation_process.dataset.train.x[rows])
    plain = tiny.process(
        tiny.TEXT,
        "precision=float64",
        "evaluate.batch_size=4",
        data=(dataclasses.replace(validation_process.dataset, test=split), validation_process.partition),
    )
    expected, _ = plain.evaluate(plain.initialize())
    assert metrics["validation_perplexity"] == expected["global_perplexity"] != metrics["global_perplexity"]
    assert validation_process.selection_metric == validation_process.default_selection_metric == "validation_perplexity"
    assert recipe.loads(tiny.TEXT.replace("best: global_perplexity, ", ""), "tiny").evaluate.best is None
    text = tiny.process(tiny.TEXT.replace("best: global_perplexity, ", ""))
    assert (
        text.selection_metric == "global_perplexity" and tiny.shared(tiny.DENSE).selection_metric == "global_accuracy"
    )


def test_best_round_is_selected_on_validation_by_default(train, tmp_path):
    summary, output = train(tmp_path, programs.RECIPE, *VALIDATION, "rounds=6", "optimizer.learning_rate=0.1", "seed=4")
    rows = runs.rows(tmp_path)
    best = max(rows, key=lambda row: (row["validation_accuracy"], -row["round"]))
    assert summary["best"]["round"] == best["round"]
    on_the_tests = max(rows, key=lambda row: (row["global_accuracy"], -row["round"]))
    assert best["round"] != on_the_tests["round"], "the case must tell them apart"
    assert "validation: 36 examples are held out from training; validation_accuracy selects the best" in output
    assert f"best: val acc {best['validation_accuracy']:.1f} %" in output


def test_run_resumes_only_with_its_selection_metric(train_stub, tmp_path):
    train_stub(tmp_path, programs.RECIPE, *VALIDATION, "rounds=1")
    train_stub(
        tmp_path, programs.RECIPE, *VALIDATION, "rounds=2", "evaluate.best=validation_accuracy", "evaluate.levels=all"
    )
    assert "level_accuracy_b" in runs.rows(tmp_path)[1]
    assert refusal(train_stub, tmp_path, programs.RECIPE, *VALIDATION, "rounds=3", "evaluate.best=global_accuracy") == (
        f"{tmp_path}: holds a run of another recipe (evaluate.best: 'validation_accuracy' -> 'global_accuracy'); choose "
        "another folder by --run_dir, or use the recipe of that run"
    )
    train_stub(tmp_path / "open", programs.RECIPE, *VALIDATION, "rounds=1")
    assert refusal(
        train_stub, tmp_path / "open", programs.RECIPE, *VALIDATION, "rounds=2", "evaluate.best=global_accuracy"
    ) == (
        f"{tmp_path / 'open'}: its best round is chosen by validation_accuracy; set evaluate.best to it, "
        "or choose another folder by --run_dir. Received: global_accuracy"
    )


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (("evaluate.best=validation_accuracy",), "evaluate.best"),
        (("evaluate.best=validation_loss",), "evaluate.best"),
        (("early_stopping.patience=1", "early_stopping.metric=validation_loss"), "early_stopping.metric"),
    ],
)  # fmt: skip
def test_validation_selection_is_refused_without_validation_examples(overrides, key):
    assert refusal(runs.built, programs.RECIPE.replace("sbn", "none"), *overrides) == (
        f"--set {overrides[-1]}: {key}: needs held-out examples; set partition.held_out, such as "
        f"0.1, or choose another value. Received: {overrides[-1].split('=')[1]}"
    )


def test_validation_share_without_examples_is_refused():
    assert refusal(runs.built, programs.RECIPE, "partition.held_out=0.04") == (
        "--set partition.held_out=0.04: partition.held_out: must be 0, or large enough for one example of "
        "the largest client, which has 20. Received: held_out=0.04"
    )
