"""`tensorboard`: writes what runs have measured as files that TensorBoard shows."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from hetero_tf.base.console import Console
from hetero_tf.cli.commands.compare import folders

if TYPE_CHECKING:
    from absl.flags import FlagValues

USAGE, SUMMARY = "tensorboard RUN...", "metrics of runs as TensorBoard reads them"
FLAGS, WORDS, SOURCE = ("run", "out"), "run", None


def run(recipe: None, flags: "FlagValues", console: Console) -> dict:
    """Writes a folder for each run into --out, and says how to look at them."""
    from hetero_tf.reports import events
    from hetero_tf.runs.history import gather

    folder = Path(flags.out or "tensorboard")
    runs, sentences = gather(folders(flags, "tensorboard"))
    places = events.write(runs, folder)
    console.say(f"wrote {len(places)} run{'s' * (len(places) != 1)} into {folder}")
    for sentence in sentences:
        console.say(sentence)
    console.say(f"next: tensorboard --logdir {shlex.quote(str(folder))}")
    return {"out": str(folder), "runs": [str(place) for place in places]}
