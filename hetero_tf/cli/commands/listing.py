"""Commands that show text: `list` (recipes, runs, plug-ins), `explain` and `schema`."""

import json
import os
from typing import TYPE_CHECKING

from absl.flags import FlagValues

from hetero_tf.base.console import Console, format_table
from hetero_tf.base.errors import InputError
from hetero_tf.base.files import decode, read_bytes
from hetero_tf.base.formatting import escape_line
from hetero_tf.base.registry import installed_plugins, package_of
from hetero_tf.cli.open_run import register_plugins
from hetero_tf.recipe.explanations import explain
from hetero_tf.recipe.json_schema import recipe_schema
from hetero_tf.recipe.recipe_files import LARGEST_FILE, shipped, sweeps

if TYPE_CHECKING:
    from hetero_tf.runs.overview import Overview

DEFAULT = "runs"
# Maximum number of changed keys to show.
MOST_CHANGES = 3


def list_runs(flags: FlagValues, console: Console) -> dict:
    """Print the lists; shipped recipes and sweeps only if no folder is named."""
    from hetero_tf.runs.overview import overview, run_folders

    if flags.plugins:
        return _list_plugins(console)
    register_plugins(flags)
    folders = flags.run or ([DEFAULT] if os.path.isdir(DEFAULT) else [])
    shipped_headers = {} if flags.run else {"recipes": _headers(shipped()), "sweeps": _headers(sweeps())}
    overviews = [overview(path) for path in run_folders(folders)]
    for title, rows in {**shipped_headers, **_group_by_sweep(overviews)}.items():
        cells = [("", *row) for row in rows.items()]
        console.say_lines(f"{escape_line(title)}:\n{format_table(cells, (0, 1, 2), console.width, folded=2)}")
    if not overviews:
        console.say(f"no runs in {', '.join(folders) or DEFAULT}")
    runs = [{**vars(run), "path": str(run.path), "changes": run.changes and list(run.changes)} for run in overviews]
    return {**shipped_headers, "runs": runs}


def _group_by_sweep(overviews):
    """Return `{heading: {run: text}}`; a sweep's heading has its folder, and the names of its runs have the recipe."""
    groups: dict[str, dict[str, str]] = {}
    for run in overviews:
        heading, name = (f"sweep {run.path.parent}", run.path.name) if run.sweep else ("runs", str(run.path))
        groups.setdefault(heading, {})[name] = _format_overview(run)
    return groups


def _list_plugins(console):
    plugins = [
        {"name": point.name, "package": package_of(point), "module": point.value} for point in installed_plugins()
    ]
    if plugins:
        console.say_lines(format_table([list(plugin.values()) for plugin in plugins], (0, 1, 2)))
    console.say("use one with --plugin NAME" if plugins else "no installed package has plug-ins for hetero_tf")
    return {"plugins": plugins}


def _headers(known):
    """Return `{name: first line of its file}`, without the recipes in tiny/."""
    texts = {name: decode(read_bytes(path, LARGEST_FILE, follow=True), path) for name, path in known.items()}
    return {name: text.partition("\n")[0].lstrip("# ") for name, text in texts.items() if not name.startswith("tiny/")}


def _format_overview(entry: "Overview") -> str:
    if entry.problem:
        return f"{entry.state}: {entry.problem}"
    is_early = entry.state == "finished" and entry.round < entry.rounds
    parts = [f"{entry.state}, round {entry.round} of {entry.rounds}{' (stopped early)' if is_early else ''}"]
    if entry.metric:
        shown = ["-" if value is None else f"{value:.4g}" for value in (entry.best, entry.last)]
        parts.append(f"{entry.metric} best {shown[0]} last {shown[1]}")
    needs = "".join(f", needs --plugin {name}" for name in entry.plugins)
    if not entry.sweep:
        changes = entry.changes or ()
        # A function replaces all layers of the shipped recipe.
        if function := [change for change in changes if change.startswith("model.function")]:
            changes = (*function, *(change for change in changes if not change.startswith("model.")))
        more = f"; {len(changes) - MOST_CHANGES} more" if len(changes) > MOST_CHANGES else ""
        origin = f" with {'; '.join(changes[:MOST_CHANGES])}{more}" if changes else ""
        parts.append(f"recipe {entry.recipe}{', not a shipped one' if entry.changes is None and not needs else origin}")
    return "  ".join(parts) + needs


def explain_words(flags: FlagValues, console: Console) -> dict:
    """Print the explanations of each word, also of plug-ins of --plugin."""
    if not flags.word:
        raise InputError("explain needs a word, such as coverage, levels.mix or slimmable")
    register_plugins(flags)
    explanations = {word: explain(word) for word in flags.word}
    for texts in explanations.values():
        for text in texts:
            console.say_lines(text)
    return explanations


def print_schema(flags: FlagValues, console: Console) -> dict:
    """Print the schema, with the plug-ins of --plugin."""
    register_plugins(flags)
    schema = recipe_schema()
    console.say_lines(json.dumps(schema, indent=1))
    return schema
