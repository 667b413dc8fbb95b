"""A backbone of KerasHub with its pretrained weights, adapters of low rank, and a new head."""

import collections
from collections.abc import Collection
from pathlib import Path
from typing import Literal

import keras
import numpy as np

from hetero_tf.base.constraints import CountOrZero, Names, SmallCount
from hetero_tf.base.errors import InputError, require_modules, shorten_repr
from hetero_tf.data.tokenizers import read_token_lines
from hetero_tf.models.variables import all_layers
from hetero_tf.recipe.model import Width

# Outputs of a backbone that has several, the most useful first.
OUTPUTS = ("pooled_output", "decoder_sequence_output", "encoder_sequence_output", "sequence_output")
IDS, MASK, SEGMENTS, POSITIONS = "token_ids", "padding_mask", "segment_ids", "position_ids"


def build(
    width: float,
    classes: int,
    *,
    preset: str,
    rank: SmallCount | None = 8,
    layers: Names = (),
    head: Literal["label", "positions"] = "label",
    pooling: Literal["auto", "first", "last", "mean"] = "auto",
    output: str | None = None,
    inputs: Names = (),
    padding: CountOrZero = 0,
    vocabulary: str | None = None,
) -> keras.Model:
    """Return the frozen backbone of a preset with trained adapters, whose rank follows the width, and a trained head.

    The adapters are those of Keras with the scale 1 at every rank, so a narrow level has the first ranks.

    Args:
        preset: folder that `backbone.save_to_preset` wrote, or a name of KerasHub such as bert_base_en, whose files
            Keras downloads once
        rank: rank of the adapters at width 1; null: the head is trained alone
        layers: names of the layers with adapters; empty: those of KerasHub, such as query and value
        head: label: logits of each example; positions: logits at each position
        pooling: output that the head of a label reads: first, or last position that is not padding, or their mean;
            auto: the pooled output if the backbone has one, last for language models and decoders, else first; a map
            of features is averaged in any case
        output: name of the output that the head reads, if the backbone has several; null: pooled_output or a sequence
        inputs: arrays of the data that are inputs of the backbone, such as images and token_ids; empty: the data have a
            single array; masks and segments are computed from the ids
        padding: id of positions that are padding
        vocabulary: WordPiece file of the backbone's tokens, one in each line, that is also data.vocabulary_file with
            the tokenizer subwords: ids of the data become the numbers of its lines, and padding that of [PAD]
    """
    backbone = load_backbone(preset)
    _adapt(backbone, None if rank is None else Width(rank).at(width), layers)
    line_numbers = None if vocabulary is None else _line_numbers(Path(vocabulary))
    sources, tensors, arguments = _connect(backbone, inputs, padding, line_numbers)
    names = (output,) if output else OUTPUTS if head == "label" else OUTPUTS[1:]
    name, value = _select_output(backbone(arguments), names)
    if head == "label":
        mask = tensors.get(f"{name.partition('_')[0]}_{MASK}", tensors.get(MASK))
        value = _pool(value, _pooling(backbone, name) if pooling == "auto" else pooling, mask)
    logits = keras.layers.Dense(classes, name="logits")(value)
    return _with_unique_paths(keras.Model(sources if inputs else next(iter(sources.values())), logits))


def _with_unique_paths(model):
    """Number the weights of equal paths, such as those of T5's encoder and decoder, which are found by their paths."""
    counts: collections.Counter = collections.Counter()
    for variable in model.weights:
        counts[variable.path] += 1
        if counts[variable.path] > 1:
            variable._path = f"{counts[variable.path]}_{variable.path}"
    return model


def load_backbone(preset: str) -> keras.Model:
    """Return the backbone of a preset with its weights.

    Raises:
        InputError: KerasHub is not installed, or the preset cannot be loaded; the message names the missing files.
    """
    require_modules("model.function preset", ["keras_hub"], "hub")
    from keras_hub.models import Backbone

    try:
        return Backbone.from_preset(preset)
    # Loaders of downloads, JSON and HDF5 raise many types of errors.
    except Exception as error:
        files = "config.json and model.weights.h5"
        if Path(preset).is_dir():
            advice = f"the folder must have {files} as backbone.save_to_preset writes them"
        elif preset in Backbone.presets:
            page = Backbone.presets[preset]["kaggle_handle"].replace("kaggle://", "https://www.kaggle.com/models/")
            advice = f"it cannot be downloaded; put {files} of {page} into a folder, and give the folder"
        else:
            advice = f"give a folder with {files}, or a name of keras_hub.models.Backbone.presets"
        raise InputError(
            f"model.function: preset {preset}: {advice}. Received: {type(error).__name__}: {shorten_repr(str(error))}"
        ) from error


def _adapt(backbone, rank, layers):
    """Freeze a backbone, and add adapters to some of its layers."""
    if rank is None:
        backbone.trainable = False
        return
    backbone.enable_lora(rank, list(layers) or None)
    every = list(all_layers(backbone))
    adapted = {layer.name for layer in every if getattr(layer, "lora_enabled", False)}
    if not adapted or not adapted.issuperset(layers):
        possible = sorted({layer.name for layer in every if hasattr(layer, "enable_lora")})
        known = f"those of {type(backbone).__name__} are {', '.join(possible)}" if possible else "it has none"
        raise InputError(
            f"model.function: layers must name layers that can have adapters; {known}; or set rank: null to train the "
            f"head alone. Received: layers={sorted(set(layers) - adapted) or 'those of KerasHub'}"
        )


