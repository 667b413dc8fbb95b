"""Calls Keras callbacks during a training in Python.

An epoch of a Keras callback ends with an evaluation, and a round is one of its batches: with `evaluate.every: 1`, each
round is an epoch. The number of an epoch is that of its last round, from 0 as in Keras.
"""

import numbers
from collections.abc import Sequence
from typing import Any

import keras

from hetero_tf.base.errors import InputError
from hetero_tf.base.metrics import find_metric
from hetero_tf.run.learning_process import LearningProcess, State, next_evaluation

# Callbacks that change what the recipe determines, and the key or class to use instead.
ALTERNATIVES: dict[type[keras.callbacks.Callback], str] = {
    keras.callbacks.ReduceLROnPlateau: "set `schedule` in the recipe, which determines the learning rate of each round",
    keras.callbacks.LearningRateScheduler: "set `schedule` in the recipe, which determines the learning rate of each "
    "round",
    keras.callbacks.SwapEMAWeights: "leave it out, since clients have no moving averages of their weights",
    keras.callbacks.BackupAndRestore: "use hetero_tf.run.callbacks.Checkpoint, which saves the complete state",
}


def advice_for(callback: keras.callbacks.Callback) -> str | None:
    """Return what to use instead of a Keras callback that cannot work with rounds; None if it can."""
    return next((advice for kind, advice in ALTERNATIVES.items() if isinstance(callback, kind)), None)


class Weights(list):
    """Weights of the global model, with the state that they belong to."""

    state: State


class GlobalModel:
    """The global model of the current state, in the form that Keras callbacks read: `process.model(state)`.

    Reading an attribute assigns the values of the state to the Keras model, so rounds without a reader cost nothing.

    Attributes:
        stop_training: A callback sets it to True to end the training.
        optimizer: Has the name and the learning rate of the recipe's optimizer, for callbacks that log them.
        history: Set by `keras.callbacks.History`.
    """

    def __init__(self, process: LearningProcess, state: State):
        self.stop_training = False
        recipe = process.recipe.optimizer
        self.optimizer = keras.optimizers.Optimizer(recipe.learning_rate, name=recipe.method.name)
        self.history: Any = None
        self._process, self._state = process, state
        self._statistics: dict | None = None
        self._is_finished = False

    @property
    def state(self) -> State:
        """The current state; after the training the one whose weights a callback has restored."""
        return self._state

    def update(self, state: State, statistics: dict | None, learning_rate: float) -> None:
        """Show the state after a round.

        Args:
            statistics: Statistics of static batch normalisation of the global model. If None, a reader computes them.
        """
        self._state, self._statistics = state, statistics
        self.optimizer.learning_rate = learning_rate
        self.optimizer.iterations.assign(state.round)

    def finish(self) -> None:
        """Allow callbacks to restore the weights of an earlier round."""
        self._is_finished = True

    def get_weights(self) -> Weights:
        """Return the weights of the current state."""
        weights = Weights(self._build().get_weights())
        weights.state = self._state
        return weights

    def set_weights(self, weights: Weights) -> None:
        """Restore the state whose weights `get_weights` has returned, after the training."""
        if not self._is_finished or not isinstance(weights, Weights):
            raise InputError(
                "a Keras callback may only restore weights that `get_weights` has returned, in `on_train_end`: rounds "
                "alone change the weights"
            )
        self._state, self._statistics = weights.state, None

    def load_weights(self, *_, **__) -> None:
        """Refuse to load weights: rounds alone change them."""
        raise InputError(
            "a Keras callback cannot load weights: rounds alone change them. Start from a file by "
            "model.initial_weights, or from a state by `state`"
        )

    def __call__(self, *inputs, **options):
        return self._build()(*inputs, **options)

    def __getattr__(self, name):
        # `copy` looks up special methods before the attributes of the copy exist.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._build(), name)

    def _build(self):
        if self._statistics is None:
            self._statistics = self._process.statistics(self._state)
        return self._process.model(self._state, statistics=self._statistics)


