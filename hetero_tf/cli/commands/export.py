"""`export`: writes a state of a run as SavedModels, for one level or all levels of the mix."""

from pathlib import Path

from absl.flags import FlagValues

from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError, NotBuilt
from hetero_tf.base.escaping import escape_line
from hetero_tf.cli.commands import RECIPE_FLAGS
from hetero_tf.cli.open_run import check_level, data_required_error, level_statistics, open_run, open_without_data
from hetero_tf.recipe.schema import Recipe

USAGE, SUMMARY = "export --run_dir DIR", "writes a SavedModel that runs without hetero_tf"
FLAGS = ("run_dir", "state", "level", "out", "format", "export_version", *RECIPE_FLAGS)
WORDS, SOURCE = None, "run_dir"


def run(recipe: Recipe, flags: FlagValues, console: Console) -> dict:
    """Write the versions and print the test metrics of each."""
    from hetero_tf import export as exports
    from hetero_tf.base.console import format_metrics
    from hetero_tf.export import formats
    from hetero_tf.runs.run_folder import RunFolder
    from hetero_tf.runs.versions import check_version_folder

    if flags.level != "all":
        check_level(recipe, flags, "all")
    names = recipe.levels.names if flags.level == "all" else (recipe.levels.resolve(flags.level),)
    folder = Path(flags.out or RunFolder(flags.run_dir).export)
    if escape_line(str(folder)) != str(folder):
        raise InputError(f"--out must be a printable UTF-8 path, because TensorFlow writes into it. Received: {folder}")
    for level in names:
        check_version_folder(folder / level, flags.export_version)
    extra_formats = list(dict.fromkeys(name for name in flags.format if name != "savedmodel"))
    for name in extra_formats:
        formats.find(name)
    process, loaded = _open(recipe, flags, names, console)
    state, written = loaded.state, []
    for level in names:
        info, statistics = {"state": flags.state}, level_statistics(process, loaded, level)
        # The metrics of the run belong to the global model.
        if level == recipe.levels.global_level:
            info |= {name: loaded.checkpoint.info[name] for name in ("last", "best")}
        path, export_info = exports.export(
            process, state, statistics, folder, info, level, flags.export_version, extra_formats
        )
        test_metrics = {name: value for name, value in export_info["measured"].items() if name != "on"}
        measured = f"{format_metrics(test_metrics)} on the test set" if test_metrics else "not measured"
        console.say(f"exported round {state.round} to {path}: the model of level {level}, {measured}")
        for name, file_info in export_info["formats"].items():
            file_metrics = {metric: file_info["measured"][metric] for metric in test_metrics}
            console.say(
                f"      {file_info['file']} ({name}, {file_info['bytes']:,} bytes): {format_metrics(file_metrics)}"
            )
            if "warning" in file_info:
                console.say(f"warning: {file_info['warning']}")
        written.append({"export": str(path), "level": level, **test_metrics, "formats": export_info["formats"]})
    return {"round": state.round, "state": flags.state, "exports": written}


def _open(recipe, flags, levels, console):
    """Return the process and state of a run folder, without data if they are missing, which is reported."""
    try:
        return open_run(recipe, flags, console)
    except NotBuilt as problem:
        opened = open_without_data(recipe, flags, levels, console)
        if isinstance(opened, str):
            raise data_required_error(problem, opened) from problem
        reason = str(problem).partition("\n")[0]
        console.say(f"note: exported without data, so the files are not evaluated: {reason}")
        return opened
