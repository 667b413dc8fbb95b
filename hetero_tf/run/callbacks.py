"""Trains in Python, without a run folder: a loop over rounds with callbacks, for notebooks and programs.

trained = hetero_tf.train(process, 20, callbacks=[EarlyStopping(patience=3), Checkpoint("states", every=5)])
trained.rows[-1]["global_accuracy"]
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import keras
import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.metrics import all_metrics, find_metric
from hetero_tf.run.checkpoint import arrays_of, open_newest
from hetero_tf.run.keras_callbacks import KerasCallbacks, advice_for
from hetero_tf.run.learning_process import LearningProcess, State, advance, is_measured
from hetero_tf.runs import checkpoints
from hetero_tf.runs.early_stopping import Patience


@dataclass(frozen=True)
class RoundEnd:
    """A finished round.

    Attributes:
        metrics: The metrics of the round, with "round", and those of its evaluation if it was evaluated.
        statistics: `{level: statistics}` of static batch normalisation that its evaluation has measured; None if it was
            not evaluated.
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
        state: The state after the last round, or that of the round whose weights a Keras callback has restored.
    """

    state: State
    rows: list[dict]


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
        callbacks: Functions that are called after every round, in this order; then Keras callbacks, for which an
            evaluated round ends an epoch, see `keras_callbacks`.

    Raises:
        NotFinite: Too many clients of a round diverged, or its merge overflowed, also with a second cohort.
        InputError: A callback is neither a function of one `RoundEnd` nor a Keras callback that works with rounds, or
            returns a value other than True, False or None.
    """
    callbacks = (*_check_callbacks(callbacks), *_early_stopping(process))
    rounds = process.recipe.rounds if rounds is None else rounds
    state, rows = process.initialize() if state is None else state, []
    of_keras = [callback for callback in callbacks if isinstance(callback, keras.callbacks.Callback)]
    functions = {index: callback for index, callback in enumerate(callbacks) if callback not in of_keras}
    keras_callbacks = KerasCallbacks(process, of_keras, state, rounds)
    keras_callbacks.begin()
    while state.round < rounds:
        keras_callbacks.begin_round()
        end = _run_round(process, state, rounds)
        state = end.state
        rows.append(end.metrics)
        # Call every callback, even if an earlier one ends the training.
        stops = [_is_stop(index, function(end)) for index, function in functions.items()]
        stops.append(keras_callbacks.end_round(state, end.metrics, end.statistics))
        if any(stops):
            break
    return Trained(keras_callbacks.end(), rows)


def _run_round(process, state, rounds):
    """Run one round, and evaluate it if it is the last one or the recipe evaluates it."""
    state, rows, _ = advance(process, state, [process.plan(state.round, state=state)])
    if state.round < rounds and not is_measured(process.recipe, state.round):
        return RoundEnd(process, state, rows[0])
    metrics, statistics = process.evaluate(state)
    return RoundEnd(process, state, rows[0] | metrics, statistics)


def _early_stopping(process):
    """The callback of the recipe's early stopping, if it has one."""
    rule = process.recipe.early_stopping
    return () if rule.patience is None else (EarlyStopping(rule.metric, rule.patience, rule.min_delta),)


def _check_callbacks(callbacks):
    """Refuse callbacks of a wrong type before the first round."""
    if isinstance(callbacks, str | Mapping) or not isinstance(callbacks, Iterable):
        raise InputError(
            f"`callbacks` must be a list of functions or Keras callbacks. Received: {type(callbacks).__name__}"
        )
    callbacks = tuple(callbacks)
    for index, callback in enumerate(callbacks):
        advice = _advice(callback)
        if advice:
            raise InputError(
                f"callbacks[{index}] must be a Keras callback, or a function of one RoundEnd, which has process, state "
                f"and metrics: {advice}"
            )
    return callbacks


def _advice(callback):
    """Return advice for a callback that a training cannot call; None if it can."""
    kind = callback if inspect.isclass(callback) else type(callback)
    if inspect.isclass(callback):
        return f"pass an instance, such as {kind.__name__}(...). Received: the class {kind.__name__}"
    if isinstance(callback, keras.callbacks.Callback):
        advice = advice_for(callback)
        return advice and f"{advice}. Received: keras.callbacks.{kind.__name__}"
    if not callable(callback):
        return f"pass a function. Received: {kind.__name__}"
    try:
        inspect.signature(callback).bind(None)
    except TypeError as problem:
        return f"it must take one argument. Received: {getattr(callback, '__name__', kind.__name__)}, {problem}"
    # C functions have no signature.
    except ValueError:
        return None
    return None


def _is_stop(index, value):
    """True if the value that a callback returned ends the training."""
    if value is None or isinstance(value, bool | np.bool_):
        return bool(value)
    raise InputError(
        f"callbacks[{index}] must return True to end the training, and False or None otherwise. "
        f"Received: {type(value).__name__}"
    )


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
        self._counted = Patience()

    @property
    def best(self) -> float | None:
        """The best value so far; None before the first finite one."""
        return self._counted.best

    def __call__(self, end: RoundEnd) -> bool:
        metric = self.metric or end.process.selection_metric
        if metric not in end.metrics:
            return False
        self._counted = self._counted.after(metric, end.metrics[metric], self.min_delta)
        return self._counted.waited >= self.patience


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
            checkpoints.make(self.folder)
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
