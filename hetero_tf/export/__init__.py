"""A trained model as a SavedModel that any TensorFlow loads, without this package.

FOLDER/<level>/<version>/
  saved_model.pb, variables/, assets/   the SavedModel, as model servers look for it
  assets.extra/, batching_params.pbtxt  requests that warm a server up, and how many it may answer at once
  assets.extra/labels.txt               the class names, a line each, where the data set has them
  model.onnx, model.tflite, ...         the same model for other runtimes, where asked for
  export.json                           what the model is, how good it is, sha256 of every file
  MODEL_CARD.md                         the same for a person, and how to call it
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Collection
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import files
from hetero_tf.base.errors import DiskProblem, InputError, did_you_mean, short
from hetero_tf.data.described import DescribedDataset
from hetero_tf.evaluation import calibration
from hetero_tf.export import formats, saved_model, warmup
from hetero_tf.export.card import CARD, model_card
from hetero_tf.export.formats import Converted
from hetero_tf.export.kinds import kind_of
from hetero_tf.export.measured import check_answers, examples, measure, reference_logits, warning_of
from hetero_tf.models.state import State
from hetero_tf.process.learning_process import LearningProcess
from hetero_tf.recipe.schema import Levels
from hetero_tf.store import plain_json
from hetero_tf.store.versions import EXPORTED, check_place, drafted, publish
from hetero_tf.version import __version__

LABELS = Path("assets.extra", "labels.txt")


def export(
    process: LearningProcess,
    state: State,
    statistics: dict,
    folder: Path,
    info: dict,
    level: str | None = None,
    version: int | None = None,
    others: Collection[str] = (),
) -> tuple[Path, dict]:
    """Writes a version of a level, whole or not at all, and measures what was written on the test set.

    Args:
        process: `process.LearningProcess`.
        state: `process.State`, the weights.
        statistics: Of static batch normalisation at that level, `{path: value}`, as `process.statistics` gives them.
        folder: Folder of all levels; it and its parents are made.
        info: Plain dict for `export.json`: what the run knows of the state, such as "state", "last" and "best".
        level: Name of a level that is not wider than the global model; None for the global model.
        version: Number of the version; None: the next one.
        others: Names of `formats` that are written beside the SavedModel.

    Returns:
        Path of the version, and what `export.json` says of it.

    Raises:
        InputError: Something stands in the way, the level or statistics are wrong, a format lacks what it needs, a word
            cannot be in a vocabulary, or a written model answers other than the one that it was made of.
        DiskProblem: The operating system refused; what was exported before is untouched.
    """
    level = check_level(process.recipe.levels, level)
    folder = Path(folder) / level
    _check_statistics(process, level, statistics)
    check_place(folder, version)
    for name in others:
        formats.find(name)
    model = process.network(state, level, statistics)
    with drafted(folder) as draft:
        kind = kind_of(process)
        endpoints, signatures = _write_model(process, kind, model, draft)
        warmup.write(draft, signatures, kind.most_at_once(model))
        _write_labels(draft, process.dataset.class_names)
        ask = saved_model.answering(draft)
        reference = reference_logits(process, model)
        gap = check_answers(process, reference, ask, str(folder))
        measured = _measured(process, ask, "these files")
        function, specs = endpoints[kind.PORTABLE]
        digest = _weights_sha256(model)
        part = Converted(
            draft, kind.PORTABLE, function, specs, process, level, model, digest, lambda: examples(process)
        )
        converted = {name: _write_format(name, part, reference, measured) for name in others}
        about = {
            **_about(process, state, level, model),
            "signatures": signatures,
            "input": kind.input_spec(process),
            "limits": kind.limits(process, model),
            "measured": measured,
            "largest_difference_of_logits": gap,
            "compared_test_examples": sum(map(len, reference)),
            "weights_sha256": digest,
            "formats": converted,
            **info,
        }
        card = model_card(about, kind.calls(process, signatures), kind.notes(process, signatures))
        about = _write_about(draft, about, card)
        return publish(draft, version), about


def check_level(levels: Levels, level: str | None) -> str:
    """Returns the name of the level to export; None stands for the global model's.

    Raises:
        InputError: There is no such level, or it is wider than the global model.
    """
    level = levels.global_level if level is None else level
    if level not in levels.widths:
        raise InputError(
            f"`level` must be one of the recipe's levels. Received: level={level!r}{did_you_mean(level, levels.widths)}"
        )
    if levels.widths[level] > levels.widths[levels.global_level]:
        raise InputError(
            f"`level` must not be wider than the global model, level {levels.global_level!r}. Received: level={level!r}"
        )
    return level


def _check_statistics(process, level, statistics):
    """Refuses statistics that are missing or another level's."""
    model = process.family.predictor(level)
    paths = calibration.statistics_paths(model)
    for variable in model.non_trainable_variables:
        if variable.path in paths and not np.isfinite(statistics.get(variable.path, 0)).all():
            raise InputError(f"`statistics` must be finite. Received: NaN or infinite values in {variable.path}")
        found = np.shape(statistics[variable.path]) if variable.path in statistics else "nothing"
        if variable.path in paths and found != tuple(variable.shape):
            raise InputError(
                f"`statistics` must be those of static batch normalisation at level {level!r}, as "
                f"`process.statistics(state, {level!r})` gives them: {variable.path} has shape "
                f"{tuple(variable.shape)}. Received: {found}"
            )


