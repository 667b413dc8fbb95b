"""Commands that use trained models: `export`, `predict` and `serve`."""

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from absl.flags import FlagValues

from hetero_tf.base import hardware
from hetero_tf.base.console import Console, ProgressDisplay, format_metrics
from hetero_tf.base.errors import InputError, InvalidItems
from hetero_tf.base.formatting import escape_line, quote_shell
from hetero_tf.cli.flags import program_name
from hetero_tf.cli.open_run import check_level, level_statistics, open_levels
from hetero_tf.data.targets import find
from hetero_tf.recipe.schema import Recipe
from hetero_tf.runs.run_folder import RunFolder
from hetero_tf.runs.versions import check_version_folder

if TYPE_CHECKING:
    from hetero_tf.export.predictions import Predictor


def export_run(recipe: Recipe, flags: FlagValues, console: Console) -> dict:
    """Write the versions and print the test metrics of each."""
    from hetero_tf import export as exports
    from hetero_tf.export import formats

    if flags.level != "all":
        check_level(recipe, flags, "all")
    names = recipe.levels.names if flags.level == "all" else (recipe.levels.resolve(flags.level),)
    folder = Path(flags.out or RunFolder(flags.run_dir).export)
    if flags.push and len(names) > 1:
        raise InputError("--push writes the model of one level; choose it by --level")
    if flags.push:
        exports.check_repository(Path(flags.push))
    if escape_line(str(folder)) != str(folder):
        raise InputError(f"--out must be a printable UTF-8 path, because TensorFlow writes into it. Received: {folder}")
    for level in names:
        check_version_folder(folder / level, flags.export_version)
    # `hetero_tf.load_model` reads the file of Keras.
    wanted = [*flags.format, *(["keras"] if flags.push else [])]
    extra_formats = list(dict.fromkeys(name for name in wanted if name != "savedmodel"))
    for name in extra_formats:
        formats.find(name)
    process, loaded = open_levels(recipe, flags, names, console, reads_data=True)
    state, written = loaded.state, []
    for level in names:
        info, statistics = {"state": flags.state}, level_statistics(process, loaded, level)
        # The metrics of the run belong to the global model.
        if level == recipe.levels.global_level:
            info |= {name: loaded.checkpoint.info[name] for name in ("last", "best")}
        path, export_info = exports.export(
            process, state, statistics, folder, info, level, flags.export_version, extra_formats
        )
        test_metrics = _say_exported(path, export_info, console)
        if flags.push:
            exports.write_repository(path, Path(flags.push))
            console.say(f"wrote the model repository {flags.push}; hf upload NAME {flags.push} uploads it")
        written.append({"export": str(path), "level": level, **test_metrics, "formats": export_info["formats"]})
    return {"round": state.round, "state": flags.state, "exports": written}


def _say_exported(path, about, console):
    """Print a line for a version, and one for each of its other formats; return its metrics on the test set."""
    test_metrics = {name: value for name, value in about["measured"].items() if name != "on"}
    measured = f"{format_metrics(test_metrics)} on the test set" if test_metrics else "not measured"
    console.say(f"exported round {about['round']} to {path}: the model of level {about['level']}, {measured}")
    for name, entry in about["formats"].items():
        file_metrics = {metric: entry["measured"][metric] for metric in test_metrics}
        console.say(f"      {entry['file']} ({name}, {entry['bytes']:,} bytes): {format_metrics(file_metrics)}")
        if "warning" in entry:
            console.say(f"warning: {entry['warning']}")
    return test_metrics


def predict_items(recipe: Recipe, flags: FlagValues, console: Console) -> dict:
    """Write the predictions to --out, or print a line for each item.

    Raises:
        InvalidItems: Some items cannot be read; the others are predicted.
    """
    from hetero_tf.export.predictions import check_output, predict, write, write_maps

    if not flags.input:
        raise InputError(
            "predict needs a file, a folder of pictures or WAV files, a row such as 5.1,red, or a sentence"
        )
    if flags.out:
        check_output(Path(flags.out), flags.input)
    predictor, result = _open_run(recipe, flags, console)
    # Only predictions go to standard output, so that it can be redirected to a file.
    notes = console if flags.out else Console(sys.stderr, quiet=flags.quiet)
    counts = Counter[str]()
    predictions = _counted(predict(predictor, flags.input, flags.top, notes.say), counts)
    if flags.maps:
        predictions = write_maps(Path(flags.maps), predictor.form, predictions)
    rows = (prediction.to_row(flags.copy_columns) for prediction in predictions)
    if flags.out:
        with ProgressDisplay(console) as display:

            def shown():
                for row in rows:
                    display.update(f"predicted {counts['items']:,} items")
                    yield row

            write(Path(flags.out), shown())
        console.say(f"wrote {counts['items']:,} predictions to {flags.out}")
    elif flags.json:
        result["predictions"] = list(rows)
    else:
        _print(predictions, predictor.form, notes, flags.quiet)
    result |= {"items": counts["items"], "invalid": counts["invalid"]}
    if counts["invalid"]:
        advice = "; see the column error" if flags.out else ""
        raise InvalidItems(f"{counts['invalid']:,} of {counts['items']:,} items could not be read{advice}", result)
    return result


def _print(predictions, form, notes, quiet):
    for prediction in predictions:
        if prediction.error:
            notes.say(f"{prediction.source}: {prediction.error}")
        elif not quiet:
            # A full disk or a closed pipe ends the command.
            text = f"{prediction.source}: {find(form.targets).format(prediction.fields)}"
            print(escape_line(text), flush=True)


def _open_run(recipe, flags, console) -> "tuple[Predictor, dict]":
    from hetero_tf.export.predictions import predictor_of_process

    check_level(recipe, flags)
    level = recipe.levels.resolve(flags.level)
    process, loaded = open_levels(recipe, flags, (level,), console, reads_data=False)
    if process.dataset.stand_in_for is not None:
        console.say(f"*** NOT THE REAL DATA: {process.dataset.source} ***")
    model = process.network(loaded.state, level, level_statistics(process, loaded, level))
    facts = {"round": loaded.state.round, "state": flags.state, "level": level}
    return predictor_of_process(process, model), facts


def _counted(predictions, counts):
    """Yield the predictions; count all items and invalid ones."""
    for prediction in predictions:
        counts["items"] += 1
        counts["invalid"] += prediction.error is not None
        yield prediction


def serve_exports(flags: FlagValues, console: Console) -> dict:
    """Serve until a signal arrives."""
    from hetero_tf.export.serve import run as served

    if not (flags.run_dir or flags.out):
        raise InputError("--run_dir is missing; name a run with exports, or set --out to a folder of exports")
    hardware.configure_threads(flags.threads)
    folder = Path(flags.out or RunFolder(flags.run_dir).export)
    export_command = f"{program_name()} export --run_dir {quote_shell(flags.run_dir or 'RUN_DIR')}"
    hosts = tuple(flags.allow_host)
    options = served.ServerOptions(flags.host, flags.port, flags.threads, flags.versions, hosts, flags.batch)
    served.run(folder, options, console.say, export_command)
    return {}
