"""`predict`: predicts pictures, clips, table rows and texts, single ones or whole files, with the model of a level."""

import dataclasses
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from absl.flags import FlagValues

from hetero_tf.base import hardware
from hetero_tf.base.console import Console, ProgressDisplay
from hetero_tf.base.errors import InputError, InvalidItems
from hetero_tf.base.escaping import escape_line
from hetero_tf.cli.commands import RECIPE_FLAGS
from hetero_tf.cli.open_run import check_level, level_statistics, open_with_data, open_without_data
from hetero_tf.recipe.schema import Recipe

if TYPE_CHECKING:
    from hetero_tf.export.predictions import Prediction, Predictor

USAGE, SUMMARY = "predict --run_dir DIR X", "predicts pictures, table rows or sentences, also whole files"
FLAGS = ("run_dir", "export_dir", "state", "level", "input", "out", "top", "maps", "copy_columns", *RECIPE_FLAGS)
WORDS, SOURCE = "input", "run_dir"


def run(recipe: Recipe | None, flags: FlagValues, console: Console) -> dict:
    """Write the predictions to --out, or print a line for each item.

    Raises:
        InvalidItems: Some items cannot be read; the others are predicted.
    """
    from hetero_tf.export import prediction_files
    from hetero_tf.export.prediction_files import MapFolder
    from hetero_tf.export.predictions import predict

    if not flags.input:
        raise InputError(
            "predict needs a file, a folder of pictures or WAV files, a row such as 5.1,red, or a sentence"
        )
    if flags.out:
        prediction_files.check_output(Path(flags.out), flags.input)
    predictor, result = _open_export(flags) if recipe is None else _open_run(recipe, flags, console)
    # Only predictions go to standard output, so that it can be redirected to a file.
    notes = console if flags.out else Console(sys.stderr, quiet=flags.quiet)
    tally = _Tally()
    predictions = tally.count(predict(predictor, flags.input, flags.top, notes.say))
    if flags.maps:
        predictions = MapFolder(Path(flags.maps), predictor.form).write_maps(predictions)
    rows = (prediction.to_row(flags.copy_columns) for prediction in predictions)
    if flags.out:
        with ProgressDisplay(console) as display:
            tally.display = display
            prediction_files.write(Path(flags.out), rows)
        console.say(f"wrote {tally.items:,} predictions to {flags.out}")
    elif flags.json:
        result["predictions"] = list(rows)
    else:
        _print(predictions, predictor.form, notes, flags.quiet)
    if tally.labelled:
        notes.say(f"accuracy {tally.accuracy:.4g} on {tally.labelled:,} labelled items")
    result |= tally.result
    if tally.invalid:
        advice = "; see the column error" if flags.out else ""
        raise InvalidItems(f"{tally.invalid:,} of {tally.items:,} items could not be read{advice}", result)
    return result


def _print(predictions, form, notes, quiet):
    """Print a line for each prediction, and report the items that cannot be read."""
    from hetero_tf.export.prediction_fields import format_fields

    for prediction in predictions:
        if prediction.error:
            notes.say(f"{prediction.item.source}: {prediction.error}")
        elif not quiet:
            # A full disk or a closed pipe ends the command.
            text = f"{prediction.item.source}: {format_fields(form, prediction.fields)}"
            print(escape_line(text), flush=True)


def _open_run(recipe, flags, console) -> "tuple[Predictor, dict]":
    """Return the predictor of a level of a run folder, and the facts on it for --json."""
    from hetero_tf.export.predictions import predictor_of_process

    check_level(recipe, flags)
    level = recipe.levels.resolve(flags.level)
    opened = open_without_data(recipe, flags, (level,), console)
    process, loaded = open_with_data(recipe, flags, console, opened) if isinstance(opened, str) else opened
    if process.dataset.stand_in_for is not None:
        console.say(f"*** NOT THE REAL DATA: {process.dataset.source} ***")
    model = process.network(loaded.state, level, level_statistics(process, loaded, level))
    facts = {"round": loaded.state.round, "state": flags.state, "level": level}
    return predictor_of_process(process, model), facts


def _open_export(flags) -> "tuple[Predictor, dict]":
    """Return the predictor of an exported level, and the facts on it for --json."""
    from hetero_tf.export.predictions import predictor_of_export
    from hetero_tf.runs.versions import newest_version

    if flags.run_dir:
        raise InputError("--run_dir and --export_dir name two models; leave one of them out")
    hardware.configure_threads(flags.threads)
    folder = newest_version(Path(flags.export_dir), flags.level)
    return predictor_of_export(folder), {"export": str(folder)}


@dataclasses.dataclass
class _Tally:
    """Counts of predictions: all items, invalid ones, those with a label, and correct ones."""

    items: int = 0
    invalid: int = 0
    labelled: int = 0
    correct: int = 0
    display: ProgressDisplay | None = None

    def count(self, predictions: Iterable["Prediction"]) -> Iterator["Prediction"]:
        """Yield the predictions, counted and shown as progress."""
        for prediction in predictions:
            self.items += 1
            self.invalid += prediction.error is not None
            if prediction.is_correct is not None:
                self.labelled += 1
                self.correct += prediction.is_correct
            if self.display is not None:
                self.display.update(f"predicted {self.items:,} items")
            yield prediction

    @property
    def accuracy(self) -> float:
        """Percentage of the labelled items."""
        return 100 * self.correct / self.labelled

    @property
    def result(self) -> dict:
        """The counts for --json."""
        accuracy = {"accuracy": self.accuracy, "labelled": self.labelled} if self.labelled else {}
        return {"items": self.items, "invalid": self.invalid, **accuracy}
