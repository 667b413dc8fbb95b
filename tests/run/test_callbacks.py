"""Training in Python: rounds, callbacks, states on disk, and what single clients reach."""

import csv
import dataclasses
import functools
import json
import types

import keras
import numpy as np
import pytest
import tiny
from refusals import refusal
from stub_rounds import stubbed

import hetero_tf
from hetero_tf.base.errors import InputError
from hetero_tf.run.callbacks import Checkpoint, EarlyStopping, RoundEnd, log, logs_of
from hetero_tf.run.live_curves import LiveCurves

SETTINGS = ("evaluate.every=2", "levels.assignment=fixed", "levels.mix=a1-c1")


@functools.cache
def process():
    return stubbed(tiny.shared(tiny.DENSE, *SETTINGS))


def test_training_equals_the_steps_and_measures_as_the_recipe_says():
    trained, state = hetero_tf.train(process()), process().initialize()
    for _ in range(3):
        state, _ = process().next(state)
    assert trained.state.round == 3 and tiny.same(tiny.arrays(trained.state), tiny.arrays(state))
    assert [row["round"] for row in trained.rows] == [1, 2, 3]
    assert ["global_accuracy" in row for row in trained.rows] == [False, True, True]
    longer = hetero_tf.train(process(), 5, state=trained.state)
    assert [row["round"] for row in longer.rows] == [4, 5] and hetero_tf.train(process(), 2, state=state).rows == []


def test_callbacks_are_called_after_every_round_and_can_end_the_training():
    heard, after = [], []

    def stop(end):
        heard.append((end.state.round, end.metrics["round"], end.process is process()))
        return end.state.round == 2

    trained = hetero_tf.train(process(), 9, callbacks=[stop, lambda end: after.append(end.state.round)])
    assert heard == [(1, 1, True), (2, 2, True)] and after == [1, 2] and trained.state.round == 2


class Record(keras.callbacks.Callback):
    """Records what the Keras callbacks of experiment trackers read."""

    def on_train_begin(self, logs=None):
        self.calls, self.outputs, self.config = ["begin"], [], json.dumps(self.model.optimizer.get_config())

    def on_epoch_begin(self, epoch, logs=None):
        self.calls.append(f"epoch {epoch}")

    def on_epoch_end(self, epoch, logs=None):
        self.calls.append(f"{epoch}: {logs['round']:g} {float(self.model.optimizer.learning_rate):.2g}")
        self.outputs.append(np.asarray(self.model(process().dataset.test.x)))

    def on_train_end(self, logs=None):
        self.calls.append("end")


def test_an_evaluated_round_is_an_epoch_of_keras_callbacks(tmp_path):
    record, history = Record(), keras.callbacks.History()
    checkpoint = keras.callbacks.ModelCheckpoint(tmp_path / "model.keras")
    events = keras.callbacks.TensorBoard(tmp_path / "events", histogram_freq=1)
    logger = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    trained = hetero_tf.train(process(), 3, callbacks=[record, logger, history, checkpoint, events])
    second, third = (f"{row['round']} {row['learning_rate']:.2g}" for row in trained.rows[1:])
    assert record.calls == ["begin", "epoch 0", f"0: {second}", "epoch 1", f"1: {third}", "end"]
    assert '"name": "sgd"' in record.config and record.params["epochs"] == 3
    with open(tmp_path / "log.csv") as file:
        written = list(csv.DictReader(file))
    for row, line in zip(trained.rows[1:], written, strict=True):
        assert float(line["global_loss"]) == float(line["val_loss"]) == row["global_loss"]
        assert float(line["loss"]) == row["loss"] and "levels" not in line
    assert history.history["val_accuracy"] == [row["global_accuracy"] for row in trained.rows[1:]]
    x = process().dataset.test.x
    expected = np.asarray(process().model(trained.state)(x))
    np.testing.assert_array_equal(record.outputs[1], expected)
    np.testing.assert_array_equal(np.asarray(hetero_tf.load_model(tmp_path / "model.keras")(x)), expected)
    assert not np.array_equal(record.outputs[0], expected)
    assert {path.parent.name for path in tmp_path.rglob("events.*")} == {"train", "validation"}


