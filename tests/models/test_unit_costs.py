"""Training memory of units, against FeDepth's Table 1 and counts by hand."""

import keras
import programs
import pytest
import tensorflow as tf
from refusals import refusal

from hetero_tf.methods.stages import budgets
from hetero_tf.models.build_model import build_model
from hetero_tf.models.costs.counting import TABLE_BATCH, forward, total, unit_costs
from hetero_tf.recipe import loads
from hetero_tf.recipe.schema import SCENARIOS

RECIPE = """
name: units
data: {{name: synthetic, size: 4, channels: 1}}
input: images
partition: {{name: iid, clients: 4}}
model:
  layers: {layers}
levels: {{widths: {{a: 1.0, b: 0.5}}, mix: a-b}}
round: {{clients: 2}}
client: {{batch_size: 5}}
optimizer: {{learning_rate: 0.1}}
rounds: 1
"""
PRE_RES_NET_20 = """
    - [PaddedConv2D: {filters: !w 16, use_bias: false}]
    - Repeat: {times: 3, layer: {PreActivationBlock: {filters: !w 16}}}
    - Repeat: {times: 3, first: {stride: 2}, layer: {PreActivationBlock: {filters: !w 32}}}
    - Repeat: {times: 3, first: {stride: 2}, layer: {PreActivationBlock: {filters: !w 64}}}
    - [Norm, ReLU, GlobalAveragePooling2D]
    - Dense: {units: !classes}"""


def costs(layers, example, width=1.0):
    """`unit_costs` of the layers of a recipe for 10 labels."""
    model = loads(RECIPE.format(layers=layers)).model
    built = build_model(model, example, width, scale=width)
    return unit_costs(forward(built, example), {spec.name: spec.unit for spec in model.layers})


def megabytes(cost):
    return cost.memory(TABLE_BATCH) / 2**20


@pytest.fixture(scope="module")
def units():
    """`unit_costs` of PreResNet-20 for images of CIFAR-10."""
    return costs(PRE_RES_NET_20, (32, 32, 3))


def test_blocks_pack_into_the_published_stages(units):
    names = ["0", *(f"{part}_{copy}" for part in (1, 2, 3) for copy in range(3)), "4", "5"]
    assert [unit.name for unit in units] == names and total(units).parameters == 272_282
    blocks, whole = [megabytes(unit) for unit in units[1:10]], megabytes(total(units))
    assert blocks == pytest.approx([20.02] * 3 + [14.05] + [10.07] * 2 + [7.21] + [5.28] * 2, abs=0.02)
    for share, row in ((1 / 8, 14.505), (1 / 6, 19.34), (1 / 3, 38.68), (1 / 2, 58.02), (1, 116.04)):
        assert budgets.cap(share, whole, 0.0) == pytest.approx(row, abs=0.02)
    stages = [
        len(budgets.pack(blocks, budgets.cap(share, whole, 0.05), "123456789").stages) for share in SCENARIOS["lack"]
    ]
    assert stages == [1, 2, 6, 5]
    half = costs(PRE_RES_NET_20, (32, 32, 3), width=0.5)
    assert [unit.elements for unit in half[:11]] == [unit.elements // 2 for unit in units[:11]]
    assert total(half).parameters == 68_690


def test_memory_of_blocks_and_models_is_that_of_fedepths_table():
    table = programs.script("benchmarks/paper_tables.py").memory_table()
    assert f"\n\n{table}\n\n" in (programs.ROOT / "benchmarks" / "RESULTS.md").read_text("utf-8")
    rows = [line.strip(" |").split(" | ") for line in table.splitlines()[2:]]
    assert len(rows) == 10 and all(abs(float(paper) - float(here)) < 0.02 for _, paper, here in rows)


def test_elements_and_products_of_blocks_equal_hand_counts(units):
    map_size = 16 * 32 * 32
    half, quarter = [5 * map_size // 2] * 2, [5 * map_size // 4] * 2
    first, last = map_size + 5 * map_size // 2, map_size // 2 + 5 * map_size // 4
    assert [unit.elements for unit in units] == [map_size, *[5 * map_size] * 3, first, *half, last, *quarter, 0, 10]
    same, down = 2 * 9 * 16 * 16 * 32 * 32, 16 * 16 * 32 * (9 * 16 + 9 * 32 + 16)
    multiply_adds = [unit.multiply_adds for unit in units]
    assert multiply_adds == [27 * map_size, same, same, same, down, same, same, down, same, same, 0, 640]
    assert [unit.parameters for unit in units[:2]] == [432, 2 * 9 * 16 * 16 + 4 * 16]


def test_layers_of_one_unit_add_up_and_those_without_weights_count_nothing():
    layers = """
    - [PaddedConv2D: {filters: !w 4}, Scaler, Norm, ReLU, MaxPooling2D: {pool_size: 2}]
    - [GlobalAveragePooling2D, Dense: {units: 7}, LayerNormalization, ReLU, Dense: {units: !classes}]"""
    first, second = costs(layers, (6, 6, 2))
    assert (first.name, first.elements, first.parameters) == ("0", 6 * 6 * 4, 9 * 2 * 4 + 4 + 2 * 4)
    assert (second.elements, second.parameters) == (7 + 10, 4 * 7 + 7 + 2 * 7 + 7 * 10 + 10)
    assert (first.multiply_adds, second.multiply_adds) == (36 * 9 * 2 * 4, 4 * 7 + 7 * 10)


def test_norms_inside_a_block_count_once():
    layers = "[PreActivationBlock: {{filters: 4{}}}, GlobalAveragePooling2D, Dense: {{units: !classes}}]"
    for options, outputs in (("", 5), (", norm: gn, scaler: false", 5), (", norm: none", 3)):
        block, *_ = costs(layers.format(options), (4, 4, 4))
        assert block.elements == outputs * 4 * 4 * 4, options


class Unknown(keras.layers.Layer):
    """Returns one column for each positive input."""

    def build(self, input_shape):
        self.kernel = self.add_weight(shape=(4, 4), name="kernel")

    def call(self, inputs):
        return tf.boolean_mask(inputs, inputs > 0)[None]

    def compute_output_shape(self, input_shape):
        return (None, None)


def test_shape_known_only_at_run_time_is_refused():
    inputs = keras.Input((4,))
    model = keras.Model(inputs, Unknown(name="guess")(inputs))
    assert "guess: its cost cannot be counted, because a shape is only known at run time" in refusal(
        forward, model, (4,)
    )
