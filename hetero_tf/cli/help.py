"""Help texts: all commands, or the flags of one command with their defaults."""

from types import ModuleType
from typing import TYPE_CHECKING

from hetero_tf.cli import commands
from hetero_tf.cli.flags import program
from hetero_tf.version import __version__

if TYPE_CHECKING:
    from absl.flags import Flag, FlagValues

TITLE = f"hetero_tf {__version__}: federated learning of one model on unequal devices, from a YAML recipe."
# Width of the first column.
WIDTH = 24
_TRAINED = "folder of a trained run; required"
_RUNS = "run folders, or folders of them; the words after the command are the same; required"
_BATCHES = "batches in flight at once"
# Meaning of a flag for one command, where `flags.definitions` has that of another.
MEANINGS = {
    "launch": {"threads": "clients in flight at once, divided among the parts"},
    "sweep": {
        "recipe": "recipe to vary, in place of FILE; default none",
        "run_dir": "folder of all runs; default runs/sweep-NAME",
        "threads": "clients in flight at once, divided among the runs",
    },
    "describe": {
        "workers": "host:port of every process, to see how the work is divided; default none",
        "devices": "devices of one process, to see how the work is divided",
    },
    "evaluate": {"run_dir": _TRAINED, "threads": _BATCHES},
    "export": {
        "run_dir": _TRAINED,
        "level": "level to export, or all; default the global model's",
        "out": "folder to write into; default RUN_DIR/export",
        "threads": _BATCHES,
    },
    "predict": {"run_dir": _TRAINED, "threads": _BATCHES},
    "serve": {
        "run_dir": "run whose exports are served; required without --out",
        "out": "folder of exports to serve; default RUN_DIR/export",
        "threads": "requests that are computed at once",
    },
    "flower": {
        "run_dir": "server: folder of the run; default runs/NAME, with what --set changes",
        "out": "keys: new folder for certificates and keys; required",
        "level": "client: level of the device; default that of the recipe for its number",
    },
    "list": {"run": "folders of runs; the words after list are the same; default runs"},
    "compare": {"run": _RUNS, "out": "file to write the table into; default standard output"},
    "plot": {"run": _RUNS, "out": "picture to write, such as curves.png or curves.svg; required"},
    "report": {"run": _RUNS, "out": "page to write; default report.html"},
    "tensorboard": {"run": _RUNS, "out": "folder to write into; default tensorboard"},
}


def render(command: str | None, flags: "FlagValues") -> str:
    """Return the help of a command; of the program, a line for each command, if `command` is None."""
    if command is None:
        calls = [
            f"  {program()} {module.USAGE:{WIDTH}} {module.SUMMARY}" for module in map(commands.find, commands.NAMES)
        ]
        return "\n".join([TITLE, "", *calls, "", f"{program()} COMMAND --help shows the flags of a command."])
    module: ModuleType = commands.find(command)
    groups = {f"Flags of {command}:": module.FLAGS, "Flags of every command:": commands.COMMON}
    lines = [f"{program()} {module.USAGE}", f"  {module.SUMMARY}"]
    for title, names in groups.items():
        lines += ["", title, *(f"  {f'--{name}':{WIDTH}} {_describe(command, flags[name])}" for name in names)]
    return "\n".join(lines)


def _describe(command: str, flag: "Flag") -> str:
    """Return the meaning of a flag for a command, with its default."""
    general = flag.help.splitlines()[0].rstrip(";")
    choices, colon, _ = general.partition(">: ") if general.startswith("<") else ("", "", "")
    text = MEANINGS.get(command, {}).get(flag.name)
    text = general if text is None else f"{choices}{colon}{text}"
    if "default" in text or "required" in text:
        return text
    return f"{text}; default {str(flag.default).lower().removesuffix('.0')}"
