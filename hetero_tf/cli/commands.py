"""The command line: flags to a command, refusals to one sentence and an exit code."""

import json
import os
import shlex
import sys
import traceback

from hetero_tf import __version__
from hetero_tf.base import hardware
from hetero_tf.base.console import Console, prepare_streams, printable
from hetero_tf.base.errors import BadInput, DiskProblem, MemoryProblem, Refusal
from hetero_tf.cli import actions, interrupts
from hetero_tf.cli.flags import COMMANDS_OF, again, parse, program

USAGE = """hetero_tf {version}: federated learning of one model on unequal devices, from a YAML recipe.

  {program} --recipe FILE              trains; the same command resumes
  {program} describe --recipe FILE     cost of every level, and how the data are split
  {program} evaluate --run_dir DIR     measures a trained model again
  {program} export --run_dir DIR       writes a SavedModel that needs no hetero_tf
  {program} predict --run_dir DIR X    answers pictures, or sentences with <mask>
  {program} serve --run_dir DIR        serves its exports over HTTP, with a page to try them

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


def _run(command, flags):
    if flags.version:
        print(__version__)
        return 0
    if flags.help:
        print(printable(USAGE.format(version=__version__, program=program())) + _help_of(flags))
        return 0
    console = Console(sys.stderr if flags.json else sys.stdout)
    # What is served needs neither its recipe nor modules of a person's own.
    recipe = None if command == "serve" else _recipe(command, flags)
    for note in recipe.notes if recipe is not None else ():
        console.say(f"note: {note}")
    interrupts.install(
        "finished rounds are kept and the same command continues from there"
        if command == "train"
        else "nothing is half-written"
    )
    action = getattr(actions, command)
    hardware.import_quietly()
    result = interrupts.in_worker(lambda: action(recipe, flags, console))
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
            f"{program()} {command} --run_dir {shlex.quote(flags.run_dir)}{again(flags)} {own}"
        )
