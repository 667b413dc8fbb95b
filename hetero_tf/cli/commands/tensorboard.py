"""`tensorboard`: writes the metrics of runs as event files."""

from pathlib import Path

from absl.flags import FlagValues

from hetero_tf.base.console import Console
from hetero_tf.base.escaping import quote_shell
from hetero_tf.cli.commands.compare import named_folders

USAGE, SUMMARY = "tensorboard RUN...", "metrics of runs as event files"
FLAGS, WORDS, SOURCE = ("run", "out"), "run", None


def run(recipe: None, flags: FlagValues, console: Console) -> dict:
    """Write a folder for each run into --out, and print the TensorBoard command."""
    from hetero_tf.reports import events
    from hetero_tf.runs.history import gather

    folder = Path(flags.out or "tensorboard")
    runs, sentences = gather(named_folders(flags, "tensorboard"))
    written = events.write_events(runs, folder)
    console.say(f"wrote {len(written)} run{'s' * (len(written) != 1)} into {folder}")
    for sentence in sentences:
        console.say(sentence)
    console.say(f"next: tensorboard --logdir {quote_shell(folder)}")
    return {"out": str(folder), "runs": [str(path) for path in written]}
