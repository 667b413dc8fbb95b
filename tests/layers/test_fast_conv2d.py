"""Fast forms of 3x3 convolutions equal the convolution, and are used only where they are faster."""

import dataclasses
import json

import numpy as np
import oracle
import programs
import pytest
import shared_models
import tensorflow as tf
import tiny

from hetero_tf.base.errors import InputError
from hetero_tf.layers import padded_conv2d
from hetero_tf.layers.fast_conv2d import FORMS, conv2d_by_patches, conv2d_by_taps, conv2d_by_winograd, fastest_form
from hetero_tf.layers.padded_conv2d import PaddedConv2D, grouped_conv2d
from hetero_tf.models.costs import counting
from hetero_tf.models.variables import all_layers
from hetero_tf.rounds import engine
from hetero_tf.run.simulated_rounds import SimulatedRounds

TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 2e-2}


@pytest.fixture(params=["taps", pytest.param("winograd", marks=pytest.mark.long)])
def form(request, monkeypatch):
    """Clients are computed one by one, and this form counts as the fastest of every 3x3 kernel."""
    monkeypatch.setattr(engine, "MAX_PRODUCT_COST", 0)
    monkeypatch.setattr(
        padded_conv2d, "fastest_form", lambda size, kernel, *_: request.param if kernel[0] == 3 else None
    )
    with shared_models.apart():
        yield request.param


def with_gradients(convolve, inputs, kernel, *arguments):
    """The outputs, and the gradients of the sum of their squares."""
    with tf.GradientTape() as tape:
        tape.watch([inputs, kernel])
        outputs = convolve(inputs, kernel, *arguments)
        total = tf.reduce_sum(tf.cast(outputs, tf.float64) ** 2)
    return [outputs, *tape.gradient(total, [inputs, kernel])]


def check_against_convolution(convolve, batch, map_size, dtype, tolerance):
    rng = np.random.default_rng(0)
    inputs = tf.cast(rng.normal(size=(batch, *map_size, 5)), dtype)
    kernel = tf.cast(rng.normal(size=(3, 3, 5, 7)), dtype)
    exact = [tf.cast(value, "float64") for value in (inputs, kernel)]
    references = with_gradients(lambda x, k: tf.nn.conv2d(x, k, 1, "SAME"), *exact)
    for actual, expected in zip(with_gradients(convolve, inputs, kernel), references, strict=True):
        assert actual.dtype == dtype and actual.shape == expected.shape
        atol = tolerance * np.abs(expected).max()
        np.testing.assert_allclose(tf.cast(actual, "float64"), expected, atol=atol, rtol=0)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("map_size", [(1, 1), (1, 3), (2, 2), (3, 3), (4, 3)])
def test_taps_equal_the_convolution(map_size, dtype):
    check_against_convolution(conv2d_by_taps, 3, map_size, dtype, TOLERANCE[dtype])


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-13), ("float32", 3e-5)])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("map_size", [(1, 1), (4, 8), (5, 7), (13, 6)])
def test_winograd_equals_the_convolution(batch, map_size, dtype, tolerance):
    check_against_convolution(conv2d_by_winograd, batch, map_size, dtype, tolerance)


@pytest.mark.parametrize(
    ("map_size", "kernel", "batch", "form"),
    [
        ((3, 3), (3, 3, 256, 512), None, "taps"),
        ((4, 4), (3, 3, 128, 256), 10, "taps"),
        ((3, 3), (3, 3, 128, 255), 10, None),
        ((3, 3), (5, 5, 512, 512), 10, None),
        ((3, 3), (1, 1, 2048, 2048), 10, None),
        ((None, 3), (3, 3, 512, 512), 10, None),
        ((32, 32), (3, 3, 64, 64), 10, "winograd"),
        ((16, 16), (3, 3, 32, 64), 10, "winograd"),
        ((7, 7), (3, 3, 128, 256), 3, "winograd"),
        ((7, 7), (5, 5, 128, 256), 10, None),
        # Without gradients; too few examples; too few channels; too long; incomplete tiles; too many values.
        ((16, 16), (3, 3, 64, 64), None, None),
        ((7, 7), (3, 3, 128, 256), 2, None),
        ((16, 16), (3, 3, 16, 64), 10, None),
        ((32, 32), (3, 3, 64, 32), 10, None),
        ((36, 8), (3, 3, 64, 64), 10, None),
        ((9, 9), (3, 3, 64, 64), 10, None),
        ((32, 32), (3, 3, 64, 64), 20, None),
        ((32, 32), (3, 3, 128, 128), 20, "winograd"),
    ],
)
def test_each_form_is_used_where_it_was_measured_to_be_faster(map_size, kernel, batch, form):
    assert fastest_form(map_size, kernel, "float32", batch) == form
    other = None if form == "winograd" else form
    assert fastest_form(map_size, kernel, "float64", batch) == other
    assert fastest_form(map_size, kernel, "bfloat16", batch) == other


def convolutions(process):
    graphs = [process.runner.compiled_round.get_concrete_function().graph]
    graphs += [graphs[0]._get_function(name).graph for name in graphs[0]._functions]
    return [operation.type for graph in graphs for operation in graph.get_operations()].count("Conv2D")


