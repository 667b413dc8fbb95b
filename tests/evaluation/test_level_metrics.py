"""Accuracy of every level's model, compared with the exported Keras model."""

import functools

import methods
import numpy as np
import pytest
import tensorflow as tf
import tiny
from refusals import refusal
from test_validation_metrics import held_out, measure_plain

from hetero_tf.evaluation.predictor import select_networks, sort_networks
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


def test_ensemble_predicts_with_its_best_networks_if_the_recipe_requires_it():
    process, first = (built(tiny.DENSE, *ENSEMBLE, *more)[0] for more in (["evaluate.members=best"], []))
    state, same = (each.run(each.initialize(), tiny.plans(each, 2))[0] for each in (process, first))
    assert tiny.same(tiny.arrays(state), tiny.arrays(same)), "training knows nothing of it"
    rows = process.partition.held_out.ids
    x, y = process.dataset.train.x[rows], process.dataset.train.y[rows]
    # A level with one network, the first of a state: each network in turn.
    accuracies = [
        measure_plain(first, select_networks(state, [member, 0, 0, 0]), "c", x, y)["accuracy"] for member in range(4)
    ]
    order = np.argsort(accuracies, kind="stable")[::-1]
    assert order[0] != 0 and max(accuracies) > accuracies[0], "the first network must not be the best one"
    metrics, usual = process.evaluate(state, "all")[0], first.evaluate(state, "all")[0]
    assert metrics["level_loss_a"] == usual["level_loss_a"]  # all networks
    test = process.dataset.test
    for level in "bc":
        expected = measure_plain(first, select_networks(state, order), level, test.x, test.y)
        assert metrics[f"level_loss_{level}"] == pytest.approx(expected["loss"], rel=1e-6)
        assert metrics[f"level_loss_{level}"] != usual[f"level_loss_{level}"]
        assert measure_plain(process, state, level, test.x, test.y) == pytest.approx(expected)


def test_networks_are_sorted_like_in_the_authors_code():
    """The authors' code reverses an ascending order, so of equal networks the last comes first."""
    state = State(0, {"kernel": tf.constant([[0.25], [0.75], [0.5], [0.75]])})
    sorted_state = sort_networks(state, 4, lambda alone: float(alone.weights["kernel"][0, 0]))
    assert sorted_state.weights["kernel"].numpy().ravel().tolist() == [0.75, 0.75, 0.5, 0.25]
    tied = State(0, {"kernel": tf.constant([1.0, 2.0, 3.0])})
    assert sort_networks(tied, 3, lambda alone: 1.0).weights["kernel"].numpy().tolist() == [3, 2, 1]
