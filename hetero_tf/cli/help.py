"""Help texts: the list of commands, or the flags of one command with their defaults."""

from hetero_tf.base.version import __version__
from hetero_tf.cli import commands
from hetero_tf.cli.flag_table import FLAGS
from hetero_tf.cli.flags import program_name

TITLE = f"hetero_tf {__version__}: federated learning of one model on unequal devices, from a YAML recipe."
# Width of the first column.
WIDTH = 24
_RUN_DIR = "folder of a trained run; required"
_RUNS = "run folders, or folders of them; same as the words after the command; required"
_FLEET = "shipped fleet or YAML file that times finished runs whose rounds wait for all clients; default none"
_BATCHES = "batches to compute at the same time"
# Meaning of a flag for one command, if it differs from `flag_table.FLAGS`.
MEANINGS = {
    "new": {
        "input": "file or folder of the data, or name of a set; same as the word after new; required",
        "out": "recipe to write; default the name of the data, such as iris.yaml",
    },
    "launch": {"threads": "clients to train at the same time, divided among the devices"},
    "sweep": {
        "recipe": "recipe to vary, instead of FILE; default none",
        "run_dir": "folder of all runs; default runs/sweep-NAME",
        "threads": "clients to train at the same time, divided among the runs",
    },
    "describe": {
        "workers": "host:port of every worker process, to show the division of the work; default none",
        "devices": "devices of one process, to show the division of the work",
    },
    "evaluate": {"run_dir": _RUN_DIR, "threads": _BATCHES},
    "similarity": {"run_dir": _RUN_DIR},
    "export": {
        "run_dir": _RUN_DIR,
        "level": "level to export, or all; default the level of the global model",
        "out": "folder to write into; default RUN_DIR/export",
        "threads": _BATCHES,
    },
    "predict": {
        "run_dir": "folder of a trained run; required without --export_dir",
        "out": "file to write: .csv, .tsv, .jsonl or .ndjson; default none (print a line for each item)",
        "threads": _BATCHES,
    },
    "serve": {
        "run_dir": "run with exports to serve; required without --out",
        "out": "folder of exports to serve; default RUN_DIR/export",
        "threads": "requests to compute at the same time",
    },
    "flower": {
        "run_dir": "server: folder of the run; default runs/NAME, plus the changes of --set",
        "out": "keys: new folder for certificates and keys; required",
        "level": "client: level of the device; default that of the recipe for its index",
    },
    "measure-device": {"threads": "threads of a training step, as flower client has them"},
    "list": {"run": "folders of runs; same as the words after list; default runs"},
    "compare": {"run": _RUNS, "fleet": _FLEET, "out": "output file of the table; default standard output"},
    "plot": {"run": _RUNS, "fleet": _FLEET, "out": "picture to write, such as curves.png or curves.svg; required"},
    "report": {"run": _RUNS, "fleet": _FLEET, "out": "page to write; default report.html"},
    "tensorboard": {"run": _RUNS, "out": "folder to write into; default tensorboard"},
}


def render(command: str | None) -> str:
    """Return the help of a command, or the list of commands if `command` is None."""
    if command is None:
        calls = [
            f"  {program_name()} {module.USAGE:{WIDTH}} {module.SUMMARY}"
            for module in map(commands.find, commands.NAMES)
        ]
        return "\n".join([TITLE, "", *calls, "", f"{program_name()} COMMAND --help shows the flags of a command."])
    module = commands.find(command)
    groups = {f"Flags of {command}:": module.FLAGS, "Flags of every command:": commands.COMMON}
    lines = [f"{program_name()} {module.USAGE}", f"  {module.SUMMARY}"]
    for title, names in groups.items():
        lines += ["", title, *(f"  {f'--{name}':{WIDTH}} {describe_flag(command, name)}" for name in names)]
    return "\n".join(lines)


def describe_flag(command: str, name: str) -> str:
    """Return the meaning of a flag for a command, with its choices and default."""
    flag = FLAGS[name]
    choices = f"<{'|'.join(flag.choices)}>: " if flag.choices else ""
    text = choices + MEANINGS.get(command, {}).get(name, flag.meaning)
    if "default" in text or "required" in text:
        return text
    default = [] if flag.kind == "multi_string" else flag.default
    return f"{text}; default {str(default).lower().removesuffix('.0')}"
