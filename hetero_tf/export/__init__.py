"""Exports a trained model as a SavedModel that TensorFlow loads without this package.

FOLDER/<level>/<version>/
  saved_model.pb, variables/, assets/   the SavedModel, in the layout of model servers
  batching_params.pbtxt                 the batch size for TensorFlow Serving
  assets.extra/labels.txt               the class names, one per line, if the data set has them
  model.onnx, model.tflite, ...         the same model for other runtimes, if requested
  export.json                           description of the model, its metrics, SHA-256 of every file
  MODEL_CARD.md                         the same as a readable text, and how to call the model
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import files, registry, typed_json
from hetero_tf.base.errors import DiskProblem, InputError, shorten_repr
from hetero_tf.base.version import __version__
from hetero_tf.data.described import DescribedDataset
from hetero_tf.data.targets import POSITIONS
from hetero_tf.export import formats, saved_model
from hetero_tf.export.card import CARD, model_card
from hetero_tf.export.formats import ConversionSource
from hetero_tf.export.positions import MaskedTextTask, NextWordTask
from hetero_tf.export.task import ExportTask
from hetero_tf.models.custom_model import merge_adapters
from hetero_tf.models.state import State
from hetero_tf.models.variables import constants, queried
from hetero_tf.run.learning_process import LearningProcess
from hetero_tf.runs.history import keys_of_recipe, method_name, method_parts
from hetero_tf.runs.versions import EXPORTED, check_version_folder, create_draft, publish

LABELS = Path("assets.extra", "labels.txt")
# Files of an export that Git should not compare as texts.
LARGE_FILES = ("*.keras", "*.onnx", "*.pb", "*.tflite", "variables/*")
# Difference of logits, as a share of the largest one if that is above 1; another order of summation differs by less.
TOLERANCE = 1e-4
# Limits of compared test examples and of their logit values, which take 64 MiB.
MAX_COMPARED, MAX_LOGITS = 10_000, 2**24
# An inexact format may differ by this share of the largest logit, and lose this many percent points of accuracy or
# this share of the perplexity, before an export warns.
MAX_INEXACT_DIFFERENCE, MAX_LOST_ACCURACY, MAX_PERPLEXITY_RISE = 0.1, 1.0, 0.02


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
    """Write a version of a level atomically, and measure the written files on the test set.

    Args:
        process: `process.LearningProcess`.
        state: `process.State`, the weights.
        statistics: Static batch normalisation statistics of that level, `{path: value}`, see `process.statistics`.
        folder: Folder of all levels; it and its parents are created.
        info: Plain dict for `export.json` with information on the state, such as "state", "last" and "best".
        level: Name of a level that is not wider than the global model; None for the global model.
        version: Number of the version; None for the next one.
        others: Names of `formats` to write in addition to the SavedModel.

    Returns:
        Path of the version, and the contents of its `export.json`.

    Raises:
        InputError: A path is occupied, the level or statistics are wrong, a format lacks a package or an input, a word
            cannot be in a vocabulary, or the outputs of a written model differ from those of the Keras model.
        DiskProblem: The operating system reported an error; existing versions are unchanged.
    """
    level = process.recipe.levels.resolve(level)
    folder = Path(folder) / level
    for variable in queried(process.family.predictor(level)):
        if variable.path not in statistics:
            reason = f"`statistics` must be those of `process.statistics(state, {level!r})`"
            raise InputError(f"{reason}. Received: none of {variable.path}")
    check_version_folder(folder, version)
    modules = [formats.find(name) for name in others]
    model = process.network(state, level, statistics)
    if not any(getattr(module, "TRAINS", False) for module in modules):
        merge_adapters(model)
    task = task_of(process, model)
    with create_draft(folder) as draft:
        about = {**_describe(task, state, level), **_write_model(task, level, draft, folder, others), **info}
        signatures = about["signatures"]
        card = model_card(about, task.notes(signatures))
        about = _write_about(draft, about, card)
        return publish(draft, version), about


def check_repository(folder: Path) -> None:
    """Refuse a folder that holds other things than a model repository, see `write_repository`.

    Raises:
        InputError: Names one of them.
    """
    files.check_write_target(folder, folder=True)
    others = sorted(path.name for path in folder.glob("*") if path.name not in (".git", ".gitattributes", "README.md"))
    if others and EXPORTED not in others:
        raise InputError(f"{folder}: holds other things ({others[0]}); name a new folder, or one that --push wrote")


def write_repository(version: Path, folder: Path) -> None:
    """Copy a version into the folder of a model repository, as Hugging Face reads it.

    The card is its README.md, and Git LFS stores its binary files. `hetero_tf.load_model` reads the folder if the
    version has the format keras.

    Raises:
        DiskProblem: The operating system reported an error.
    """
    with files.disk_errors(folder, "write"):
        shutil.copytree(version, folder, dirs_exist_ok=True)
        shutil.copyfile(folder / CARD, folder / "README.md")
        lines = [f"{pattern} filter=lfs diff=lfs merge=lfs -text\n" for pattern in LARGE_FILES]
        (folder / ".gitattributes").write_text("".join(lines))


def task_of(process: LearningProcess, model: keras.Model) -> ExportTask:
    """Return the export task of a model."""
    source = registry.find("inputs", process.recipe.input.name)
    if process.dataset.targets != POSITIONS:
        return ExportTask(process, model)
    is_next_word = getattr(source, "TASK", None) == NextWordTask.KIND
    return (NextWordTask if is_next_word else MaskedTextTask)(process, model)


def _write_model(task, level, draft, folder, others):
    """Write the SavedModel and other formats into a draft; return their entries in `export.json`."""
    # The SavedModel copies the vocabulary, so its source file can be deleted.
    with tempfile.TemporaryDirectory(dir=draft) as scratch:
        endpoints, tables = task.endpoints(Path(scratch))
        signatures = saved_model.write(draft, task.model, endpoints, tables)
    # The rows of other requests may have different lengths.
    if task.max_batch_size is not None:
        saved_model.write_batching(draft, task.max_batch_size)
    if task.process.dataset.class_names is not None:
        # One name per line, in a path that mobile tools read.
        (draft / LABELS.parent).mkdir()
        files.write_new(draft / LABELS, "".join(f"{name}\n" for name in task.process.dataset.class_names).encode())
    predict = saved_model.load_runtime(draft, task.checked_signature)
    reference, digest = reference_logits(task), _weights_sha256(task.model)
    entry = compare(task, reference, predict, task.checked_signature, str(folder))
    function, portable_specs = endpoints[task.portable_signature]
    source = ConversionSource(draft, task, function, portable_specs, level, digest)
    return {
        "signatures": signatures,
        "input": task.input_spec,
        "limits": task.limits,
        **entry,
        "weights_sha256": digest,
        "formats": {name: _write_format(name, source, reference, entry["measured"]) for name in others},
    }


def reference_logits(task: ExportTask) -> list[np.ndarray]:
    """Return the logits of the Keras model for the test examples that exports are compared on, in batches.

    Returns:
        Arrays [n, ..., classes] of the whole test set, up to `MAX_COMPARED` examples and `MAX_LOGITS` values.
    """
    test = task.process.dataset.test.x

    def logits(examples):
        return np.asarray(task.model(task.model_inputs(examples), training=False))

    count = min(len(test), MAX_COMPARED, max(MAX_LOGITS // logits(test[:1]).size, 1))
    starts = range(0, count, task.CHECKED_EXAMPLES)
    return [logits(test[start : min(start + task.CHECKED_EXAMPLES, count)]) for start in starts]


def compare(
    task: ExportTask,
    reference: list[np.ndarray],
    predict: Callable,
    signature: str,
    name: str,
    subject: str = "these files",
    exact: bool = True,
) -> dict:
    """Compare an exported model with the trained one by requests as a server sends them, and measure it.

    Args:
        predict: `(**inputs) -> outputs` of a signature of the exported model.
        subject: The exported model in `export.json`.
        exact: Whether a large difference is an error; NaN always is.

    Returns:
        Entries of `export.json`; the difference is a share of the largest logit if that is above 1.
    """
    test, start, differences = task.process.dataset.test.x, 0, []
    for logits in reference:
        request = task.request(test[start : start + len(logits)], signature)
        differences.append(np.max(np.abs(task.outputs_of(predict(**request)) - logits)))
        start += len(logits)
    # A NaN passes through NumPy's maximum.
    difference = float(np.max(differences) / max(1.0, *(np.max(np.abs(logits)) for logits in reference)))
    if not difference <= (TOLERANCE if exact else np.inf):
        raise InputError(
            f"{name}: outputs differ from those of the trained model, so the export was removed; the difference of "
            f"logits must be at most {TOLERANCE:g} of the largest one. Received: {difference:.2g}"
        )
    measured: dict[str, Any] = {"on": "nothing, since the data were missing at the export"}
    if not isinstance(task.process.dataset, DescribedDataset):
        measured = {**task.measure(predict, signature), "on": f"the whole test set, by {subject}"}
    return {"measured": measured, "largest_difference_of_logits": difference, "compared_test_examples": start}


def _write_format(name, source, reference, float_metrics):
    """Write the file of another format, compare and measure it, and return its entry in `export.json`."""
    module = formats.find(name)
    path, signature = source.saved_model / module.FILE, source.task.portable_signature
    try:
        with formats.quiet():
            details = module.convert(source, path)
            predict = module.load_runtime(path)
            # LiteRT prints the name of its delegate at the first call.
            predict(**next(source.examples()))
    except (InputError, DiskProblem):
        raise
    # Converters raise many types of errors for unsupported operations.
    except Exception as problem:
        raise InputError(f"--format {name}: the model cannot be converted: {shorten_repr(problem)}") from problem
    entry = {
        "file": module.FILE,
        "signature": signature,
        "bytes": path.stat().st_size,
        **compare(source.task, reference, predict, signature, str(path), "this file", module.EXACT),
        **details,
    }
    warning = None if module.EXACT else warning_of(entry, float_metrics)
    return entry if warning is None else {**entry, "warning": warning}


def _weights_sha256(model):
    """Return the SHA-256 of paths, types, shapes and bytes of a model's variables, sorted by path."""
    digest = hashlib.sha256()
    for variable in sorted(model.variables, key=lambda variable: variable.path):
        value = np.ascontiguousarray(variable)
        digest.update(f"{variable.path} {value.dtype.str} {value.shape}\n".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


def _describe(task, state, level):
    recipe, dataset, model = task.process.recipe, task.process.dataset, task.model
    missing, keys, optimizer = dataset.stand_in_for, keys_of_recipe(recipe), recipe.optimizer
    warning = {} if missing is None else {"warning": f"NOT THE REAL DATA: trained on a stand-in for {missing}"}
    return {
        **warning,
        "recipe": recipe.name,
        "task": recipe.task.name,
        "method_name": method_name(keys),
        "method": {part: name for part, name in method_parts(keys).items() if name is not None},
        # The main hyperparameters, for readers.
        "training": {
            "clients": f"{len(task.process.partition.label_mask)}, {recipe.round.clients} in each round",
            "level mix": ", ".join(f"{name} {share:g}" for name, share in recipe.levels.mix.items()),
            "rounds": recipe.rounds,
            "local training": f"{recipe.client.epochs} epochs, batches of {recipe.client.batch_size}",
            "optimizer": f"{optimizer.method.name}, learning rate {optimizer.learning_rate:g}",
            "seed": recipe.seed,
        },
        "level": level,
        "width": recipe.levels.widths[level],
        "round": state.round,
        "parameters": int(sum(np.prod(v.shape) for v in (*model.trainable_variables, *constants(model)))),
        "data": {"name": dataset.name, "sha256": dataset.sha256, "stand_in_for": missing},
        "test_examples": None if isinstance(dataset, DescribedDataset) else len(dataset.test.x),
        "classes": dataset.classes,
        "class_names": dataset.class_names and list(dataset.class_names),
        "versions": {"hetero_tf": __version__, "tensorflow": tf.__version__, "keras": keras.__version__},
    }


def _write_about(draft, about, card):
    """Write MODEL_CARD.md, then export.json with the digests of all files; return the contents of export.json."""
    files.write_new(draft / CARD, card.encode())
    digests, size = {}, 0
    for path in sorted(path for path in draft.rglob("*") if path.is_file()):
        with files.open_file(path) as file:
            digests[path.relative_to(draft).as_posix()] = files.sha256_of(file)
            size += file.tell()
            # TensorFlow does not sync its files, and the rename must not reach the disk before the contents.
            os.fsync(file.fileno())
    for path in sorted((path for path in draft.rglob("*") if path.is_dir()), reverse=True):
        files.sync_folder(path)
    about = typed_json.finite({**about, "bytes": size, "files": digests})
    files.write_new(draft / EXPORTED, json.dumps(about, indent=2, ensure_ascii=False, allow_nan=False).encode())
    files.sync_folder(draft)
    return about


def warning_of(entry: dict, float_metrics: dict) -> str | None:
    """Return the warning about an inexact format; None if it is smaller and about as good as its float version.

    Args:
        entry: Entry of the format in `export.json`; "float_bytes" is the size of the same file in 32-bit floats.
        float_metrics: Metrics of the SavedModel, as `ExportTask.measure` returns them.
    """
    size, float_size, metrics = entry["bytes"], entry["float_bytes"], entry["measured"]
    difference, problems = entry["largest_difference_of_logits"], []
    if size >= float_size:
        problems.append(f"it has {size:,} bytes, the float file {float_size:,}")
    if "accuracy" in metrics and metrics["accuracy"] < float_metrics["accuracy"] - MAX_LOST_ACCURACY:
        problems.append(f"its accuracy is {metrics['accuracy']:.2f} %, in floats {float_metrics['accuracy']:.2f} %")
    if "perplexity" in metrics and metrics["perplexity"] > float_metrics["perplexity"] * (1 + MAX_PERPLEXITY_RISE):
        problems.append(f"its perplexity is {metrics['perplexity']:.4g}, in floats {float_metrics['perplexity']:.4g}")
    if difference > MAX_INEXACT_DIFFERENCE:
        problems.append(
            f"its logits differ by {difference:.2g} of the largest one, more than {MAX_INEXACT_DIFFERENCE:g}"
        )
    return f"{entry['file']}: {'; '.join(problems)}; prefer the format litert" if problems else None
