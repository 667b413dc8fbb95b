"""Runs a recipe in its folder from start to end: begins or resumes, builds, trains, and reports."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetero_tf.base import files, hardware, metrics, registry
from hetero_tf.base.console import Console, Live, figures
from hetero_tf.base.errors import InputError
from hetero_tf.data.dataset import Dataset
from hetero_tf.models.costs.level_costs import Costs
from hetero_tf.models.costs.memory import exceeded, told
from hetero_tf.models.initial_weights import first_weights
from hetero_tf.partitions.partition import Partition
from hetero_tf.partitions.shares import ClientExamples
from hetero_tf.process.costs import mix_costs
from hetero_tf.process.data import load_data, split
from hetero_tf.process.learning_process import LearningProcess, described_process, learning_process
from hetero_tf.recipe.schema import Recipe
from hetero_tf.run import best, data_description, readme, resume
from hetero_tf.run.checkpoint import open_newest
from hetero_tf.run.loop import Progress, train_rounds
from hetero_tf.runs import facts
from hetero_tf.store import environment, plain_json
from hetero_tf.store.run_folder import RunFolder


@dataclass(frozen=True)
class Settings:
    """What the command line adds to a recipe.

    Attributes:
        run_dir: Folder of the run.
        data_dir: Folder of the data, or None.
        threads: Stacks of clients in flight at once.
        allow_other_machine: Resume although the bits may differ from the run so far.
        command: What a person typed, for the log.
    """

    run_dir: Path
    data_dir: Path | None
    threads: int
    allow_other_machine: bool
    command: str


# `build(strategy, devices)` makes the learning process, whose rounds the devices of a `tf.distribute` strategy share.
Build = Callable[[Any, int], LearningProcess]
# `(build, console, live)` -> a context in which the process trains: in this process, on workers or on real devices.
Runner = Callable[[Build, Console, Live], AbstractContextManager[LearningProcess]]


@contextlib.contextmanager
def simulated(build: Build, console: Console, live: Live) -> Iterator[LearningProcess]:
    """The `Runner` that simulates all clients in this process."""
    live.begin("building the models")
    yield build(None, 1)


def train(recipe: Recipe, settings: Settings, console: Console, runner: Runner = simulated) -> dict:
    """Trains a recipe to its last round; a run folder that holds some rounds is continued.

    Args:
        recipe: What to train.
        settings: What the command line adds to it.
        console: Where to say how it goes.
        runner: Runs the rounds.

    Returns:
        The summary, ready for JSON.

    Raises:
        InputError: The folder holds a run of another recipe, data set or machine, or a file of it was changed.
        Locked, DiskProblem, NotFinite: See `errors`.
    """
    console.lap("start")
    run = RunFolder(settings.run_dir)
    with resume.locked(run), Live(console) as live:
        live.begin("reading the data")
        before = facts.newest(run)
        resume.check_recipe(run, recipe, before)
        resume.check_checkpoints(run, recipe, before, console.say)
        loaded = _load(recipe, settings, run, before)
        console.lap("data")

        def build(strategy, devices):
            return learning_process(recipe, *loaded, parallel=max(settings.threads // devices, 1), strategy=strategy)

        with runner(build, console, live) as process:
            resume.check_best(run, process, before)
            _announce(process, console)
            conditions = _conditions(process, settings)
            resume.check_environment(run, before, conditions, settings.allow_other_machine, console.say)
            progress = _restore(run, process, before, conditions, console)
            if before is None or not run.partition.exists():
                process.partition.save(run.partition)
            if not run.data.exists():
                # Data with too many words or columns to describe are needed by `predict` and `export` too.
                with contextlib.suppress(InputError):
                    data_description.save(run.data, process.dataset)
            readme.write(run, recipe, settings.command, process.selection_metric)
            if not run.costs.exists():
                # Nothing reads it here: it is for tables and figures, which need no TensorFlow then.
                files.write_atomic(run.costs, plain_json.dump(mix_costs(process), "the costs"))
            resume.write_copies(run, recipe, conditions, console.say)
            console.open_log(run.log, _mark(settings, progress))
            progress = train_rounds(run, process, progress, conditions, console, live)
    return _finish(run, process, progress, conditions, console)


def build_process(recipe: Recipe, settings: Settings, run: RunFolder | None = None) -> LearningProcess:
    """Builds the learning process of a recipe, with the data and the partition of `run` where that has begun.

    Raises:
        InputError: The data are not those of the run.
    """
    loaded = _load(recipe, settings, run, None if run is None else facts.newest(run) or facts.best(run))
    return learning_process(recipe, *loaded, parallel=settings.threads)


def build_described_process(recipe: Recipe, settings: Settings, run: RunFolder) -> LearningProcess:
    """Builds the learning process of a run without its data: it gives models, but can neither train nor measure.

    Raises:
        InputError: The run folder has no description of the data, or a file of it is damaged or of another run.
    """
    dataset, before = data_description.load(run.data), facts.newest(run) or facts.best(run)
    partition = resume.stored_partition(run, dataset, before, lambda: Partition.load(run.partition))
    clients, classes = partition.label_mask.shape
    if classes != dataset.classes:
        raise files.Damaged(f"{run.data}: has {dataset.classes} classes, and {run.partition} has {classes}")
    # Nothing can be read of examples that are measured.
    partition = dataclasses.replace(
        partition, test=ClientExamples.empty(clients), held_out=ClientExamples.empty(clients)
    )
    return described_process(recipe, dataset, partition, settings.threads)


def _load(recipe, settings, run, before) -> tuple[Dataset, Partition]:
    """The data set and its partition."""
    dataset = load_data(recipe, settings.data_dir)
    return dataset, resume.stored_partition(run, dataset, before, lambda: split(recipe, dataset))


def _announce(process, console):
    """Says which data are used, loudly if a stand-in took their place, and how rounds are played."""
    dataset, partition = process.dataset, process.partition
    if dataset.stand_in_for is not None:
        console.say(f"*** NOT THE REAL DATA: {dataset.source} ***")
    else:
        console.say(f"data: {dataset.source}")
    clients, *played = process.about_rounds()
    console.say(clients)
    if partition.held_out.ids.size:
        unit = "rows of text" if dataset.train.y is None else "examples"
        console.say(
            f"validation: {len(partition.held_out.ids):,} {unit} that nobody trains on are held out; "
            f"{process.selection_metric} chooses the best round"
        )
    for line in _about_metrics(process):
        console.say(f"metrics: {line}")
    costs = Costs(process.family, process.example_shape, dataset.classes)
    if process.recipe.levels.fit is not None:
        console.say(f"fit: {told(process.recipe.levels)}")
    for level, share in exceeded(costs).items():
        console.say(f"note: level {level} is OVER its budget: its clients hold {100 * share:.1f} % of it")
    for line in played:
        console.say(line)
    hint = hardware.precision_hint(process.recipe.precision, process.engine_report()["device"])
    if hint is not None:
        console.say(hint)


def _about_metrics(process):
    """What a person must know to read the numbers of this run."""
    test, loss = process.dataset.test, process.recipe.client.loss.name
    if test.y is None:
        hidden = ", hidden or not" if process.recipe.input.name == "masked_text" else ""
        return [f"perplexity and loss are over all positions{hidden}"]
    if not process.partition.test.sizes.any():
        return ["no client has test examples, so Local metrics are left out"]
    if registry.find("losses", loss).MASKS_LABELS and not process.partition.label_mask.all():
        return [f"with {loss}, local_ metrics choose among the labels that the client has, global_ ones among all"]
    return []


def _mark(settings, progress):
    """The line of the log at which a run begins, or goes on."""
    done = progress.state.round
    return f"{settings.command}  ({f'goes on after round {done}' if done else 'begins'})"


def _conditions(process, settings):
    """What the bits of this run depend on."""
    report = process.engine_report()
    extra = {
        "data": process.dataset.sha256,
        "partition": process.partition.sha256,
        **{name: report[name] for name in ("device", "precision", "clients_at_once", "compiled")},
    }
    # What is named only where it is used: a run that began before it was there goes on.
    extra |= {"replicas": report["replicas"]} if report["replicas"] > 1 else {}
    extra |= {name: report[name] for name in ("by_taps", "by_function") if report[name]}
    shape = process.parts.examples.batch_shapes[0]
    extra |= {"batch_shape": list(shape)} if shape is not None and not report["compiled"] else {}
    threads = {"intra_op": report["threads"], "inter_op": settings.threads}
    return environment.environment(threads, extra, registry.plugged())


def _restore(run, process, before, conditions, console):
    """The progress of the newest sealed state, or that of a run that begins."""
    newest = open_newest(run.checkpoints, process)
    if newest is None or before is None:
        weights, source = first_weights(process.recipe, process.family)
        if source is not None:
            console.say(f"initial weights: {source}")
        return Progress(process.begin(weights), {}, {}, None, 0, resume.truncate_metrics(run, None, console.say))
    for sentence in newest.skipped:
        console.say(f"skipped: {sentence}")
    console.say(f"resumed {run.path} after round {newest.state.round}")
    if newest.state.round >= process.recipe.rounds:
        console.say(f"all {process.recipe.rounds} rounds are done; --set rounds=N trains more")
    found, seal = best.so_far(run, before, conditions, console.say)
    rows = resume.truncate_metrics(run, before, console.say)
    return Progress(newest.state, before["last"], found, seal, before["spent"], rows)


def _finish(run, process, progress, conditions, console):
    """Says how the run ended and returns its summary, ready for JSON."""
    dataset = process.dataset
    summary = {
        "run_dir": str(run.path),
        "rounds": progress.state.round,
        "data": dataset.source,
        "stand_in_for": dataset.stand_in_for,
        "fingerprint": environment.fingerprint(conditions),
        "last": progress.last,
        "best": progress.best,
        "engine": process.engine_report(),
        "first_round_s": _first_round(console.laps),
    }
    if dataset.stand_in_for is not None:
        console.say(f"*** NOT THE REAL DATA: trained on {dataset.source} ***")
    for name in ("last", "best"):
        if summary[name]:
            console.say(f"{name}: round {summary[name]['round']}  {figures(metrics.shown(summary[name]))}")
    return summary


def _first_round(laps):
    """Seconds of each lap up to the end of the first call, and their "total"; None if there was no round to run."""
    parts = {**laps, "total": sum(laps.values())}
    return {name: round(seconds, 2) for name, seconds in parts.items()} if "round" in laps else None
