"""Flags of the command line, the command word, and the help texts."""

import os
import re
import textwrap
from typing import Any, NamedTuple

from absl import flags

from hetero_tf.base import hardware
from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.base.escaping import quote_shell
from hetero_tf.base.version import __version__
from hetero_tf.cli import commands


class Flag(NamedTuple):
    """A flag.

    Attributes:
        kind: absl defines the flag by `DEFINE_<kind>`.
        meaning: Help text; `Command.meanings` has those of single commands.
        default: Default value; None for a list means an empty one.
        low, high: Bounds of a number.
        choices: Values of an enum.
    """

    kind: str
    meaning: str
    default: Any = None
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()


FLAGS = {
    "recipe": Flag("string", "YAML file, or the name of a shipped recipe such as mnist; required"),
    "set": Flag("multi_string", "override of the recipe, path=value; may be repeated; default none"),
    "fleet": Flag(
        "string", "devices of the clients: a shipped fleet such as phones, or a YAML file; default the recipe's"
    ),
    "run_dir": Flag("string", "folder of the run; default runs/NAME, plus the changes of --set"),
    "data_dir": Flag("string", "folder of the data; default HETERO_TF_DATA"),
    "plugin": Flag(
        "multi_string", "Python module with layers or plug-ins, or its name in list --plugins; default none"
    ),
    "plugins": Flag("boolean", "list the plug-in modules of installed packages instead", False),
    "threads": Flag("integer", "clients to train at the same time", hardware.core_count()),
    "workers": Flag("list", "host:port of every worker process of the run; the first one is the chief; default none"),
    "worker": Flag("integer", "index of this process in --workers, from 0; required with --workers", low=0),
    "devices": Flag("integer", "devices of this process that share each round", 1, 1, 64),
    "local": Flag("integer", "logical devices of this machine that share each round; required", None, 2, 64),
    "role": Flag("multi_string", "server, client or keys; same as the word after flower; required"),
    "address": Flag("string", "host:port of the server; required"),
    "certificates": Flag("string", "server: folder written by flower keys; required"),
    "key": Flag("string", "client: private key file of the device, written by flower keys; required"),
    "client": Flag("integer", "client: index of the device among the clients, from 0; required", low=0),
    "litert": Flag("string", "client: folder of an export with litert_train; default none (TensorFlow trains)"),
    "file": Flag("multi_string", "model_train.tflite of an export, next to its export.json; may be repeated; required"),
    "name": Flag("string", "name of the device class", "device"),
    "append": Flag("string", "fleet file to add the device class to; default none (print it)"),
    "patience": Flag("float", "server: seconds after which a request without a response is lost", 600.0, 1),
    "deadline": Flag("float", "server: seconds to wait for the results of a round; default --patience", low=1),
    "quorum": Flag(
        "float", "server: minimum share of round.clients that must return a result; at least one client", 0.0, 0, 1
    ),
    "over_selection": Flag("float", "server: share of additional clients to request, such as 0.3", 0.0, 0, 10),
    "max_examples": Flag("integer", "server: maximum examples of a device; default that of the recipe's data", low=1),
    "state": Flag("enum", "checkpoint to use", "best", choices=("best", "last")),
    "levels": Flag("enum", "models to evaluate; default evaluate.levels of the recipe", choices=("global", "all")),
    "level": Flag("string", "level of the model; default the level of the global model"),
    "input": Flag(
        "multi_string",
        "file, folder of pictures or WAV files, row or sentence; same as the words after predict; required",
    ),
    "export_dir": Flag("string", "folder of exports, or of one version, to use instead of --run_dir; default none"),
    "top": Flag("integer", "most likely classes or words to show, at most 5 words", 3, 1),
    "maps": Flag("string", "folder for a PNG of the class of each pixel of each picture; default none"),
    "copy_columns": Flag("bool", "write the columns of the input to --out too", False),
    "task": Flag(
        "enum",
        "task; default that of the label",
        choices=("classification", "binary", "ordinal", "regression", "multi_label", "segmentation"),
    ),
    "label": Flag("list", "label column, or columns of targets such as x,y; default the likely ones"),
    "yes": Flag("bool", "ask no questions, and replace an existing file", False),
    "definition": Flag("multi_string", "YAML file of a sweep; same as the word after sweep; required without --recipe"),
    "sweep": Flag(
        "multi_string", "values to try, path=value,value; may be repeated for all combinations; default none"
    ),
    "seeds": Flag("string", "seeds of a sweep, such as 0-2 or 0,3; default that of the recipe"),
    "jobs": Flag("integer", "parallel runs; --threads are divided among them", 1, 1, 256),
    "fork": Flag("bool", "fork all runs from one process that imported TensorFlow; default on Linux without a GPU"),
    "only": Flag("string", "part K of N of a sweep's runs, K/N such as 3/12; default all runs"),
    "dry_run": Flag("bool", "print the runs of a sweep, their costs and times; train nothing", False),
    "commands": Flag("bool", "print a shell command for each run of a sweep; train nothing", False),
    "on": Flag("enum", "submit each run of a sweep as a job; default none (train here)", choices=("slurm",)),
    "slurm": Flag("multi_string", "option of the jobs, key=value such as time=240; may be repeated; default none"),
    "word": Flag("multi_string", "word to explain; same as the words after explain; required"),
    "run": Flag("multi_string", "run folders, or folders of them; same as the words after the command"),
    "metric": Flag("list", "metrics, such as global_accuracy,local_std; default the usual ones"),
    "reach": Flag("list", "values of the first metric, such as 95,98: time, rounds and MB to reach each; default none"),
    "at": Flag(
        "list", "rounds or device times at which to show the first metric, such as 10,90s,20min,3h; default none"
    ),
    "published": Flag("list", "papers' results to show: TABLE, TABLE/ROW, or a .yaml file of tables; default none"),
    "columns": Flag(
        "list", "columns of the table in their order, such as last,difference,bytes; default the usual ones"
    ),
    "baseline": Flag("string", "row whose last values are subtracted from those of the others; default none"),
    "as": Flag("enum", "format of the table", "text", choices=("text", "markdown", "csv", "latex", "json")),
    "x": Flag(
        "enum",
        "x axis",
        "round",
        choices=("round", "device_hours", "energy", "megabytes", "seconds", "parameters", "paper_flops"),
    ),
    "y": Flag("string", "metric to draw; default that of the global model"),
    "width": Flag(
        "float", "width of the figure in inches, such as 3.3 of a column; type has 8 and 9 points", 5.0, 2, 20
    ),
    "out": Flag("string", "file or folder to write"),
    "open": Flag("bool", "open the page in a browser", False),
    "classes": Flag("bool", "also show the results of each class, and its confusion with others", False),
    "pair": Flag("list", "ids of the two clients to compare, such as 0,60; required"),
    "all": Flag("bool", "also show memory, loads, the split of the data and the shapes of all variables", False),
    "draw": Flag("string", "PNG file to draw into: the split, confusion of classes, or similarity; default none"),
    "format": Flag("list", "additional formats, such as keras,onnx,litert,litert_train; default none"),
    "push": Flag("string", "folder of a model repository, as Hugging Face reads it, to write too; default none"),
    "export_version": Flag("integer", "number of the exported version; default the next one", low=1),
    "host": Flag("string", "address to serve at; other addresses are open to the network", "127.0.0.1"),
    "port": Flag("integer", "port to serve at; 0 selects a free one", 8501, 0, 65535),
    "versions": Flag("string", "versions to serve: latest, latest:COUNT, all, or numbers such as 3,5", "latest:2"),
    "allow_host": Flag(
        "multi_string",
        "additional allowed host name in requests, such as that of a proxy; may be repeated; default none",
    ),
    "batch": Flag("integer", "most examples of one call of the model, shared by requests; 1: no sharing", 256, low=1),
    "log": Flag("list", "trackers that get the metrics of each round: mlflow, wandb; default none"),
    "allow_other_machine": Flag("bool", "resume although the numbers may differ", False),
    "json": Flag("bool", "print one JSON line on standard output; messages go to standard error", False),
    "quiet": Flag("bool", "print only errors and the line of --json", False),
    "verbose": Flag("bool", "print all metrics of each round, as log.txt has them", False),
    "debug": Flag("bool", "show tracebacks", False),
    "help": Flag("bool", "show this help", False),
    "version": Flag("bool", "show the version", False),
}


