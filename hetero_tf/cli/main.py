"""The command line: dispatch flags to a command; print errors as one sentence and set the exit code."""

import json
import os
import sys
import traceback

from hetero_tf.base import hardware, processes, registry
from hetero_tf.base.console import IMPORT_TIME, Console, ProgressDisplay, prepare_streams
from hetero_tf.base.errors import (
    DiskProblem,
    InputError,
    MemoryProblem,
    PartialResult,
    UserError,
    WorkerLost,
    error_from_graph,
)
from hetero_tf.base.formatting import escape_unprintable, quote_shell
from hetero_tf.base.version import __version__
from hetero_tf.cli import commands
from hetero_tf.cli.flags import parse, program_name, render_help, shared_flags
from hetero_tf.cli.open_run import register_plugins


def main(argv: list[str] | None = None, start: float = IMPORT_TIME) -> int:
    """Run a command, and return its exit code.

    0 success, 2 bad input, 3 disk, 4 memory, 5 locked, 6 non-finite, 7 a sweep with unfinished runs, 8 a lost worker or
    too few results of devices, 9 a row that was not reproduced; 128 + the number of a signal: 129 SIGHUP, 130 SIGINT,
    138 SIGUSR1, 140 SIGUSR2, 143 SIGTERM, 152 SIGXCPU (Linux numbers).

    Args:
        argv: Words of the command line, the program first; the default is `sys.argv`.
        start: Monotonic time in seconds from which the printed durations count; a fork gives that of its own start.
    """
    prepare_streams()
    processes.install_handlers("no file is partially written")
    argv = sys.argv if argv is None else argv
    code = 0
    try:
        command, flags = parse(argv)
        if flags.version or flags.help:
            print(__version__ if flags.version else escape_unprintable(render_help(command)))
        else:
            work = _prepare(command or "train", flags, start)
            try:
                _print(processes.run_in_thread(*work), flags)
            except PartialResult as partial:
                _print(partial.result, flags)
                raise
    except Exception as error:
        code = _report(error, "--debug" in argv)
    problem = _flush(sys.stdout)
    if problem is not None and not isinstance(problem, BrokenPipeError):
        code = _report(DiskProblem(f"{_describe(problem)}; standard output could not be written; free some space"))
    _flush(sys.stderr)
    # At a normal exit, TensorFlow would wait for the other workers.
    if code == WorkerLost.code or processes.SKIPS_CLEANUP.is_set():
        os._exit(code)
    return code


def _flush(stream):
    """Flush a stream; on an error, return it and discard the rest of the output."""
    try:
        stream.flush()
    except OSError as error:
        # Otherwise Python would flush again at exit and print a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return error
    return None


def _report(error, debug=False):
    """Print a message about an exception, and return the exit code."""
    if isinstance(error, BrokenPipeError):
        return 0
    problem = error if isinstance(error, UserError) else error_from_graph(error)
    if problem is not None:
        code, message = problem.code, str(problem)
    else:
        code, advice = _diagnose(error)
        message = f"{_describe(error)}; {advice}"
    console = Console(sys.stderr)
    if debug:
        console.say_lines("".join(traceback.format_exception(error)).rstrip())
    # Indented lines: a line end in a name cannot begin another message.
    console.say_lines("\n  ".join(f"hetero_tf: {message}".split("\n")))
    return code


def _describe(error):
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _diagnose(error):
    # Compare TensorFlow's class by name: it may not be imported yet.
    if isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError":
        return MemoryProblem.code, (
            "out of memory; lower client.batch_size, evaluate.batch_size, round.clients or --threads"
        )
    if isinstance(error, FileNotFoundError) and "temporary directory" in str(error):
        return DiskProblem.code, "set TMPDIR to a writable folder"
    if isinstance(error, OSError):
        return DiskProblem.code, "check the disk and run the same command again"
    if (location := registry.plugin_location(error)) is not None:
        return InputError.code, f"the error is in your module: {location}"
    if plugins := ", ".join(f"{name} ({kind})" for kind, name in registry.registered_plugins()):
        return 1, (
            f"a plug-in breaks its contract, which hetero_tf.testing.check_plugin tests: {plugins}; or this is a bug "
            "in hetero_tf; --debug shows the traceback"
        )
    return 1, "this is a bug in hetero_tf; --debug shows the traceback"


def _prepare(name, flags, start):
    """Return the function of a command and its arguments."""
    stream = sys.stderr if flags.json else sys.stdout
    console = Console(stream, quiet=flags.quiet, verbose=flags.verbose, start=start)
    entry = commands.COMMANDS[name]
    recipe = (_recipe(entry.source, name, flags),) if entry.source else ()
    if entry.resumes:
        processes.install_handlers(
            "finished rounds are saved; the same command continues from there",
            "the last finished round could not be saved; the same command continues from the newest checkpoint",
        )
    else:
        processes.install_handlers("no file is partially written")
    if entry.needs_tensorflow:
        with ProgressDisplay(console) as display:
            display.begin("loading TensorFlow")
            hardware.import_quietly()
    return entry.run, *recipe, flags, console


def _print(result, flags):
    if flags.json:
        from hetero_tf.base.typed_json import finite

        print(json.dumps(finite(result), allow_nan=False), flush=True)


def _recipe(source, command, flags):
    """Load the recipe of --recipe, or of the run folder if `source` is "run_dir"."""
    from hetero_tf.recipe import load
    from hetero_tf.runs import environment, facts
    from hetero_tf.runs.run_folder import RunFolder

    register_plugins(flags)
    if source == "recipe" and flags.fleet:
        flags["set"].value = [f"fleet={flags.fleet}", *flags["set"].value]
    overrides = flags["set"].value
    if source == "recipe":
        if not flags.recipe:
            words = [program_name(), *([command] if command != "train" else []), "--recipe digits"]
            raise InputError(f"--recipe is missing; try {' '.join(words)}")
        return load(flags.recipe, overrides)
    if not flags.run_dir:
        raise InputError("--run_dir is missing; name the folder of a run, such as runs/digits")
    run = RunFolder(flags.run_dir)
    if missing := environment.missing_plugins(run.environment):
        plugin_flags = " ".join(f"--plugin {quote_shell(name)}" for name in missing)
        raise InputError(
            f"{run.path}: needs {plugin_flags} to be read: "
            f"{program_name()} {command} --run_dir {quote_shell(flags.run_dir)}{shared_flags(flags)} {plugin_flags}"
        )
    return facts.load_recipe(run, overrides)
