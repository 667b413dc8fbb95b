"""Costs of models, against the tables of the HeteroFL paper and manual counts."""

import dataclasses
import functools
import json
import math
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from descriptions import describe_recipe

import hetero_tf
from hetero_tf.base import hardware
from hetero_tf.models.build_model import build_model
from hetero_tf.models.costs import counting
from hetero_tf.models.costs.level_costs import InferenceMemory, TrainingMemory
from hetero_tf.recipe import geometry, load, loads
from hetero_tf.reports.describe import describe, to_json, to_text

# Parameters and FLOPs of one forward pass at levels a to e. Source: measured in the authors' code; they agree with
# every digit that the paper prints (arXiv 2010.01264, tables 1-3 and 7-9; PreResNet of the paper has blocks 1,1,1,2).
CELLS = {
    ("mnist", (), (28, 28, 1), 10): (
        (1_556_874, 80_504_320), (391_370, 20_493_056), (98_922, 5_306_752), (25_274, 1_418_432), (6_594, 400_480)
    ),
    ("cifar10", ("model.settings.blocks=[1,1,1,2]",), (32, 32, 3), 10): (
        *((9_622_090, 330_246_144), (2_408_746, 83_334_144), (603_802, 21_219_840), (151_762, 5_498_112)),
        (38_350, 1_471_104),
    ),
    ("cifar10", (), (32, 32, 3), 10): (
        *((11_172_170, 557_656_064), (2_796_714, 140_416_000), (701_018, 35_604_992), (176_178, 9_151_744)),
        (44_510, 2_413_184),
    ),
    ("wikitext2", (), (64,), 33_279): (
        *((19_263_999, 1_367_965_696), (9_107_967, 614_776_832), (4_435_455, 290_086_912), (2_200_575, 140_718_080)),
        (1_108_479, 69_277_696),
    ),
}  # fmt: skip
ONE_BLOCK = ("model.settings.blocks=1", "levels.mix=a", "levels.widths={a: 1.0, b: 0.5}")
DENSE = """
name: dense
data: {{name: synthetic, size: 4, channels: 1}}
input: images
partition: {{name: {partition}, clients: 4{labels}}}
model:
  layers:
    - [PaddedConv2D: {{filters: !w 4}}, Scaler, Norm]
    - GlobalAveragePooling2D
    - Dense: {{units: !classes}}
levels: {{widths: {{a: 1.0, b: 0.5}}, mix: {mix}}}
round: {{clients: 2}}
client: {{batch_size: 5}}
optimizer: {{name: {optimizer}, learning_rate: 0.1}}
rounds: 1
precision: {precision}
"""


def small(partition="iid", labels="", mix="a1-b3", precision="float32", optimizer="sgd"):
    return loads(DENSE.format(partition=partition, labels=labels, mix=mix, precision=precision, optimizer=optimizer))


@functools.cache
def described(*key):
    """The description of a key of `CELLS`."""
    name, overrides, shape, classes = key
    return describe_recipe(load(name, overrides), shape, classes)


DEEP = pytest.param(("cifar10", (), (32, 32, 3), 10), marks=pytest.mark.long)


@pytest.mark.parametrize(
    "key", [DEEP if key in DEEP.values else key for key in CELLS], ids=lambda key: f"{key[0]}{key[1]}"
)
def test_parameters_and_flops_match_the_paper(key):
    levels = described(*key).levels
    assert list(levels) == list("abcde")
    assert tuple((cost.parameters, cost.paper_flops) for cost in levels.values()) == CELLS[key]


MNIST, *_, WIKITEXT = CELLS


def test_mix_is_the_weighted_mean():
    # Source: HeteroFL, Table 7, row a-e: 781.7 K parameters, ratio 0.50.
    mix = to_json(described(*MNIST))["mix"]
    assert mix["parameters"] == (1_556_874 + 6_594) / 2
    assert f"{mix['parameters'] / 1000:.1f} {mix['ratio']:.2f}" == "781.7 0.50"
    assert mix["paper_flops"] == (80_504_320 + 400_480) / 2
    uneven = to_json(describe_recipe(small(mix="a1-b3"), (4, 4, 1), 10))
    a, b = (uneven["levels"][level]["parameters"] for level in "ab")
    assert uneven["mix"]["parameters"] == (a + 3 * b) / 4
    assert uneven["mix"]["shares"] == {"a": 0.25, "b": 0.75}


