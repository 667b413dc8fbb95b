"""`compare`: a table of runs, with the mean and the spread over seeds of what they reached and what it cost."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError
from hetero_tf.base.files import write_atomic

if TYPE_CHECKING:
    from absl.flags import FlagValues

USAGE, SUMMARY = "compare RUN...", "runs side by side, seeds together"
FLAGS, WORDS, SOURCE = ("run", "metric", "target", "at", "published", "as", "out"), "run", None


def run(recipe: None, flags: "FlagValues", console: Console) -> list[dict]:
    """Prints the table, or writes it into --out; what is left out is said on standard error."""
    from hetero_tf.reports import comparison, published, table_formats
    from hetero_tf.runs.history import gather, grouped

    runs, sentences = gather(folders(flags, "compare"))
    beside, asked = published.choose(flags.published)
    rows = comparison.compare(grouped(runs), flags.metric, flags.target, _rounds(flags.at), beside)
    text = table_formats.FORMATS[str(flags["as"].value)](rows, asked)
    if flags.out:
        write_atomic(Path(flags.out), f"{text}\n".encode())
        console.say(f"wrote {flags.out}")
    elif not flags.json:
        console.say(text)
    # The table alone is on standard output, so that it can be put into a file.
    about = Console(sys.stderr, quiet=flags.quiet)
    for sentence in sentences:
        about.say(sentence)
    return rows


def folders(flags: "FlagValues", command: str) -> list[str]:
    """The run folders that were named; refuses none at all."""
    if not flags.run:
        raise InputError(f"{command} needs a run folder behind it, such as runs/digits, or a folder of them")
    return list(flags.run)


def _rounds(words):
    """The rounds of --at."""
    wrong = next((word for word in words if not word.isdecimal()), None)
    if wrong is not None:
        raise InputError(f"--at must be rounds with commas between them, such as 10,20. Received: --at={wrong}")
    return [int(word) for word in words]
