"""Keras callbacks in a training: their hooks and logs, the model that they read, and those that are refused."""

import copy
import csv
import functools
import json
import math

import keras
import numpy as np
import pytest
import tiny
from refusals import refusal
from stub_rounds import stubbed

import hetero_tf
from hetero_tf.base.errors import InputError
from hetero_tf.run.keras_callbacks import GlobalModel, KerasCallbacks, logs_of
from hetero_tf.run.learning_process import LearningProcess


@functools.cache
def process(every=1):
    return stubbed(tiny.shared(tiny.DENSE, f"evaluate.every={every}"))


def train(*callbacks, rounds=3, every=1):
    return hetero_tf.train(process(every), rounds, callbacks=callbacks)


def test_an_epoch_ends_with_an_evaluation_and_a_round_is_a_batch():
    calls = []

    def record(name):
        return lambda *arguments, **_: calls.append((name, *arguments[:1]))

    names = ("on_train_begin", "on_epoch_begin", "on_train_batch_begin", "on_train_batch_end", "on_epoch_end")
    functions = {name: record(name) for name in names if name != "on_train_begin"}
    functions |= {name: lambda *_, name=name: calls.append((name,)) for name in ("on_train_begin", "on_train_end")}
    train(keras.callbacks.LambdaCallback(**functions), every=2)
    assert "; ".join(" ".join(map(str, call)) for call in calls) == (
        "on_train_begin; on_epoch_begin 1; on_train_batch_begin 0; on_train_batch_end 0; on_train_batch_begin 1; "
        "on_train_batch_end 1; on_epoch_end 1; on_epoch_begin 2; on_train_batch_begin 2; on_train_batch_end 2; "
        "on_epoch_end 2; on_train_end"
    )


def test_csv_logger_writes_the_evaluated_rows_without_building_the_model(tmp_path, monkeypatch):
    monkeypatch.setattr(LearningProcess, "model", lambda *_: pytest.fail("the model was built"))
    history = keras.callbacks.History()
    trained = train(keras.callbacks.CSVLogger(tmp_path / "log.csv"), history, every=2)
    with open(tmp_path / "log.csv") as file:
        written = list(csv.DictReader(file))
    assert [row["epoch"] for row in written] == ["1", "2"] and history.epoch == [1, 2]
    for row, line in zip([trained.rows[1], trained.rows[2]], written, strict=True):
        assert float(line["global_loss"]) == float(line["val_loss"]) == row["global_loss"]
        assert float(line["loss"]) == row["loss"] and "levels" not in line
    assert history.history["val_accuracy"] == [row["global_accuracy"] for row in trained.rows[1:]]


def test_early_stopping_ends_the_training_and_restores_the_best_state():
    stopping = keras.callbacks.EarlyStopping("val_accuracy", patience=1, min_delta=1000, restore_best_weights=True)
    trained = train(stopping, rounds=9)
    first, _ = process().next(process().initialize())
    assert [row["round"] for row in trained.rows] == [1, 2] and trained.state.round == 1
    assert tiny.same(tiny.arrays(trained.state), tiny.arrays(first)) and stopping.mode == "max"


def test_model_checkpoint_saves_the_model_of_each_round(tmp_path):
    trained = train(keras.callbacks.ModelCheckpoint(str(tmp_path / "{epoch:02d}-{val_loss:.2f}.keras")), rounds=2)
    files = sorted(tmp_path.iterdir())
    assert [path.name[:2] for path in files] == ["01", "02"]
    x = process().dataset.test.x
    expected = np.asarray(process().model(trained.state)(x))
    np.testing.assert_array_equal(np.asarray(hetero_tf.load_model(files[1])(x)), expected)
    assert not np.array_equal(np.asarray(hetero_tf.load_model(files[0])(x)), expected)


def test_statistics_of_the_evaluation_are_in_the_saved_model(tmp_path):
    images = tiny.shared(tiny.IMAGES, "levels.mix=c")
    checkpoint = keras.callbacks.ModelCheckpoint(tmp_path / "model.keras")
    trained = hetero_tf.train(images, 1, callbacks=[checkpoint])
    x = images.dataset.test.x
    expected = images.model(trained.state)(x)
    np.testing.assert_allclose(hetero_tf.load_model(tmp_path / "model.keras")(x), expected, rtol=1e-6, atol=1e-6)


def test_tensorboard_writes_events_of_training_and_evaluation(tmp_path):
    train(keras.callbacks.TensorBoard(tmp_path, histogram_freq=1), rounds=1)
    assert {path.parent.name for path in tmp_path.rglob("events.*")} == {"train", "validation"}


