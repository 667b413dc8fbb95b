"""A trained model as a SavedModel that any TensorFlow loads, without this package.

FOLDER/
  1/            the SavedModel; model servers look for a folder with a number
  export.json   what the model is, where its data came from, sha256 of every file
  README.txt    how to call it
"""

import hashlib
import json
import os
import re
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from hetero_tf import __version__
from hetero_tf.base import files, folders
from hetero_tf.base.errors import BadInput, DiskProblem, did_you_mean
from hetero_tf.evaluation import calibration
from hetero_tf.export import images, text
from hetero_tf.export.limits import request_limits
from hetero_tf.process import LearningProcess
from hetero_tf.recipe.schema import Levels
from hetero_tf.rounds.state import State
from hetero_tf.store import plain_json
from hetero_tf.store.run_folder import EXPORTED, is_export

README, VERSION = "README.txt", "1"


def export(
    process: LearningProcess,
    state: State,
    statistics: dict,
    folder: Path,
    info: dict,
    level: str | None = None,
    overwrite: bool = False,
) -> Path:
    """Writes the export, whole or not at all.

    Args:
        process: `process.LearningProcess`.
        state: `process.State`, the weights.
        statistics: Of static batch normalisation at that level, `{path: value}`, as `process.statistics` gives them.
        folder: Folder to make; its parents are made too.
        info: Plain dict for `export.json`, such as the metrics of the state.
        level: Name of a level that is not wider than the global model; None for the global model.
        overwrite: Replace an earlier export. Any other folder or file is never replaced.

    Returns:
        Path of the folder.

    Raises:
        BadInput: Something stands in the way, the level or statistics are wrong, or a word cannot be in a vocabulary.
        DiskProblem: The operating system refused; an earlier export is untouched.
    """
    folder = Path(folder)
    level = check_level(process.recipe.levels, level)
    _check_statistics(process, level, statistics)
    prepare(folder, overwrite)
    model = process.model(state, level, statistics)
    with files.disk(folder.parent, "make the folder"):
        folder.parent.mkdir(parents=True, exist_ok=True)
    draft = files.draft_of(folder)
    try:
        with files.disk(folder, "make the folder"):
            draft.mkdir()
        signatures, readme = _write_model(process, model, draft / VERSION)
        limits = request_limits(process.dataset.kind, model, process.dataset.classes)
        about = {**_about(process, state, level), "signatures": signatures, "limits": limits, "metrics": info}
        _write_about(draft, about, readme)
        folders.replace(draft, folder, is_export)
    except BaseException:
        files.discard(draft)
        raise
    return folder


def check_level(levels: Levels, level: str | None) -> str:
    """Returns the name of the level to export; None stands for the global model's.

    Raises:
        BadInput: There is no such level, or it is wider than the global model.
    """
    level = levels.global_level if level is None else level
    if level not in levels.widths:
        raise BadInput(
            f"`level` must be one of the recipe's levels. Received: level={level!r}{did_you_mean(level, levels.widths)}"
        )
    if levels.widths[level] > levels.widths[levels.global_level]:
        raise BadInput(
            f"`level` must not be wider than the global model, level {levels.global_level!r}. Received: level={level!r}"
        )
    return level


def _check_statistics(process, level, statistics):
    """Refuses statistics that are missing or another level's."""
    model = process.family.predictor(level)
    paths = calibration.statistics_paths(model)
    for variable in model.non_trainable_variables:
        if variable.path in paths and not np.isfinite(statistics.get(variable.path, 0)).all():
            raise BadInput(f"`statistics` must be finite. Received: NaN or infinite values in {variable.path}")
        found = np.shape(statistics[variable.path]) if variable.path in statistics else "nothing"
        if variable.path in paths and found != tuple(variable.shape):
            raise BadInput(
                f"`statistics` must be those of static batch normalisation at level {level!r}, as "
                f"`process.statistics(state, {level!r})` gives them: {variable.path} has shape "
                f"{tuple(variable.shape)}. Received: {found}"
            )


