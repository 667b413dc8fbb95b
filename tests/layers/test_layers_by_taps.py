"""Wide kernels on small maps: products per tap equal the convolution, and are used only if they are faster."""

import json

import numpy as np
import programs
import pytest
import tensorflow as tf
import tiny

from hetero_tf.base import hardware
from hetero_tf.base.errors import InputError
from hetero_tf.layers import padded_conv2d
from hetero_tf.layers.padded_conv2d import conv2d_by_taps, faster_by_taps
from hetero_tf.models.costs import counting
from hetero_tf.models.variables import all_layers
from hetero_tf.rounds import engine

TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 2e-2}


@pytest.fixture
def everywhere(monkeypatch):
    """Clients are computed one by one, and every 3x3 kernel counts as wide."""
    monkeypatch.setattr(engine, "MAX_PRODUCT_COST", 0)
    monkeypatch.setattr(padded_conv2d, "SMALL_MAP", 10**6)
    monkeypatch.setattr(padded_conv2d, "WIDE_KERNEL", 1)


def with_gradients(convolve, inputs, kernel):
    """The outputs, and the gradients of the sum of their squares."""
    with tf.GradientTape() as tape:
        tape.watch([inputs, kernel])
        outputs = convolve(inputs, kernel)
        total = tf.reduce_sum(tf.cast(outputs, tf.float64) ** 2)
    return [outputs, *tape.gradient(total, [inputs, kernel])]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("positions", [(1, 1), (1, 3), (2, 2), (3, 3), (4, 3)])
def test_taps_equal_the_convolution(positions, dtype):
    rng = np.random.default_rng(0)
    inputs = tf.cast(rng.normal(size=(3, *positions, 5)), dtype)
    kernel = tf.cast(rng.normal(size=(3, 3, 5, 7)), dtype)
    exact = [tf.cast(value, "float64") for value in (inputs, kernel)]
    references = with_gradients(lambda x, k: tf.nn.conv2d(x, k, 1, "SAME"), *exact)
    for actual, expected in zip(with_gradients(conv2d_by_taps, inputs, kernel), references, strict=True):
        assert actual.dtype == dtype and actual.shape == expected.shape
        atol = TOLERANCE[dtype] * np.abs(expected).max()
        np.testing.assert_allclose(tf.cast(actual, "float64"), expected, atol=atol, rtol=0)


@pytest.mark.parametrize(
    ("positions", "kernel", "faster"),
    [
        ((3, 3), (3, 3, 256, 512), True),
        ((4, 4), (3, 3, 128, 256), True),
        ((3, 3), (3, 3, 128, 255), False),
        ((5, 4), (3, 3, 512, 512), False),
        ((3, 3), (5, 5, 512, 512), False),
        ((3, 3), (1, 1, 2048, 2048), False),
        ((None, 3), (3, 3, 512, 512), False),
    ],
)
def test_taps_are_faster_on_small_maps_with_wide_kernels(positions, kernel, faster):
    assert faster_by_taps(positions, kernel) is faster


def operations(process):
    """Numbers of convolutions and products in a round."""
    graphs = [process.runner.compiled_round.get_concrete_function().graph]
    graphs += [graphs[0]._get_function(name).graph for name in graphs[0]._functions]
    kinds = [operation.type for graph in graphs for operation in graph.get_operations()]
    return kinds.count("Conv2D"), kinds.count("MatMul")


def played(process):
    """The state after two rounds, its statistics and their metrics."""
    state, rows = process.run(process.initialize(), [process.plan(round) for round in range(2)])
    return tiny.arrays(state), process.statistics(state), rows


def test_rounds_and_statistics_equal_those_of_convolutions(everywhere):
    settings = ("precision=float64", "round.clients=4")
    fast, plain = (tiny.process(tiny.IMAGES, *settings, f"engine={name}") for name in ("auto", "sequential"))
    assert fast.engine_report()["clients_at_once"] == {"a": 1, "c": 1}
    assert [process.engine_report()["by_taps"] for process in (fast, plain)] == [["a", "c"], []]
    (values, statistics, rows), (expected, queried, others) = played(fast), played(plain)
    assert tiny.gap(values, expected) < 1e-11
    assert statistics.keys() == queried.keys() and len(statistics) > 0
    for path, value in statistics.items():
        np.testing.assert_allclose(value, queried[path], atol=1e-11)
    np.testing.assert_allclose([row["loss"] for row in rows], [row["loss"] for row in others], rtol=1e-11)
    assert fast.runner.compiled_round.experimental_get_tracing_count() == 1
    # At both levels the first layer and the second one of the block; what has a stride, or one tap, is a convolution.
    (convolutions, products), (all_of_them, few) = operations(fast), operations(plain)
    assert convolutions < all_of_them and products > few


def marked(model):
    """`by_taps` of the layers of a model that are faster by taps."""
    return {layer.by_taps for layer in all_layers(model) if getattr(layer, "faster_by_taps", False)}


def test_exported_and_counted_models_use_convolutions(everywhere, monkeypatch):
    fast, plain = (tiny.process(tiny.IMAGES, f"engine={name}").family for name in ("auto", "sequential"))
    route = fast.route("a")
    assert marked(fast.single_client_model(route, 9)) == {True} and marked(plain.single_client_model(route, 9)) == {
        False
    }
    assert marked(fast.new_training_model("a", 9)) == marked(fast.predictor("a")) == {False}
    assert marked(fast.batched_model(route, 9, 2)) == set()
    counted, expected = (
        counting.total(counting.forward(family.single_client_model(route, 9), (5, 5, 2))) for family in (fast, plain)
    )
    assert counted == expected
    monkeypatch.setattr(hardware, "device_type", lambda: "gpu")
    assert marked(fast.batched_model(route, 9)) == {False}


def test_a_resumed_run_uses_the_kernels_of_its_start(everywhere, train, tmp_path):
    text = programs.RECIPE
    train(tmp_path, text, "rounds=1")
    assert json.loads((tmp_path / "environment.json").read_text())["settings"]["by_taps"] == ["a", "b"]
    with pytest.raises(InputError, match=r"another environment .*settings.by_taps was \['a', 'b'\], is None\)"):
        train(tmp_path, text, "rounds=2", "engine=sequential")
    _, output = train(tmp_path, text, "rounds=2")
    assert "; wide kernels tap by tap at levels a, b" in output and "note: settings" not in output
