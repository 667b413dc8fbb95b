"""Accuracy of every level's model, compared with the exported Keras model."""

import functools

import methods
import pytest
import tensorflow as tf
import tiny
from refusals import refusal
from test_validation_metrics import held_out, measure_plain

from hetero_tf.models.state import State

pytestmark = pytest.mark.usefixtures("eager")

ENSEMBLE = ("levels.widths={a: 0.5, b: 0.5, c: 0.5}", "levels.members={a: 4, b: 2, c: 1}")
METHODS = {
    "heterofl": (tiny.IMAGES, ("levels.mix=a-b-c",)),
    "fiarse": (tiny.DENSE, ("levels.widths={a: 1, b: 1, c: 1}", "round.mask=fiarse", "levels.entries={b: 1/2, c: 1/8}")),
    "splitmix": (tiny.DENSE, ENSEMBLE),
    "exits": (methods.DEEP, methods.DEPTHS),
    "mean of exits": (methods.DEEP, (*methods.DEPTHS, "evaluate.exits=mean")),
}  # fmt: skip


@functools.cache
def built(base, *overrides):
    """A process with validation examples, and a state that differs from its initial one."""
    process = tiny.process(base, "precision=float64", *overrides, data=held_out(tiny.images(test=40)))
    return process, tiny.perturbed(process.initialize())


@pytest.mark.parametrize("method", METHODS)
def test_every_level_is_measured_like_its_export(method):
    base, overrides = METHODS[method]
    process, state = built(base, *overrides)
    metrics, _ = process.evaluate(state, "all")
    test, losses = process.dataset.test, set()
    for level in "abc":
        expected = measure_plain(process, state, level, test.x, test.y)
        for name, value in expected.items():
            assert metrics[f"level_{name}_{level}"] == pytest.approx(value, rel=1e-6), (name, level)
        losses.add(round(expected["loss"], 6))
    assert len(losses) == 3, "the levels must differ"
    assert metrics["level_loss_a"] == metrics["global_loss"]
    assert metrics["level_accuracy_a"] == metrics["global_accuracy"]


def test_recipe_or_caller_selects_the_measured_levels():
    base, overrides = METHODS["heterofl"]
    process, state = built(base, *overrides)
    assert process.recipe.evaluate.levels == "global"
    usual, everything = process.evaluate(state)[0], process.evaluate(state, "all")[0]
    added = {f"level_{name}_{level}" for name in ("loss", "accuracy") for level in "abc"}
    assert set(everything) == set(usual) | added and {name: everything[name] for name in usual} == usual
    all_levels = tiny.process(tiny.DENSE, "evaluate.levels=all")
    assert added <= set(all_levels.evaluate(all_levels.initialize())[0])
    assert not added & set(all_levels.evaluate(all_levels.initialize(), "global")[0])
    assert refusal(process.evaluate, state, "b") == '`levels` must be "global" or "all". Received: levels=\'b\''
    assert refusal(process.model, state, "z").endswith("Received: level='z'")


def test_levels_with_the_same_model_are_measured_once():
    process = tiny.process(tiny.DENSE, "levels.widths={a: 1, b: 0.5, c: 0.5}", "evaluate.levels=all")
    metrics, _ = process.evaluate(process.initialize())
    assert metrics["level_loss_b"] == metrics["level_loss_c"] != metrics["level_loss_a"]
    assert process.evaluator.predictor.cache_info().currsize == 2


def test_text_has_a_perplexity_for_each_level():
    process = tiny.process(tiny.TEXT, "evaluate.levels=all")
    metrics, _ = process.evaluate(process.initialize())
    assert {name for name in metrics if name.startswith("level_")} == {
        f"level_{name}_{level}" for name in ("loss", "perplexity") for level in "ac"
    }
    narrow = tiny.process(tiny.TEXT, "levels.mix=c")
    weights = process.initialize().weights
    cut = {
        path: tf.slice(weights[path], [0] * len(value.shape), value.shape)
        for path, value in narrow.initialize().weights.items()
    }
    expected, _ = narrow.evaluate(State(0, cut))
    assert metrics["level_perplexity_c"] == pytest.approx(expected["global_perplexity"], rel=1e-5)