# Flags that absl adds: one reads flags from a file, the other ignores unknown flags.
_OF_ABSL = re.compile("--?(flagfile|undefok)(=.*)?", re.DOTALL)
# Beyond this limit, more clients in parallel only cost memory; machines with many cores may use more.
MOST_THREADS, MOST_THREADS_OF_A_CORE = 256, 4
# Short form of --help.
SHORT = "h"


def define_flags() -> flags.FlagValues:
    """Define all flags; the help does not show absl's built-in flags."""
    values = flags.FlagValues()
    for name, flag in FLAGS.items():
        options: dict[str, Any] = {"default": flag.default, "help": flag.meaning, "flag_values": values}
        if flag.kind in ("integer", "float"):
            options |= {"lower_bound": flag.low, "upper_bound": flag.high}
        if flag.kind == "enum":
            options["enum_values"] = flag.choices
        if flag.kind in ("list", "multi_string"):
            options["default"] = []
        if name == "help":
            options["short_name"] = SHORT
        getattr(flags, f"DEFINE_{flag.kind}")(name, **options)
    return values


def parse(argv: list[str]) -> tuple[str | None, flags.FlagValues]:
    """Return the command (None means `train`) and the values of the flags."""
    values = define_flags()
    try:
        for word in argv[1 : argv.index("--") if "--" in argv else None]:
            if match := _OF_ABSL.fullmatch(word):
                raise flags.UnrecognizedFlagError(match.group(1))
        words = values(argv, known_only=False)[1:]
    except flags.UnrecognizedFlagError as error:
        known = [name for name in values if name != SHORT]
        hint = f"{did_you_mean(error.flagname, known)}; --set path=value changes a key of the recipe"
        raise InputError(f"unknown flag --{error.flagname}{hint}") from error
    except (flags.Error, ValueError) as error:
        # absl raises a ValueError for --noFLAG=VALUE.
        raise InputError(f"{_simplify_message(error)}; --help lists the flags") from error
    command = words[0] if words else None
    if command is not None and command not in commands.COMMANDS:
        raise InputError(f"unknown command {command!r}{did_you_mean(command, commands.COMMANDS)}")
    receiver = commands.COMMANDS[command or "train"].words
    if receiver:
        values[receiver].value = [*(values[receiver].value or ()), *words[1:]]
    elif len(words) > 1:
        raise InputError(f"unexpected word {words[1]!r} after {command!r}; flags begin with --")
    if not (values.help or values.version):
        _check(command or "train", values)
    return command, values


