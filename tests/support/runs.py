"""Runs inside the test process: equal recipes share one built process, so that only the first is traced."""

import functools
import io
import json

import numpy as np
import pytest
from stub_rounds import stubbed

from hetero_tf import recipe
from hetero_tf.base.console import Console
from hetero_tf.run import experiment
from hetero_tf.run.learning_process import LearningProcess
from hetero_tf.runs import checkpoints, facts
from hetero_tf.runs.run_folder import RunFolder

_built, _traced = {}, {}
_learning_process, _with_progress = experiment.learning_process, LearningProcess.with_progress


def _shared(recipe, dataset, partition, parallel, model=None, strategy=None, stub=False):
    # A resumed run may read the trace of its fleet from its folder.
    key = (recipe.source, repr(recipe.fleet), dataset.sha256, dataset.source, partition.sha256, parallel, stub)
    if key not in _built:
        process = _learning_process(recipe, dataset, partition, parallel=parallel)
        _built[key] = stubbed(process) if stub else process
    return _built[key]


def clear():
    """Forget the processes and their traces."""
    _built.clear()
    _traced.clear()


class _Relay:
    """The callback of a shared trace; it calls that of the present run."""

    def __call__(self, steps, clients):
        self.on_progress(steps, clients)


def _with_shared_trace(process, on_progress):
    """`LearningProcess.with_progress`, which traces a shared process once for all of its runs."""
    if all(process is not shared for shared in _built.values()):
        return _with_progress(process, on_progress)
    if id(process) not in _traced:
        relay = _Relay()
        _traced[id(process)] = _with_progress(process, relay), relay
    traced, relay = _traced[id(process)]
    relay.on_progress = on_progress
    return traced


def trainer(monkeypatch, stub=False):
    """The fixture `train`: `(folder, text, *overrides, ...) -> (summary, console output)`."""

    def share():
        monkeypatch.setattr(experiment, "learning_process", functools.partial(_shared, stub=stub))
        monkeypatch.setattr(LearningProcess, "with_progress", _with_shared_trace)

    share()

    def start(folder, text, *overrides, console=None, data_dir=None, threads=2, allow=False, trackers=()):
        # Again, since a test may undo its patches, or train with the stub and without.
        share()
        output = io.StringIO()
        console = console or Console(output)
        settings = experiment.Settings(folder, data_dir, threads, allow, "command", trackers)
        *_, summary = experiment.train(recipe.loads(text, "test", overrides), settings, console)
        return summary, output.getvalue()

    return start


@pytest.fixture
def train_stub(monkeypatch):
    """As `train`, but no client trains, see `stub_rounds`; a test module names it as its own fixture."""
    return trainer(monkeypatch, stub=True)


def built(text, *overrides):
    """The learning process of a recipe, as a run builds it."""
    return experiment.build_process(
        recipe.loads(text, "test", overrides), experiment.Settings(None, None, 2, False, "")
    )


class Stopped(Exception):
    """Simulates a kill between two rounds."""


class StoppingConsole(Console):
    """A console at which a run ends after its round `last`."""

    def __init__(self, last):
        super().__init__(io.StringIO())
        self.last = last

    def progress(self, text, keep=True, details=""):
        super().progress(text, keep, details)
        if text.startswith("round ") and int(text.split("/")[0].removeprefix("round ")) >= self.last:
            raise Stopped


def rows(folder):
    """The metrics of a run."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def resave(folder, **changes):
    """Saves the newest state of a folder again, with other facts; None: without the fact."""
    checkpoint = checkpoints.load_newest(folder)
    info = {name: value for name, value in {**checkpoint.info, **changes}.items() if value is not None}
    checkpoints.save(folder, checkpoint.round, checkpoint.arrays, info, keep=1)


def arrays(folder):
    """{name: bytes} of the newest state."""
    return {name: np.asarray(value).tobytes() for name, value in checkpoints.load_newest(folder).arrays.items()}


def best_arrays(folder):
    """{name: bytes} of the best state of a run folder."""
    return {name: np.asarray(value).tobytes() for name, value in facts.load_best(RunFolder(folder)).arrays.items()}