def prepare(folder: Path, overwrite: bool = False) -> None:
    """Refuses to replace anything but an earlier export that may be replaced; ends what a killed export began.

    Args:
        folder: Where an export shall stand.
        overwrite: Replace an earlier export.

    Raises:
        BadInput: Something stands in the way, or the path is too long.
        DiskProblem: The operating system refused.
    """
    if folder.name in ("", ".."):
        raise BadInput(f"{folder}: must be a new folder with a name, such as {folder / 'export'}")
    folders.check_name(folder)
    folders.restore(folder, is_export)
    folders.sweep(folder.parent, _drafts_of(folder))
    if not os.path.lexists(folder) or (folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir())):
        return
    if not is_export(folder):
        raise BadInput(f"{folder}: stands in the way and is not an export; choose another folder")
    if not overwrite:
        raise BadInput(f"{folder}: holds an export already; add --overwrite to replace it, or choose another folder")
    folders.check_old(folder, is_export)


def _drafts_of(folder):
    """The names of the drafts that killed exports to a folder left."""
    named = files.draft_of(folder).name.removesuffix(str(os.getpid()))
    return re.compile(rf"{re.escape(named)}(?P<process>[0-9]+)")


def _write_model(process, model, folder):
    """Writes the SavedModel; returns `{signature: {"inputs": names, "outputs": names}}` and the text of README.txt."""
    archive = keras.export.ExportArchive()
    archive.track(model)
    kind = images if process.dataset.kind == "images" else text
    # The SavedModel copies the vocabulary, so the file that it comes from may go.
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        endpoints, made = kind.endpoints(process, model, archive, Path(scratch)), {}
        for name, (function, specs) in endpoints.items():
            made[name] = archive.add_endpoint(name, function, input_signature=specs)
        try:
            archive.write_out(str(folder), verbose=False)
        except (OSError, tf.errors.OpError) as error:
            raise DiskProblem(
                f"{folder}: could not write the SavedModel: {' '.join(str(error).split())[:200]}; "
                "check the disk and run the same command again"
            ) from error
    signatures = {
        name: {
            "inputs": [spec.name for spec in specs],
            "outputs": sorted(made[name].get_concrete_function().structured_outputs),
        }
        for name, (_, specs) in endpoints.items()
    }
    return signatures, kind.readme(process, signatures)


def _about(process, state, level):
    """What a stranger must know about the model, ready for JSON."""
    recipe, dataset = process.recipe, process.dataset
    missing = dataset.stand_in_for
    warning = {} if missing is None else {"warning": f"NOT THE REAL DATA: trained on a stand-in for {missing}"}
    return {
        **warning,
        "recipe": recipe.name,
        "level": level,
        "width": recipe.levels.widths[level],
        "round": state.round,
        "data": {"name": dataset.name, "sha256": dataset.sha256, "stand_in_for": missing},
        "classes": dataset.classes,
        "class_names": dataset.class_names and list(dataset.class_names),
        "versions": {"hetero_tf": __version__, "tensorflow": tf.__version__, "keras": keras.__version__},
    }


def _write_about(draft, about, readme):
    """README.txt and export.json, the latter last, as it vouches for all other files."""
    warning = f"{about['warning']}\n\n" if "warning" in about else ""
    files.write_new(draft / README, (warning + readme).encode())
    digests = {}
    for path in sorted(path for path in draft.rglob("*") if path.is_file()):
        with files.opened(path) as file:
            digests[path.relative_to(draft).as_posix()] = hashlib.sha256(file.read()).hexdigest()
            # TensorFlow does not wait for the disk, but the rename must not come before the contents.
            os.fsync(file.fileno())
    for path in sorted((path for path in draft.rglob("*") if path.is_dir()), reverse=True):
        files.sync_folder(path)
    about = plain_json.finite({**about, "files": digests})
    files.write_new(draft / EXPORTED, json.dumps(about, indent=2, ensure_ascii=False, allow_nan=False).encode())
    files.sync_folder(draft)
