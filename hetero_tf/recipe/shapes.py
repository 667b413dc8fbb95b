"""Checks without TensorFlow that the layers of a model fit together at every level.

Only what can be known without the data is followed: whether a value is a map, a row of tokens or a vector, and how many
channels it has.
"""

from hetero_tf.base import metrics, registry
from hetero_tf.recipe import layer_table
from hetero_tf.recipe.model import Classes, LayerSpec, Width
from hetero_tf.recipe.nodes import InvalidValue, show
from hetero_tf.recipe.schema import Levels, Recipe

# A number of channels; None where the recipe does not know it.
Size = int | Width | Classes | None
# Arguments that set the number of output channels, in the order in which they are looked for.
_CHANNELS = ("filters", "units", "width")
# Layers behind which a value has another form, and those of ours whose arguments do not tell what they need.
_GIVES = {
    **dict.fromkeys(("GlobalAveragePooling2D", "GlobalMaxPooling2D", "Flatten", "ClassTokenReadout"), "vector"),
    "PatchEmbedding": "tokens",
}
_STARTS = {"images": "map", **dict.fromkeys(("masked_text", "next_word", "sequences"), "words"), "table": "vector"}
# Embeddings that an input cannot use: one without a row for the mask, and one whose rows are labels.
_UNFIT = {"masked_text": "Embedding", "sequences": "MaskedTokenEmbedding"}
_OF_MAPS = ("AttentionGate", "PatchEmbedding")
_OF_TOKENS = ("ClassTokenReadout",)
_LEAVE = {"map": "a map", "tokens": "a row of tokens", "vector": "one vector"}
_BEFORE = {"tokens": "PatchEmbedding", "vector": "the pooling or Flatten"}
_GROUPS = 4
MOST_WEIGHTS = 2**31


def check_shapes(recipe: Recipe) -> None:
    """Raises `InvalidValue` where a layer cannot follow the one before it.

    Args:
        recipe: The `Recipe`.
    """
    specs = recipe.model.layers
    text = recipe.input.name in metrics.TEXT
    _ends(specs)
    _embedding(specs, recipe.input.name)
    channels: Size = None
    form = _STARTS.get(recipe.input.name)
    trunk: tuple[Size, str | None] = (channels, form)
    exit, previous = None, None
    for spec in specs:
        path = spec.path
        if spec.exit != exit:
            # A branch begins with what the trunk leaves, and the trunk goes on with that.
            trunk = (channels, form) if exit is None else _ended(trunk, previous, channels, form, text)
            (channels, form), exit = trunk, spec.exit
        if recipe.input.name == "table" and (needs_map(spec.kind) or needs_tokens(spec.kind)):
            needs = "rows and columns" if needs_map(spec.kind) else "a row of tokens"
            raise InvalidValue(path, f"{spec.kind} needs {needs}, but a row of a table is one vector; use Dense")
        _attention(spec, recipe.input.name)
        if spec.kind == "Flatten" and form in ("map", "tokens") and isinstance(channels, Width):
            raise InvalidValue(
                path,
                "Flatten of a map whose channels carry `!w` mixes places and channels, so a narrow "
                "level's weights would not line up; use GlobalAveragePooling2D",
            )
        check_groups(spec, channels, recipe.levels)
        _dilation(spec)
        previous, form = spec, form and _form(spec, path, form, text)
        inputs: Size = channels
        channels = output_channels(spec, channels)
        weights = (size_at(inputs, 1.0) or 0) * (size_at(channels, 1.0) or 0)
        if weights > MOST_WEIGHTS and inputs is not channels:
            raise InvalidValue(
                path,
                f"{weights} weights in one layer; at most {MOST_WEIGHTS} are allowed. Received: "
                f"{show(channels)} behind {show(inputs)}",
            )
    if exit is not None:
        _, form = _ended(trunk, previous, channels, form, text)
    if recipe.input.name == "sequences" and form == "tokens":
        advice = "leave out `return_sequences` of the last LSTM or GRU"
        raise InvalidValue(specs[-1].path, f"the model ends in a row of tokens, but a sequence has one label; {advice}")
    _logits("the model", [spec for spec in specs if spec.exit is None][-1], form, text)


def _ended(trunk, last, channels, form, text):
    """Returns what the trunk leaves behind a branch that has ended; refuses one that does not end in logits."""
    if not isinstance(channels, Classes):
        raise InvalidValue(
            last.path,
            "an Exit must end in logits, so its last layer with a size must be `!classes` wide, "
            f"such as `Dense: {{units: !classes}}`. Received: {show(channels)}",
        )
    _logits("an Exit", last, form, text)
    return trunk


def _logits(what, last, form, text):
    if form == "map":
        raise InvalidValue(
            last.path,
            f"{what} ends in a map; put GlobalAveragePooling2D (or Flatten before any `!w`) before the last layer",
        )
    if form == "tokens" and not text:
        raise InvalidValue(last.path, f"{what} ends in a row of tokens; put ClassTokenReadout before the last layer")


def _form(spec, path, form, text):
    """Returns the form behind a layer; refuses a layer that cannot take the form before it."""
    gives = _gives(spec, form)
    if text and (needs_map(spec.kind) or gives == "vector"):
        needs = "needs rows and columns of pixels" if needs_map(spec.kind) else "leaves one vector of all positions"
        advice = "give it `return_sequences: true`" if is_recurrent(spec.kind) else "leave it out"
        raise InvalidValue(path, f"{spec.kind} {needs}, but a model for text gives logits for every position; {advice}")
    if needs_map(spec.kind) and form != "map":
        raise InvalidValue(
            path,
            f"{spec.kind} needs rows and columns, but the layers before it leave {_LEAVE[form]}; "
            f"put it before {_BEFORE[form]}",
        )
    if needs_tokens(spec.kind) and form != "tokens":
        raise InvalidValue(
            path,
            f"{spec.kind} needs a row of tokens, but the layers before it leave {_LEAVE[form]}; "
            "put PatchEmbedding somewhere before it",
        )
    return gives


