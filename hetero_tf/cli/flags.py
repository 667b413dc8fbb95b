"""The flags of the command line and the word before them."""

import re
from typing import TYPE_CHECKING

from hetero_tf.base import hardware
from hetero_tf.base.errors import BadInput, did_you_mean

if TYPE_CHECKING:
    from absl import flags

COMMANDS = ("train", "describe", "evaluate", "export")


def definitions() -> "flags.FlagValues":
    """All flags; absl's own ones are not shown to a person."""
    from absl import flags

    values = flags.FlagValues()
    flags.DEFINE_string("recipe", None, "YAML file, or the name of a shipped recipe such as mnist", values)
    flags.DEFINE_multi_string("set", [], "override of the recipe, path=value; may be repeated", values)
    flags.DEFINE_string("run_dir", None, "folder of the run; default runs/NAME of the recipe", values)
    flags.DEFINE_string("data_dir", None, "folder of the data; default HETERO_TF_DATA", values)
    flags.DEFINE_multi_string("plugin", [], "own Python module with layers or plug-ins; may be repeated", values)
    flags.DEFINE_integer("threads", hardware.cores(), "clients in flight at once", lower_bound=1, flag_values=values)
    flags.DEFINE_enum(
        "engine", None, ["auto", "sequential", "stacked"], "how clients are computed, as --set engine=", values
    )
    flags.DEFINE_enum("state", "best", ["best", "last"], "which state to evaluate or export", values)
    flags.DEFINE_string("level", None, "level to export; default the global model", values)
    flags.DEFINE_string("out", None, "folder of the export; default RUN_DIR/export", values)
    flags.DEFINE_string("draw", None, "describe: PNG file to draw the split into", values)
    flags.DEFINE_bool("overwrite", False, "export: replace an earlier export", values)
    flags.DEFINE_bool("allow_other_machine", False, "resume although the numbers may differ", values)
    flags.DEFINE_bool("json", False, "one JSON line on standard output; sentences go to standard error", values)
    flags.DEFINE_bool("debug", False, "show tracebacks", values)
    flags.DEFINE_bool("help", False, "show this help", values, short_name="h")
    flags.DEFINE_bool("version", False, "show the version", values)
    return values


def parse(argv: list[str]) -> tuple[str, "flags.FlagValues"]:
    """The command, `train` where none is named, and the values of the flags; `BadInput` if something is wrong."""
    from absl import flags

    values = definitions()
    try:
        words = values(argv, known_only=False)[1:]
    except flags.UnrecognizedFlagError as error:
        known = [name for name in values if len(name) > 1]
        raise BadInput(f"unknown flag --{error.flagname}{did_you_mean(error.flagname, known)}") from error
    except flags.Error as error:
        raise BadInput(f"{_plainly(error)}; --help lists the flags") from error
    command = words[0] if words else "train"
    if command not in COMMANDS:
        raise BadInput(f"unknown command {command!r}{did_you_mean(command, COMMANDS)}")
    if len(words) > 1:
        raise BadInput(f"unexpected word {words[1]!r} after {command!r}; flags begin with --")
    return command, values


def _plainly(error):
    """What absl says about a flag's value, in words that are not Python's."""
    text = " ".join(str(error).split()).rstrip(".")
    text = re.sub(r"invalid literal for int\(\) with base 10: .*", "must be a whole number", text)
    return re.sub(r"\('Non-boolean argument to boolean flag', .*\)", "must be true or false", text)
