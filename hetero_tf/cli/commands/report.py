"""`report`: one HTML page about runs, finished or running, with figures, tables and costs."""

import webbrowser
from pathlib import Path

from absl.flags import FlagValues

from hetero_tf.base.console import Console
from hetero_tf.cli.commands.compare import gather_runs

USAGE, SUMMARY = "report RUN...", "one HTML page: curves, tables, costs"
FLAGS, WORDS, SOURCE = ("run", "fleet", "published", "out", "open"), "run", None


def run(recipe: None, flags: FlagValues, console: Console) -> dict:
    """Write the page and its figures, and print their paths."""
    from hetero_tf.reports import page, style
    from hetero_tf.runs import published
    from hetero_tf.runs.history import grouped

    path = Path(flags.out or "report.html")
    page.check_path(path)
    runs, sentences = gather_runs(flags, "report")
    with style.figure_style("report"):
        text, drawn = page.make_report(grouped(runs), sentences, *published.select_published(flags.published))
        pictures = page.write_report(text, drawn, path)
    console.say(f"wrote {path}, and its {len(drawn)} figures into {pictures}")
    for sentence in sentences:
        console.say(sentence)
    if flags.open and not webbrowser.open(path.resolve().as_uri()):
        console.say(f"note: no browser could be started; open {path}")
    return {"out": str(path), "figures": str(pictures), "runs": len(runs)}
