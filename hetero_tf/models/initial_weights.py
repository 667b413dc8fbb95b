"""Initial weights by path: the starting values of a run, from a file of arrays or the folder of another run."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.base.npz_reader import array_names, read_arrays
from hetero_tf.models.family import ModelFamily
from hetero_tf.models.global_layout import with_copies
from hetero_tf.models.variables import shared_path
from hetero_tf.recipe import with_source_location
from hetero_tf.recipe.nodes import InvalidValue
from hetero_tf.recipe.schema import Recipe
from hetero_tf.runs.facts import global_weights
from hetero_tf.runs.run_folder import RunFolder


def read(path: str, variables: list, reinitialize: tuple[str, ...] = ()) -> tuple[dict[str, np.ndarray], str]:
    """Read the values of variables from a run folder or from a .npz file of `variable path -> array`.

    `numpy.savez(path, **{v.path: v.numpy() for v in model.variables})` writes such a file. Of a run folder it is the
    global model of the best state, or of the newest checkpoint without a best one.

    Args:
        path: The file or folder; a relative path starts from the working folder. Arrays of unknown variables are
            refused, unless `reinitialize` names them. Low-rank adapters may be missing, as in the file of a base model;
            they keep their initial values, which add nothing. So may copies of `round.by_level`; they start as the cut
            of the global value.
        variables: Keras variables, or objects with `path`, `shape` and `dtype`.
        reinitialize: Paths, or names that begin them (such as a layer's: `9_0_dense`), of variables that keep their
            initial values: the head of a model for other labels.

    Returns:
        `{variable path: array}` of the variable's shape and dtype, in the order of `variables`, without those that
        `reinitialize` names; and the source of the arrays: the file, or the folder of the state and its round.

    Raises:
        InputError: The file or folder does not exist, is damaged, is not a run's, lacks a variable or has an unknown
            one; a shape, dtype or value is wrong.
        InvalidValue: A name of `reinitialize` begins no path.
        MemoryProblem, DiskProblem: See `read_arrays`.
    """
    _check_reinitialize(reinitialize, variables)
    # Adapters may be missing: then they keep their initial values.
    required = {variable.path: variable for variable in variables if not _is_prefix(reinitialize, variable.path)}
    source, stored, load = _open_source(path)
    required = {name: variable for name, variable in required.items() if name in stored or not _is_optional(name)}
    unknown = sorted(name for name in stored - required.keys() if not _is_prefix(reinitialize, name))
    arrays = load([name for name in required if name in stored])
    expected = {name: f"floats of shape {tuple(variable.shape)}" for name, variable in required.items()}
    actual = dict.fromkeys(unknown, "an array") | {name: _describe(value) for name, value in arrays.items()}
    for name in [*required, *unknown]:
        wanted, received = (descriptions.get(name, "no array") for descriptions in (expected, actual))
        if wanted != received:
            known = stored if name in required else required
            hint = "" if name in arrays or not known else did_you_mean(name, known)
            raise InputError(
                f"{source}: expected the arrays of the model at its full width; first difference: {name}, {wanted}; "
                "take weights of the same model, or name the layer in model.reinitialize. "
                f"Received: {received}{hint}"
            )
    for name, value in arrays.items():
        if not np.isfinite(value).all():
            raise InputError(f"{source}: {name} must be finite. Received: NaN or infinity")
    return {name: arrays[name].astype(str(variable.dtype)) for name, variable in required.items()}, source


def _open_source(path: str) -> tuple[str, set[str], Callable[[list[str]], dict[str, np.ndarray]]]:
    """Return the source of the arrays, the names of all of them, and a function that reads arrays by name."""
    if not os.path.exists(path):
        raise InputError(
            f"{path}: could not read: No such file or directory; name a .npz file, or the folder of a run that was "
            "trained before"
        )
    if not os.path.isdir(path):
        return path, set(array_names(path)), functools.partial(read_arrays, path)
    arrays, source = global_weights(RunFolder(Path(path)))
    return source, set(arrays), lambda names: {name: arrays[name] for name in names}


def _check_reinitialize(reinitialize, variables):
    paths = [variable.path for variable in variables]
    for name in reinitialize:
        if not any(_is_prefix((name,), path) for path in paths):
            layers = dict.fromkeys(path.split("/")[0] for path in paths)
            raise InvalidValue(
                ("model", "reinitialize"),
                f"must name variables or layers of the model. Received: {name!r}{did_you_mean(name, layers)}",
            )


def _is_prefix(names, path):
    """Return whether a name is the path or a leading part of it: `1_1` does not begin `1_10/kernel`."""
    return any(path == name or path.startswith(f"{name}/") for name in names)


def _is_optional(path):
    """Return whether a variable is part of an adapter, `1_0_block/expand_lora/a`, or a level's copy of another."""
    return path.endswith(("lora/a", "lora/b")) or shared_path(path) != path


def _describe(value):
    return f"{'floats' if value.dtype.kind == 'f' else value.dtype} of shape {value.shape}"


def read_weights(
    recipe: Recipe, family: ModelFamily, weights: dict[str, tf.Tensor]
) -> tuple[dict[str, tf.Tensor], str]:
    """Return global values by path, replaced by those of `model.initial_weights`, and the source of the latter.

    Raises:
        InputError: The file or folder of `model.initial_weights` cannot be read or does not fit; names file, line, key.
    """
    model = recipe.model
    assert model.initial_weights is not None
    variables = [
        SimpleNamespace(path=path, shape=tuple(value.shape), dtype=value.dtype.name) for path, value in weights.items()
    ]
    with with_source_location(recipe, "model", "initial_weights"):
        arrays, source = read(model.initial_weights, variables, model.reinitialize)
    arrays = {path: tf.constant(value) for path, value in arrays.items()}
    drawn = {path: value for path, value in weights.items() if shared_path(path) == path}
    return with_copies(family, drawn | arrays), source
