"""Recipes that do not fit their data are rejected with a position before anything is built."""

import dataclasses
import re

import numpy as np
import pytest
from bad_recipes import BASE, with_layers
from refusals import refusal

import hetero_tf
from hetero_tf import recipe
from hetero_tf.base.errors import InputError
from hetero_tf.data.codecs import Field, words
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.recipe.fit import COPIES, DataFacts, check_fit, check_kind

FACTS = DataFacts(source="digits", example=(8, 8, 1), classes=10, several=True, pixels=(0.0, 1.0), train=200, test=100)
LARGE = 2**50
HEAD = ("GlobalAveragePooling2D", "Dense: {units: !classes}")


def loaded(*layers, overrides=()):
    return recipe.loads(with_layers(*layers) if layers else BASE, "r.yaml", overrides)


def error_of(checked_recipe, facts=FACTS, memory=LARGE):
    """The first line of the error message."""

    def check():
        with recipe.with_source_location(checked_recipe):
            check_fit(checked_recipe, facts, memory)

    return refusal(check).split("\n")[0]


LAYERS = {
    "MaxPooling2D: {pool_size: 9}": ".MaxPooling2D: MaxPooling2D has no output for an input of 8 x 8 pixels; use a smaller "
    "window, `padding: same`, less cropping, or less pooling before it. Received: {pool_size: 9}",
    "Repeat: {times: 4, layer: MaxPooling2D}": ".Repeat.layer: MaxPooling2D has no output for an input of 1 x 1 pixels",
    "AveragePooling2D: {pool_size: [2, 9]}": ".AveragePooling2D: AveragePooling2D has no output for an input of 8 x 8 pixels",
    "Conv2D: {filters: 8, kernel_size: 3, dilation_rate: 5}": ".Conv2D: Conv2D has no output for an input of 8 x 8 pixels",
    "GroupNormalization: {groups: 2}": ".GroupNormalization: 2 groups do not divide the 1 channel of level 'a'",
    "Exit: [MaxPooling2D: {pool_size: 9}, GlobalAveragePooling2D, Dense: {units: !classes}]": ".Exit[0].MaxPooling2D: "
    "MaxPooling2D has no output for an input of 8 x 8 pixels",
}


@pytest.mark.parametrize("layer", LAYERS)
def test_layer_without_output_is_reported(layer):
    expected = error_of(loaded(layer, *HEAD))
    layer_key, text = re.fullmatch(r"r\.yaml:8:\d+: model\.layers\[0\](\S*: )(.*)", expected).groups()
    assert (layer_key + text).startswith(LAYERS[layer])


def test_patches_must_divide_the_images():
    checked_recipe = loaded("PatchEmbedding: {patch: 3, width: !w 8}", "ClassTokenReadout", "Dense: {units: !classes}")
    message = "PatchEmbedding.patch: must divide the 8 x 8 pixels of the input. Received: 3"
    assert error_of(checked_recipe).endswith(message)


CHANNEL = "must have one number, or 3: one for each channel. Received: [0.1, 0.2]"
RANGE = "pixels before normalisation are from 0 to 1, so this must be"


@pytest.mark.parametrize(
    "channels, mean, std, expected",
    [
        (1, "[.1, .2]", "[.5]", "mean: must have one number for images of one channel. Received: [0.1, 0.2]"),
        (3, "[.1, .2]", "[.5]", f"mean: {CHANNEL}"),
        (3, "[.1]", "[.1, .2]", f"std: {CHANNEL}"),
        (3, "[.1, .2, 125]", "[.5]", f"mean[2]: {RANGE} from 0 to 1. Received: 125"),
        (1, "[0]", "[255]", f"std[0]: {RANGE} at most 1. Received: 255"),
    ],
)
def test_normalisation_must_match_channels_and_pixel_range(channels, mean, std, expected):
    text = BASE.replace("mean: [0.5], std: [0.5]", f"mean: {mean}, std: {std}")
    checked_recipe, facts = recipe.loads(text, "r.yaml"), dataclasses.replace(FACTS, example=(8, 8, channels))
    assert re.sub(r"^r\.yaml:4:\d+: input\.", "", error_of(checked_recipe, facts)) == expected
    example = (8, 8, max(len(mean.split(",")), len(std.split(","))))
    check_fit(checked_recipe, dataclasses.replace(facts, example=example, pixels=(0.0, 255.0)), LARGE)


@pytest.mark.parametrize("pixels, most", [((-3.0, 2.0), 3), ((-2.0, 3.0), 3), ((-0.5, 0.5), 1)])
def test_deviation_is_at_most_the_largest_absolute_pixel_or_1(pixels, most):
    facts = dataclasses.replace(FACTS, pixels=pixels)
    check_fit(loaded(overrides=["input.mean=[0]", f"input.std=[{most}]"]), facts, LARGE)
    message = error_of(loaded(overrides=["input.mean=[0]", f"input.std=[{most}.1]"]), facts)
    assert message.endswith(f"so this must be at most {most}. Received: {most}.1")


def test_data_with_a_single_label_are_rejected_and_overrides_named():
    assert error_of(loaded(), dataclasses.replace(FACTS, several=False)) == (
        "r.yaml:3:7: data: all training examples have the same label; use data with at least two. Received: digits"
    )
    message = error_of(loaded(overrides=["input.mean=[1, 1]"]))
    assert message.startswith("--set input.mean=[1, 1]: input.mean: must have")