def _write_format(name, part, reference, float_metrics):
    """Writes the file of another format beside the SavedModel, asks it, and returns what to say of it."""
    kind = formats.find(name)
    path = part.saved_model / kind.FILE
    try:
        with formats.quiet():
            more = kind.convert(part, path)
            ask = kind.answering(path)
            # Its first call makes LiteRT print which delegate it uses.
            ask(**next(part.examples()))
    except (InputError, DiskProblem):
        raise
    # A converter refuses what it does not know in its own way.
    except Exception as problem:
        raise InputError(f"--format {name}: the model cannot be converted: {short(problem)}") from problem
    gap = check_answers(part.process, reference, ask, str(path), exact=kind.EXACT)
    entry = {
        "file": kind.FILE,
        "signature": part.signature,
        "bytes": path.stat().st_size,
        "measured": _measured(part.process, ask, "this file"),
        "largest_difference_of_logits": gap,
        "compared_test_examples": sum(map(len, reference)),
        **more,
    }
    warning = None if kind.EXACT else warning_of(entry, float_metrics)
    return entry if warning is None else {**entry, "warning": warning}


def _weights_sha256(model):
    """The digest of the paths, types, shapes and bytes of a model's variables, in the order of their paths."""
    digest = hashlib.sha256()
    for variable in sorted(model.variables, key=lambda variable: variable.path):
        value = np.ascontiguousarray(variable)
        digest.update(f"{variable.path} {value.dtype.str} {value.shape}\n".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


def _measured(process, ask, by):
    """Metrics on the test set, and by which files, for `export.json`."""
    if isinstance(process.dataset, DescribedDataset):
        return {"on": "nothing, since the data were missing at the export"}
    return {**measure(process, ask), "on": f"the whole test set, by {by}"}


def _write_model(process, kind, model, folder):
    """Writes the SavedModel; returns its endpoints, and its signatures as `saved_model.write` tells them."""
    # The SavedModel copies the vocabulary, so the file that it comes from may go.
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        endpoints, tables = kind.endpoints(process, model, Path(scratch))
        return endpoints, saved_model.write(folder, model, endpoints, tables)


def _write_labels(draft, names):
    """The names of the labels, a line each, where mobile and other programs look for such a list."""
    if names is not None:
        files.write_new(draft / LABELS, "".join(f"{name}\n" for name in names).encode())


def _about(process, state, level, model):
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
        "parameters": int(sum(np.prod(variable.shape) for variable in model.trainable_variables)),
        "data": {"name": dataset.name, "sha256": dataset.sha256, "stand_in_for": missing},
        "classes": dataset.classes,
        "class_names": dataset.class_names and list(dataset.class_names),
        "versions": {"hetero_tf": __version__, "tensorflow": tf.__version__, "keras": keras.__version__},
    }


def _write_about(draft, about, card):
    """MODEL_CARD.md and export.json, the latter last, as it vouches for all other files; returns what it holds."""
    files.write_new(draft / CARD, card.encode())
    digests, size = {}, 0
    for path in sorted(path for path in draft.rglob("*") if path.is_file()):
        with files.opened(path) as file:
            digests[path.relative_to(draft).as_posix()] = files.sha256_of(file)
            size += file.tell()
            # TensorFlow does not wait for the disk, but the rename must not come before the contents.
            os.fsync(file.fileno())
    for path in sorted((path for path in draft.rglob("*") if path.is_dir()), reverse=True):
        files.sync_folder(path)
    about = plain_json.finite({**about, "bytes": size, "files": digests})
    files.write_new(draft / EXPORTED, json.dumps(about, indent=2, ensure_ascii=False, allow_nan=False).encode())
    files.sync_folder(draft)
    return about
