"""Trains in Python, without a run folder: a loop over rounds with callbacks, for notebooks and programs.

trained = hetero_tf.train(process, 20, callbacks=[EarlyStopping(patience=3), Checkpoint("states", every=5)])
trained.rows[-1]["global_accuracy"]
"""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import keras
import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.metrics import METRICS, find
from hetero_tf.process.learning_process import LearningProcess, State
from hetero_tf.run.calls import advance, is_measured
from hetero_tf.run.checkpoint import arrays_of, open_newest
from hetero_tf.store import checkpoints


@dataclass(frozen=True)
class RoundEnd:
    """A round that has ended.

    Attributes:
        process: The learning process.
        state: The state after the round.
        metrics: The round's metrics, with "round"; those of the evaluation too where the round was measured.
    """

    process: LearningProcess
    state: State
    metrics: dict


class Callback(Protocol):
    """What is called after every round; a function `(RoundEnd) -> bool | None` will do."""

    def __call__(self, end: RoundEnd, /) -> bool | None:
        """Returns True to end the training after this round."""


@dataclass(frozen=True)
class Trained:
    """What a training left.

    Attributes:
        state: The state after its last round.
        rows: The metrics of each round.
    """

    state: State
    rows: list[dict]


def train(
    process: LearningProcess, rounds: int | None = None, state: State | None = None, callbacks: Sequence[Callback] = ()
) -> Trained:
    """Trains up to a round.

    Args:
        process: The learning process. Its recipe says after which rounds it is measured (`evaluate.every`), and so is
            the last one.
        rounds: The number of the last round; nothing happens if the state has come so far. None: as the recipe says.
        state: Where to begin; None: anew.
        callbacks: Called after every round, in this order.

    Raises:
        NotFinite: Too many clients of a round diverged, or its merge overflowed, also with a second cohort.
        InputError: A callback is not a function of one `RoundEnd`, or returns something else than True, False or None.
    """
    callbacks = _checked(callbacks)
    rounds = process.recipe.rounds if rounds is None else rounds
    state, rows = process.initialize() if state is None else state, []
    while state.round < rounds:
        state, of_call, _ = advance(process, state, [process.plan(state.round)])
        metrics = of_call[0]
        if state.round == rounds or is_measured(process.recipe, state.round):
            metrics = metrics | process.evaluate(state)[0]
        rows.append(metrics)
        # Every callback hears of the round, also of the one that ends the training.
        end = RoundEnd(process, state, metrics)
        stops = [_stops(index, callback(end)) for index, callback in enumerate(callbacks)]
        if any(stops):
            break
    return Trained(state, rows)


def _checked(callbacks):
    """Refuses, before the first round, callbacks that could not be called after it."""
    if isinstance(callbacks, str | Mapping) or not isinstance(callbacks, Iterable):
        raise InputError(f"`callbacks` must be a list of functions. Received: {type(callbacks).__name__}")
    callbacks = tuple(callbacks)
    for index, callback in enumerate(callbacks):
        advice = _advice(callback)
        if advice:
            raise InputError(
                f"callbacks[{index}] must be a function of one RoundEnd, which has process, state and metrics: {advice}"
            )
    return callbacks


def _advice(callback):
    """Returns the sentence part on a callback that cannot be called with one `RoundEnd`, None for the others."""
    kind = callback if inspect.isclass(callback) else type(callback)
    if issubclass(kind, keras.callbacks.Callback):
        return (
            "Keras callbacks work on an optimizer and epochs that a round does not have; use EarlyStopping, Checkpoint "
            f"or log of hetero_tf.run.callbacks, or `lambda end: ...`. Received: keras.callbacks.{kind.__name__}"
        )
    if inspect.isclass(callback):
        return f"pass an instance, such as {kind.__name__}(...). Received: the class {kind.__name__}"
    if not callable(callback):
        return f"pass a function. Received: {kind.__name__}"
    try:
        inspect.signature(callback).bind(None)
    except TypeError as problem:
        return f"it must take one argument. Received: {getattr(callback, '__name__', kind.__name__)}, {problem}"
    # Functions of C have no signature.
    except ValueError:
        return None
    return None


def _stops(index, value):
    """Whether the returned value of a callback ends the training."""
    if value is None or isinstance(value, bool | np.bool_):
        return bool(value)
    raise InputError(
        f"callbacks[{index}] must return True to end the training, and False or None otherwise. "
        f"Received: {type(value).__name__}"
    )


class EarlyStopping:
    """Ends the training when a metric has not improved for some evaluations.

    Args:
        metric: Its name; None: the one that chooses the best round of a run.
        patience: Number of evaluations without an improvement after which the training ends. A value that is not finite
            is never an improvement.
        least: By how much a value must be better than the best one to count.

    Attributes:
        best: The best value so far, None before the first finite one.
    """

    def __init__(self, metric: str | None = None, patience: int = 3, least: float = 0.0):
        if metric is not None and find(metric) is None:
            raise InputError(f"`metric` must be one of {', '.join(METRICS)}. Received: metric={metric!r}")
        if patience < 1 or least < 0:
            raise InputError(f"`patience` must be at least 1 and `least` at least 0. Received: {patience=}, {least=}")
        self.metric, self.patience, self.least = metric, patience, least
        self.best: float | None = None
        # The first evaluation has no earlier one to improve on.
        self._waited = -1

    def __call__(self, end: RoundEnd) -> bool:
        metric = self.metric or end.process.selection_metric
        if metric not in end.metrics:
            return False
        known, value = find(metric), end.metrics[metric]
        sign = -1 if known is not None and known.better == "lower" else 1
        if math.isfinite(value) and (self.best is None or sign * (value - self.best) > self.least):
            self.best, self._waited = value, 0
            return False
        self._waited += 1
        return self._waited >= self.patience


class Checkpoint:
    """Seals the state into a folder: written whole, with checksums.

    Args:
        folder: Where; it is made if needed.
        every: After every so many rounds.
        keep: How many of the newest states stay.
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
        """Returns the newest state in the folder, None if there is none yet.

        Raises:
            InputError: It is of another recipe or model, or damaged.
        """
        found = open_newest(self.folder, process)
        return None if found is None else found.state


def log(say: Callable[[str], object] = print) -> Callback:
    """Returns a callback that says the number, the loss and the chosen metric of each measured round, a line each."""

    def called(end):
        chosen = end.process.selection_metric
        if chosen in end.metrics:
            say(f"round {end.state.round}: {chosen} {end.metrics[chosen]:.4g}, loss {end.metrics['loss']:.4g}")

    return called
