#!/usr/bin/env python3
"""Published weights of a Vision Transformer as initial weights of a recipe: one array for each variable path.

benchmarks/vit_checkpoint.py --checkpoint Ti_16.npz --recipe cifar10_vit_fedepth --out vit.npz
"""

import argparse
import sys
from collections.abc import Sequence

import checkout  # noqa: F401  finds hetero_tf and its libraries
import numpy as np

from hetero_tf import recipe
from hetero_tf.base.errors import InputError, UserError, did_you_mean
from hetero_tf.base.files import replace_file
from hetero_tf.base.formatting import join_shell
from hetero_tf.base.npz_reader import array_names, read_arrays
from hetero_tf.recipe.model import LayerSpec

# Variables of this package and the arrays of a published checkpoint, equal in shape but for `_WITH_LEADING_1`.
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
_WITH_LEADING_1 = (_EMBEDDING["token"], _EMBEDDING["places"])


def convert(arrays: dict[str, np.ndarray], layers: Sequence[LayerSpec]) -> dict[str, np.ndarray]:
    """Rename the arrays of a ViT checkpoint to the variables of a recipe's model, without its head.

    Args:
        arrays: `{name: array}` of the checkpoint, names as in Google's: `embedding/kernel` [patch, patch, 3, width],
            `cls` [1, 1, width], `Transformer/encoderblock_0/LayerNorm_0/scale` [width] and so on.
        layers: `recipe.model.layers`, with one PatchEmbedding, a TransformerBlock for each encoder block, and one
            LayerNormalization.

    Returns:
        `{variable path: array}`, the format of `models.initial_weights`, which refuses other shapes.

    Raises:
        InputError: The checkpoint lacks an array or has one that no ViT has, or the recipe's model is not a ViT of its
            depth.

    Reference: Dosovitskiy et al. 2021 (arXiv 2010.11929) and its public code, google-research/vision_transformer.
    """
    prefix = next((prefix for prefix in _PREFIXES if f"{prefix}{_EMBEDDING['kernel']}" in arrays), "")
    arrays = {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
    names_by_path = _names_by_path(layers)
    missing = [name for name in names_by_path.values() if name not in arrays]
    if missing:
        raise InputError(f"the checkpoint has no array {missing[0]!r}{did_you_mean(missing[0], arrays)}")
    unknown = sorted(
        name for name in arrays.keys() - set(names_by_path.values()) if not name.startswith(_IGNORED_PREFIXES)
    )
    if unknown:
        raise InputError(f"the recipe's model has no variable for {unknown[0]!r} and {len(unknown) - 1} other arrays")
    return {
        path: arrays[name].reshape(arrays[name].shape[-2:]) if name in _WITH_LEADING_1 else arrays[name]
        for path, name in names_by_path.items()
    }


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


def main(argv: Sequence[str] | None = None) -> int:
    """Convert a file; return the exit code."""
    parser = argparse.ArgumentParser(description="Makes initial weights of a recipe from a published ViT checkpoint.")
    parser.add_argument("--checkpoint", required=True, help=".npz of Google's ViT code")
    parser.add_argument("--recipe", required=True, help="YAML file, or the name of a shipped recipe")
    parser.add_argument("--out", required=True, help=".npz file to write")
    flags = parser.parse_args(argv)
    try:
        layers = recipe.load(flags.recipe).model.layers
        weights = convert(read_arrays(flags.checkpoint, array_names(flags.checkpoint)), layers)
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
