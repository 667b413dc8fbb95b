"""Checks without TensorFlow that the layers of a model are compatible at every level.

Only properties that do not depend on the data are checked: the form of a value (feature map, token sequence or vector)
and its number of channels.
"""

from hetero_tf.base import metrics, registry
from hetero_tf.recipe import layer_table
from hetero_tf.recipe.model import Classes, LayerSpec, Width
from hetero_tf.recipe.nodes import InvalidValue, format_value
from hetero_tf.recipe.schema import Levels, Recipe

# Number of channels; None if the recipe does not define it.
Size = int | Width | Classes | None
# Arguments that set the number of output channels, by priority.
_CHANNELS = ("filters", "units", "width")
# Output form of layers that change it. Below: layers whose arguments do not show their input form.
_FORM_AFTER = {
    **dict.fromkeys(("GlobalAveragePooling2D", "GlobalMaxPooling2D", "Flatten", "ClassTokenReadout"), "vector"),
    "PatchEmbedding": "tokens",
}
_INPUT_FORMS = {"images": "map", **dict.fromkeys(("masked_text", "next_word", "sequences"), "words"), "table": "vector"}
# Embeddings that an input cannot use: one has no row for the mask, the other has one row per label.
_UNFIT = {"masked_text": "Embedding", "sequences": "MaskedTokenEmbedding"}
_MAP_LAYERS = ("AttentionGate", "PatchEmbedding")
_TOKEN_LAYERS = ("ClassTokenReadout",)
_FORM_NAMES = {"map": "a feature map", "tokens": "a token sequence", "vector": "a vector"}
_PUT_BEFORE = {"tokens": "PatchEmbedding", "vector": "the pooling or Flatten"}
_GROUPS = 4
MOST_WEIGHTS = 2**31


def check_shapes(recipe: Recipe) -> None:
    """Raise `InvalidValue` if a layer cannot follow the one before it.

    Args:
        recipe: The `Recipe`.
    """
    specs = recipe.model.layers
    text = recipe.input.name in metrics.TEXT
    _check_ends(specs)
    _check_embedding(specs, recipe.input.name)
    channels: Size = None
    form = _INPUT_FORMS.get(recipe.input.name)
    trunk: tuple[Size, str | None] = (channels, form)
    exit, previous = None, None
    for spec in specs:
        path = spec.path
        if spec.exit != exit:
            # A branch starts from the output of the trunk, and so does the next trunk layer.
            trunk = (channels, form) if exit is None else _end_branch(trunk, previous, channels, form, text)
            (channels, form), exit = trunk, spec.exit
        if recipe.input.name == "table" and (needs_map(spec.kind) or needs_tokens(spec.kind)):
            needs = "a feature map" if needs_map(spec.kind) else "a token sequence"
            raise InvalidValue(path, f"{spec.kind} needs {needs}, but a table row is a vector; use Dense")
        _check_attention(spec, recipe.input.name)
        if spec.kind == "Flatten" and form in ("map", "tokens") and isinstance(channels, Width):
            raise InvalidValue(
                path,
                "Flatten of a feature map with `!w` channels mixes positions and channels, so the weights of "
                "narrow levels would not match; use GlobalAveragePooling2D",
            )
        check_groups(spec, channels, recipe.levels)
        _check_dilation(spec)
        previous, form = spec, form and _form(spec, path, form, text)
        inputs: Size = channels
        channels = output_channels(spec, channels)
        weights = (size_at(inputs, 1.0) or 0) * (size_at(channels, 1.0) or 0)
        if weights > MOST_WEIGHTS and inputs is not channels:
            raise InvalidValue(
                path,
                f"{weights} weights in one layer; at most {MOST_WEIGHTS} are allowed. Received: "
                f"{format_value(channels)} after {format_value(inputs)}",
            )
    if exit is not None:
        _, form = _end_branch(trunk, previous, channels, form, text)
    if recipe.input.name == "sequences" and form == "tokens":
        advice = "remove `return_sequences` from the last LSTM or GRU"
        raise InvalidValue(
            specs[-1].path, f"the model ends with a token sequence, but a sequence has one label; {advice}"
        )
    _check_logits("the model", [spec for spec in specs if spec.exit is None][-1], form, text)