def test_training_ends_when_a_loss_is_not_a_number():
    initial = process().initialize()
    callbacks = KerasCallbacks(process(), [keras.callbacks.TerminateOnNaN()], initial, 9)
    callbacks.begin()
    assert callbacks.end_round(initial, {"loss": 1.0, "learning_rate": 0.1}, None) is False
    assert callbacks.end_round(initial, {"loss": math.nan, "learning_rate": 0.1}, None) is True


class Tracker(keras.callbacks.Callback):
    """Reads what the Keras callbacks of experiment trackers read."""

    def on_train_begin(self, logs=None):
        self.lines, self.sent = [], []
        self.config = json.dumps(self.model.optimizer.get_config())
        self.model.summary(print_fn=lambda line, *_: self.lines.append(line))

    def on_epoch_end(self, epoch, logs=None):
        learning_rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        self.sent.append(json.loads(json.dumps({**logs, "epoch": epoch, "rate": learning_rate})))


def test_trackers_read_parameters_the_model_and_the_learning_rate():
    tracker = Tracker()
    trained = train(tracker, rounds=2)
    assert tracker.params == {"epochs": 2, "steps": 1, "verbose": 1} and '"name": "sgd"' in tracker.config
    assert "(Functional)" in "".join(tracker.lines)
    assert [sent["rate"] for sent in tracker.sent] == pytest.approx([row["learning_rate"] for row in trained.rows])
    assert [sent["global_loss"] for sent in tracker.sent] == [row["global_loss"] for row in trained.rows]


def test_validation_metrics_come_first():
    row = {"round": 1, "levels": {"a": 1}, "global_loss": 2.0, "validation_loss": 1.0, "global_accuracy": 50}
    numbers = {"round": 1.0, "global_loss": 2.0, "validation_loss": 1.0, "global_accuracy": 50.0}
    assert logs_of(row) == numbers | {"val_loss": 1.0, "val_accuracy": 50.0}


@pytest.mark.parametrize(
    ("callback", "advice"),
    [
        (keras.callbacks.ReduceLROnPlateau(), "set `schedule` in the recipe, which determines the learning rate of"),
        (keras.callbacks.LearningRateScheduler(lambda _: 0.1), "set `schedule` in the recipe, which determines the"),
        (keras.callbacks.SwapEMAWeights(), "leave it out, since clients have no moving averages of their weights"),
        (keras.callbacks.BackupAndRestore("x"), "use hetero_tf.run.callbacks.Checkpoint, which saves the complete"),
    ],
)
def test_callbacks_that_change_what_the_recipe_determines_are_refused(callback, advice):
    message = refusal(train, callback)
    assert message.startswith(
        f"callbacks[0] must be a Keras callback, or a function of one RoundEnd, which has process, state and metrics: {advice}"
    )
    assert message.endswith(f". Received: keras.callbacks.{type(callback).__name__}")


class Changing(keras.callbacks.Callback):
    """Calls a function with the model after each epoch."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def on_epoch_end(self, epoch, logs=None):
        self.change(self.model)


@pytest.mark.parametrize(
    ("callback", "sentence"),
    [
        (
            Changing(lambda model: setattr(model.optimizer, "learning_rate", 0.5)),
            "a Keras callback cannot change the learning rate: set `schedule` in the recipe, which determines it for "
            "each round. Received: Changing, which changes it in on_epoch_end",
        ),
        (
            Changing(lambda model: model.set_weights(model.get_weights())),
            "a Keras callback may only restore weights that `get_weights` has returned, in `on_train_end`",
        ),
        (Changing(lambda model: model.load_weights("x.weights.h5")), "a Keras callback cannot load weights"),
        (
            keras.callbacks.EarlyStopping("val_f1"),
            "`monitor` of EarlyStopping must be one of bytes_down, bytes_up, global_accuracy",
        ),
    ],
)
def test_changes_that_rounds_would_ignore_are_refused(callback, sentence):
    assert refusal(train, callback).startswith(sentence)


def test_the_model_can_be_called_in_a_callback():
    outputs = []
    x = process().dataset.test.x
    trained = train(Changing(lambda model: outputs.append(np.asarray(model(x)))), rounds=1)
    np.testing.assert_array_equal(outputs[0], np.asarray(process().model(trained.state)(x)))


def test_the_model_can_be_copied():
    assert copy.copy(GlobalModel(process(), process().initialize())).stop_training is False


def test_weights_of_another_origin_are_not_restored():
    callbacks = KerasCallbacks(process(), [], process().initialize(), 1)
    callbacks.end()
    with pytest.raises(InputError, match="may only restore weights that `get_weights` has returned"):
        callbacks._model.set_weights([])
