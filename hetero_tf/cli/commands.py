"""The command line: flags to a command, refusals to one sentence and an exit code."""

import json
import os
import shlex
import sys
import traceback
from pathlib import Path

from hetero_tf import __version__
from hetero_tf.base import hardware
from hetero_tf.base.console import Console, duration, prepare_streams, printable
from hetero_tf.base.errors import BadInput, DiskProblem, MemoryProblem, Refusal, did_you_mean
from hetero_tf.cli import interrupts
from hetero_tf.cli.flags import COMMANDS_OF, parse

# Not there where hetero_tf is installed without its checkout.
COMPARE = Path(__file__).parents[2] / "benchmarks" / "compare.py"
USAGE = """hetero_tf {version}: federated learning of one model on unequal devices, from a YAML recipe.

  {program} --recipe FILE              trains; the same command resumes
  {program} describe --recipe FILE     cost of every level, and how the data are split
  {program} evaluate --run_dir DIR     measures a trained model again
  {program} export --run_dir DIR       writes a SavedModel that needs no hetero_tf

"""


def main(argv: list[str] | None = None) -> int:
    """Runs a command and returns its exit code (0 done, 2 bad input, 3 disk, 4 memory, 5 locked, 6 non-finite)."""
    prepare_streams()
    interrupts.install("nothing is half-written")
    argv = sys.argv if argv is None else argv
    code = _guarded(argv, "--debug" in argv)
    problem = _flushed(sys.stdout)
    if problem is not None and not isinstance(problem, BrokenPipeError):
        code = _unexpected(problem, False, DiskProblem.code, "standard output was not written; free some space")
    _flushed(sys.stderr)
    return code


def _flushed(stream):
    """Writes what a stream still holds; returns the error if it cannot, and lets the rest go nowhere."""
    try:
        stream.flush()
    except OSError as error:
        # Python would try again at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return error
    return None


def _guarded(argv, debug):
    """Parses and runs; turns every exception into a sentence and an exit code."""
    try:
        command, flags = parse(argv)
        return _run(command, flags)
    except Refusal as refusal:
        _complain(str(refusal), debug)
        return refusal.code
    except BrokenPipeError:
        return 0
    except Exception as error:
        return _unexpected(error, debug, *_diagnosis(error))


def _diagnosis(error):
    """Exit code and advice for what no refusal foresaw."""
    # TensorFlow's own class is known by name: it may not be imported yet.
    if isinstance(error, (MemoryError, RecursionError)) or type(error).__name__ == "ResourceExhaustedError":
        return MemoryProblem.code, (
            "out of memory; lower client.batch_size, evaluate.batch_size, round.clients or --threads"
        )
    if isinstance(error, OSError):
        return DiskProblem.code, "check the disk and run the same command again"
    return 1, "this is a defect of the program; --debug shows where"


def _unexpected(error, debug, code, advice):
    _complain(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}; {advice}", debug)
    return code


def _complain(sentence, debug):
    """Says on standard error why the program ends; nothing else happens where nobody reads it."""
    console = Console(sys.stderr)
    if debug:
        console.say(traceback.format_exc().rstrip())
    console.say(f"hetero_tf: {sentence}")


def program() -> str:
    """How the user called the program, for "what to type next"."""
    return os.environ.get("HETERO_TF_PROGRAM", "hetero_tf")


def _run(command, flags):
    if flags.version:
        print(__version__)
        return 0
    if flags.help:
        print(printable(USAGE.format(version=__version__, program=program())) + _help_of(flags))
        return 0
    console = Console(sys.stderr if flags.json else sys.stdout)
    recipe = _recipe(command, flags)
    for note in recipe.notes:
        console.say(f"note: {note}")
    interrupts.install(
        "finished rounds are kept and the same command continues from there"
        if command == "train"
        else "nothing is half-written"
    )
    actions = {"train": _train, "describe": _describe, "evaluate": _evaluate, "export": _export}
    hardware.import_quietly()
    result = interrupts.in_worker(lambda: actions[command](recipe, flags, console))
    if flags.json:
        from hetero_tf.store.plain_json import finite

        print(json.dumps(finite(result), allow_nan=False), flush=True)
    return 0


def _help_of(flags):
    rows = [(name, flags[name].help.splitlines()[0].rstrip(";")) for name in flags if name != "h"]
    of = {name: ", ".join(commands) + ": " for name, commands in COMMANDS_OF.items()}
    return "\n".join(f"  {f'--{name}':22} {of.get(name, '')}{text}" for name, text in rows)