def test_mebibytes_match_the_paper_and_float64_has_eight_bytes():
    # Source: HeteroFL, Table 9: 73.49 MB at level a; Table 7: 5.94 MB.
    assert [round(described(*key).levels["a"].mebibytes, 2) for key in (MNIST, WIKITEXT)] == [5.94, 73.49]
    one, two = (describe_recipe(small(precision=name), (4, 4, 1), 10).levels["a"] for name in ("float32", "float64"))
    assert (two.bytes_down, two.mebibytes) == (2 * one.bytes_down, 2 * one.mebibytes)
    assert two.parameters == one.parameters and two.paper_flops == one.paper_flops


def test_multiply_adds_count_attention_and_no_bias():
    text, images = (described(*key).levels["e"] for key in (WIKITEXT, MNIST))
    positions, width, hidden, words = 64, 16, 32, 33_279
    block = 4 * width * width + 2 * positions * width + 2 * width * hidden
    assert text.multiply_adds == positions * (4 * block + width * width + width * words)
    convolutions = [(28, 1, 4), (14, 4, 8), (7, 8, 16), (3, 16, 32)]
    assert images.multiply_adds == sum(9 * side**2 * before * after for side, before, after in convolutions) + 32 * 10


def test_every_layer_can_be_counted():
    values = {"pool_size": 2, "filters": 3, "kernel_size": 3, "units": 5, "groups": 1, "rate": 0.5}
    values["activation"] = "relu"
    for name in geometry.KERAS_LAYERS:
        options = geometry.layer_options(name).items()
        needed = {argument for argument, option in options if option.required or argument == "groups"}
        layer = getattr(keras.layers, name)(**{argument: values[argument] for argument in needed})
        shape = (6, 2) if name.endswith("1D") else (6, 6, 2)
        inputs = keras.Input(shape)
        model = keras.Model(inputs, layer(inputs))
        cost = counting.total(counting.forward(model, shape))
        assert (cost.paper_flops > 0) == bool(model.trainable_variables), name
        expected = {"Conv1D": 4 * 3 * 2 * 3, "Conv2D": 4 * 4 * 9 * 2 * 3, "DepthwiseConv2D": 4 * 4 * 9 * 2}
        expected["Dense"] = 36 * 2 * 5
        assert cost.multiply_adds == expected.get(name, 0), name


def products(function, *shapes):
    """Counted costs of a function of tensors with these shapes."""
    graph = tf.function(function).get_concrete_function(*map(tf.TensorSpec, shapes)).graph
    return sum(counting.multiply_adds(operation) for operation in graph.get_operations())


@pytest.mark.parametrize(
    ("equation", "first", "second", "expected"),
    [
        ("ab,bc->ac", (2, 3), (3, 5), 30),
        ("...ab,bc->...ac", (7, 2, 3), (3, 5), 210),
        ("...a,...a->...", (4, 1, 3), (6, 3), 72),
        ("npe,ehd->nhpd", (1, 6, 4), (4, 2, 2), 96),
    ],
)
def test_an_einsum_costs_the_product_of_its_indices(equation, first, second, expected):
    assert products(lambda a, b: tf.einsum(equation, a, b), first, second) == expected


@pytest.mark.parametrize("turned", [False, True])
def test_transposed_products_cost_the_same(turned):
    first = (7, 4, 3) if turned else (7, 3, 4)
    assert products(lambda a, b: tf.matmul(a, b, transpose_a=turned), first, (7, 4, 5)) == 7 * 3 * 4 * 5


