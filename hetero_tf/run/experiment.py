"""Runs a recipe in its folder: starts or resumes, builds, trains, and reports; and loads the states of a run."""

import contextlib
import dataclasses
import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras

from hetero_tf.base import files, hardware, metrics, registry, typed_json
from hetero_tf.base.console import Console, ProgressDisplay, format_metrics
from hetero_tf.base.errors import InputError, NotBuilt
from hetero_tf.base.formatting import escape_line, format_bytes, quote_shell
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.partitions.partition import ClientExamples, Partition
from hetero_tf.models.costs.memory import describe_fit, over_budget
from hetero_tf.models.custom_model import ModelBuilder
from hetero_tf.planning.fleets.device_table import trace_digest
from hetero_tf.recipe import FROM_PYTHON, as_recipe, loads
from hetero_tf.recipe.schema import Recipe
from hetero_tf.run import data, notes, resume
from hetero_tf.run.callbacks import Trained
from hetero_tf.run.data import load_data, split
from hetero_tf.run.learning_process import LearningProcess, State, learning_process
from hetero_tf.run.loop import Progress, TrainingLoop, first_patience
from hetero_tf.run.resume import LoadedState, open_best, open_newest
from hetero_tf.runs import environment, facts, metrics_file, trackers
from hetero_tf.runs.run_folder import RunFolder


@dataclass(frozen=True)
class Settings:
    """Settings of a run.

    Attributes:
        threads: Blocks of clients that train concurrently.
        allow_other_machine: Resume even if results may differ from the run so far.
        command: The command line, for the log; empty in Python.
        trackers: Names of `trackers.TRACKERS` that get the metrics of each round.
        model, dataset: Those that were passed from Python; None for those of the recipe.
    """

    run_dir: Path
    data_dir: Path | str | None
    threads: int
    allow_other_machine: bool = False
    command: str = ""
    trackers: tuple[str, ...] = ()
    model: ModelBuilder | None = None
    dataset: Dataset | None = None


# `build(strategy, devices)` builds the learning process; `strategy` is a `tf.distribute` strategy or None.
Build = Callable[[Any, int], LearningProcess]
# `(build, console, display)` -> a context with the process to train: simulated, on workers or on real devices.
Execution = Callable[[Build, Console, ProgressDisplay], AbstractContextManager[LearningProcess]]


@contextlib.contextmanager
def simulated(build: Build, console: Console, display: ProgressDisplay) -> Iterator[LearningProcess]:
    """The `Execution` that simulates all clients in this process."""
    display.begin("building the models")
    yield build(None, 1)


def train(
    recipe: Recipe, settings: Settings, console: Console, execution: Execution = simulated
) -> tuple[LearningProcess, State, dict]:
    """Train a recipe to its last round, or until early stopping; continue the run if the folder has one.

    Returns:
        The process, the last state, and the summary, ready for JSON.

    Raises:
        InputError: The folder holds a run of another recipe, data set or machine, or a file of it was changed.
        Locked, DiskProblem, NotFinite: See `errors`.
    """
    console.mark_phase("start")
    run = RunFolder(settings.run_dir)
    with resume.locked(run), ProgressDisplay(console) as display:
        display.begin("reading the data")
        newest_facts = facts.newest(run)
        resume.check_recipe(run, recipe, newest_facts)
        if newest_facts is not None and recipe.rounds < newest_facts["round"]:
            # The recipe of the folder states the rounds that are done.
            recipe = loads(recipe.source, recipe.path, [f"rounds={newest_facts['round']}"])
        resume.check_checkpoints(run, recipe, newest_facts, console.say)
        build = read_data(recipe, settings, run, newest_facts)
        console.mark_phase("data")
        with execution(build, console, display) as process:
            resume.check_best(run, process, newest_facts)
            process = resume.with_stored_noise(run, process, newest_facts)
            _announce(process, console)
            run_environment = _run_environment(process, settings)
            resume.check_environment(run, newest_facts, run_environment, settings.allow_other_machine, console.say)
            progress = _restore(run, process, newest_facts, console)
            if newest_facts is None or not run.partition.exists():
                process.partition.save(run.partition)
            resume.store_trace(run, process.recipe.fleet)
            _describe_run(run, process)
            write_readme(run, recipe, settings.command, process.selection_metric)
            resume.write_copies(run, recipe, run_environment, console.say)
            start = f"resumes after round {progress.state.round}" if progress.state.round else "starts"
            console.open_log(run.log, f"{settings.command or 'hetero_tf.train'}  ({start})")
            with contextlib.ExitStack() as stack:
                if settings.trackers:
                    stack.enter_context(trackers.log_live(settings.trackers, run, console.say))
                progress = TrainingLoop(run, process, progress, run_environment, console, display).train()
                display.begin("finishing")
    return process, progress.state, _finish(run, process, progress, run_environment, console)