@pytest.mark.long
def test_statistics_of_the_evaluation_are_in_the_model_of_keras_callbacks(tmp_path):
    images = tiny.shared(tiny.IMAGES, "levels.mix=c")
    trained = hetero_tf.train(images, 1, callbacks=[keras.callbacks.ModelCheckpoint(tmp_path / "model.keras")])
    x = images.dataset.test.x
    expected = images.model(trained.state)(x)
    np.testing.assert_allclose(hetero_tf.load_model(tmp_path / "model.keras")(x), expected, rtol=1e-6, atol=1e-6)


def test_keras_callbacks_end_the_training_and_change_nothing():
    stopping = keras.callbacks.EarlyStopping("val_accuracy", patience=1, min_delta=1000, mode="max")
    assert [row["round"] for row in hetero_tf.train(process(), 9, callbacks=[stopping]).rows] == [1, 2, 3]
    for callback in (
        keras.callbacks.EarlyStopping("val_loss", restore_best_weights=True),
        keras.callbacks.BackupAndRestore("x"),
    ):
        assert refusal(hetero_tf.train, process(), 1, callbacks=[callback]) == (
            f"a Keras callback cannot change the weights; use hetero_tf.run.callbacks.Checkpoint. Received: {type(callback).__name__}"
        )


def test_keras_callbacks_change_the_learning_rate_of_the_clients():
    """A schedule sets it at the start of an epoch, a plateau lowers it at the end of the second one and later."""
    rates = [process().learning_rate(round) for round in range(5)]
    callbacks = [
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: 2 * rate if epoch == 0 else rate),
        keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=0, min_delta=1000),
    ]
    changed = hetero_tf.train(process(), 5, callbacks=callbacks)
    factors = [row["learning_rate"] / rate for row, rate in zip(changed.rows, rates, strict=True)]
    assert factors == pytest.approx([2, 2, 2, 1, 0.5], rel=1e-6)


def test_validation_metrics_come_first_in_the_logs():
    row = {"round": 1, "levels": {"a": 1}, "global_loss": 2.0, "validation_loss": 1.0, "global_accuracy": 50}
    numbers = {"round": 1.0, "global_loss": 2.0, "validation_loss": 1.0, "global_accuracy": 50.0}
    assert logs_of(row) == numbers | {"val_loss": 1.0, "val_accuracy": 50.0}


def ends(metric, values):
    rows = [{} if value is None else {metric: value} for value in values]
    return [RoundEnd(process(), None, row) for row in rows]


def test_early_stopping_counts_evaluations_with_a_minimum_improvement_and_that_of_the_recipe_ends_the_training():
    stopping = EarlyStopping("global_accuracy", patience=2)
    values = [10, 20, None, 20, 19]
    assert [stopping(end) for end in ends("global_accuracy", values)] == [False, False, False, False, True]
    stopping = EarlyStopping(patience=1, min_delta=5)
    assert process().selection_metric == "local_loss" or process().selection_metric.endswith("accuracy")
    sign = -1 if process().selection_metric.endswith("loss") else 1
    assert [stopping(end) for end in ends(process().selection_metric, [sign * 10, sign * 14])] == [False, True]
    assert stopping.best == sign * 10
    stopped = tiny.process(tiny.DENSE, "early_stopping={patience: 1, metric: global_loss, min_delta: 1000}")
    assert len(hetero_tf.train(stubbed(stopped), 9).rows) == 2


def test_training_resumes_from_a_checkpoint(tmp_path):
    keep = Checkpoint(tmp_path / "states", every=2, keep=1)
    assert keep.newest(process()) is None
    whole = hetero_tf.train(process(), 4)
    hetero_tf.train(process(), 3, callbacks=[keep])
    state = keep.newest(process())
    assert state.round == 2 and len(list((tmp_path / "states").iterdir())) == 1
    again = hetero_tf.train(process(), 4, state=state)
    assert tiny.same(tiny.arrays(again.state), tiny.arrays(whole.state))
    assert again.rows[-1]["global_loss"] == whole.rows[-1]["global_loss"]
    assert "states" in refusal(keep.newest, tiny.shared(tiny.DENSE, "levels.mix=c"))