def test_traffic_counts_rows_of_client_labels_and_the_mask_token_is_only_sent_down():
    # Level b: convolution 9*2 + 2, norm 2 + 2, dense 2 * labels + labels.
    description = describe_recipe(small(), (4, 4, 1), 10, labels=[1, 2, 6])
    assert description.levels["b"].bytes_down == description.levels["b"].bytes_up == 4 * (24 + 3 * 3)
    assert description.levels["b"].parameters == 24 + 3 * 10
    all_labels = describe_recipe(small(), (4, 4, 1), 10)
    assert all_labels.levels["b"].bytes_down == 4 * all_labels.levels["b"].parameters
    for cost in describe_recipe(load("tiny/wikitext2", ONE_BLOCK), (16,), 50, labels=[20, 40]).levels.values():
        width = cost.shapes["0_0_masked_token_embedding/tokens"][1]
        assert cost.bytes_down - cost.bytes_up == 4 * width
        # Rows of the embedding, columns and biases of the output layer.
        assert cost.bytes_down == 4 * (cost.parameters - (50 - 30) * (2 * width + 1))


def test_training_memory_grows_with_the_batch_that_clients_can_fill():
    recipe = small()
    few, many = (describe_recipe(recipe, (4, 4, 1), 10, examples=examples).levels["a"] for examples in (2, 100))
    assert many.memory.activations / 5 == few.memory.activations / 2 > 4 * 16 * 4
    assert (many.memory.weights, many.memory.optimizer) == (few.memory.weights, few.memory.optimizer)


@pytest.mark.parametrize("optimizer, slots", [("sgd", 1), ("adam", 2)])
def test_training_memory_matches_a_manual_count(optimizer, slots):
    description = describe_recipe(small(optimizer=optimizer), (4, 4, 1), 10)
    # Level b: 54 values; in a batch of 5 maps of 4 x 4 x 2 by convolution, Scaler and norm, their means, 10 logits.
    memory = description.levels["b"].memory
    assert (memory.weights, memory.gradients, memory.optimizer) == (4 * 54, 4 * 54, slots * 4 * 54)
    assert memory.activations == 4 * 5 * (3 * 32 + 2 + 10)
    plain = to_json(description)["levels"]["b"]
    assert sum(plain["memory"].values()) == plain["training_bytes"] == memory.total
    table = next(block for block in to_text(description, True).split("\n\n") if "activations" in block.split("\n")[0])
    assert "  training  predict  by unit" in table.split("\n")[0] and "activations" in plain["memory"]


def test_tables_of_levels_have_clients_and_units_that_suit_the_numbers():
    description = describe_recipe(small(mix="a1-b3"), (4, 4, 1), 10, labels=[10] * 4)
    text = to_text(description, complete=True)
    rows = [re.split(r"\s{2,}", line) for line in text.split("\n\n")[1].splitlines()]
    assert [row[:5] for row in rows] == [
        ["level", "width", "clients", "params", "size"],
        ["a", "1", "1 (25 %)", "98", "392 B"],
        ["b", "0.5", "3 (75 %)", "54", "216 B"],
        ["mix", "0.66", "4 (100 %)", "65", "260 B"],
    ]
    # 16 positions with kernels of 3 x 3 x 4, and 4 x 10 in the dense layer.
    assert rows[1][6] == "616" and max(map(len, text.splitlines())) <= 80
    memory, inference = TrainingMemory(2**20, 2 * 2**20, 3 * 2**20, 5 * 2**19), InferenceMemory(4 * 2**20, 2**18)
    levels = {"a": dataclasses.replace(description.levels["a"], memory=memory, inference=inference)}
    lines = to_text(dataclasses.replace(description, levels=levels, mix={"a": 1.0}), True).splitlines()
    row = lines[next(number for number, line in enumerate(lines) if "  activations  " in line) + 1]
    assert re.split(r"\s{2,}", row) == ["a", "1 MiB", "2 MiB", "3 MiB", "2.5 MiB", "8.5 MiB", "4 MiB", "256 KiB"]


def test_levels_wider_than_the_global_model_are_described():
    description = describe_recipe(small(mix="b"), (4, 4, 1), 10)
    assert description.mix == {"b": 1.0}
    assert description.levels["a"].parameters > description.levels["b"].parameters
    assert to_json(description)["mix"]["ratio"] == 1