def _end_branch(trunk, last, channels, form, text):
    """Return the trunk's channels and form after the end of a branch; a branch must end with logits."""
    if not isinstance(channels, Classes):
        raise InvalidValue(
            last.path,
            "an Exit must end with logits, so the size of its last layer must be `!classes`, "
            f"such as `Dense: {{units: !classes}}`. Received: {format_value(channels)}",
        )
    _check_logits("an Exit", last, form, text)
    return trunk


def _check_logits(what, last, form, text):
    if form == "map":
        raise InvalidValue(
            last.path,
            f"{what} ends with a feature map; add GlobalAveragePooling2D (or Flatten before any `!w`) before its last "
            "layer",
        )
    if form == "tokens" and not text:
        raise InvalidValue(last.path, f"{what} ends with a token sequence; add ClassTokenReadout before its last layer")


def _form(spec, path, form, text):
    """Return the output form of a layer; raise `InvalidValue` if it cannot process its input form."""
    gives = _form_after(spec, form)
    if text and (needs_map(spec.kind) or gives == "vector"):
        needs = "needs a feature map" if needs_map(spec.kind) else "reduces all positions to one vector"
        advice = "set `return_sequences: true`" if is_recurrent(spec.kind) else "remove it"
        raise InvalidValue(path, f"{spec.kind} {needs}, but a text model returns logits for every position; {advice}")
    if needs_map(spec.kind) and form != "map":
        raise InvalidValue(
            path,
            f"{spec.kind} needs a feature map, but its input is {_FORM_NAMES[form]}; "
            f"move it before {_PUT_BEFORE[form]}",
        )
    if needs_tokens(spec.kind) and form != "tokens":
        raise InvalidValue(
            path,
            f"{spec.kind} needs a token sequence, but its input is {_FORM_NAMES[form]}; add PatchEmbedding before it",
        )
    return gives


def _form_after(spec, form):
    """Return the output form of a layer for a valid input form."""
    if is_token_embedding(spec.kind):
        return "tokens"
    if is_recurrent(spec.kind):
        return "tokens" if spec.args.get("return_sequences") else "vector"
    return _FORM_AFTER.get(spec.kind, form)


def is_token_embedding(kind: str) -> bool:
    """Return True for embeddings: layers with token ids (batch, positions) as input."""
    return not {"classes", "words"}.isdisjoint(layer_table.arguments(kind)[0])


def is_recurrent(kind: str) -> bool:
    """Return True for recurrent layers: those with the argument `return_sequences`."""
    return "return_sequences" in layer_table.arguments(kind)[0]


def needs_map(kind: str) -> bool:
    """Return True for layers with input (batch, rows, columns, channels): 2D layers and those with `filters`."""
    return kind.endswith("2D") or kind in _MAP_LAYERS or "filters" in layer_table.arguments(kind)[0]


def needs_tokens(kind: str) -> bool:
    """Return True for layers with input (batch, positions, channels): attention, recurrent layers and readout."""
    return kind in _TOKEN_LAYERS or is_recurrent(kind) or "heads" in layer_table.arguments(kind)[0]


def output_channels(spec: LayerSpec, channels: Size) -> Size:
    """Return the number of output channels of a layer for a number of input channels."""
    if spec.kind == "Flatten":
        return None
    return next((spec.args[name] for name in _CHANNELS if name in spec.args), channels)


def size_at(size: Size, width: float) -> int | None:
    """Return a size at one width; None if the recipe does not define it."""
    if isinstance(size, Width):
        return size.at(width)
    return None if size is None or isinstance(size, Classes) else size