class KerasCallbacks:
    """Calls the methods of Keras callbacks.

    Args:
        callbacks: The callbacks, in the order in which they are called.
    """

    def __init__(
        self, process: LearningProcess, callbacks: Sequence[keras.callbacks.Callback], state: State, rounds: int
    ):
        self._process, self._callbacks, self._rounds = process, callbacks, rounds
        self._model, self._is_epoch_start = GlobalModel(process, state), True
        self._logs: dict[str, float] = {}
        for callback in callbacks:
            callback.set_params({"epochs": rounds, "steps": process.recipe.evaluate.every, "verbose": 1})
            callback.set_model(self._model)
            _resolve_mode(callback)

    def begin(self) -> None:
        """Announce the training."""
        self._call("on_train_begin")

    def begin_round(self) -> None:
        """Announce a round, and the epoch that begins with it."""
        round = self._model.state.round
        if self._is_epoch_start:
            self._call("on_epoch_begin", next_evaluation(self._process.recipe, round, self._rounds) - 1)
        self._call("on_train_batch_begin", round)

    def end_round(self, state: State, metrics: dict, statistics: dict | None) -> bool:
        """Report a round, and the epoch that ends with it; return True if a callback ends the training.

        Args:
            statistics: `{level: statistics}` of its evaluation; None if it was not evaluated.
        """
        self._is_epoch_start = statistics is not None
        level = self._process.recipe.levels.global_level
        self._model.update(state, None if statistics is None else statistics.get(level), metrics["learning_rate"])
        self._logs = logs_of(metrics)
        self._call("on_train_batch_end", state.round - 1, self._logs)
        if self._is_epoch_start:
            self._check_monitors()
            self._call("on_epoch_end", state.round - 1, self._logs)
        return self._model.stop_training

    def end(self) -> State:
        """Announce the end of the training; return the last state, or the one that a callback has restored."""
        self._model.finish()
        self._call("on_train_end", self._logs)
        return self._model.state

    def _call(self, method, *arguments):
        """Call a method of all callbacks, and refuse a change of the learning rate."""
        before = float(self._model.optimizer.learning_rate)
        for callback in self._callbacks:
            getattr(callback, method)(*arguments)
            if float(self._model.optimizer.learning_rate) != before:
                raise InputError(
                    "a Keras callback cannot change the learning rate: set `schedule` in the recipe, which determines "
                    f"it for each round. Received: {type(callback).__name__}, which changes it in {method}"
                )

    def _check_monitors(self):
        """Refuse a callback that waits for a metric that no evaluation has."""
        for callback in self._callbacks:
            monitor = getattr(callback, "monitor", None)
            if isinstance(monitor, str) and monitor not in self._logs:
                raise InputError(
                    f"`monitor` of {type(callback).__name__} must be one of {', '.join(sorted(self._logs))}. "
                    f"Received: monitor={monitor!r}"
                )


def logs_of(metrics: dict) -> dict[str, float]:
    """Return the numbers of a row of metrics for Keras callbacks.

    `val_loss`, `val_accuracy` and so on are those of the held-out examples if there are some, else of the test set.
    """
    logs = {name: float(value) for name, value in metrics.items() if isinstance(value, numbers.Real)}
    for prefix in ("global_", "validation_"):
        logs |= {f"val_{name.removeprefix(prefix)}": logs[name] for name in list(logs) if name.startswith(prefix)}
    return logs


def _resolve_mode(callback):
    """Set the mode of a callback that would derive it from a metric of a compiled model."""
    monitor = getattr(callback, "monitor", None)
    if getattr(callback, "mode", None) == "auto" and isinstance(monitor, str):
        metric = find_metric(monitor.replace("val_", "global_", 1) if monitor.startswith("val_") else monitor)
        if metric is not None and metric.better is not None:
            callback.mode = "max" if metric.better == "higher" else "min"