def test_describe_reads_shapes_and_labels_of_the_process():
    process = hetero_tf.learning_process(small("labels", ", per_client: 5"))
    description = describe(process)
    about = description.about
    assert (about["example"], about["classes"], about["data"]) == ((4, 4, 1), 10, "synthetic images (seed 0)")
    label_counts = process.partition.label_mask.sum(1)
    assert list(description.labels) == list(label_counts) and label_counts.min() < label_counts.max() == 5
    assert about["split"] == process.partition.summary(process.dataset.train.labels)
    # The process pads all clients to the most labels; what must travel is the mean of what they have.
    parameters = process.setup.submodels[1].block.parameters
    assert description.levels["b"].bytes_down == round(4 * (parameters - 3 * (5 - label_counts.mean())))
    for name, width in (("a", 1.0), ("b", 0.5)):
        built = build_model(process.recipe.model, (4, 4, 1), width)
        assert description.levels[name].parameters == built.count_params() - 2 * math.ceil(4 * width)


def test_describe_uses_one_segment_of_text():
    assert describe(hetero_tf.learning_process(load("tiny/wikitext2", ONE_BLOCK))).about["example"] == (16,)
    one = load("tiny/wikitext2", [*ONE_BLOCK, "input.segment=16", "data.length=16"])
    assert describe(hetero_tf.learning_process(one)).about["example"] == (16,)


def test_json_is_plain_and_complete():
    process = hetero_tf.learning_process(small())
    result = to_json(describe(process))
    assert json.loads(json.dumps(result)) == result
    both = "bytes_down bytes_up mebibytes multiply_adds paper_flops parameters"
    assert set(result["levels"]["a"]) == {*both.split(), "inference", "memory", "training_bytes", "width"}
    assert {type(result["levels"]["a"][name]) for name in ("parameters", "paper_flops", "bytes_up")} == {int}
    assert " ".join(sorted(result["mix"])) == f"{both} ratio shares"
    assert result["split"]["clients"] == 4 and result["stand_in_for"] is None
    assert result["engine"] == process.engine_report()
    assert result["understood"][0] == "pictures: 4 x 4 pixels, grey, uint8" and result["warnings"] == []


def test_text_has_aligned_tables():
    description = describe(hetero_tf.learning_process(small()))
    blocks = to_text(description, complete=True).split("\n\n")
    assert blocks[0] == (
        "dense: inputs 4 x 4 x 1, 10 classes\ndata: synthetic images (seed 0)\npictures: 4 x 4 pixels, grey, uint8\n"
        "classes: 10 with 20 examples each\nsplit: 4 clients with 50 examples, 9 to 10 labels each\nengine: CPU, float32; "
        f"{hardware.core_count()} threads, each training one client at a time"
    )
    for table in (blocks[1], *blocks[3:]):
        assert len({len(line) for line in table.splitlines()}) == 1
    rows = {line.split()[0]: line.split() for line in blocks[1].splitlines()}
    assert rows["a"][1:6] == ["1", "1", "(25", "%)", "98"] and list(rows) == ["level", "a", "b", "mix"]
    assert "split over 4 clients" in blocks[4]
    kernel = next(line.split() for line in blocks[5].splitlines() if "padded_conv2d/kernel" in line)
    assert kernel[1:] == ["3x3x1x4", "3x3x1x2"]
    *screen, hint = to_text(description).split("\n\n")
    assert screen == blocks[:2] and hint.startswith("--all adds ")


def test_text_reports_what_is_unusual():
    description = describe_recipe(small(mix="a"), (4, 4, 1), 1000, labels=[3, 100])
    text = to_text(description, complete=True)
    assert "mean over clients with 3 to 100 of 1,000 labels\n" in text
    assert "mean over clients" not in to_text(dataclasses.replace(description, labels=np.array([3, 3])), True)
    # Level b is outside of the mix, and the engine needs data.
    assert next(line for line in text.splitlines() if line.startswith("b ")).split()[:3] == ["b", "0.5", "-"]
    assert "engine" not in to_json(description) and "engine:" not in text
    stand_in = dataclasses.replace(description, about={**description.about, "stand_in_for": "mnist", "data": "digits"})
    assert "*** NOT THE REAL DATA: a stand-in for mnist ***" in to_text(stand_in)
    assert to_json(stand_in)["stand_in_for"] == "mnist"
