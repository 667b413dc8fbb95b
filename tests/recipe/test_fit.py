"""Recipes that do not fit their data, each refused by one sentence with its place, before anything is built."""

import dataclasses
import re

import pytest
from bad_recipes import BASE
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.base.errors import InputError
from hetero_tf.recipe.fit import COPIES, Facts, check_fit, check_kind

FACTS = Facts(source="digits", example=(8, 8, 1), classes=10, several=True, pixels=(0.0, 1.0), train=200, test=100)
LARGE = 2**50
HEAD = ("GlobalAveragePooling2D", "Dense: {units: !classes}")


def loaded(*layers, overrides=()):
    """The base recipe, with these layers if any are given."""
    items = "".join(f"    - {item}\n" for item in layers)
    text = re.sub(r"  settings: .*\n  layers:\n(    .*\n)*", "  layers:\n" + items, BASE) if layers else BASE
    return recipe.loads(text, "r.yaml", overrides)


def refused(got, facts=FACTS, memory=LARGE):
    """The first line of the refusal."""

    def check():
        with recipe.located(got):
            check_fit(got, facts, memory)

    return refusal(check).split("\n")[0]


LAYERS = {
    "MaxPooling2D: {pool_size: 9}": ".MaxPooling2D: MaxPooling2D looks at 9 x 9 pixels at once, but 8 x 8 are left here; "
    "give it a smaller window or `padding: same`, or pool less before it. Received: {pool_size: 9}",
    "Repeat: {times: 4, layer: MaxPooling2D}": ".Repeat.layer: MaxPooling2D looks at 2 x 2 pixels at once, but 1 x 1 are",
    "AveragePooling2D: {pool_size: [2, 9]}": ".AveragePooling2D: AveragePooling2D looks at 2 x 9 pixels at once, but 8 x 8",
    "Conv2D: {filters: !w 8, kernel_size: 9}": ".Conv2D: Conv2D looks at 9 x 9 pixels at once, but 8 x 8 are left here",
    "Conv2D: {filters: 8, kernel_size: 3, dilation_rate: 5}": ".Conv2D: Conv2D looks at 11 x 11 pixels at once",
    "DepthwiseConv2D: {kernel_size: 9}": ".DepthwiseConv2D: DepthwiseConv2D looks at 9 x 9 pixels at once",
    "Cropping2D: {cropping: 4}": ".Cropping2D: Cropping2D cuts 8 x 8 pixels away, but 8 x 8 are left here; crop less. "
    "Received: {cropping: 4}",
    "GroupNormalization: {groups: 2}": ".GroupNormalization: 2 groups do not divide the 1 channel of level 'a'",
    "Exit: [MaxPooling2D: {pool_size: 9}, GlobalAveragePooling2D, Dense: {units: !classes}]": ".Exit[0].MaxPooling2D: "
    "MaxPooling2D looks at 9 x 9 pixels at once",
}


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_that_leaves_nothing_is_named(layer):
    sentence = refused(loaded(layer, *HEAD))
    place, text = re.fullmatch(r"r\.yaml:8:\d+: model\.layers\[0\](\S*: )(.*)", sentence).groups()
    assert (place + text).startswith(LAYERS[layer])


def test_patches_must_divide_the_images():
    got = loaded("PatchEmbedding: {patch: 3, width: !w 8}", "ClassTokenReadout", "Dense: {units: !classes}")
    assert refused(got).endswith("PatchEmbedding.patch: must divide the 8 x 8 pixels that are left here. Received: 3")


def test_the_trunk_goes_on_with_what_it_had_before_an_exit():
    pool = "MaxPooling2D: {pool_size: 8}"
    check_fit(loaded(f"Exit: [{pool}, {', '.join(HEAD)}]", pool, *HEAD), FACTS, LARGE)


