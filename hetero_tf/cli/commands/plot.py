"""`plot`: draws learning curves of runs, or accuracy against the size of their clients' models."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError
from hetero_tf.cli.commands.compare import folders

if TYPE_CHECKING:
    from absl.flags import FlagValues

USAGE, SUMMARY = "plot RUN... --out FILE", "curves of runs with bands over seeds"
FLAGS, WORDS, SOURCE = ("run", "x", "y", "band", "published", "out"), "run", None


def run(recipe: None, flags: "FlagValues", console: Console) -> dict:
    """Draws the figure that --x and --y ask for into --out."""
    from hetero_tf.reports import curves, figures, published, style, summaries
    from hetero_tf.runs.history import gather, grouped

    if not flags.out:
        raise InputError("--out is missing; name the picture to write, such as curves.png or curves.svg")
    path, x, band = Path(flags.out), flags.x, flags.band
    style.check_file(path)
    runs, sentences = gather(folders(flags, "plot"))
    metric = flags.y or next(iter(summaries.usual_metrics(runs)), "loss")
    groups, values = grouped(runs), published.named(flags.published)
    with style.in_use("plot"):
        if x in curves.SIZES:
            drawn = figures.draw_sizes(curves.size_series(groups, metric, x, band, values), metric, x, band)
        else:
            drawn = figures.draw_curves(curves.learning_curves(groups, metric, x, band, values), metric, x, band)
        style.save(drawn, path)
    console.say(f"drew {metric} against {x} into {path}")
    about = Console(sys.stderr, quiet=flags.quiet)
    for sentence in sentences:
        about.say(sentence)
    return {"out": str(path), "x": x, "y": metric, "runs": len(runs)}
