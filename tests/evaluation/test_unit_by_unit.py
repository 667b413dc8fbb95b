"""Prediction with the weights of one unit in memory at a time."""

import methods
import numpy as np
import pytest
import tiny
from descriptions import describe_recipe

from hetero_tf.base.errors import InputError
from hetero_tf.describe import to_json
from hetero_tf.evaluation.unit_by_unit import predict_unit_by_unit
from hetero_tf.recipe import loads

CASES = {
    "a residual block, statistics queried, a narrow level": (tiny.IMAGES, (), "c"),
    "an early exit": (methods.DEEP, (*methods.DEPTHS, "evaluate.exits=last"), "b"),
    "an ensemble": (tiny.IMAGES, methods.MEMBERS, "a"),
    "text": (tiny.TEXT, (), "a"),
}
SMALL = """
name: small
data: {name: synthetic}
input: {name: images, mean: [0.5], std: [0.5]}
client: {epochs: 1, batch_size: 4}
model:
  layers:
    - Conv2D: {filters: !w 4, kernel_size: 3, padding: same}
    - [GlobalAveragePooling2D, Dense: {units: !classes}]
"""


class RecordingMapping(dict):
    """Values by path that record the networks and units of each read, in order."""

    def __init__(self, values, units):
        super().__init__(values)
        self.units, self.read_units = units, []

    def __getitem__(self, path):
        layer = path.split("/")[0]
        network, _, name = layer.partition("_") if layer.startswith("member") else ("", "", layer)
        if self.read_units[-1:] != [(network, self.units[name])]:
            self.read_units.append((network, self.units[name]))
        return super().__getitem__(path)


@pytest.mark.parametrize("name", CASES)
def test_prediction_unit_by_unit_has_the_same_bits(name):
    base, overrides, level = CASES[name]
    process = tiny.process(base, *overrides)
    model = process.network(process.initialize(), level)
    shape = (3, *process.example_shape)
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=shape).astype("float32") if len(shape) > 2 else rng.integers(0, 13, shape, "int32")
    values = RecordingMapping({v.path: v.numpy() for v in model.weights}, process.recipe.model.units)
    actual = predict_unit_by_unit(process.family, level, values, inputs).numpy()
    expected = model(inputs, training=False).numpy()
    assert np.ptp(expected) > 0
    np.testing.assert_array_equal(actual, expected)
    # Each unit of a network is read once, so its weights can be released.
    assert len(set(values.read_units)) == len(values.read_units) > 1


def test_the_mean_of_exits_is_refused():
    process = tiny.process(methods.DEEP, *methods.DEPTHS, "evaluate.exits=mean")
    with pytest.raises(InputError, match="uses only the last exit of a model. Received: evaluate.exits='mean'"):
        predict_unit_by_unit(process.family, "a", {}, np.zeros((1, *process.example_shape), "float32"))


def test_describe_counts_the_memory_of_both_ways():
    description = describe_recipe(loads(SMALL + tiny.COMMON, "small"), (8, 8, 1), 10)
    inference = description.levels["a"].inference
    # The convolution passes 64 values to 256, the mean 256 to 4, the dense layer 4 to 10.
    convolution, dense = 4 * 9 + 4, 4 * 10 + 10
    assert inference.whole == 4 * (convolution + dense + 64 + 256)
    assert inference.by_unit == 4 * max(convolution + 64 + 256, dense + 256 + 4)
    assert to_json(description)["levels"]["a"]["inference"] == {"whole": inference.whole, "by_unit": inference.by_unit}
