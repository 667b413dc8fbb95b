"""Layers that do not fit together."""

import re

import pytest
from bad_recipes import BASE, LAYERS, with_layers
from refusals import refusal

from hetero_tf import recipe

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


@pytest.mark.parametrize("name, overrides, message", LAYERS)
def test_layers_that_cannot_process_text_are_rejected(name, overrides, message):
    assert refusal(recipe.load, name, overrides.split("\n")).split("\n")[0].endswith(f": {message}")
