"""`plot`: draws learning curves of runs, or accuracy over the size of the client models."""

import sys
from pathlib import Path

from absl.flags import FlagValues

from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError
from hetero_tf.cli.commands.compare import gather_runs

USAGE, SUMMARY = "plot RUN... --out FILE", "curves of runs with bands over seeds"
FLAGS, WORDS, SOURCE = ("run", "fleet", "x", "y", "band", "published", "out"), "run", None


def run(recipe: None, flags: FlagValues, console: Console) -> dict:
    """Draw the figure of --x and --y into --out."""
    from hetero_tf.reports import curves, figures, style, summaries
    from hetero_tf.runs import published
    from hetero_tf.runs.history import grouped

    if not flags.out:
        raise InputError("--out is missing; name the picture to write, such as curves.png or curves.svg")
    path, x, band = Path(flags.out), flags.x, flags.band
    style.check_file(path)
    runs, sentences = gather_runs(flags, "plot")
    metric = flags.y or next(iter(summaries.default_metrics(runs)), "loss")
    groups, values = grouped(runs), published.selected_values(flags.published)
    with style.figure_style("plot"):
        if x in curves.SIZES:
            figure = figures.draw_sizes(curves.size_series(groups, metric, x, band, values), metric, x, band)
        else:
            figure = figures.draw_curves(curves.learning_curves(groups, metric, x, band, values), metric, x, band)
        style.save(figure, path)
    console.say(f"drew {metric} over {x} into {path}")
    notes_console = Console(sys.stderr, quiet=flags.quiet)
    for sentence in sentences:
        notes_console.say(sentence)
    return {"out": str(path), "x": x, "y": metric, "runs": len(runs)}