def test_log_prints_a_line_for_each_evaluated_round():
    lines = []
    hetero_tf.train(process(), 3, callbacks=[log(lines.append)])
    assert [line.split(":")[0] for line in lines] == ["round 2", "round 3"] and ", loss " in lines[0]


def test_wrong_arguments_and_callbacks_are_refused():
    assert refusal(EarlyStopping, "accuracy").startswith("`metric` must be one of ")
    assert refusal(EarlyStopping, patience=0) == (
        "`patience` must be at least 1 and `min_delta` at least 0. Received: patience=0, min_delta=0.0"
    )
    assert refusal(Checkpoint, "x", every=0) == "`every` and `keep` must be at least 1. Received: every=0, keep=2"
    with pytest.raises(InputError, match="`metrics` must be among .*global_accuracy.* Received: 'accurate'"):
        LiveCurves(["accurate"])


def test_results_of_clients_add_up_to_the_local_metrics(eager):
    trained = tiny.shared(tiny.DENSE, *SETTINGS)
    state = hetero_tf.train(trained, 2).state
    results, metrics = trained.client_results(state), trained.evaluate(state)[0]
    assert results.examples.sum() == 11 and len(results.accuracy) == len(results.clients)
    pooled = (results.accuracy * results.examples).sum() / results.examples.sum()
    assert pooled == pytest.approx(metrics["local_accuracy"]) and set(results.levels) <= {"a", "c"}
    assert results.accuracy.mean() == pytest.approx(metrics["local_mean"])
    narrow = process().client_results(state, "c")
    logits = process().network(state, "c")(process().dataset.test.x / np.float32(255)).numpy()
    tests, y = process().evaluator.tests, process().dataset.test.y
    right = (
        np.where(tests.label_mask[tests.clients[tests.owners]], logits[tests.examples], 0).argmax(-1)
        == y[tests.examples]
    )
    np.testing.assert_allclose(narrow.accuracy, 100 * np.bincount(tests.owners, right) / tests.counts, rtol=1e-6)
    personal = tiny.shared(tiny.DENSE, "round.personal=[1]")
    state = hetero_tf.train(personal, 2).state
    personal_results, metrics = personal.client_results(state), personal.evaluate(state)[0]
    assert personal_results.accuracy.mean() == pytest.approx(metrics["local_mean"]) and personal_results.levels == ()


def test_results_of_clients_need_labelled_test_examples():
    text = tiny.shared(tiny.TEXT)
    assert refusal(text.client_results, text.initialize()).startswith(
        "results of clients need labelled test examples of the clients. Received: noise, 0 clients"
    )
    names = [field.name for field in dataclasses.fields(process().client_results(process().initialize()))]
    assert names == ["clients", "levels", "examples", "accuracy"]


class Display:
    def __init__(self):
        self.shown, self.updated = [], []

    def display(self, picture, display_id):
        assert display_id
        self.shown.append(picture)
        return types.SimpleNamespace(update=self.updated.append)


@pytest.fixture
def notebook(monkeypatch):
    pytest.importorskip("matplotlib")
    display = Display()
    module = pytest.importorskip("IPython.display")
    monkeypatch.setattr(module, "Image", lambda data: data)
    monkeypatch.setattr(module, "display", display.display)
    return display


def test_one_picture_is_shown_and_replaced(notebook):
    curves = LiveCurves(["global_accuracy", "loss"])
    process = types.SimpleNamespace(selection_metric="global_accuracy")
    for round in range(1, 7):
        evaluated = {"global_accuracy": 10.0 * round} if round != 3 else {}
        curves(RoundEnd(process, None, {"round": round, "loss": 1 / round, **evaluated}))
    assert len(notebook.shown) == 1 and len(notebook.updated) == 5
    assert notebook.shown[0].startswith(b"\x89PNG") and len({*notebook.shown, *notebook.updated}) == 6


def test_the_selection_metric_is_the_default(notebook):
    curves = LiveCurves()
    process = types.SimpleNamespace(selection_metric="global_accuracy")
    curves(RoundEnd(process, None, {"round": 1, "loss": 1.0}))
    assert curves.rows == [] and notebook.shown == []
    curves(RoundEnd(process, None, {"round": 2, "loss": 1.0, "global_accuracy": 20.0}))
    assert len(curves.rows) == len(notebook.shown) == 1
