"""Trains in Python, without a run folder: a loop over rounds with callbacks, for notebooks and programs.

trained = hetero_tf.train(process, 20, callbacks=[EarlyStopping(patience=3), Checkpoint("states", every=5)])
trained.rows[-1]["global_accuracy"]
"""

import dataclasses
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import keras
import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.metrics import all_metrics, find_metric
from hetero_tf.run.learning_process import LearningProcess, State, advance, is_measured
from hetero_tf.run.resume import arrays_of, open_newest
from hetero_tf.runs import checkpoints
from hetero_tf.runs.early_stopping import Patience

# Keras callbacks that change the weights, which have no effect on a state.
CHANGING = (keras.callbacks.SwapEMAWeights, keras.callbacks.BackupAndRestore)


@dataclass(frozen=True)
class RoundEnd:
    """A finished round.

    Attributes:
        metrics: The metrics of the round, with "round", and those of its evaluation if it was evaluated.
        statistics: `{level: statistics}` of static batch normalisation of its evaluation; None without one.
    """

    process: LearningProcess
    state: State
    metrics: dict
    statistics: dict | None = None


class Callback(Protocol):
    """A function `(RoundEnd) -> bool | None` that is called after every round."""

    def __call__(self, end: RoundEnd, /) -> bool | None:
        """Return True to end the training after this round."""


@dataclass(frozen=True)
class Trained:
    """Result of `train`.

    Attributes:
        state: The state after the last round.
        rows: Metrics of each round.
    """

    state: State
    rows: list[dict]
    process: LearningProcess


def train(
    process: LearningProcess,
    rounds: int | None = None,
    state: State | None = None,
    callbacks: Sequence[Callback | keras.callbacks.Callback] = (),
) -> Trained:
    """Train up to a round, or until a callback or the recipe's early stopping ends the training.

    Args:
        process: The learning process. It is evaluated after every `evaluate.every` rounds of its recipe, and after the
            last round.
        rounds: Number of the last round; a state of that round is returned unchanged. None: the recipe's.
        state: The state to start from, by default a new one.
        callbacks: Functions that are called after every round, in this order; then Keras callbacks, for which each
            evaluated round is an epoch. These read the global model, may end the training, and may change the learning
            rate of the optimizer, which is that of the clients; changes of the model have no effect.

    Raises:
        NotFinite: Too many clients of a round diverged, or its merge overflowed, also with a second cohort.
        InputError: A Keras callback would change or restore weights.
    """
    of_keras = [callback for callback in callbacks if isinstance(callback, keras.callbacks.Callback)]
    for callback in of_keras:
        if isinstance(callback, CHANGING) or getattr(callback, "restore_best_weights", False):
            raise InputError(
                "a Keras callback cannot change the weights; use hetero_tf.run.callbacks.Checkpoint. "
                f"Received: {type(callback).__name__}"
            )
    rounds, rule = process.recipe.rounds if rounds is None else rounds, process.recipe.early_stopping
    state, rows = process.initialize() if state is None else state, []
    functions = [callback for callback in callbacks if callback not in of_keras]
    if rule.patience is not None:
        functions.append(EarlyStopping(rule.metric, rule.patience, rule.min_delta))
    epochs, rate_factor = _KerasEpochs(process, of_keras, state, rounds) if of_keras else None, 1.0
    functions += [epochs] if epochs else []
    while state.round < rounds:
        if epochs:
            rate_factor = epochs.begin(process.learning_rate(state.round))
        end = _run_round(process, state, rounds, rate_factor)
        state = end.state
        rows.append(end.metrics)
        # Call every callback, even if an earlier one ends the training.
        stops = [function(end) for function in functions]
        if any(stops):
            break
    if epochs:
        epochs.list.on_train_end()
    return Trained(state, rows, process)


def _run_round(process, state, rounds, rate_factor):
    """Run one round, and evaluate it if it is the last one or the recipe evaluates it."""
    plan = dataclasses.replace(process.plan(state.round, state=state), rate_factor=rate_factor)
    state, rows, _ = advance(process, state, [plan])
    if state.round < rounds and not is_measured(process.recipe, state.round):
        return RoundEnd(process, state, rows[0])
    metrics, statistics = process.evaluate(state)
    return RoundEnd(process, state, rows[0] | metrics, statistics)


