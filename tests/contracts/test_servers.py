"""Servers: each is compared with a plain loop over several rounds."""

import inspect
from types import SimpleNamespace

import numpy as np
import oracle_terms
import pytest
import tensorflow as tf
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.base import registry

REGISTERED, SHAPE = 20, (4, 5)


def server(name, **options):
    """`(old, mean, coverage, slots) -> (new, slots)` in NumPy, and the number of slots."""
    module = registry.find("servers", name)

    def apply(old, mean, coverage, slots):
        tensors = [tf.constant(value) for value in (old, mean, coverage)]
        new, slots = module.apply(*tensors, tuple(map(tf.constant, slots)), **injected(module, mean), **options)
        return new.numpy(), tuple(slot.numpy() for slot in slots)

    return apply, len(module.SLOTS)


def injected(module, mean):
    """The keywords that are not options: those of every server, and those in this server's signature."""
    arguments = {"registered": REGISTERED, "memory_change": tf.constant(2 * mean)}
    parameters = inspect.signature(module.apply).parameters
    return {name: value for name, value in arguments.items() if name in parameters}


def rounds(count, dtype="float64", seed=0, shape=SHAPE):
    """Per round: the number of clients that cover each entry, and the change of their mean."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield rng.integers(0, 4, shape).astype(dtype), rng.normal(size=shape).astype(dtype)


def played(name, changes, dtype="float64", seed=0, **options):
    """The weights and slots after every round."""
    apply, num_slots = server(name, **options)
    weights = np.random.default_rng(seed + 1).normal(size=SHAPE).astype(dtype)
    slots, states = (np.zeros(SHAPE, dtype),) * num_slots, []
    for coverage, change in changes:
        mean = np.where(coverage > 0, weights + change, weights)
        weights, slots = apply(weights, mean, coverage, slots)
        states.append((weights, slots))
    return states


ADAPTIVE = {"learning_rate": 0.3, "beta1": 0.8, "adaptivity": 0.01}
OPTIONS = {
    "sgd": {"learning_rate": 0.5},
    "momentum": {"learning_rate": 0.5, "momentum": 0.7},
    "dynamic": {"alpha": 0.2},
    "adam": {**ADAPTIVE, "beta2": 0.9},
    "yogi": {**ADAPTIVE, "beta2": 0.9},
    "adagrad": ADAPTIVE,
}


@pytest.mark.parametrize("name", OPTIONS)
def test_several_rounds_equal_the_published_formulas(name):
    """Covered entries follow the formulas of the oracle, others do not change."""
    plugin, partition = SimpleNamespace(name=name, options=OPTIONS[name]), SimpleNamespace(train=range(REGISTERED))
    process = SimpleNamespace(recipe=SimpleNamespace(round=SimpleNamespace(server=plugin)), partition=partition)
    changes = list(rounds(8))
    state = (np.random.default_rng(1).normal(size=SHAPE), np.zeros(SHAPE), np.zeros(SHAPE))
    for (coverage, change), (weights, slots) in zip(changes, played(name, changes, **OPTIONS[name]), strict=True):
        moved = oracle_terms.serve(process, state[0], state[0] + change, coverage, state[1:])
        state = [np.where(coverage > 0, new, old) for new, old in zip(moved, state)]
        for actual, expected in zip((weights, *slots), state):
            np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-14)


def test_scaffold_moves_by_a_share_and_adds_the_change_of_the_memories():
    apply, _ = server("scaffold", learning_rate=0.5)
    old, mean, control = np.zeros(2), np.asarray([3.0, 1.0]), np.asarray([1.0, 0.0])
    new, (after,) = apply(old, mean, np.ones(2), (control,))
    np.testing.assert_allclose([new, after], [[1.5, 0.5], [1 + 2 * 3 / REGISTERED, 2 / REGISTERED]])


def test_momentum_0_is_sgd_and_a_full_step_replaces():
    changes = list(rounds(5))
    replaced = played("replace", changes)
    for states in (played("sgd", changes), played("momentum", changes, momentum=0.0)):
        for (weights, _), (expected, _) in zip(states, replaced, strict=True):
            np.testing.assert_allclose(weights, expected, atol=1e-15)
    half = played("sgd", changes, learning_rate=0.5)
    for (weights, _), (expected, _) in zip(played("momentum", changes, learning_rate=0.5, momentum=0.0), half):
        assert weights.tobytes() == expected.tobytes()


def test_the_first_round_of_yogi_is_that_of_adam_and_later_ones_differ():
    changes = list(rounds(3))
    adam, yogi = (played(name, changes) for name in ("adam", "yogi"))
    np.testing.assert_allclose(yogi[0][0], adam[0][0], rtol=1e-12)
    assert np.abs(yogi[2][0] - adam[2][0]).max() > 1e-5


def test_sgd_moves_by_a_share_of_the_change():
    apply, _ = server("sgd", learning_rate=0.25)
    old, mean, coverage = np.ones(3), np.asarray([3.0, 5.0, 1.0]), np.asarray([2.0, 1.0, 0.0])
    assert apply(old, mean, coverage, ())[0].tolist() == [1.5, 2.0, 1.0]
    assert server("sgd", learning_rate=0.0)[0](old, mean, coverage, ())[0].tolist() == old.tolist()


def test_replace_returns_the_mean_itself():
    mean = tf.constant([3.0, 4.0])
    assert registry.find("servers", "replace").apply(tf.zeros(2), mean, tf.ones(2), (), registered=3) == (mean, ())


def test_dynamic_has_a_fixed_point_and_moves_further_with_more_clients():
    apply, _ = server("dynamic")
    still = apply(np.ones(3), np.ones(3), np.asarray([1.0, 2.0, 3.0]), (np.zeros(3),))
    assert still[0].tolist() == [1, 1, 1] and still[1][0].tolist() == [0, 0, 0]
    # All clients cover the entry: from 1 to the mean at 2, and the same distance again.
    new, (drift,) = apply(np.ones(2), np.full(2, 2.0), np.asarray([20.0, 5.0]), (np.zeros(2),))
    np.testing.assert_allclose(new, [3.0, 2.25])
    np.testing.assert_allclose(drift, [-0.1, -0.025])


@pytest.mark.parametrize(
    ("option", "allowed"),
    [
        ("adam, beta1: 1.0", "too large; must be a number of at least 0 and below 1. Received: 1.0"),
        ("yogi, beta2: -0.1", "too small; must be a number of at least 0 and below 1. Received: -0.1"),
        ("adagrad, adaptivity: 0.0", "too small; must be a number above 0 and at most 1000000000. Received: 0.0"),
        ("momentum, momentum: 1.0", "too large; must be a number of at least 0 and below 1. Received: 1.0"),
        ("dynamic, alpha: 0.0", "too small; must be a number above 0 and at most 1000000000. Received: 0.0"),
    ],
)
def test_options_outside_their_ranges_are_refused(option, allowed):
    assert refusal(recipe.load, "tiny/mnist", [f"round.server={{name: {option}}}"]).endswith(f": {allowed}")