def _describe_run(run, process):
    """Write the data and the costs of a run, which other commands read without TensorFlow."""
    if not run.data.exists():
        # Without a description (too many words or columns), `predict` and `export` need the data too.
        with contextlib.suppress(InputError):
            data.save_description(run.data, process.dataset)
    if not run.costs.exists():
        files.write_atomic(run.costs, typed_json.dump(typed_json.finite(process.mix_costs()), "the costs"))


def train_from_python(
    recipe: Recipe | Mapping[str, Any] | str | Path,
    run_dir: Path | str,
    rounds: int | None = None,
    model: keras.Model | ModelBuilder | None = None,
    dataset: Dataset | None = None,
    data_dir: Path | str | None = None,
    threads: int | None = None,
    quiet: bool = False,
) -> Trained:
    """Train a recipe in a run folder, or continue its run; see `hetero_tf.train`.

    Args:
        quiet: Print only warnings.

    Raises:
        InputError, Locked, DiskProblem, NotFinite: See `train`.
    """
    function = model_function(model)
    recipe = as_recipe(recipe, model, dataset)
    overrides = [] if function is None else [f"model.function={function}"]
    overrides += [] if dataset is None else [f"data.name={FROM_PYTHON}"]
    overrides += [] if rounds is None else [f"rounds={rounds}"]
    if overrides:
        recipe = loads(recipe.source, recipe.path, overrides)
    model, threads = None if function else model, threads or hardware.core_count()
    settings = Settings(Path(run_dir), data_dir, threads, model=model, dataset=dataset)
    process, state, _ = train(recipe, settings, Console(sys.stdout, quiet=quiet))
    return Trained(state, metrics_file.rows(RunFolder(settings.run_dir).metrics), process)


def model_function(model: Any) -> str | None:
    """Register the module of a model function as a plug-in, and return the function's name in recipes.

    None for models, and for functions of other forms or without a module, such as those of a notebook.
    """
    module = getattr(model, "__module__", "__main__")
    # Others, such as a lambda, must not register the functions of their module.
    is_importable = module != "__main__" and module in sys.modules
    if not is_importable or model not in registry.model_functions(sys.modules[module]).values():
        return None
    try:
        added = registry.register_plugin(module)
    except InputError:
        return None
    name = f"{module.rpartition('.')[2]}:{model.__name__}"
    return name if ("models", name) in added else None


def build_process(recipe: Recipe, settings: Settings, run: RunFolder | None = None) -> LearningProcess:
    """Build the learning process of a recipe in this process alone, with the data of `run` if it has started."""
    return read_data(recipe, settings, run, None if run is None else facts.newest(run))(None, 1)


def build_described_process(recipe: Recipe, settings: Settings, run: RunFolder) -> LearningProcess:
    """Build the learning process of a run without its data. It builds models, but can neither train nor evaluate.

    Raises:
        InputError: The run folder has no description of the data, or a file of it is damaged or of another run.
    """
    described, newest_facts = data.load_description(run.data), facts.newest(run)
    recipe = resume.with_stored_trace(run, recipe, newest_facts)
    dataset, partition = resume.fit_stored(run, described, newest_facts, lambda: Partition.load(run.partition))
    clients, classes = partition.label_mask.shape
    if classes != dataset.classes:
        raise files.Damaged(f"{run.data}: has {dataset.classes} classes, and {run.partition} has {classes}")
    # Without data, no examples can be evaluated.
    partition = dataclasses.replace(
        partition, test=ClientExamples.empty(clients), held_out=ClientExamples.empty(clients)
    )
    return learning_process(recipe, dataset, partition, parallel=settings.threads, model=settings.model)


