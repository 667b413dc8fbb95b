"""`launch`: trains a recipe with several processes on this machine that share each round, for a try."""

import sys
from typing import TYPE_CHECKING

from hetero_tf.base.console import Console
from hetero_tf.base.errors import BadInput
from hetero_tf.cli import child
from hetero_tf.cli.commands import OF_RECIPES
from hetero_tf.cli.flags import program

if TYPE_CHECKING:
    from absl.flags import FlagValues

    from hetero_tf.recipe.schema import Recipe

USAGE, SUMMARY = "launch --local N --recipe FILE", "trains with N processes of this machine that share each round"
FLAGS = ("local", "recipe", "run_dir", "engine", "allow_other_machine", *OF_RECIPES)
WORDS, SOURCE = None, "recipe"


def run(recipe: "Recipe", flags: "FlagValues", console: Console) -> dict:
    """Starts the processes, of which the first one shows what it does, and ends them all when one ends."""
    from hetero_tf.workers import local

    if flags.local is None:
        raise BadInput(f"--local is missing; try {program()} launch --local 2 --recipe digits")
    threads = max(flags.threads // flags.local, 1)
    words = [
        f"--{name}={flags[name].value}" for name in ("recipe", "run_dir", "engine", "data_dir") if flags[name].value
    ]
    words += [f"--{name}={value}" for name in ("set", "plugin") for value in flags[name].value or ()]
    words += [f"--{name}" for name in ("allow_other_machine", "quiet", "debug") if flags[name].value]
    local.run_together([sys.executable, child.__file__, "train", *words, f"--threads={threads}"], flags.local)
    return {"processes": flags.local, "threads_of_each": threads}
