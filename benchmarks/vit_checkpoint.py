#!/usr/bin/env python3
"""Published weights of a Vision Transformer as initial weights of a recipe: one array for each variable path.

benchmarks/vit_checkpoint.py --checkpoint Ti_16.npz --recipe cifar10_vit_fedepth --out vit.npz
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import checkout  # noqa: F401  finds hetero_tf and its libraries
import numpy as np

from hetero_tf import recipe
from hetero_tf.base.errors import InputError, UserError, did_you_mean
from hetero_tf.base.files import open_file, replace_file
from hetero_tf.base.formatting import join_shell
from hetero_tf.base.hardware import check_memory
from hetero_tf.base.npz_reader import array_names, read_arrays
from hetero_tf.recipe.model import LayerSpec

# Variables of this package and the arrays of a published checkpoint, equal in shape except for a leading 1.
_EMBEDDING = {
    "kernel": "embedding/kernel",
    "bias": "embedding/bias",
    "token": "cls",
    "places": "Transformer/posembed_input/pos_embedding",
}
_BLOCK = {
    "norm1/gamma": "LayerNorm_0/scale",
    "norm1/beta": "LayerNorm_0/bias",
    **{
        f"attention/{variable_name}_{kind}": f"MultiHeadDotProductAttention_1/{array_name}/{kind}"
        for variable_name, array_name in (("query", "query"), ("key", "key"), ("value", "value"), ("output", "out"))
        for kind in ("kernel", "bias")
    },
    "norm2/gamma": "LayerNorm_2/scale",
    "norm2/beta": "LayerNorm_2/bias",
    **{
        f"{variable_name}/{kind}": f"MlpBlock_3/{array_name}/{kind}"
        for variable_name, array_name in (("expand", "Dense_0"), ("contract", "Dense_1"))
        for kind in ("kernel", "bias")
    },
}
_NORM = {"gamma": "Transformer/encoder_norm/scale", "beta": "Transformer/encoder_norm/bias"}
# The head, which has other labels.
_IGNORED_PREFIXES = ("head/", "pre_logits/")
# Name prefixes of checkpoints that contain the optimizer or the training loop too.
_PREFIXES = ("opt/target/", "params/")
_HDF5 = (".h5", ".hdf5")


def convert(
    arrays: dict[str, np.ndarray], layers: Sequence[LayerSpec], side: int | None = None
) -> dict[str, np.ndarray]:
    """Rename the arrays of a ViT checkpoint to the variables of a recipe's model, without its head.

    Args:
        arrays: `{name: array}` of the checkpoint, names as in Google's: `embedding/kernel` [patch, patch, 3, width],
            `cls` [1, 1, width], `Transformer/encoderblock_0/LayerNorm_0/scale` [width] and so on.
        layers: `recipe.model.layers`, with one PatchEmbedding, a TransformerBlock for each encoder block, and one
            LayerNormalization.
        side: Patches on each side of the model's images. Positions of another number of patches are interpolated
            linearly between their corners. None: as many as the checkpoint has.

    Returns:
        `{variable path: array}`, the format of `models.initial_weights`.

    Raises:
        InputError: The checkpoint lacks an array or has one that no ViT has, or the recipe's model is not a ViT of its
            depth.

    Reference: Dosovitskiy et al. 2021 (arXiv 2010.11929) and its public code, google-research/vision_transformer.
    """
    arrays = _without_prefix(arrays)
    names_by_path = _names_by_path(layers)
    missing = [name for name in names_by_path.values() if name not in arrays]
    if missing:
        raise InputError(f"the checkpoint has no array {missing[0]!r}{did_you_mean(missing[0], arrays)}")
    unknown = sorted(
        name for name in arrays.keys() - set(names_by_path.values()) if not name.startswith(_IGNORED_PREFIXES)
    )
    if unknown:
        raise InputError(f"the recipe's model has no variable for {unknown[0]!r} and {len(unknown) - 1} other arrays")
    weights = {path: arrays[name] for path, name in names_by_path.items()}
    for path, name in names_by_path.items():
        if name in (_EMBEDDING["token"], _EMBEDDING["places"]):
            weights[path] = weights[path].reshape(weights[path].shape[-2:])
    (grid_path,) = (path for path, name in names_by_path.items() if name == _EMBEDDING["places"])
    weights[grid_path] = weights[grid_path] if side is None else interpolate_positions(weights[grid_path], side)
    return weights


def _without_prefix(arrays):
    """Return the arrays of the network, without the common prefix of their names."""
    for prefix in _PREFIXES:
        if f"{prefix}{_EMBEDDING['kernel']}" in arrays:
            return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
    return arrays


def _names_by_path(layers):
    """Return `{variable path: name in the checkpoint}` of a recipe's model."""
    names = {kind: [spec.name for spec in layers if spec.kind == kind] for kind in {spec.kind for spec in layers}}
    single = [names.get(kind, []) for kind in ("PatchEmbedding", "LayerNormalization")]
    blocks = names.get("TransformerBlock", [])
    if any(len(matches) != 1 for matches in single) or not blocks:
        raise InputError(
            "the recipe's model must be a ViT: one PatchEmbedding, several TransformerBlocks and one "
            f"LayerNormalization. Received: {len(single[0])}, {len(blocks)} and {len(single[1])}"
        )
    ((embedding,), (norm,)) = single
    table = {f"{embedding}/{variable_name}": array_name for variable_name, array_name in _EMBEDDING.items()}
    for number, block in enumerate(blocks):
        table |= {
            f"{block}/{variable_name}": f"Transformer/encoderblock_{number}/{array_name}"
            for variable_name, array_name in _BLOCK.items()
        }
    return table | {f"{norm}/{variable_name}": array_name for variable_name, array_name in _NORM.items()}