def test_a_task_of_ordered_classes_rejects_sorted_texts():
    facts = dataclasses.replace(FACTS, sorted_names=("high", "low", "medium"))
    ordinal = loaded(overrides=["task=ordinal", "client.loss=null"])
    assert error_of(ordinal, facts).startswith(
        "r.yaml:3:7: data: the task ordinal needs the order of the classes, which are sorted texts; list them from the "
        "lowest to the highest: `data.class_order`: [high, low, medium]. Received: digits"
    )
    check_fit(loaded(overrides=["task=ordinal", "client.loss=null", "data.class_order=[low]"]), facts, LARGE)
    check_fit(ordinal, dataclasses.replace(facts, classes=2), LARGE)
    check_fit(loaded(), facts, LARGE)


def test_input_needs_its_kind_of_data():
    checked_recipe = loaded()
    with recipe.with_source_location(checked_recipe):
        check_kind(checked_recipe, "images", "label", "digits")
    with pytest.raises(InputError) as error, recipe.with_source_location(checked_recipe):
        check_kind(checked_recipe, "text", "positions", "prose")
    assert str(error.value).startswith(
        "r.yaml:4:8: input: the input images needs images, but the data are text, prose; choose an input and a model"
    )


def test_memory_is_checked_before_anything_is_built():
    checked_recipe = loaded("Flatten", "Dense: {units: 1000}", "Dense: {units: !classes}", overrides=["levels.mix=a1"])
    needed = 4 * ((COPIES + 1) * (64 * 1000 + 1000 * 10) + checked_recipe.client.batch_size * (64 + 1000 + 10))
    check_fit(checked_recipe, FACTS, needed)
    assert error_of(checked_recipe, memory=needed - 1) == (
        "r.yaml:7:3: model: needs at least 0.0 GiB of memory with batches of 10, but this machine has 0.0 GiB; use smaller "
        "layers or a smaller client.batch_size (with --set levels.mix=a1)"
    )


def test_every_width_of_a_mix_counts_as_memory():
    layers = ("Flatten", "Dense: {units: !w 1000}", "Dense: {units: !classes}")
    one, two = loaded(*layers, overrides=["levels.mix=a1"]), loaded(*layers)
    needed = 4 * ((COPIES + 1) * 74_000 + 10 * 1074)
    check_fit(one, FACTS, needed)
    assert "of memory with batches of 10" in error_of(two, memory=needed)


@pytest.mark.parametrize(
    "layer, tested", [("UpSampling2D: {size: 1000}", 1), ("PaddedConv2D: {filters: !w 1000000}", 99)]
)
def test_tensors_too_large_for_tensorflow_kernels_are_rejected(layer, tested):
    layers = ("PaddedConv2D: {filters: 8}", layer, *HEAD)
    message = error_of(loaded(*layers), dataclasses.replace(FACTS, test=tested))
    assert "values per example, so a batch has more than 2,147,483,647; use smaller sizes" in message


def test_a_large_but_legal_model_passes_and_a_trunk_continues_with_its_shape_before_an_exit():
    wide = loaded("Flatten", "Dense: {units: 1000000}", "Dense: {units: 500}", "Dense: {units: !classes}")
    check_fit(wide, FACTS, 2**34)
    pool = "MaxPooling2D: {pool_size: 8}"
    check_fit(loaded(f"Exit: [{pool}, {', '.join(HEAD)}]", pool, *HEAD), FACTS, LARGE)


def test_embedding_smaller_than_the_vocabulary_and_data_of_another_kind_are_rejected():
    message = refusal(hetero_tf.learning_process, recipe.load("tiny/text_topics", ["model.settings.words=49"])).split(
        "\n"
    )[0]
    assert message.endswith(
        "must be at least 50, the size of the vocabulary of synthetic sequences (seed 0); or choose a smaller "
        "vocabulary of the data. Received: 49"
    )
    text = refusal(hetero_tf.learning_process, recipe.load("tiny/text_topics", ["data={name: synthetic, kind: text}"]))
    assert "the input sequences needs sequences, but the data are text, synthetic text (seed 0)" in text


@pytest.mark.parametrize(
    "x, y, expected",
    [
        (np.zeros((2, 3), np.float32), [0, 1], "expected words int32 [n, length], all dimensions above 0. Received: float32 (2, 3)"),
        (np.full((2, 3), 4, np.int32), [0, 1], "every word id must be in 0..3. Received: 4 at position 0"),
        (np.zeros((2, 3), np.int32), [0, 2], "every label must be in 0..1. Received: 2 at position 1"),
        (np.zeros((2, 3), np.int32), [0], "expected labels int32 [2], one per sequence. Received: int32 (1,)"),
    ],
)  # fmt: skip
def test_sequences_are_checked(x, y, expected):
    split, fields = Split(x, np.array(y, np.int32)), (Field("text", words.Codec(3, ("<pad>", "<ukn>", "a", "b"))),)
    assert refusal(Dataset, split, split, fields, 2, "mine") == f"mine, train split: {expected}"
