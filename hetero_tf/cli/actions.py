"""What the commands do: each takes the recipe, the flags and a console, and returns its result, ready for JSON."""

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from hetero_tf.base import hardware
from hetero_tf.base.console import Console, duration, printable
from hetero_tf.base.errors import BadInput, did_you_mean
from hetero_tf.cli.flags import again, plugins, program

if TYPE_CHECKING:
    from absl.flags import FlagValues

    from hetero_tf.recipe.schema import Recipe

# Not there where hetero_tf is installed without its checkout.
COMPARE = Path(__file__).parents[2] / "benchmarks" / "compare.py"


def _settings(recipe, flags):
    from hetero_tf.run.experiment import Settings

    hardware.prepare(flags.threads)
    run_dir = Path(flags.run_dir or Path("runs") / recipe.name)
    return Settings(run_dir, Path(flags.data_dir) if flags.data_dir else None, flags.threads, flags.allow_other_machine)


def train(recipe: "Recipe", flags: "FlagValues", console: Console) -> dict:
    """Trains a recipe in its run folder, or goes on with it, and says what to type next."""
    from hetero_tf.run import experiment

    began = console.clock()
    settings = _settings(recipe, flags)
    summary = experiment.train(recipe, settings, console)
    summary["seconds"] = round(console.clock() - began, 1)
    where = settings.run_dir
    console.say(
        f"done in {duration(summary['seconds'])}; everything is in {where}: metrics.jsonl, checkpoints/, best/, log.txt"
    )
    run = f"--run_dir {shlex.quote(str(where))}{again(flags)}"
    console.say(f"next: {program()} evaluate {run}\n      {program()} export {run}")
    if COMPARE.exists():
        script = min(str(COMPARE), os.path.relpath(COMPARE), key=len)
        console.say(f"      {shlex.quote(script)} {shlex.quote(str(where))}{plugins(flags)}   (and other runs)")
    return summary


def describe(recipe: "Recipe", flags: "FlagValues", console: Console) -> dict:
    """Prints what a recipe costs and how its data are split; draws the split into --draw."""
    from hetero_tf import describe as report
    from hetero_tf.partitions import picture
    from hetero_tf.run import experiment

    process = experiment.build_process(recipe, _settings(recipe, flags))
    description = report.describe(process)
    if not flags.json:
        console.say(report.to_text(description))
    if flags.draw:
        picture.draw(process.partition, process.dataset.train.labels, Path(flags.draw))
        console.say(
            f"drew the split into {flags.draw}: clients from left to right, their examples above, their labels below"
        )
    return report.to_json(description)


def _opened(recipe, flags, console):
    """The process of a run folder and the state that --state names: (process, `checkpoint.Opened`)."""
    from hetero_tf.run import best, experiment, facts, resume
    from hetero_tf.run.checkpoint import open_newest
    from hetero_tf.store.run_folder import RunFolder

    run = RunFolder(flags.run_dir)
    # Read before the state, as a training that goes on seals the best state first.
    newest = facts.newest(run)
    folder = run.best if flags.state == "best" else run.checkpoints
    process = experiment.build_process(recipe, _settings(recipe, flags), run)
    found = open_newest(folder, process)
    if found is None:
        also = " or choose --state last" if flags.state == "best" and run.checkpoints.exists() else ""
        raise BadInput(f"{folder}: holds no finished round yet; train first{also}")
    about = facts.of(found.sealed, folder)
    resume.check_stored_recipe(run, newest or about)
    if flags.state == "best":
        best.require(run, about, newest)
        if newest is not None and newest["best_seal"] is None:
            console.say("note: an earlier version sealed this run; its best state is known by its round and metrics")
    for sentence in found.skipped:
        console.say(f"skipped: {sentence}")
    return process, found


def _statistics(process, found, level):
    """The statistics of a level: those that the state was sealed with where they are its own, else queried."""
    sealed = found.statistics if level == process.recipe.levels.global_level else None
    return sealed or process.statistics(found.state, level)


def _check_level(recipe, flags, *others):
    if flags.level is not None and flags.level not in recipe.levels.widths:
        known = [*recipe.levels.widths, *others]
        raise BadInput(f"--level {flags.level}: no such level{did_you_mean(flags.level, known)}")