@pytest.mark.long
def test_rounds_and_statistics_equal_those_of_convolutions(form):
    settings = ("precision=float64", "levels.mix=a", "round.clients=2")
    fast, plain = (tiny.process(tiny.IMAGES, *settings, f"engine={name}") for name in ("auto", "sequential"))
    plans = [plain.plan(round) for round in range(2)]
    assert fast.engine_report()["clients_at_once"] == {"a": 1}
    assert [process.engine_report()[f"by_{form}"] for process in (fast, plain)] == [["a"], []]
    state, rows = fast.run(fast.initialize(), plans)
    expected, metrics = oracle.play(plain, tiny.arrays(plain.initialize()), plans)
    assert tiny.gap(tiny.arrays(state), expected) < 1e-11
    np.testing.assert_allclose([(row["loss"], row["gradient_norm"]) for row in rows], metrics, rtol=1e-10)
    assert fast.runner.compiled_round.experimental_get_tracing_count() == 1
    # Of four layers, those with a stride.
    assert convolutions(fast) == 2
    with tiny.eagerly():
        statistics, queried = fast.statistics(state), plain.statistics(state)
    assert statistics.keys() == queried.keys() and len(statistics) > 0
    for path, value in statistics.items():
        np.testing.assert_allclose(value, queried[path], atol=1e-11)


def forms(model):
    return {layer.form for layer in all_layers(model) if hasattr(layer, "form")}


def test_exported_and_counted_models_use_convolutions(form):
    fast, plain = (tiny.process(tiny.IMAGES, f"engine={name}").family for name in ("auto", "sequential"))
    route = fast.route("a")
    assert forms(fast.single_client_model(route, 9)) == {form, None} and forms(plain.single_client_model(route, 9)) == {
        None
    }
    assert forms(fast.new_training_model("a", 9)) == forms(fast.predictor("a")) == {None}
    assert forms(fast.batched_model(route, 9, 2)) == {None}
    counted, expected = (
        counting.total(counting.forward(family.single_client_model(route, 9), (5, 5, 2))) for family in (fast, plain)
    )
    assert counted == expected
    assert forms(dataclasses.replace(fast, device="gpu").single_client_model(route, 9)) == {None}


def test_a_resumed_run_uses_the_kernels_of_its_start(form, train, tmp_path, monkeypatch, eager):
    monkeypatch.setattr(SimulatedRounds, "prepare", lambda self: None)
    # Runs of one recipe share a process, so each form has its seed.
    text, name, seed = programs.RECIPE, f"by_{form}", f"seed={list(FORMS).index(form)}"
    train(tmp_path, text, "rounds=1", seed)
    assert json.loads((tmp_path / "environment.json").read_text())["settings"][name] == ["a", "b"]
    with pytest.raises(InputError, match=rf"another environment .*settings.{name} was \['a', 'b'\], is None\)"):
        train(tmp_path, text, "rounds=2", seed, "engine=sequential")
    _, output = train(tmp_path, text, "rounds=2", seed)
    kind = {"taps": "wide kernels tap by tap", "winograd": "convolutions by Winograd's algorithm"}[form]
    assert f"; {kind} at levels a, b" in output and "note: settings" not in output


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("positions", "size"), [((5, 6), 3), ((4, 4), 1), ((8, 7), 5), ((1, 1), 3)])
def test_outputs_and_gradients_equal_grouped_convolutions(positions, size, stride):
    rng, clients, side = np.random.default_rng(0), 3, size // 2
    inputs = tf.constant(rng.normal(size=(2, *positions, clients * 4)))
    kernel = tf.constant(rng.normal(size=(size, size, 4, clients * 5)))

    def grouped(inputs, kernel, stride, clients):
        padded = tf.pad(inputs, [[0, 0], [side, side], [side, side], [0, 0]])
        return grouped_conv2d(padded, kernel, stride, "VALID", clients)

    results = [with_gradients(each, inputs, kernel, stride, clients) for each in (conv2d_by_patches, grouped)]
    for actual, expected in zip(*results, strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-12, rtol=0)


def test_gpu_engine_uses_patches_for_several_clients():
    def forms(engine, device):
        process = tiny.process(tiny.IMAGES, f"engine={engine}", "round.clients=4", device=device)
        (model, *_) = process.setup.submodels[0].block.stages[0].joint.models
        layers = [layer for layer in all_layers(model.model) if isinstance(layer, PaddedConv2D)]
        return {(layer.clients > 1, layer.form) for layer in layers}

    assert forms("auto", "gpu") == {(True, "patches")}
    assert forms("stacked", "gpu") == {(True, None)}
    assert forms("sequential", "gpu") == {(False, None)}


def test_patches_are_used_up_to_a_size_of_the_patches(monkeypatch):
    layer = PaddedConv2D(5, stride=2, clients=2)
    layer.build((None, 5, 6, 8))
    layer.use_fastest_form(3, "gpu")
    calls = []
    monkeypatch.setattr(
        padded_conv2d, "conv2d_by_patches", lambda *args: calls.append(args) or conv2d_by_patches(*args)
    )
    # Batch 3, 3 x 3 positions, 9 taps of 8 channels in float32.
    for limit, count in ((3 * 9 * 9 * 8 * 4 - 1, 0), (3 * 9 * 9 * 8 * 4, 1)):
        monkeypatch.setattr(padded_conv2d, "MAX_PATCHES", limit)
        layer(tf.ones([3, 5, 6, 8]), training=True)
        assert len(calls) == count
    layer(tf.ones([3, 5, 6, 8]), training=False)
    assert len(calls) == 1
