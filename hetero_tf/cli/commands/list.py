"""`list`: the shipped recipes and sweeps, and how far the runs are that lie in runs/ or in the named folders."""

import os
from typing import TYPE_CHECKING

from hetero_tf.base.console import Console
from hetero_tf.cli.open_run import register_plugins

if TYPE_CHECKING:
    from absl.flags import FlagValues

    from hetero_tf.runs.overview import Overview

USAGE, SUMMARY = "list [DIR ...]", "recipes, and how far the runs below runs/ or DIR are"
FLAGS, WORDS, SOURCE = ("run", "plugin"), "run", None
DEFAULT = "runs"
# Of the keys that differ from the shipped recipe, so many are shown.
MOST_CHANGES = 3


def run(recipe: None, flags: "FlagValues", console: Console) -> dict:
    """Prints the lists; what is shipped only where no folder is named."""
    from hetero_tf.recipe.recipe_files import shipped, sweeps
    from hetero_tf.runs.overview import overview, run_folders

    register_plugins(flags)
    places = flags.run or ([DEFAULT] if os.path.isdir(DEFAULT) else [])
    told = {} if flags.run else {"recipes": _headers(shipped()), "sweeps": _headers(sweeps())}
    for title, headers in told.items():
        width = max(map(len, headers))
        console.say(f"{title}:")
        console.say("\n".join(f"  {name:{width}}  {about}" for name, about in headers.items()))
    found = [overview(path) for path in run_folders(places)]
    if found:
        width = max(len(str(one.path)) for one in found)
        console.say("runs:")
        console.say("\n".join(f"  {str(one.path):{width}}  {_told(one)}" for one in found))
    else:
        console.say(f"no runs in {', '.join(places) or DEFAULT}")
    return {**told, "runs": [_json(one) for one in found]}


def _headers(known):
    """`{name: first line of its file}`, without the tiny twins."""
    from hetero_tf.base.files import decode, read_bytes
    from hetero_tf.recipe.recipe_files import LARGEST_FILE

    texts = {name: decode(read_bytes(path, LARGEST_FILE, follow=True), path) for name, path in known.items()}
    return {name: text.partition("\n")[0].lstrip("# ") for name, text in texts.items() if not name.startswith("tiny/")}


def _told(one: "Overview") -> str:
    """What is known of a run, in a line."""
    if one.problem:
        return f"{one.state}: {one.problem}"
    parts = [f"{one.state}, round {one.round} of {one.rounds}"]
    if one.metric:
        shown = ["-" if value is None else f"{value:.4g}" for value in (one.best, one.last)]
        parts.append(f"{one.metric} best {shown[0]} last {shown[1]}")
    parts.append(f"recipe {one.recipe}{_differing(one.changes)}")
    return "  ".join(parts)


def _differing(changes):
    if changes is None:
        return ", not a shipped one"
    more = f"; {len(changes) - MOST_CHANGES} more" if len(changes) > MOST_CHANGES else ""
    return f" with {'; '.join(changes[:MOST_CHANGES])}{more}" if changes else ""


def _json(one):
    return {**vars(one), "path": str(one.path), "changes": one.changes and list(one.changes)}