def _recipe(command, flags):
    """The recipe of --recipe, or of the run folder for commands that read one."""
    from hetero_tf.base import registry
    from hetero_tf.recipe import load, loads
    from hetero_tf.store.run_folder import RunFolder

    if flags.plugin:
        # Only for --plugin, and behind everything else: a file of the working folder never replaces a library.
        sys.path.append(os.getcwd())
        hardware.import_quietly()
    for module in flags.plugin:
        try:
            registry.register_plugin(module)
        except SystemExit as error:
            raise BadInput(
                f"--plugin {module}: ends the program when it is imported; give a module that only defines things"
            ) from error
    overrides = flags["set"].value + ([f"engine={flags.engine}"] if flags.engine else [])
    if command in ("train", "describe"):
        if not flags.recipe:
            raise BadInput(f"--recipe is missing; try {program()} --recipe digits")
        return load(flags.recipe, overrides)
    if not flags.run_dir:
        raise BadInput("--run_dir is missing; name the folder that a run left, such as runs/digits")
    _check_plugins(command, flags)
    return loads(RunFolder(flags.run_dir).read_recipe(), str(RunFolder(flags.run_dir).recipe), overrides)


def _check_plugins(command, flags):
    """Says which modules of a person's own a run needs; they are imported only if this command names them too."""
    from hetero_tf.store import environment
    from hetero_tf.store.run_folder import RunFolder

    run = RunFolder(flags.run_dir)
    missing = [name for name in environment.plugins(run.environment) if name not in flags.plugin]
    if missing:
        own = " ".join(f"--plugin {name}" for name in missing)
        raise BadInput(
            f"{run.path}: was made with modules of your own; add {own}: "
            f"{program()} {command} --run_dir {shlex.quote(flags.run_dir)}{_again(flags)} {own}"
        )


def _again(flags):
    """The flags that other commands about the same run need too."""
    given = [f" --plugin {shlex.quote(name)}" for name in flags.plugin]
    return "".join(given) + (f" --data_dir {shlex.quote(flags.data_dir)}" if flags.data_dir else "")


def _settings(recipe, flags):
    from hetero_tf.run.experiment import Settings

    hardware.prepare(flags.threads)
    run_dir = Path(flags.run_dir or Path("runs") / recipe.name)
    return Settings(run_dir, Path(flags.data_dir) if flags.data_dir else None, flags.threads, flags.allow_other_machine)


def _train(recipe, flags, console):
    from hetero_tf.run import experiment

    began = console.clock()
    settings = _settings(recipe, flags)
    summary = experiment.train(recipe, settings, console)
    summary["seconds"] = round(console.clock() - began, 1)
    where = settings.run_dir
    console.say(
        f"done in {duration(summary['seconds'])}; everything is in {where}: metrics.jsonl, checkpoints/, best/, log.txt"
    )
    run = f"--run_dir {shlex.quote(str(where))}{_again(flags)}"
    console.say(f"next: {program()} evaluate {run}\n      {program()} export {run}")
    if COMPARE.exists():
        own = "".join(f" --plugin {shlex.quote(name)}" for name in flags.plugin)
        script = min(str(COMPARE), os.path.relpath(COMPARE), key=len)
        console.say(f"      {shlex.quote(script)} {shlex.quote(str(where))}{own}   (and other runs)")
    return summary


def _describe(recipe, flags, console):
    from hetero_tf.describe import describe, to_json, to_text
    from hetero_tf.partitions import picture
    from hetero_tf.run import experiment

    process = experiment.build_process(recipe, _settings(recipe, flags))
    description = describe(process)
    if not flags.json:
        console.say(to_text(description))
    if flags.draw:
        picture.draw(process.partition, process.dataset.train.labels, Path(flags.draw))
        console.say(
            f"drew the split into {flags.draw}: clients from left to right, their examples above, their labels below"
        )
    return to_json(description)


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


def _evaluate(recipe, flags, console):
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


def _export(recipe, flags, console):
    from hetero_tf import export
    from hetero_tf.base.console import figures
    from hetero_tf.store.run_folder import RunFolder

    if flags.level is not None and flags.level not in recipe.levels.widths:
        raise BadInput(f"--level {flags.level}: no such level{did_you_mean(flags.level, recipe.levels.widths)}")
    level = export.check_level(recipe.levels, flags.level)
    folder = Path(flags.out or RunFolder(flags.run_dir).export)
    if printable(str(folder)) != str(folder):
        raise BadInput(f"--out must name a folder in plain UTF-8, as TensorFlow writes into it. Received: {folder}")
    export.prepare(folder, flags.overwrite)
    process, found = _opened(recipe, flags, console)
    state, statistics = found.state, found.statistics
    if level != recipe.levels.global_level or not statistics:
        statistics = process.statistics(state, level)
    measured = process.evaluator.measure_level(state, level, statistics)
    info = {"measured": {"model": f"level {level}", "on": "the whole test set", "round": state.round, **measured}}
    # What the run has measured besides is of the global model alone.
    if level == recipe.levels.global_level:
        info |= {name: found.sealed.info[name] for name in ("last", "best")}
    where = export.export(process, state, statistics, folder, info, level=level, overwrite=flags.overwrite)
    console.say(
        f"exported round {state.round} to {where}: the model of level {level}, {figures(measured)} on the test set"
    )
    return {"export": str(where), "round": state.round, "level": level, **measured}