def interpolate_positions(positions: np.ndarray, side: int) -> np.ndarray:
    """Interpolate the positions of a square grid of patches, [1 + n * n, width], for `side` * `side` patches.

    The first position is the class token's and does not change; corners remain corners.
    """
    old_side = math.isqrt(len(positions) - 1)
    if old_side**2 != len(positions) - 1:
        raise InputError(
            "the positions must be those of a class token and a square of patches. "
            f"Received: {len(positions)} positions"
        )
    # [side, old_side]: weight of each old row of patches in each new one.
    new_positions = np.linspace(0, old_side - 1, side)
    weights = np.stack([np.interp(new_positions, np.arange(old_side), basis) for basis in np.eye(old_side)], 1)
    grid = positions[1:].reshape(old_side, old_side, -1)
    grid = np.einsum("ai,bj,ijw->abw", weights, weights, grid).astype(positions.dtype)
    return np.concatenate([positions[:1], grid.reshape(side * side, -1)])


def read_checkpoint(path: Path | str) -> dict[str, np.ndarray]:
    """Read `{name: array}` from a .npz file, or from a .h5 file whose groups and data sets have these names.

    Raises:
        InputError: The file is damaged or has another format, or a data set is in another file.
        MemoryProblem, DiskProblem: See `base.npz_reader.read_arrays`.
    """
    if Path(path).suffix not in _HDF5:
        return read_arrays(path, array_names(path))
    # Keras installs h5py; .npz files do not need it.
    import h5py

    with open_file(path) as file:
        try:
            with h5py.File(file, "r") as archive:
                return _data_sets(path, archive, h5py.Dataset)
        except (UserError, MemoryError):
            raise
        except Exception as error:
            raise InputError(f"{path}: cannot be read as an .h5 file; it is damaged or has another format") from error


def _data_sets(path, archive, kind):
    items = {}
    # Links to other files are not followed.
    archive.visititems(lambda name, item: items.update({name: item}) if isinstance(item, kind) else None)
    for name, item in items.items():
        if item.external or item.is_virtual or item.dtype.hasobject:
            raise InputError(f"{path}: {name} must hold numbers in the file itself")
    check_memory(path, sum(item.nbytes for item in items.values()))
    return {name.removesuffix(":0"): item[()] for name, item in items.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Convert a file; return the exit code."""
    parser = argparse.ArgumentParser(description="Makes initial weights of a recipe from a published ViT checkpoint.")
    parser.add_argument("--checkpoint", required=True, help=".npz of Google's ViT code, or .h5 of the same names")
    parser.add_argument("--recipe", required=True, help="YAML file, or the name of a shipped recipe")
    parser.add_argument("--out", required=True, help=".npz file to write")
    parser.add_argument("--side", type=int, help="patches on a side of the model's images; default the checkpoint's")
    flags = parser.parse_args(argv)
    try:
        layers = recipe.load(flags.recipe).model.layers
        weights = convert(read_checkpoint(flags.checkpoint), layers, flags.side)
        with replace_file(flags.out) as file:
            np.savez(file, **weights)  # type: ignore[arg-type]
    except UserError as error:
        print(f"vit_checkpoint: {error}", file=sys.stderr)
        return error.code
    values = sum(value.size for value in weights.values())
    print(f"wrote {len(weights)} arrays, {values:,} values, to {flags.out}; train with")
    weights_flag, layer_flag = f"model.initial_weights={flags.out}", f"model.reinitialize=[{layers[-1].name}]"
    print(f"  {join_shell(['--set', weights_flag, '--set', layer_flag])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