class _KerasEpochs:
    def __init__(self, process, callbacks, state, rounds):
        optimizer = process.recipe.optimizer
        self._model, self._epoch, self._has_begun, self._factor = process.model(state), 0, False, 1.0
        self._model.compile(keras.optimizers.SGD(optimizer.learning_rate, name=optimizer.method.name))
        self.list = keras.callbacks.CallbackList(callbacks, model=self._model, epochs=rounds, verbose=1)
        self.list.on_train_begin()

    def begin(self, rate):
        """Announce an epoch with its first round, and return the factor of the recipe's learning rate."""
        if not self._has_begun:
            self._call(rate, self.list.on_epoch_begin)
        self._has_begun = True
        return self._factor

    def _call(self, rate, announce, *arguments):
        """Call Keras with the learning rate of a round, and store the factor by which a callback has changed it."""
        before = np.float32(rate * self._factor)
        self._model.optimizer.learning_rate = before
        announce(self._epoch, *arguments)
        after = np.float32(keras.ops.convert_to_numpy(self._model.optimizer.learning_rate))
        self._factor = self._factor if after == before else float(after) / rate

    def __call__(self, end):
        if end.statistics is None:
            return False
        statistics = end.statistics.get(end.process.recipe.levels.global_level)
        self._model.set_weights(end.process.model(end.state, statistics=statistics).get_weights())
        self._call(end.process.learning_rate(end.state.round - 1), self.list.on_epoch_end, logs_of(end.metrics))
        self._epoch, self._has_begun = self._epoch + 1, False
        return self._model.stop_training


def logs_of(metrics: dict) -> dict[str, float]:
    """Return the numbers of a row of metrics for Keras callbacks.

    `val_loss`, `val_accuracy` and so on are those of the held-out examples if there are some, else of the test set.
    """
    logs = {name: float(value) for name, value in metrics.items() if isinstance(value, numbers.Real)}
    for prefix in ("global_", "validation_"):
        logs |= {f"val_{name.removeprefix(prefix)}": logs[name] for name in list(logs) if name.startswith(prefix)}
    return logs


class EarlyStopping:
    """Ends the training when a metric has not improved for some evaluations.

    Args:
        metric: Name of the metric, by default the selection metric of the recipe.
        patience: Number of evaluations without an improvement after which the training ends. NaN and infinity are never
            an improvement.
        min_delta: Difference from the best value that an improvement exceeds.
    """

    def __init__(self, metric: str | None = None, patience: int = 3, min_delta: float = 0.0):
        if metric is not None and find_metric(metric) is None:
            raise InputError(f"`metric` must be one of {', '.join(all_metrics())}. Received: metric={metric!r}")
        if patience < 1 or min_delta < 0:
            raise InputError(
                f"`patience` must be at least 1 and `min_delta` at least 0. Received: {patience=}, {min_delta=}"
            )
        self.metric, self.patience, self.min_delta = metric, patience, min_delta
        self._counted: Patience | None = None

    @property
    def best(self) -> float | None:
        """The best value so far; None before the first finite one."""
        return self._counted.best if self._counted else None

    def __call__(self, end: RoundEnd) -> bool:
        metric = self.metric or end.process.selection_metric
        if metric not in end.metrics:
            return False
        counted = self._counted or Patience(metric, self.patience, self.min_delta)
        self._counted = counted.after(end.metrics[metric])
        return self._counted.is_over


class Checkpoint:
    """Saves checkpoints of the state, atomically and with checksums.

    Args:
        folder: Folder of the checkpoints; it is created if needed.
        every: Number of rounds between two checkpoints.
        keep: Number of checkpoints to keep.
    """

    def __init__(self, folder: Path | str, every: int = 1, keep: int = 2):
        if every < 1 or keep < 1:
            raise InputError(f"`every` and `keep` must be at least 1. Received: {every=}, {keep=}")
        self.folder, self.every, self.keep = Path(folder), every, keep

    def __call__(self, end: RoundEnd) -> None:
        if end.state.round % self.every == 0:
            checkpoints.save(self.folder, end.state.round, arrays_of(end.state, {}, ""), {}, self.keep)

    def newest(self, process: LearningProcess) -> State | None:
        """Return the newest state in the folder; None if there is none yet.

        Raises:
            InputError: The state is damaged, or of another recipe or model.
        """
        loaded = open_newest(self.folder, process)
        return None if loaded is None else loaded.state


def log(say: Callable[[str], object] = print) -> Callback:
    """Return a callback that prints the number, selection metric and loss of each evaluated round, one line each."""

    def log_round(end):
        chosen = end.process.selection_metric
        if chosen in end.metrics:
            say(f"round {end.state.round}: {chosen} {end.metrics[chosen]:.4g}, loss {end.metrics['loss']:.4g}")

    return log_round
