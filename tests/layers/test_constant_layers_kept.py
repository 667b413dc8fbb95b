"""Constants, weights that are neither trained nor statistics, keep their values in steps, levels and exports."""

import functools

import numpy as np
import oracle
import pytest
import tensorflow as tf
import tiny
from refusals import refusal

from hetero_tf.base import registry
from hetero_tf.data.inputs import all_labels
from hetero_tf.models import global_layout
from hetero_tf.models.variables import queried

BASE = tiny.IMAGES.replace("Norm: {kind: sbn}", "PositionTable, Norm: {kind: sbn}").replace(
    "- GlobalAveragePooling2D", "- [GlobalAveragePooling2D, FrozenDense: {units: !w 14}]"
)
BASE = BASE.replace("    - PreActivationBlock: {filters: !w 12, stride: 2}\n", "")
FROZEN_HEAD = BASE.replace("units: !w 14}]", "units: !w 14}, FrozenDense: {units: !classes}]").replace(
    "    - Dense: {units: !classes, kernel_initializer: fan_in_uniform}\n", ""
)
FIXED = ("0_2_position_table/table", "0_2_position_table/gain", "1_1_frozen_dense/dense/kernel")
pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture(scope="module", autouse=True)
def plugin():
    before = dict(registry._registered["layers"])
    registry.register_plugin("constant_layers")
    yield
    registry._registered["layers"] = before


@functools.cache
def built(*overrides, base=BASE, device="cpu"):
    few_steps = ("client.epochs=1", "client.batch_size=5")
    return tiny.process(
        base, "precision=float64", "evaluate.statistics_batch=25", *few_steps, *overrides, device=device
    )


def fixed(values):
    return {path: values[path] for path in FIXED}


def after(process, rounds=2):
    state, metrics = process.run(process.initialize(), tiny.plans(process, rounds))
    return tiny.arrays(state), metrics


def test_peers_start_with_the_constants_of_the_global_model():
    process = built()
    weights = {path: value + 7 for path, value in process.initialize().weights.items()}
    drawn = global_layout.initial_peers(process.family, list(weights.values()), 2)
    for path, peers in zip(weights, drawn, strict=True):
        assert ((peers == weights[path]).numpy().all()) == (path in FIXED), path


@pytest.mark.long
@pytest.mark.parametrize(("engine", "submodel", "most"), [("sequential", "prefix", 1), ("stacked", "rolling", 2)])
def test_a_round_equals_the_plain_loop_whose_models_have_the_cut_constants(engine, submodel, most):
    process = built(f"engine={engine}", f"round.submodel={submodel}")
    assert max(process.setup.block_sizes) == most
    initial, (actual, metrics) = tiny.arrays(process.initialize()), after(process)
    expected, losses = oracle.play(process, initial, tiny.plans(process, 2))
    assert tiny.gap(actual, expected) < 1e-12
    np.testing.assert_allclose([row["loss"] for row in metrics], np.asarray(losses)[:, 0], rtol=1e-12)
    assert all(np.abs(initial[path]).max() > 0.01 for path in FIXED)
    assert tiny.same(fixed(actual), fixed(initial))
    assert tiny.gap(actual, initial) > 1e-3


@pytest.mark.long
@pytest.mark.parametrize(
    "overrides",
    [
        ("client.stages=nested", "client.coupling=sum", "levels.mix=a-b", "levels.assignment=fixed"),
        ("round.personal=[0]", "round.server={name: momentum, learning_rate: 1.5}"),
        ("levels.widths={a: 0.25, b: 0.25, c: 0.25}", "levels.members={a: 4, b: 2, c: 1}", "levels.assignment=fixed"),
    ],
)
def test_no_method_changes_a_constant(overrides):
    process = built(*overrides)
    initial = process.initialize()
    state, _ = process.run(initial, tiny.plans(process, 2))
    assert tiny.same(fixed(state.weights), fixed(initial.weights))
    assert tiny.gap(tiny.arrays(state), tiny.arrays(initial)) > 1e-3
    assert np.isfinite(process.evaluate(state)[0]["global_loss"])


def test_a_frozen_head_is_cut_by_labels_like_a_trained_one():
    process = built(base=FROZEN_HEAD)
    initial, (actual, _) = tiny.arrays(process.initialize()), after(process)
    expected, _ = oracle.play(process, initial, tiny.plans(process, 2))
    assert tiny.gap(actual, expected) < 1e-12
    assert process.setup.examples.labels is not None


@pytest.mark.parametrize("level", ["a", "c"])
def test_statistics_are_computed_with_the_constants(level):
    process = built()
    state, _ = process.run(process.initialize(), tiny.plans(process, 1))
    statistics, model = process.statistics(state, level), process.network(state, level)
    assert list(statistics) == [variable.path for variable in queried(model)]
    examples, key, labels = process.setup.examples, tf.zeros([2], tf.int32), all_labels(tiny.CLASSES)
    inputs, _ = process.input.batch(examples.x, examples.y, tf.range(25), 0, key, labels, training=True)
    model(inputs, training=True)
    for variable in queried(model):
        np.testing.assert_allclose(variable, statistics[variable.path], atol=1e-12)


def test_tables_of_whole_numbers_stay_with_the_program():
    stored, plain = (
        built(base=BASE.replace("PositionTable", layer)) for layer in ("Lookup", "Lookup: {stored: false}")
    )
    (state, metrics), (same, expected) = after(stored), after(plain)
    assert metrics == expected and state.keys() == same.keys()
    assert all(np.array_equal(state[name], same[name]) for name in state)
    assert stored.evaluate(stored.initialize())[0] == plain.evaluate(plain.initialize())[0]


def test_constants_that_change_are_refused():
    assert refusal(tiny.process, BASE.replace("PositionTable", "Counter"), "precision=float64").startswith(
        "layer 0_2_counter: its weight seen must not change in training, because it is neither trainable nor "
    )