def _check_ends(specs):
    if not specs:
        raise InvalidValue(("model", "layers"), "the model has no layers; a Repeat with times: 0 adds none")
    trunk = [spec for spec in specs if spec.exit is None]
    if not trunk:
        raise InvalidValue(
            ("model", "layers"), "every layer is inside an Exit; add layers outside, from which exits branch off"
        )
    sizing = [spec for spec in trunk if any(name in spec.args for name in _CHANNELS)]
    last = sizing[-1] if sizing else trunk[-1]
    sized = [spec.args[name] for name in _CHANNELS for spec in (last,) if name in spec.args]
    if not sized or not isinstance(sized[0], Classes):
        raise InvalidValue(
            last.path,
            "the size of the last layer must be `!classes`, one output per label, "
            f"such as `Dense: {{units: !classes}}`. Received: {format_value(sized[0] if sized else None)}",
        )


def _check_embedding(specs, source):
    """Check that a text model begins with a suitable embedding and has no other."""
    is_text, first = _INPUT_FORMS.get(source) == "words", specs[0]
    if is_text and (not is_token_embedding(first.kind) or first.kind == _UNFIT.get(source)):
        fitting = "MaskedTokenEmbedding" if source == "masked_text" else "Embedding"
        raise InvalidValue(
            first.path,
            f"{'sequences need' if source == 'sequences' else 'text needs'} an embedding as the first layer, such as "
            f"{fitting}. "
            f"Received: {first.kind}",
        )
    for name in ("classes", "words"):
        value = first.args.get(name)
        if value is None or not is_text:
            continue
        if source != "sequences" and not isinstance(value, Classes):
            text = f"must be `!classes`, one row per word of the vocabulary. Received: {format_value(value)}"
            raise InvalidValue((*first.path, name), text)
        if source == "sequences" and type(value) is not int:
            raise InvalidValue(
                (*first.path, name),
                "must be a number that is at least the vocabulary size: for sequences, `!classes` counts labels, and "
                f"every level has all words. Received: {format_value(value)}",
            )
    for spec in specs[1:] if is_text else specs:
        if is_token_embedding(spec.kind):
            raise InvalidValue(
                spec.path, f"{spec.kind} needs token ids as input, so it must be the first layer of a text model"
            )


def _check_attention(spec, source):
    """Reject attention, which has no mask, for inputs with padding or with words to predict."""
    seen = {"next_word": "the words to predict", "sequences": "the padding"}.get(source)
    if seen and "heads" in layer_table.arguments(spec.kind)[0]:
        raise InvalidValue(
            spec.path,
            f"{spec.kind} attends to all positions, so with the input {source} it would see {seen}; use LSTM or GRU",
        )


def _check_dilation(spec):
    """Reject convolutions with both strides and dilation, which Keras does not support."""
    both = {name: spec.args.get(name, 1) for name in ("strides", "dilation_rate")}
    if all(value not in (1, (1, 1)) for value in both.values()):
        raise InvalidValue(
            spec.path,
            f"{spec.kind} cannot combine strides above 1 with dilation_rate above 1. Received: {format_value(both)}",
        )


def check_groups(spec: LayerSpec, channels: Size, levels: Levels) -> None:
    """Raise `InvalidValue` if group normalisation cannot divide the channels of every level of the mix."""
    four = [value for name, value in spec.args.items() if name in ("norm", "kind") and value == "gn"]
    groups = spec.args.get("groups", 32) if spec.kind == "GroupNormalization" else _GROUPS if four else None
    if groups is None or spec.kind not in ("GroupNormalization", *registry.names("layers")):
        return
    for level in levels.names:
        for size in (channels, spec.args.get("filters")):
            count = size_at(size, levels.widths[level])
            if count is not None and count % groups:
                raise InvalidValue(
                    spec.path,
                    f"{groups} groups do not divide the {count} channel{'s' * (count > 1)} of level {level!r} "
                    f"(width {levels.widths[level]:g}); choose channels that are a multiple of "
                    f"{groups} at every level, or another norm. Received: {format_value(size)}",
                )
