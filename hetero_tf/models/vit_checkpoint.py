"""Published weights of a Vision Transformer as initial weights of a recipe: one array for each variable path.

python -m hetero_tf.models.vit_checkpoint --checkpoint Ti_16.npz --recipe cifar10_vit_fedepth --out vit.npz
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hetero_tf import recipe
from hetero_tf.base.errors import InputError, UserError, did_you_mean
from hetero_tf.base.files import opened, replacing
from hetero_tf.base.hardware import check_memory
from hetero_tf.base.npz_reader import array_names, read_arrays
from hetero_tf.recipe.model import LayerSpec

# Our variables and the arrays of a published checkpoint, which have the same shapes but for a leading 1.
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
        f"attention/{ours}_{kind}": f"MultiHeadDotProductAttention_1/{theirs}/{kind}"
        for ours, theirs in (("query", "query"), ("key", "key"), ("value", "value"), ("output", "out"))
        for kind in ("kernel", "bias")
    },
    "norm2/gamma": "LayerNorm_2/scale",
    "norm2/beta": "LayerNorm_2/bias",
    **{
        f"{ours}/{kind}": f"MlpBlock_3/{theirs}/{kind}"
        for ours, theirs in (("expand", "Dense_0"), ("contract", "Dense_1"))
        for kind in ("kernel", "bias")
    },
}
_NORM = {"gamma": "Transformer/encoder_norm/scale", "beta": "Transformer/encoder_norm/bias"}
# The head is for other labels.
_LEFT_OUT = ("head/", "pre_logits/")
# What the names begin with where optimizer or training loop were saved too.
_PREFIXES = ("opt/target/", "params/")
_HDF5 = (".h5", ".hdf5")


def convert(
    arrays: dict[str, np.ndarray], layers: Sequence[LayerSpec], side: int | None = None
) -> dict[str, np.ndarray]:
    """Names the arrays of a ViT checkpoint as the variables of a recipe's model, without its head.

    Args:
        arrays: `{name: array}` of the checkpoint, names as in Google's: `embedding/kernel` [patch, patch, 3, width],
            `cls` [1, 1, width], `Transformer/encoderblock_0/LayerNorm_0/scale` [width] and so on.
        layers: `recipe.model.layers`, with one PatchEmbedding, a TransformerBlock for each encoder block, and one
            LayerNormalization.
        side: Patches on each side of the model's images. Where the checkpoint has others, its positions are
            interpolated linearly between its corners. None: as many as the checkpoint has.

    Returns:
        `{variable path: array}`, as `models.initial_weights` reads them.

    Raises:
        InputError: The checkpoint lacks an array or has one that no ViT has, or the recipe's model is no ViT of its
            depth.

    Reference: Dosovitskiy et al. 2021 (arXiv 2010.11929) and its public code, google-research/vision_transformer.
    """
    arrays = _plainly_named(arrays)
    named = _table(layers)
    missing = [name for name in named.values() if name not in arrays]
    if missing:
        raise InputError(f"the checkpoint has no array {missing[0]!r}{did_you_mean(missing[0], arrays)}")
    unknown = sorted(name for name in arrays.keys() - set(named.values()) if not name.startswith(_LEFT_OUT))
    if unknown:
        raise InputError(f"the recipe's model has no place for {unknown[0]!r} and {len(unknown) - 1} other arrays")
    found = {path: arrays[name] for path, name in named.items()}
    for path, name in named.items():
        if name in (_EMBEDDING["token"], _EMBEDDING["places"]):
            found[path] = found[path].reshape(found[path].shape[-2:])
    (places,) = (path for path, name in named.items() if name == _EMBEDDING["places"])
    found[places] = found[places] if side is None else interpolated(found[places], side)
    return found


def _plainly_named(arrays):
    """The arrays of the network alone, their names without what stands before all of them."""
    for prefix in _PREFIXES:
        if f"{prefix}{_EMBEDDING['kernel']}" in arrays:
            return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
    return arrays


def _table(layers):
    """`{variable path: name in the checkpoint}` of a recipe's model."""
    names = {kind: [spec.name for spec in layers if spec.kind == kind] for kind in {spec.kind for spec in layers}}
    single = [names.get(kind, []) for kind in ("PatchEmbedding", "LayerNormalization")]
    blocks = names.get("TransformerBlock", [])
    if any(len(found) != 1 for found in single) or not blocks:
        raise InputError(
            "the recipe's model must be a ViT: one PatchEmbedding, several TransformerBlocks and one "
            f"LayerNormalization. Received: {len(single[0])}, {len(blocks)} and {len(single[1])}"
        )
    ((embedding,), (norm,)) = single
    table = {f"{embedding}/{ours}": theirs for ours, theirs in _EMBEDDING.items()}
    for number, block in enumerate(blocks):
        table |= {f"{block}/{ours}": f"Transformer/encoderblock_{number}/{theirs}" for ours, theirs in _BLOCK.items()}
    return table | {f"{norm}/{ours}": theirs for ours, theirs in _NORM.items()}