def evaluate(recipe: "Recipe", flags: "FlagValues", console: Console) -> dict:
    """Measures a state of a run again, with the model of every level under --levels all."""
    from hetero_tf.base import metrics
    from hetero_tf.base.console import figures

    process, found = _opened(recipe, flags, console)
    state = found.state
    measured, _ = process.evaluate(state, flags.levels)
    console.say(f"{flags.state}: round {state.round}  {figures(metrics.shown(measured))}")
    if process.dataset.stand_in_for is not None:
        console.say(f"*** NOT THE REAL DATA: {process.dataset.source} ***")
    return {
        "run_dir": flags.run_dir,
        "state": flags.state,
        "round": state.round,
        **measured,
        "data": process.dataset.source,
        "stand_in_for": process.dataset.stand_in_for,
    }


def export(recipe: "Recipe", flags: "FlagValues", console: Console) -> dict:
    """Writes a state of a run as SavedModels that need no hetero_tf: of one level, or of every level of the mix."""
    from hetero_tf import export as exports
    from hetero_tf.base.console import figures
    from hetero_tf.export import formats
    from hetero_tf.store.run_folder import RunFolder
    from hetero_tf.store.versions import check_place

    if flags.level != "all":
        _check_level(recipe, flags, "all")
    names = recipe.levels.names if flags.level == "all" else (exports.check_level(recipe.levels, flags.level),)
    folder = Path(flags.out or RunFolder(flags.run_dir).export)
    if printable(str(folder)) != str(folder):
        raise BadInput(f"--out must name a folder in plain UTF-8, as TensorFlow writes into it. Received: {folder}")
    for level in names:
        check_place(folder / level, flags.export_version)
    others = list(dict.fromkeys(name for name in flags.format if name != "savedmodel"))
    for name in others:
        formats.find(name)
    process, found = _opened(recipe, flags, console)
    state, written = found.state, []
    for level in names:
        info, statistics = {"state": flags.state}, _statistics(process, found, level)
        # What the run has measured besides is of the global model alone.
        if level == recipe.levels.global_level:
            info |= {name: found.sealed.info[name] for name in ("last", "best")}
        where, about = exports.export(process, state, statistics, folder, info, level, flags.export_version, others)
        measured = {name: value for name, value in about["measured"].items() if name != "on"}
        console.say(
            f"exported round {state.round} to {where}: the model of level {level}, {figures(measured)} on the test set"
        )
        for name, told in about["formats"].items():
            reached = {metric: told["measured"][metric] for metric in measured}
            console.say(f"      {told['file']} ({name}, {told['bytes']:,} bytes): {figures(reached)}")
        written.append({"export": str(where), "level": level, **measured, "formats": about["formats"]})
    return {"round": state.round, "state": flags.state, "exports": written}


def predict(recipe: "Recipe", flags: "FlagValues", console: Console) -> dict:
    """Answers pictures, or sentences with hidden words, by the model of a level."""
    from hetero_tf import export as exports
    from hetero_tf.export.predict import predict as answered

    if not flags.input:
        raise BadInput("predict needs a picture file, or a sentence with <mask>, behind it")
    _check_level(recipe, flags)
    level = exports.check_level(recipe.levels, flags.level)
    process, found = _opened(recipe, flags, console)
    model = process.model(found.state, level, _statistics(process, found, level))
    answers = answered(process, model, flags.input)
    if process.dataset.stand_in_for is not None:
        console.say(f"*** NOT THE REAL DATA: {process.dataset.source} ***")
    for one in answers:
        # A picture has one list of answers, a sentence one for each hidden word.
        lists = one["answers"] if process.dataset.kind == "text" else [one["answers"]]
        console.say(f"{one['input']}: " + "; ".join(map(_likely, lists)))
    return {"round": found.state.round, "state": flags.state, "level": level, "predictions": answers}


def _likely(pairs):
    return ", ".join(f"{name} {percent:.1f} %" for name, percent in pairs)


def serve(recipe: None, flags: "FlagValues", console: Console) -> dict:
    """Serves the exports of a run, or those below --out, over HTTP until it is stopped."""
    from hetero_tf.serve import run as served
    from hetero_tf.store.run_folder import RunFolder

    if not (flags.run_dir or flags.out):
        raise BadInput("--run_dir is missing; name a run with exports, or a folder of exports by --out")
    hardware.prepare(flags.threads)
    folder = Path(flags.out or RunFolder(flags.run_dir).export)
    make = f"{program()} export --run_dir {shlex.quote(flags.run_dir or 'RUN_DIR')}"
    served.run(folder, flags.host, flags.port, flags.threads, console.say, make)
    return {}