NORMALISATION = (
    (
        1,
        "[.1, .2]",
        "[.5]",
        "r.yaml:4:29: input.mean: must hold one number for images of one channel. Received: [0.1, 0.2]",
    ),
    (
        3,
        "[.1, .2]",
        "[.5]",
        "r.yaml:4:29: input.mean: must hold one number, or 3: one for each channel. Received: [0.1, 0.2]",
    ),
    (
        3,
        "[.1]",
        "[.1, .2]",
        "r.yaml:4:41: input.std: must hold one number, or 3: one for each channel. Received: [0.1, 0.2]",
    ),
    (
        3,
        "[.1, .2, 125]",
        "[.5]",
        "r.yaml:4:38: input.mean[2]: pixels are normalised as numbers from 0 to 1, so this must be from 0 to 1. Received: 125",
    ),
    (
        1,
        "[0]",
        "[255]",
        "r.yaml:4:42: input.std[0]: pixels are normalised as numbers from 0 to 1, so this must be at most 1. Received: 255",
    ),
)


@pytest.mark.parametrize("channels, mean, std, sentence", NORMALISATION)
def test_the_normalisation_fits_the_channels_and_their_range(channels, mean, std, sentence):
    text = BASE.replace("mean: [0.5], std: [0.5]", f"mean: {mean}, std: {std}")
    got, facts = recipe.loads(text, "r.yaml"), dataclasses.replace(FACTS, example=(8, 8, channels))
    found = refused(got, facts)
    assert re.sub(r":4:\d+:", "", found) == re.sub(r":4:\d+:", "", sentence)
    check_fit(
        got,
        dataclasses.replace(facts, example=(8, 8, max(len(mean.split(",")), len(std.split(",")))), pixels=(0.0, 255.0)),
        LARGE,
    )


def test_an_override_is_named_as_such():
    assert refused(loaded(overrides=["input.mean=[1, 1]"])).startswith("--set input.mean=[1, 1]: input.mean: must hold")


def test_one_label_alone_teaches_nothing():
    sentence = refused(loaded(), dataclasses.replace(FACTS, several=False))
    assert sentence == (
        "r.yaml:3:7: data: all training examples have one label, so there is nothing to learn. Received: digits"
    )


def test_an_input_gets_its_kind_of_data():
    got = loaded()
    with recipe.located(got):
        check_kind(got, "images", "images", "digits")
        check_kind(got, None, "text", "prose")
    with pytest.raises(InputError) as error, recipe.located(got):
        check_kind(got, "images", "text", "prose")
    assert str(error.value).startswith(
        "r.yaml:4:8: input: images takes images, but the data are text, prose; change `data`"
    )


def test_memory_is_compared_with_a_lower_bound_before_anything_is_built():
    got = loaded("Flatten", "Dense: {units: 1000}", "Dense: {units: !classes}", overrides=["levels.mix=a1"])
    batch = got.client.batch_size
    needed = 4 * ((COPIES + 1) * (64 * 1000 + 1000 * 10) + batch * (64 + 1000 + 10))
    check_fit(got, FACTS, needed)
    assert refused(got, memory=needed - 1).startswith(
        "r.yaml:9:14: model.layers[1].Dense: the model is too large: with client.batch_size 10 it needs about 0.0 GiB, and "
        "this machine has 0.0 GiB, most of it here; this layer has 64,000 weights and makes 1,000 values of each example. "
        "Use smaller sizes or a smaller client.batch_size. Received: {units: 1000}"
    )


def test_the_second_model_of_a_mix_takes_memory_too():
    layers = ("Flatten", "Dense: {units: !w 1000}", "Dense: {units: !classes}")
    one, two = loaded(*layers, overrides=["levels.mix=a1"]), loaded(*layers)
    needed = 4 * ((COPIES + 1) * 74_000 + 10 * 1074)
    check_fit(one, FACTS, needed)
    assert "the model is too large" in refused(two, memory=needed)


@pytest.mark.parametrize(
    "layer, tested, key",
    [
        ("UpSampling2D: {size: 1000}", 1, "client.batch_size 10"),
        ("PaddedConv2D: {filters: !w 1000000}", 99, "evaluate.batch_size 50"),
    ],
)
def test_tensors_beyond_the_kernels_of_tensorflow_are_refused(layer, tested, key):
    layers = ("PaddedConv2D: {filters: 8}", layer, *HEAD)
    sentence = refused(loaded(*layers), dataclasses.replace(FACTS, test=tested))
    assert f"the model is too large: with {key} it needs a tensor of " in sentence


def test_a_large_but_legal_model_passes():
    wide = loaded("Flatten", "Dense: {units: 1000000}", "Dense: {units: 500}", "Dense: {units: !classes}")
    check_fit(wide, FACTS, 2**34)