def read_data(
    recipe: Recipe, settings: Settings, run: RunFolder | None = None, newest_facts: dict | None = None
) -> Build:
    """Read the data of a recipe, with the partition of `run` if it has started; the result builds the process."""
    recipe = recipe if run is None else resume.with_stored_trace(run, recipe, newest_facts)
    dataset: Any = settings.dataset
    if dataset is None:
        learned = None
        if newest_facts and run and recipe.data.loader.options.get("tokenizer") == "subwords" and run.data.exists():
            # Damaged subwords are learned again, with the same result; too many have no description.
            with contextlib.suppress(InputError):
                learned = data.load_description(run.data).codec.vocabulary
        dataset = load_data(recipe, settings.data_dir, learned)
    dataset, partition = resume.fit_stored(run, dataset, newest_facts, lambda: split(recipe, dataset))

    def build(strategy, devices):
        parallel = max(settings.threads // devices, 1)
        return learning_process(recipe, dataset, partition, parallel=parallel, model=settings.model, strategy=strategy)

    return build


def _announce(process, console):
    """Print the data, a warning if they are a stand-in, and the engine."""
    dataset, partition = process.dataset, process.partition
    if dataset.stand_in_for is not None:
        console.say(f"*** NOT THE REAL DATA: {dataset.source} ***")
    else:
        console.say(f"data: {dataset.source}")
    console.say(*notes.data_description(process))
    clients, *engine_lines = process.runner.describe()
    console.say(clients)
    if process.privacy is not None:
        console.say(process.privacy.describe(process.recipe.rounds))
    if partition.held_out.ids.size:
        unit = "rows of text" if dataset.train.y is None else "examples"
        console.say(
            f"validation: {len(partition.held_out.ids):,} {unit} are held out from training; "
            f"{process.selection_metric} selects the best round"
        )
    console.say(*(f"note: {line}" for line in (*_about_metrics(process), *notes.warnings(process))))
    if process.recipe.levels.fit is not None:
        console.say(f"fit: {describe_fit(process.recipe.levels)}")
    exceeded = over_budget(process.all_label_costs) if process.recipe.levels.budgets else {}
    for level, share in exceeded.items():
        console.say(f"note: level {level} is OVER its budget: its clients use {100 * share:.1f} % of it")
    for lines in engine_lines:
        console.say_lines(lines)


def _about_metrics(process):
    test, loss = process.dataset.test, process.recipe.loss.name
    if test.y is None:
        hidden = ", masked or not" if process.recipe.input.name == "masked_text" else ""
        return [f"perplexity and loss are over all positions{hidden}"]
    if not process.partition.test.sizes.any():
        return ["no client has test examples, so Local metrics are omitted"]
    if registry.find("losses", loss).MASKS_LABELS and not process.partition.label_mask.all():
        return ["local_* scores each client on its own classes only; global_* uses all classes"]
    return []


def _run_environment(process, settings):
    report = process.engine_report()
    extra = {
        "data": process.dataset.sha256,
        "partition": process.partition.sha256,
        **{name: report[name] for name in ("device", "precision", "clients_at_once", "compiled")},
    }
    recipe, fleet = process.recipe, process.recipe.fleet
    extra |= {"trace": trace_digest(fleet.trace)} if fleet is not None and fleet.trace is not None else {}
    if process.family.digest is not None:
        # compile() may have chosen the loss and the optimizer, which the recipe then leaves at their defaults.
        chosen = [process.family.digest, str(recipe.optimizer), str(recipe.client.loss), *process.functions.names]
        extra |= {"model": hashlib.sha256("\n".join(chosen).encode()).hexdigest()[:16]}
    extra |= {f"plugin {module}": digest for module, digest in registry.plugin_digests().items()}
    extra |= {"replicas": report["replicas"]} if report["replicas"] > 1 else {}
    extra |= {name: report[name] for name in ("by_taps", "by_winograd", "by_function") if report[name]}
    shape = process.setup.examples.batch_shapes[0]
    extra |= {"batch_shape": list(shape)} if shape is not None and not report["compiled"] else {}
    # As TensorFlow reads it: without oneDNN, products have other roundings.
    extra |= {"onednn": False} if os.environ.get("TF_ENABLE_ONEDNN_OPTS", "").lower() in ("0", "false") else {}
    threads = {"intra_op": report["threads"], "inter_op": settings.threads}
    return environment.environment(threads, extra, registry.plugin_modules())


def _restore(run, process, newest_facts, console):
    """The progress of the newest checkpoint, or of a new run."""
    newest = open_newest(run.checkpoints, process)
    if newest is None or newest_facts is None:
        weights, source = process.first_weights()
        if source is not None:
            console.say(f"initial weights: {source}")
        rows = resume.truncate_metrics(run, None, console.say)
        return Progress(process.begin(weights), {}, {}, {}, rows, first_patience(process))
    console.say(*(f"skipped: {message}" for message in newest.checkpoint.skipped))
    console.say(f"resumed {run.path} after round {newest.state.round}")
    if newest.state.round >= process.recipe.rounds:
        console.say(f"all {process.recipe.rounds} rounds are done; use --set rounds=N to train more")
    best = resume.load_best(run, newest_facts, console.say)
    rows = resume.truncate_metrics(run, newest_facts, console.say)
    patience = first_patience(process)
    patience = patience and patience.count(metrics_file.rows(run.metrics))
    last, totals = newest_facts["last"], newest_facts["totals"]
    return Progress(newest.state, last, best, totals, rows, patience)


def _finish(run, process, progress, run_environment, console):
    """Print the results and return the summary, ready for JSON."""
    dataset = process.dataset
    summary = {
        "run_dir": str(run.path),
        "rounds": progress.state.round,
        "stopped_early": progress.state.round < process.recipe.rounds,
        "data": dataset.source,
        "stand_in_for": dataset.stand_in_for,
        "fingerprint": environment.fingerprint(run_environment),
        "last": progress.last,
        "best": progress.best,
        "engine": process.engine_report(),
        "first_round_s": None,
    }
    if "round" in console.phase_seconds:
        phases = {**console.phase_seconds, "total": sum(console.phase_seconds.values())}
        summary["first_round_s"] = {name: round(seconds, 2) for name, seconds in phases.items()}
    if dataset.stand_in_for is not None:
        console.say(f"*** NOT THE REAL DATA: trained on {dataset.source} ***")
    metric, best = process.selection_metric, progress.best
    brief = metrics.format_short(metric, best.get(metric)).rstrip() if best else ""
    shown = f"best: {brief}  traffic {format_bytes(progress.totals.get('bytes', 0))}"
    for name, row, text in (("last", progress.last, ""), ("best", best, shown)):
        if row:
            complete = f"{name}: round {row['round']}  {format_metrics(metrics.displayed_metrics(row))}"
            console.progress(text, details=complete)
    return summary


def write_readme(run: RunFolder, recipe: Recipe, command: str, metric: str) -> None:
    """Write the current README.txt. The program never reads it.

    Raises:
        InputError: The path is not a regular file.
        DiskProblem: The write failed.
    """
    folder, program = quote_shell(run.path), command.partition(" ")[0] or "hetero_tf"
    started = ["It was started, or last resumed, by the command", "", f"  {command}", ""]
    started += ["which also resumes it; --set rounds=N trains more."]
    contents = run.contents() | {"run.lock": "locked by the process that trains here"}
    lines = [
        f"A run of the recipe {recipe.name!r}, by hetero_tf: federated learning on unequal devices.",
        f"Its best round is chosen by {metric}.",
        "",
        *(f"  {name:16}  {meaning}" for name, meaning in contents.items()),
        "",
        *(started if command else ["It was started, or last resumed, by hetero_tf.train in Python, which resumes it."]),
        "The commands below need the same --plugin, --data_dir.",
        "",
        f"  {program} evaluate --run_dir {folder}   evaluates the best state again (--state last: the newest)",
        f"  {program} export --run_dir {folder}     writes a SavedModel that needs no hetero_tf",
        f"  {program} list {folder}                 shows its progress",
        "",
        "In Python, `process, state = hetero_tf.load_run(FOLDER)` loads the best state.",
    ]
    text = "".join(f"{escape_line(line)}\n" for line in lines)
    files.write_atomic(run.readme, text.encode("utf-8", "backslashreplace"))


STATES = ("best", "last")


def open_state(
    recipe: Recipe, settings: Settings, which: str, say: Callable[[str], None], described: bool = False
) -> tuple[LearningProcess, LoadedState]:
    """Return the process of a run folder and one of its states, without writing to it.

    Args:
        recipe: The recipe of the folder, with overrides that a run may change.
        which: "best" or "last".
        say: Receives a message for each damaged newer state.
        described: Use the folder's description of the data instead of the data, see
            `experiment.build_described_process`.

    Raises:
        NotBuilt: The data are missing, or are not those of the run.
        InputError: The folder has no checkpoint yet, or the state is damaged or of another run.
    """
    run = RunFolder(settings.run_dir)
    try:
        process = (build_described_process if described else build_process)(recipe, settings, run)
    except InputError as problem:
        raise NotBuilt(str(problem)) from problem
    loaded = open_best(run, process) if which == "best" else open_newest(run.checkpoints, process)
    if loaded is None:
        also = " or choose --state last" if which == "best" and run.checkpoints.exists() else ""
        raise InputError(f"{run.checkpoints}: has no {which} round yet; train first{also}")
    resume.check_stored_recipe(run, facts.from_checkpoint(loaded.checkpoint, run.checkpoints))
    for message in loaded.checkpoint.skipped:
        say(f"skipped: {message}")
    return process, loaded


def load_run(
    path: str | Path,
    state: str = "best",
    data_dir: str | Path | None = None,
    threads: int | None = None,
    model: keras.Model | ModelBuilder | None = None,
    dataset: Dataset | None = None,
) -> tuple[LearningProcess, State]:
    """Read a state of a run folder; see `hetero_tf.load_run`."""
    if state not in STATES:
        raise InputError(f"`state` must be one of {', '.join(STATES)}. Received: state={state!r}")
    run = RunFolder(Path(path))
    model = None if model_function(model) else model
    recipe = facts.load_recipe(run)
    settings = Settings(run.path, data_dir, threads or hardware.core_count(), model=model, dataset=dataset)
    process, loaded = open_state(recipe, settings, state, lambda message: None)
    return process, loaded.state
