"""Commands about costs and results: `describe`, `compare`, `plot`, `report` and `tensorboard`."""

import dataclasses
import math
import sys
import webbrowser
from pathlib import Path
from typing import Any

from absl.flags import FlagValues

from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError
from hetero_tf.base.files import write_atomic
from hetero_tf.base.formatting import quote_shell
from hetero_tf.cli.open_run import build_settings, png_figure
from hetero_tf.recipe.schema import Recipe
from hetero_tf.runs import published
from hetero_tf.runs.history import Run, gather, grouped


def describe_recipe(recipe: Recipe, flags: FlagValues, console: Console) -> dict:
    """Print the report, and draw the split if --draw is set."""
    from hetero_tf.data.partitions import drawing
    from hetero_tf.reports import describe as report
    from hetero_tf.run import experiment, notes
    from hetero_tf.run.data import by_strata

    settings, replicas = build_settings(recipe, flags), len(flags.workers) or flags.devices
    # Each worker has this many threads; devices of one process share them.
    settings = dataclasses.replace(settings, threads=flags.threads * max(len(flags.workers), 1))
    description = report.describe(process := experiment.build_process(recipe, settings), replicas)
    if not flags.json:
        console.say(*report.to_text(description, flags.all).split("\n"))
    if flags.draw:
        split, labels = by_strata(process.partition, process.dataset), process.dataset.strata[0]
        coverage, names = notes.label_coverage(process), recipe.levels.names
        height = 0.0 if coverage is None else 1 + 0.4 * len(names)
        with png_figure(flags.draw, 9, 5 + height) as figure:
            above: Any = figure
            if coverage is not None:
                above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(5, height))[:, 0]
                drawing.draw_coverage(below.subplots(), coverage, names)
            drawing.draw_into(above, split, *drawing.table(split, labels), "share of the client's examples")
        console.say(f"drew the split into {flags.draw}: one column for each client, examples above and labels below")
    return report.to_json(description)


def compare_runs(flags: FlagValues, console: Console) -> list[dict]:
    """Print the table, or write it to --out; omitted runs are reported on standard error."""
    from hetero_tf.reports import summaries, tables

    runs, sentences = gather_runs(flags, "compare")
    published_values, requested = published.select_published(flags.published)
    groups, table_format = grouped(runs), str(flags["as"].value)
    options = (groups, flags.metric, _goals(flags.reach), list(map(summaries.parse_moment, flags.at)))
    if flags.baseline is not None and flags.baseline not in groups:
        names = ", ".join(groups)
        raise InputError(f"no row has this name; rows are: {names}. Received: --baseline={flags.baseline}")
    rows = summaries.compare(*options, published_values, flags.baseline)
    tables.check_columns(flags.columns, rows[0])
    if table_format == "text":
        width = None if flags.out else console.width
        text = tables.to_text(*options, (published_values, requested), flags.baseline, flags.columns, width)
    else:
        text = tables.FORMATS[table_format](rows, requested, flags.columns)
    if flags.out:
        write_atomic(Path(flags.out), f"{text}\n".encode())
        console.say(f"wrote {flags.out}")
    elif not flags.json:
        console.say(*text.split("\n"))
    # Only the table goes to standard output, so that it can be redirected to a file.
    named = {value.table for value in requested}
    sentences += published.missing_cells(published_values, [run.keys for run in runs], named)
    Console(sys.stderr, quiet=flags.quiet).say(*sentences)
    return rows


def gather_runs(flags: FlagValues, command: str) -> tuple[list[Run], list[str]]:
    """Return the named runs, on the clock of --fleet if it is set, and messages about runs that are omitted."""
    if not flags.run:
        raise InputError(f"{command} needs a run folder, such as runs/digits, or a folder of runs")
    runs, messages = gather(flags.run)
    if not flags.fleet:
        return runs, messages
    from hetero_tf.reports.fleet_times import time_runs

    timed, omitted = time_runs(runs, flags.fleet)
    return timed, [*messages, *omitted]


def _goals(words):
    try:
        goals = dict.fromkeys(map(float, words))
    except ValueError:
        goals = {math.nan: None}
    if not all(map(math.isfinite, goals)):
        raise InputError(
            "--reach must be comma-separated values of the first metric, such as 95,98. "
            f"Received: --reach={','.join(words)}"
        )
    return list(goals)


def plot_runs(flags: FlagValues, console: Console) -> dict:
    """Draw the figure of --x and --y into --out."""
    from hetero_tf.reports import figures, style, summaries

    if not flags.out:
        raise InputError("--out is missing; name the picture to write, such as curves.png or curves.svg")
    path, x = Path(flags.out), flags.x
    style.check_file(path)
    runs, sentences = gather_runs(flags, "plot")
    metric = flags.y or next(iter(summaries.default_metrics(runs)), "loss")
    groups, values = grouped(runs), published.select_published(flags.published)[1]
    with style.figure_style("plot"):
        if x in figures.SIZES:
            series = figures.size_series(groups, metric, x, values)
            figure = figures.draw_sizes(series, metric, x, flags.width)
        else:
            curves = figures.learning_curves(groups, metric, x, values)
            figure = figures.draw_curves(curves, metric, x, flags.width)
        style.save(figure, path)
    console.say(f"drew {metric} over {x} into {path}")
    Console(sys.stderr, quiet=flags.quiet).say(*sentences)
    return {"out": str(path), "x": x, "y": metric, "runs": len(runs)}


def report_runs(flags: FlagValues, console: Console) -> dict:
    """Write the page and its figures, and print their paths."""
    from hetero_tf.reports import page, style

    path = Path(flags.out or "report.html")
    style.check_file(path, ".html")
    runs, sentences = gather_runs(flags, "report")
    with style.figure_style("report"):
        text, drawn = page.make_report(grouped(runs), sentences, *published.select_published(flags.published))
        pictures = page.write_report(text, drawn, path)
    console.say(f"wrote {path}, and its {len(drawn)} figures into {pictures}")
    console.say(*sentences)
    if flags.open and not webbrowser.open(path.resolve().as_uri()):
        console.say(f"note: no browser could be started; open {path}")
    return {"out": str(path), "figures": str(pictures), "runs": len(runs)}


def write_event_files(flags: FlagValues, console: Console) -> dict:
    """Write a folder for each run into --out, and print the TensorBoard command."""
    from hetero_tf.reports import events

    folder = Path(flags.out or "tensorboard")
    runs, sentences = gather_runs(flags, "tensorboard")
    written = events.write_events(runs, folder)
    console.say(f"wrote {len(written)} run{'s' * (len(written) != 1)} into {folder}")
    console.say(*sentences)
    console.say_lines(f"next: tensorboard --logdir {quote_shell(folder)}")
    return {"out": str(folder), "runs": [str(path) for path in written]}