def wanted_inputs(backbone: keras.Model) -> dict[str, keras.KerasTensor]:
    """Return the inputs of a backbone by name."""
    return backbone.input if isinstance(backbone.input, dict) else {each.name: each for each in backbone.inputs}


def origin(name: str, wanted: Collection[str]) -> str | None:
    """Return the input from whose ids another one can be computed, or None."""
    for suffix in (MASK, SEGMENTS, POSITIONS):
        ids = name.removesuffix(suffix) + IDS
        if name.endswith(suffix) and ids in wanted:
            return ids
    encoder = f"encoder_{IDS}"
    return encoder if name == f"decoder_{IDS}" and encoder in wanted else None


def _line_numbers(path):
    """Return the line number in a WordPiece file of each id of the vocabulary of `data: labelled_text`."""
    tokens, special = read_token_lines(path, "subwords")
    missing = [name for name in ("[PAD]", "[UNK]") if name not in special]
    if missing:
        raise InputError(f"model.function: vocabulary {path}: must have the token {missing[0]}, as WordPiece files do")
    return np.array([special["[PAD]"], special["[UNK]"], *tokens.values()], np.int32)


def _connect(backbone, names, padding, line_numbers):
    """Return the inputs of the model by name, the arguments of the backbone by name and in its structure."""
    wanted = wanted_inputs(backbone)
    read = [name for name in wanted if name in names or origin(name, wanted) is None]
    if names and len(wanted) == len(names) == 1:
        wanted, read = dict(zip(names, wanted.values())), list(names)
    if set(read) != set(names) if names else len(read) > 1:
        raise InputError(
            f"model.function: inputs must name the arrays of the data for {type(backbone).__name__}, at least "
            f"{', '.join(name for name in wanted if origin(name, wanted) is None)} of its inputs {', '.join(wanted)}. "
            f"Received: inputs={list(names)}"
        )
    sources = {name: keras.Input(wanted[name].shape[1:], dtype=wanted[name].dtype, name=name) for name in read}
    tensors = dict(sources)
    if line_numbers is not None:
        padding = int(line_numbers[0])
        tensors |= {name: keras.ops.take(line_numbers, ids) for name, ids in sources.items() if name.endswith(IDS)}
    # The ids of a decoder may be those of the encoder, from which its mask is computed.
    for name in sorted(wanted.keys() - sources.keys(), key=lambda name: not name.endswith(IDS)):
        tensors[name] = _compute(name, tensors[str(origin(name, wanted))], padding, wanted[name].dtype)
    tensors = {name: tensors[name] for name in wanted}
    if isinstance(backbone.input, dict):
        return sources, tensors, tensors
    return sources, tensors, list(tensors.values()) if len(tensors) > 1 else next(iter(tensors.values()))


def _compute(name, ids, padding, dtype):
    """Return an input of a backbone that follows from ids."""
    if name.endswith(MASK):
        return keras.ops.cast(keras.ops.not_equal(ids, padding), dtype)
    if name.endswith(POSITIONS):
        return keras.ops.cumsum(keras.ops.ones_like(ids), 1) - 1
    return keras.ops.zeros_like(ids) if name.endswith(SEGMENTS) else ids


def _select_output(outputs, wanted):
    """Return the name and the tensor of the first wanted output; a single output of a backbone has the name ''."""
    if not isinstance(outputs, dict):
        return "", outputs
    for name in wanted:
        if name in outputs:
            return name, outputs[name]
    raise InputError(
        f"model.function: output must be one of the backbone's outputs {', '.join(outputs)}. "
        f"Received: {', '.join(wanted)}"
    )


def _pooling(backbone, output):
    """Return the pooling that suits a backbone: the last position has seen all others if each sees those before it."""
    from keras_hub.models import CausalLM

    def subclasses(task):
        for subclass in task.__subclasses__():
            yield subclass
            yield from subclasses(subclass)

    is_causal = any(task.backbone_cls is type(backbone) for task in subclasses(CausalLM))
    return "last" if is_causal or output.startswith("decoder") else "first"


def _pool(value, pooling, mask):
    """Return [n, channels] of the positions [n, ..., channels] that are not padding."""
    if len(value.shape) == 2:
        return value
    if len(value.shape) > 3:
        return keras.ops.mean(value, tuple(range(1, len(value.shape) - 1)))
    if pooling == "first":
        return value[:, 0]
    if mask is None:
        return value[:, -1] if pooling == "last" else keras.ops.mean(value, 1)
    mask = keras.ops.cast(mask, "int32")
    count = keras.ops.sum(mask, 1, keepdims=True)
    if pooling == "last":
        is_last = keras.ops.equal(keras.ops.cumsum(mask, 1), count)
        weights = keras.ops.cast(keras.ops.logical_and(mask > 0, is_last), value.dtype)
    else:
        weights = keras.ops.cast(mask, value.dtype) / keras.ops.cast(keras.ops.maximum(count, 1), value.dtype)
    return keras.ops.sum(value * weights[..., None], 1)
