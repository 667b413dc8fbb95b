"""Flags of the command line, the command word, and the help texts."""

import os
import re
import textwrap
from pathlib import Path
from typing import Any

from absl import flags

from hetero_tf.base import hardware
from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.base.files import read_rows
from hetero_tf.base.formatting import quote_shell
from hetero_tf.base.version import __version__
from hetero_tf.cli import commands

# By name; absl defines a flag by `DEFINE_<kind>`. `Command.meanings` has the meanings that single commands change.
FLAGS = {row["name"]: row for row in read_rows(Path(__file__).with_suffix(".csv"))}
FLAGS["threads"]["default"] = str(hardware.core_count())
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
        options: dict[str, Any] = {"default": flag["default"] or None, "help": flag["meaning"], "flag_values": values}
        if flag["kind"] in ("integer", "float"):
            bounds = {"lower_bound": flag["low"], "upper_bound": flag["high"]}
            options |= {side: int(bound) if bound else None for side, bound in bounds.items()}
        if flag["kind"] == "enum":
            options["enum_values"] = flag["choices"].split()
        if flag["kind"] in ("list", "multi_string"):
            options["default"] = []
        if name == "help":
            options["short_name"] = SHORT
        getattr(flags, f"DEFINE_{flag['kind']}")(name, **options)
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
    choices = f"<{flag['choices'].replace(' ', '|')}>: " if flag["choices"] else ""
    text = choices + commands.COMMANDS[command].meanings.get(name, flag["meaning"])
    return text if "default" in text or "required" in text else f"{text}; default {flag['default'] or None}"
