"""Table of the commands: their flags, and the functions that run them, which it does not import."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hetero_tf.base.files import read_rows, read_table

COMMON = ("json", "quiet", "debug", "help", "version")
_MEANINGS = read_rows(Path(__file__).with_name("meanings.csv"))


@dataclass(frozen=True)
class Command:
    """One command, selected by the first word of the command line: a row of `commands.csv`.

    Attributes:
        usage, summary: Its line in the help.
        function: MODULE.FUNCTION in this package. Called with the recipe (if there is a `source`), the flags and the
            console; returns its result, ready for JSON.
        flag_names: Names of its flags in addition to `COMMON`.
        words: Flag that receives the words after the command, or None.
        source: Flag that names its recipe, "recipe" or "run_dir", or None.
        needs_tensorflow: Import TensorFlow before the function is called.
        resumes: The same command continues a stopped run.
    """

    name: str
    usage: str
    summary: str
    function: str
    flag_names: tuple[str, ...]
    words: str | None = None
    source: str | None = None
    needs_tensorflow: bool = False
    resumes: bool = False

    @property
    def meanings(self) -> dict[str, str]:
        """`{flag: meaning}` where it differs from `flags.FLAGS`."""
        return {row["flag"]: row["meaning"] for row in _MEANINGS if self.name in row["commands"].split()}

    @property
    def run(self) -> Callable:
        """The function that runs the command."""
        module, name = self.function.split(".")
        return getattr(importlib.import_module(f"{__name__}.{module}"), name)


# Commands by what a user wants to do, as the help shows them.
GROUPS = {
    "Everyday": "new train describe list evaluate predict explain",
    "Compare": "sweep bench compare plot report tensorboard",
    "Deploy": "export serve flower measure-device",
    "Extend": "launch schema",
}
# In the order of typical use.
COMMANDS = read_table(Path(__file__).with_name("commands.csv"), Command)


def commands_with_flag(flag: str) -> list[str]:
    """Return the commands on which a flag has an effect."""
    return [name for name, command in COMMANDS.items() if flag in (*COMMON, *command.flag_names)]