def _gives(spec, form):
    """Returns the form behind a layer that takes what is before it."""
    if takes_words(spec.kind):
        return "tokens"
    if is_recurrent(spec.kind):
        return "tokens" if spec.args.get("return_sequences") else "vector"
    return _GIVES.get(spec.kind, form)


def takes_words(kind: str) -> bool:
    """Tells whether a layer takes numbers of words (batch, positions): an embedding of them."""
    return not {"classes", "words"}.isdisjoint(layer_table.arguments(kind)[0])


def is_recurrent(kind: str) -> bool:
    """Tells whether a layer goes through positions with a state: ours with `return_sequences`."""
    return "return_sequences" in layer_table.arguments(kind)[0]


def needs_map(kind: str) -> bool:
    """Tells whether a layer takes (batch, rows, columns, channels): 2D layers, ours with `filters`, few others."""
    return kind.endswith("2D") or kind in _OF_MAPS or "filters" in layer_table.arguments(kind)[0]


def needs_tokens(kind: str) -> bool:
    """Tells whether a layer takes (batch, positions, channels): ours with `heads`, recurrent ones, and the readout."""
    return kind in _OF_TOKENS or is_recurrent(kind) or "heads" in layer_table.arguments(kind)[0]


def output_channels(spec: LayerSpec, channels: Size) -> Size:
    """Returns the channels behind a layer, for those before it."""
    if spec.kind == "Flatten":
        return None
    return next((spec.args[name] for name in _CHANNELS if name in spec.args), channels)


def size_at(size: Size, width: float) -> int | None:
    """Returns a size at one width; None for what the recipe does not know."""
    if isinstance(size, Width):
        return size.at(width)
    return None if size is None or isinstance(size, Classes) else size


def _ends(specs):
    if not specs:
        raise InvalidValue(("model", "layers"), "no layer is left; a Repeat with times: 0 gives none")
    trunk = [spec for spec in specs if spec.exit is None]
    if not trunk:
        raise InvalidValue(
            ("model", "layers"), "every layer stands in an Exit; exits branch off from layers outside of them"
        )
    sizing = [spec for spec in trunk if any(name in spec.args for name in _CHANNELS)]
    last = sizing[-1] if sizing else trunk[-1]
    sized = [spec.args[name] for name in _CHANNELS for spec in (last,) if name in spec.args]
    if not sized or not isinstance(sized[0], Classes):
        raise InvalidValue(
            last.path,
            "the last layer with a size must be `!classes` wide: one output for each label, "
            f"such as `Dense: {{units: !classes}}`. Received: {show(sized[0] if sized else None)}",
        )


def _embedding(specs, source):
    """A model of words begins with an embedding that fits the input, and has no other; one of a plug-in may do too."""
    of_words, first = _STARTS.get(source) == "words", specs[0]
    if of_words and (not takes_words(first.kind) or first.kind == _UNFIT.get(source)):
        fitting = "MaskedTokenEmbedding" if source == "masked_text" else "Embedding"
        raise InvalidValue(
            first.path,
            f"{'sequences need' if source == 'sequences' else 'text needs'} an embedding first, such as {fitting}. "
            f"Received: {first.kind}",
        )
    for name in ("classes", "words"):
        value = first.args.get(name)
        if value is None or not of_words:
            continue
        if source != "sequences" and not isinstance(value, Classes):
            text = f"must be `!classes`: a row for each word of the vocabulary. Received: {show(value)}"
            raise InvalidValue((*first.path, name), text)
        if source == "sequences" and type(value) is not int:
            raise InvalidValue(
                (*first.path, name),
                "must be a number, at least as many as the vocabulary of the data has words: `!classes` are the labels "
                f"of sequences, and a level has all words. Received: {show(value)}",
            )
    for spec in specs[1:] if of_words else specs:
        if takes_words(spec.kind):
            raise InvalidValue(spec.path, f"{spec.kind} takes tokens, so it stands first in a model for text")


def _attention(spec, source):
    """Refuses attention, which has no mask, where it would see what it must not."""
    seen = {"next_word": "the words that it predicts", "sequences": "the padding"}.get(source)
    if seen and "heads" in layer_table.arguments(spec.kind)[0]:
        raise InvalidValue(
            spec.path,
            f"{spec.kind} looks at all positions, so with the input {source} it would see {seen}; use LSTM or GRU",
        )


def _dilation(spec):
    """Keras has no convolution that both leaves places out and spreads its window."""
    both = {name: spec.args.get(name, 1) for name in ("strides", "dilation_rate")}
    if all(value not in (1, (1, 1)) for value in both.values()):
        raise InvalidValue(
            spec.path, f"{spec.kind} cannot have strides and dilation_rate above 1 at once. Received: {show(both)}"
        )


def check_groups(spec: LayerSpec, channels: Size, levels: Levels) -> None:
    """Raises `InvalidValue` where group normalisation does not divide the channels of every level of the mix."""
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
                    f"{groups} at every level, or another norm. Received: {show(size)}",
                )
