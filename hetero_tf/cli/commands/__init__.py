"""Table of the commands: their flags, and the functions that run them, which it does not import."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hetero_tf.base.files import read_rows

COMMON = ("json", "quiet", "debug", "help", "version")


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
        meanings: `{flag: meaning}` where it differs from `flags.FLAGS`, of `meanings.csv`.
    """

    usage: str
    summary: str
    function: str
    flag_names: tuple[str, ...]
    words: str | None
    source: str | None
    needs_tensorflow: bool
    resumes: bool
    meanings: Mapping[str, str]

    @property
    def run(self) -> Callable:
        """The function that runs the command."""
        module, name = self.function.split(".")
        return getattr(importlib.import_module(f"{__name__}.{module}"), name)


# Commands by what a user wants to do, as the help shows them.
GROUPS = {
    "Everyday": "new train describe list evaluate predict explain",
    "Compare": "sweep bench compare plot report similarity tensorboard",
    "Deploy": "export serve flower measure-device",
    "Extend": "launch schema",
}
_ROWS, _MEANINGS = (read_rows(Path(__file__).with_name(f"{name}.csv")) for name in ("commands", "meanings"))
# In the order of typical use.
COMMANDS = {
    row["name"]: Command(
        usage=row["usage"],
        summary=row["summary"],
        function=row["function"],
        flag_names=tuple(row["flags"].split()),
        words=row["words"] or None,
        source=row["source"] or None,
        needs_tensorflow=row["needs_tensorflow"] == "yes",
        resumes=row["resumes"] == "yes",
        meanings={each["flag"]: each["meaning"] for each in _MEANINGS if row["name"] in each["commands"].split()},
    )
    for row in _ROWS
}


def commands_with_flag(flag: str) -> list[str]:
    """Return the commands on which a flag has an effect."""
    return [name for name, command in COMMANDS.items() if flag in (*COMMON, *command.flag_names)]