def _check(command, values):
    """Refuse flags without effect on the command, and values out of range."""
    for name in values:
        if values[name].present and name != SHORT and command not in commands.commands_with_flag(name):
            *first, last = commands.commands_with_flag(name)
            others = f"{', '.join(first)} and {last}" if first else last
            raise InputError(f"--{name} has no effect on {command}; it is a flag of {others}")
    max_threads = max(MOST_THREADS, MOST_THREADS_OF_A_CORE * hardware.core_count())
    if not 1 <= values.threads <= max_threads:
        raise InputError(
            f"--threads must be a whole number from 1 to {max_threads}, which is {MOST_THREADS_OF_A_CORE} per core and "
            f"at least {MOST_THREADS}. Received: --threads={values.threads}"
        )


def _simplify_message(error):
    """Rewrite absl's message about a flag value without Python terms."""
    text = " ".join(str(error).split()).rstrip(".")
    text = re.sub(r"Exceeds the limit .* for integer string conversion: .*", "is too large", text)
    text = re.sub(r"invalid literal for int\(\) with base 10: .*", "must be a whole number", text)
    return re.sub(r"\('Non-boolean argument to boolean flag', .*\)", "must be true or false", text)


def program_name() -> str:
    """Return the name under which the user called the program, for printed commands."""
    return os.environ.get("HETERO_TF_PROGRAM", "hetero_tf")


def shared_flags(values: flags.FlagValues) -> str:
    """Return the flags that printed commands about the same run need."""
    words = [f" --plugin {quote_shell(name)}" for name in values.plugin]
    return "".join([*words, *([f" --data_dir {quote_shell(values.data_dir)}"] if values.data_dir else [])])


TITLE = f"hetero_tf {__version__}: federated learning of one model on unequal devices, from a YAML recipe."
# Columns of the help, and of its names.
WIDTH, NAME_WIDTH = 79, 24


def render_help(name: str | None) -> str:
    """Return the help of a command, or the groups of commands if `name` is None."""
    if name is None:
        parts = [*textwrap.wrap(TITLE, WIDTH), f"usage: {program_name()} COMMAND [flags]"]
        for title, names in commands.GROUPS.items():
            entries = (commands.COMMANDS[each] for each in names.split())
            parts += ["", f"{title}:", *(_help_entry(entry.usage, entry.summary) for entry in entries)]
        return "\n".join([*parts, "", f"{program_name()} COMMAND --help shows the flags of a command."])
    command = commands.COMMANDS[name]
    groups = {f"Flags of {name}:": command.flag_names, "Flags of every command:": commands.COMMON}
    parts = [f"{program_name()} {command.usage}", f"  {command.summary}"]
    for title, flag_names in groups.items():
        parts += ["", title, *(_help_entry(f"--{flag}", describe_flag(name, flag)) for flag in flag_names)]
    return "\n".join(parts)


def _help_entry(name, text):
    """Return lines with a name and its meaning, which starts in the next line after a long name."""
    indent = " " * (NAME_WIDTH + 3)
    text = textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return f"  {name:{NAME_WIDTH}} {text.lstrip()}" if len(name) <= NAME_WIDTH else f"  {name}\n{text}"


def describe_flag(command: str, name: str) -> str:
    """Return the meaning of a flag for a command, with its choices and default."""
    flag = FLAGS[name]
    choices = f"<{'|'.join(flag.choices)}>: " if flag.choices else ""
    text = choices + commands.COMMANDS[command].meanings.get(name, flag.meaning)
    if "default" in text or "required" in text:
        return text
    return f"{text}; default {str(flag.default).lower().removesuffix('.0')}"
