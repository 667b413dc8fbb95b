"""`compare`: a table of runs with the mean and spread over seeds of their metrics and costs."""

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from absl.flags import FlagValues

from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError
from hetero_tf.base.files import write_atomic

if TYPE_CHECKING:
    from hetero_tf.runs.history import Run

USAGE, SUMMARY = "compare RUN...", "runs side by side, seeds together"
FLAGS, WORDS, SOURCE = ("run", "fleet", "metric", "reach", "at", "published", "as", "out"), "run", None


def run(recipe: None, flags: FlagValues, console: Console) -> list[dict]:
    """Print the table, or write it to --out; omitted runs are reported on standard error."""
    from hetero_tf.reports import comparison, summaries, tables, text_tables
    from hetero_tf.runs import published
    from hetero_tf.runs.history import grouped

    runs, sentences = gather_runs(flags, "compare")
    published_values, requested = published.select_published(flags.published)
    groups, table_format = grouped(runs), str(flags["as"].value)
    options = (groups, flags.metric, _goals(flags.reach), list(map(summaries.parse_moment, flags.at)))
    rows = comparison.compare(*options, published_values)
    if table_format == "text":
        width = None if flags.out else console.width
        text = text_tables.to_text(*options, (published_values, requested), width)
    else:
        text = tables.FORMATS[table_format](rows, requested)
    if flags.out:
        write_atomic(Path(flags.out), f"{text}\n".encode())
        console.say(f"wrote {flags.out}")
    elif not flags.json:
        console.say_lines(text)
    # Only the table goes to standard output, so that it can be redirected to a file.
    notes_console = Console(sys.stderr, quiet=flags.quiet)
    named = {value.table for value in requested}
    sentences += published.missing_cells(published_values, [run.keys for run in runs], named)
    for sentence in sentences:
        notes_console.say(sentence)
    return rows


def gather_runs(flags: FlagValues, command: str) -> "tuple[list[Run], list[str]]":
    """Return the named runs, on the clock of --fleet if it is set, and messages about runs that are omitted."""
    from hetero_tf.runs.history import gather

    runs, messages = gather(named_folders(flags, command))
    if not flags.fleet:
        return runs, messages
    from hetero_tf.reports.fleet_times import time_runs

    timed, omitted = time_runs(runs, flags.fleet)
    return timed, [*messages, *omitted]


def named_folders(flags: FlagValues, command: str) -> list[str]:
    """Return the named run folders; refuse an empty list."""
    if not flags.run:
        raise InputError(f"{command} needs a run folder, such as runs/digits, or a folder of runs")
    return list(flags.run)


def _goals(words):
    """Parse the values of --reach."""
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