def interpolated(places: np.ndarray, side: int) -> np.ndarray:
    """Positions of a square grid of patches, [1 + n * n, width], for a grid of `side` * `side` patches.

    The first is the class token's and stays as it is; corners stay corners.
    """
    old = math.isqrt(len(places) - 1)
    if old**2 != len(places) - 1:
        raise InputError(
            f"the positions must be those of a class token and a square of patches. Received: {len(places)} positions"
        )
    # [side, old]: what each new row of patches takes of each old one.
    at = np.linspace(0, old - 1, side)
    weights = np.stack([np.interp(at, np.arange(old), one) for one in np.eye(old)], 1)
    grid = places[1:].reshape(old, old, -1)
    grid = np.einsum("ai,bj,ijw->abw", weights, weights, grid).astype(places.dtype)
    return np.concatenate([places[:1], grid.reshape(side * side, -1)])


def read_checkpoint(path: Path | str) -> dict[str, np.ndarray]:
    """Reads `{name: array}` of a .npz file, or of a .h5 file whose groups and data sets have these names.

    Raises:
        InputError: The file is damaged or something else, or a data set lies in another file.
        MemoryProblem, DiskProblem: See `base.npz_reader.read_arrays`.
    """
    if Path(path).suffix not in _HDF5:
        return read_arrays(path, array_names(path))
    # Keras brings it along; the .npz files do without.
    import h5py

    with opened(path) as file:
        try:
            with h5py.File(file, "r") as archive:
                return _data_sets(path, archive, h5py.Dataset)
        except (UserError, MemoryError):
            raise
        except Exception as error:
            raise InputError(f"{path}: cannot be read as an .h5 file, it is damaged or something else") from error


def _data_sets(path, archive, kind):
    found = {}
    # Links to other files are not followed.
    archive.visititems(lambda name, item: found.update({name: item}) if isinstance(item, kind) else None)
    for name, item in found.items():
        if item.external or item.is_virtual or item.dtype.hasobject:
            raise InputError(f"{path}: {name} must hold numbers in the file itself")
    check_memory(path, sum(item.nbytes for item in found.values()))
    return {name.removesuffix(":0"): item[()] for name, item in found.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Converts a file; returns the exit code."""
    parser = argparse.ArgumentParser(description="Makes initial weights of a recipe from a published ViT checkpoint.")
    parser.add_argument("--checkpoint", required=True, help=".npz of Google's ViT code, or .h5 of the same names")
    parser.add_argument("--recipe", required=True, help="YAML file, or the name of a shipped recipe")
    parser.add_argument("--out", required=True, help=".npz file to write")
    parser.add_argument("--side", type=int, help="patches on a side of the model's images; default the checkpoint's")
    flags = parser.parse_args(argv)
    try:
        layers = recipe.load(flags.recipe).model.layers
        found = convert(read_checkpoint(flags.checkpoint), layers, flags.side)
        with replacing(flags.out) as file:
            np.savez(file, **found)  # type: ignore[arg-type]
    except UserError as refusal:
        print(f"vit_checkpoint: {refusal}", file=sys.stderr)
        return refusal.code
    values = sum(value.size for value in found.values())
    print(f"wrote {len(found)} arrays, {values:,} values, to {flags.out}; train with")
    print(f"  --set model.initial_weights={flags.out} --set model.reinitialize=[{layers[-1].name}]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
