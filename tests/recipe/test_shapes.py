"""Layers that do not fit together."""

import re

import pytest
from bad_recipes import BASE, with_layers
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.recipe import load

CLASSES = "Dense: {units: !classes}"


def layers(*items, base=BASE):
    """The LayerSpecs of a recipe with these items before the last two."""
    return recipe.loads(with_layers(*items, "GlobalAveragePooling2D", CLASSES, base=base)).model.layers


def test_flatten_before_any_width_is_fine():
    text = with_layers("Flatten", "[Dense: {units: !w 32}, ReLU]", CLASSES)
    assert [spec.kind for spec in recipe.loads(text).model.layers] == ["Flatten", "Dense", "ReLU", "Dense"]


@pytest.mark.parametrize("channels, allowed", [(64, True), (128, True), (60, True), (32, False)])
def test_four_groups_divide_the_channels_of_every_level(channels, allowed):
    items = f"[PaddedConv2D: {{filters: !w {channels}}}, Norm: {{kind: gn}}]"
    if allowed:
        assert layers(items)
        return
    assert re.search("4 groups do not divide the [0-9]+ channels of level '[ae]'", refusal(layers, items))
    # Levels outside the mix do not count.
    assert layers(items, base=BASE.replace("mix: a1-e9", "mix: a1-c9"))


def test_four_groups_divide_the_channels_of_a_u_net():
    message = refusal(recipe.load, "tiny/shapes_unet", ["model.settings.norm=gn"])
    assert "layers[0].UNet: 4 groups do not divide the 2 channels of level 'b'" in message
    assert recipe.load("shapes_unet", ["model.settings.norm=gn"])


def test_sizes_that_only_together_are_too_large():
    text = BASE.replace("    - Dense", "    - Dense: {units: 1000000}\n    - Dense: {units: !w 1000000}\n    - Dense")
    message = "1000000000000 weights in one layer; at most 2147483648 are allowed. Received: !w 1000000 after 1000000"
    assert message in refusal(recipe.loads, text)


EMBEDDING = "Embedding: {words: !classes, width: 8}"
SEQUENCES, NEXT = "tiny/text_topics", "tiny/wikitext2_lstm"
LAST = "Dense: {units: !classes}"


def error_of(name, *layers, changes=()):
    """The first line of the error of a tiny recipe with other layers."""
    overrides = [
        f"model.layers=[{', '.join(f'{{{one}}}' if ':' in one else one for one in layers)}]",
        "model.settings={}",
    ]
    return refusal(load, name, [*overrides, *changes]).split("\n")[0]


@pytest.mark.parametrize(
    "name, layers, message",
    [
        (
            NEXT,
            [LAST],
            "text needs an embedding as the first layer, such as Embedding or MaskedTokenEmbedding. Received: Dense",
        ),
        (
            NEXT,
            ["Embedding: {words: 50, width: 8}", LAST],
            "must be `!classes`, one row per word of the vocabulary. Received: 50",
        ),
        (SEQUENCES, [LAST], "sequences need an embedding as the first layer, such as Embedding. Received: Dense"),
        (
            SEQUENCES,
            [EMBEDDING, "LSTM: {units: 8}", LAST],
            "must be a number that is at least the vocabulary size: for sequences, `!classes` counts labels, and every "
            "level has all words. Received: !classes",
        ),
        (
            NEXT,
            [EMBEDDING, "TransformerBlock: {heads: 2, head_width: 4, hidden: 8}", LAST],
            "TransformerBlock reads several positions, so with the input next_word it would see the words to predict; "
            "use LSTM or GRU",
        ),
        (
            SEQUENCES,
            ["Embedding: {words: 50, width: 8}", "SelfAttention: {heads: 2, head_width: 4}", LAST],
            "SelfAttention reads several positions, so with the input sequences it would see the padding; "
            "use LSTM or GRU",
        ),
        (
            NEXT,
            [EMBEDDING, "GRU: {units: 8}", LAST],
            "GRU reduces all positions to one vector, but a text model returns logits for every position; set "
            "`return_sequences: true`",
        ),
        (
            SEQUENCES,
            ["Embedding: {words: 50, width: 8}", "LSTM: {units: 8, return_sequences: true}", LAST],
            "the model ends with a sequence, but a sequence has one label; remove `return_sequences` from the last "
            "LSTM or GRU",
        ),
    ],
)
def test_layers_that_cannot_process_text_are_rejected(name, layers, message):
    assert error_of(name, *layers).endswith(f": {message}")
