"""`report`: one page of runs, finished or running, with figures, tables and what they cost."""

from pathlib import Path
from typing import TYPE_CHECKING

from hetero_tf.base.console import Console
from hetero_tf.cli.commands.compare import folders

if TYPE_CHECKING:
    from absl.flags import FlagValues

USAGE, SUMMARY = "report RUN...", "one page of runs: curves, tables, costs"
FLAGS, WORDS, SOURCE = ("run", "published", "out"), "run", None


def run(recipe: None, flags: "FlagValues", console: Console) -> dict:
    """Writes the page and its figures, and says where they are."""
    from hetero_tf.reports import page, published, style
    from hetero_tf.runs.history import gather, grouped

    path = Path(flags.out or "report.html")
    page.check_path(path)
    runs, sentences = gather(folders(flags, "report"))
    with style.in_use("report"):
        report = page.make(grouped(runs), sentences, *published.choose(flags.published))
        pictures = page.write(report, path)
    console.say(f"wrote {path}, and its {len(report.pictures)} figures into {pictures}")
    for sentence in sentences:
        console.say(sentence)
    return {"out": str(path), "figures": str(pictures), "runs": len(runs)}
