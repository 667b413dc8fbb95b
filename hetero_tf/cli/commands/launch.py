"""`launch`: trains a recipe with several logical devices of this machine that share each round, to try out replicas.

All devices belong to one process. Separate worker processes would need TensorFlow's servers, which listen on all
network interfaces without authentication.
"""

from absl.flags import FlagValues

from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError
from hetero_tf.cli.commands import RECIPE_FLAGS, train
from hetero_tf.cli.flags import program_name
from hetero_tf.recipe.schema import Recipe

USAGE, SUMMARY = "launch --local N --recipe FILE", "trains with N logical devices that share each round"
FLAGS = ("local", "recipe", "fleet", "run_dir", "engine", "allow_other_machine", "log", "verbose", *RECIPE_FLAGS)
WORDS, SOURCE = None, "recipe"


def run(recipe: Recipe, flags: FlagValues, console: Console) -> dict:
    """Train on --local logical devices of this process; no port is opened."""
    if flags.local is None:
        raise InputError(f"--local is missing; try {program_name()} launch --local 2 --recipe digits")
    from hetero_tf.workers import worker_rounds

    return train.run(recipe, flags, console, worker_rounds.on_devices(flags.local))
