"""`launch`: trains a recipe with several parts of this machine that share each round, for a try.

The parts are logical devices of one process. Workers in processes of their own need TensorFlow's servers, which listen
on all network interfaces without authentication.
"""

from typing import TYPE_CHECKING

from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError
from hetero_tf.cli.commands import OF_RECIPES
from hetero_tf.cli.commands.train import train
from hetero_tf.cli.flags import program
from hetero_tf.cli.open_run import settings_of

if TYPE_CHECKING:
    from absl.flags import FlagValues

    from hetero_tf.recipe.schema import Recipe

USAGE, SUMMARY = "launch --local N --recipe FILE", "trains with N parts of this machine that share each round"
FLAGS = ("local", "recipe", "run_dir", "engine", "allow_other_machine", *OF_RECIPES)
WORDS, SOURCE = None, "recipe"


def run(recipe: "Recipe", flags: "FlagValues", console: Console) -> dict:
    """Trains on --local devices of this process; it opens no port."""
    if flags.local is None:
        raise InputError(f"--local is missing; try {program()} launch --local 2 --recipe digits")
    settings = settings_of(recipe, flags)
    from hetero_tf.workers import runners

    return train(recipe, settings, flags, console, runners.on_devices(flags.local))
