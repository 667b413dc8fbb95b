"""Servers: each is compared with a plain loop over several rounds."""

from types import SimpleNamespace

import numpy as np
import oracle_terms
import pytest
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.testing.step_checks import REGISTERED, apply_server
from hetero_tf.testing.step_checks import SERVER_SHAPE as SHAPE
from hetero_tf.testing.subject import Subject


def rounds(count):
    """Per round: the number of clients that cover each entry, and the change of their mean."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        yield rng.integers(0, 4, SHAPE).astype(float), rng.normal(size=SHAPE)


def played(name, changes, **options):
    subject, weights = Subject("servers", name, options), np.random.default_rng(1).normal(size=SHAPE)
    slots, states = [np.zeros(SHAPE)] * len(subject.module.SLOTS), []
    for coverage, change in changes:
        mean = np.where(coverage > 0, weights + change, weights)
        weights, *slots = apply_server(subject, weights, mean, coverage, slots)
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


def test_scaffold_moves_by_a_share_and_adds_the_change_of_the_memories_and_replace_returns_the_mean():
    scaffold = Subject("servers", "scaffold", {"learning_rate": 0.5})
    old, mean, control = np.zeros(2), np.asarray([3.0, 1.0]), np.asarray([1.0, 0.0])
    new, after = apply_server(scaffold, old, mean, np.ones(2), [control])
    np.testing.assert_allclose([new, after], [[1.5, 0.5], [1 + 2 * 3 / REGISTERED, 2 / REGISTERED]])
    mean = tf.constant([3.0, 4.0])
    assert registry.find("servers", "replace").apply(tf.zeros(2), mean, tf.ones(2), (), registered=3) == (mean, ())
