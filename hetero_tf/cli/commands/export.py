"""`export`: writes a state of a run as SavedModels that need no hetero_tf, of one level or of every one of the mix."""

from pathlib import Path
from typing import TYPE_CHECKING

from hetero_tf.base.console import Console, printable
from hetero_tf.base.errors import InputError, NotBuilt
from hetero_tf.cli.commands import OF_RECIPES
from hetero_tf.cli.open_run import check_level, data_needed, open_described, open_run, statistics_of

if TYPE_CHECKING:
    from absl.flags import FlagValues

    from hetero_tf.recipe.schema import Recipe

USAGE, SUMMARY = "export --run_dir DIR", "writes a SavedModel that needs no hetero_tf"
FLAGS = ("run_dir", "state", "level", "out", "format", "export_version", *OF_RECIPES)
WORDS, SOURCE = None, "run_dir"


def run(recipe: "Recipe", flags: "FlagValues", console: Console) -> dict:
    """Writes the versions and says what each of them reached on the test set."""
    from hetero_tf import export as exports
    from hetero_tf.base.console import figures
    from hetero_tf.export import formats
    from hetero_tf.store.run_folder import RunFolder
    from hetero_tf.store.versions import check_place

    if flags.level != "all":
        check_level(recipe, flags, "all")
    names = recipe.levels.names if flags.level == "all" else (exports.check_level(recipe.levels, flags.level),)
    folder = Path(flags.out or RunFolder(flags.run_dir).export)
    if printable(str(folder)) != str(folder):
        raise InputError(f"--out must name a folder in plain UTF-8, as TensorFlow writes into it. Received: {folder}")
    for level in names:
        check_place(folder / level, flags.export_version)
    others = list(dict.fromkeys(name for name in flags.format if name != "savedmodel"))
    for name in others:
        formats.find(name)
    process, found = _open(recipe, flags, names, console)
    state, written = found.state, []
    for level in names:
        info, statistics = {"state": flags.state}, statistics_of(process, found, level)
        # What the run has measured besides is of the global model alone.
        if level == recipe.levels.global_level:
            info |= {name: found.sealed.info[name] for name in ("last", "best")}
        where, about = exports.export(process, state, statistics, folder, info, level, flags.export_version, others)
        measured = {name: value for name, value in about["measured"].items() if name != "on"}
        quality = f"{figures(measured)} on the test set" if measured else "not measured"
        console.say(f"exported round {state.round} to {where}: the model of level {level}, {quality}")
        for name, told in about["formats"].items():
            reached = {metric: told["measured"][metric] for metric in measured}
            console.say(f"      {told['file']} ({name}, {told['bytes']:,} bytes): {figures(reached)}")
            if "warning" in told:
                console.say(f"warning: {told['warning']}")
        written.append({"export": str(where), "level": level, **measured, "formats": about["formats"]})
    return {"round": state.round, "state": flags.state, "exports": written}


def _open(recipe, flags, levels, console):
    """The process and the state of a run folder; without the data where they are missing, which is said."""
    try:
        return open_run(recipe, flags, console)
    except NotBuilt as problem:
        described = open_described(recipe, flags, levels, console)
        if isinstance(described, str):
            raise data_needed(problem, described) from problem
        reason = str(problem).partition("\n")[0]
        console.say(f"note: exported without the data, so the files are not measured: {reason}")
        return described
