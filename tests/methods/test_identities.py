"""Equalities between methods in float64."""

import dataclasses
import functools

import methods
import numpy as np
import pytest
import tensorflow as tf
import tiny

pytestmark = pytest.mark.usefixtures("eager")

ONE = ("precision=float64", "levels.mix=a1", "optimizer.clip_norm=null", "client.batch_size=5", *methods.PLAIN)
EXACT = 1e-10
# A stem, one unit and a head.
THREE = methods.DENSE.replace("    - Dense", "    - [Dense: {units: !w 6}, ReLU]\n    - Dense")


@functools.cache
def built(*settings):
    """Four clients with equal numbers of examples, all at width 1."""
    return tiny.process(THREE, *ONE, *settings, data=tiny.images((5, 5, 5, 5)))


@functools.cache
def averaged():
    return weights(built())


def weights(process, rounds=2, state=None):
    state, _ = process.run(process.initialize() if state is None else state, tiny.plans(process, rounds))
    return tiny.arrays(state)


@pytest.mark.parametrize(
    "settings",
    [
        ("round.submodel=rolling", "levels.mix=a-b", "levels.widths={a: 1, b: 1}"),
        ("round.submodel=random", methods.server("sgd", learning_rate=1.0)),
        ("client.stages=nested", methods.server("momentum", momentum=0.0, learning_rate=1.0)),
        ("client.stages=blockwise", "levels.budgets={a: 1}", "client.correction={name: proximal, mu: 0.0}"),
        ("round.weighting=samples", "client.stages={name: nested, distill: false}"),
    ],
    ids=[
        "FedRolex-of-one-width",
        "dropout-of-one-width-and-server-sgd",
        "one-nested-width-and-no-momentum",
        "one-block-and-no-spring",
        "equally-many-samples",
    ],
)
def test_is_federated_averaging(settings):
    assert tiny.gap(weights(built(*settings)), averaged()) < EXACT
    assert tiny.gap(averaged(), tiny.arrays(built().initialize())) > 1e-3


def example(process):
    return np.random.default_rng(1).normal(size=(4, *process.input.shape(process.dataset.train.x)))


def test_an_ensemble_predicts_the_mean_of_the_networks_of_a_level():
    settings = ("levels.mix=a1-c1", "levels.widths={a: 1, c: 1}", "levels.members={a: 3, c: 2}")
    ensemble, single = tiny.process(THREE, *ONE, *settings), built()
    state, inputs = ensemble.initialize(), example(ensemble)
    member_states = [
        dataclasses.replace(single.initialize(), weights={path: v[member] for path, v in state.weights.items()})
        for member in range(3)
    ]
    logits = [single.network(one)(inputs).numpy() for one in member_states]
    for level, members in (("a", 3), ("c", 2)):
        np.testing.assert_allclose(ensemble.network(state, level)(inputs), np.mean(logits[:members], 0), rtol=EXACT)


def test_a_level_predicts_with_its_last_exit_or_the_mean_of_all():
    for exits in ("last", "mean"):
        process = tiny.process(methods.TRACKED, "precision=float64", *methods.DEPTHS, f"evaluate.exits={exits}")
        inputs, state = example(process), process.initialize()
        for level, depth in (("a", 3), ("c", 1)):
            model = process.family.new_training_model(level, tiny.CLASSES)
            for variable in model.variables:
                variable.assign(state.weights[variable.path])
            exit_logits = tf.nest.flatten(model(inputs, training=False))
            assert len(exit_logits) == depth
            expected = exit_logits[-1] if exits == "last" else sum(exit_logits) / depth
            np.testing.assert_allclose(process.network(state, level)(inputs), expected, rtol=1e-9)
