"""The command line: flags to a command, refusals to one sentence and an exit code."""

import json
import os
import shlex
import sys
import traceback

from hetero_tf.base import hardware, registry
from hetero_tf.base.console import Console, Live, prepare_streams, printable
from hetero_tf.base.errors import (
    DiskProblem,
    InputError,
    MemoryProblem,
    Unfinished,
    UserError,
    WorkerLost,
    error_from_graph,
)
from hetero_tf.cli import commands, help, interrupts
from hetero_tf.cli.flags import again, parse, program
from hetero_tf.cli.open_run import register_plugins
from hetero_tf.version import __version__


def main(argv: list[str] | None = None) -> int:
    """Runs a command and returns its exit code.

    0 done, 2 bad input, 3 disk, 4 memory, 5 locked, 6 non-finite, 7 a sweep with runs that did not finish,
    8 a worker of the run is gone, or too few devices return a result; 128 + the number of a signal: 129 SIGHUP,
    130 SIGINT, 138 SIGUSR1, 140 SIGUSR2, 143 SIGTERM, 152 SIGXCPU (numbers of Linux).
    """
    prepare_streams()
    interrupts.install("nothing is half-written")
    argv = sys.argv if argv is None else argv
    code = _guarded(argv, "--debug" in argv)
    problem = _flushed(sys.stdout)
    if problem is not None and not isinstance(problem, BrokenPipeError):
        code = _unexpected(problem, False, DiskProblem.code, "standard output was not written; free some space")
    _flushed(sys.stderr)
    if code == WorkerLost.code:
        # TensorFlow would wait for the other workers at the end of the process.
        os._exit(code)
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
    except UserError as refusal:
        _complain(str(refusal), debug)
        return refusal.code
    except BrokenPipeError:
        return 0
    except Exception as error:
        told = error_from_graph(error)
        if told is not None:
            _complain(str(told), debug)
            return told.code
        return _unexpected(error, debug, *_diagnosis(error))


def _diagnosis(error):
    """Exit code and advice for what no refusal foresaw."""
    # TensorFlow's own class is known by name: it may not be imported yet.
    if isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError":
        return MemoryProblem.code, (
            "out of memory; lower client.batch_size, evaluate.batch_size, round.clients or --threads"
        )
    if isinstance(error, FileNotFoundError) and "temporary directory" in str(error):
        return DiskProblem.code, "set TMPDIR to a folder that you may write"
    if isinstance(error, OSError):
        return DiskProblem.code, "check the disk and run the same command again"
    if (place := registry.blamed(error)) is not None:
        return InputError.code, f"this is an error of your module: {place}"
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


def _run(command, flags):
    if flags.version:
        print(__version__)
        return 0
    if flags.help:
        print(printable(help.render(command, flags)))
        return 0
    console = Console(sys.stderr if flags.json else sys.stdout, quiet=flags.quiet)
    module = commands.find(command or "train")
    recipe = _recipe(module.SOURCE, command, flags) if module.SOURCE else None
    for note in recipe.notes if recipe is not None else ():
        console.say(f"note: {note}")
    interrupts.install(
        "finished rounds are kept and the same command continues from there"
        if (command or "train") in commands.RESUMED
        else "nothing is half-written"
    )
    if command not in commands.QUICK:
        with Live(console) as live:
            live.begin("loading TensorFlow")
            hardware.import_quietly()
    try:
        result = interrupts.in_worker(lambda: module.run(recipe, flags, console))
    except Unfinished as unfinished:
        _print(unfinished.result, flags)
        raise
    _print(result, flags)
    return 0


def _print(result, flags):
    """The line of --json."""
    if flags.json:
        from hetero_tf.store.plain_json import finite

        print(json.dumps(finite(result), allow_nan=False), flush=True)


def _recipe(source, command, flags):
    """The recipe of --recipe, or of the run folder where `source` is "run_dir"."""
    from hetero_tf.recipe import load, loads
    from hetero_tf.store.run_folder import RunFolder

    register_plugins(flags)
    overrides = flags["set"].value + ([f"engine={flags.engine}"] if flags.engine else [])
    if source == "recipe":
        if not flags.recipe:
            words = [program(), *([command] if command not in (None, "train") else []), "--recipe digits"]
            raise InputError(f"--recipe is missing; try {' '.join(words)}")
        return load(flags.recipe, overrides)
    if not flags.run_dir:
        raise InputError("--run_dir is missing; name the folder that a run left, such as runs/digits")
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
        raise InputError(
            f"{run.path}: was made with modules of your own; add {own}: "
            f"{program()} {command} --run_dir {shlex.quote(flags.run_dir)}{again(flags)} {own}"
        )
