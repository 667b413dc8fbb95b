"""`serve`: serves the exports of a run, or of --out, over HTTP."""

from pathlib import Path

from absl.flags import FlagValues

from hetero_tf.base import hardware
from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError
from hetero_tf.base.escaping import quote_shell
from hetero_tf.cli.flags import program_name

USAGE, SUMMARY = "serve --run_dir DIR", "serves its exports over HTTP, with a web page to try them"
FLAGS, WORDS, SOURCE = ("run_dir", "out", "host", "port", "allow_host", "versions", "threads"), None, None


def run(recipe: None, flags: FlagValues, console: Console) -> dict:
    """Serve until a signal arrives."""
    from hetero_tf.export.serve import run as served
    from hetero_tf.runs.run_folder import RunFolder

    if not (flags.run_dir or flags.out):
        raise InputError("--run_dir is missing; name a run with exports, or set --out to a folder of exports")
    hardware.configure_threads(flags.threads)
    folder = Path(flags.out or RunFolder(flags.run_dir).export)
    export_command = f"{program_name()} export --run_dir {quote_shell(flags.run_dir or 'RUN_DIR')}"
    options = served.ServerOptions(flags.host, flags.port, flags.threads, flags.versions, tuple(flags.allow_host))
    served.run(folder, options, console.say, export_command)
    return {}
