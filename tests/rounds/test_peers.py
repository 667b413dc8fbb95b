"""Peers: networks that a client trains beside the one that it returns, how they begin, and what they teach."""

import functools

import methods
import numpy as np
import oracle
import pytest
import tensorflow as tf
import tiny
from refusals import refusal

from hetero_tf import recipe

pytestmark = pytest.mark.usefixtures("eager")

# A stem, a unit between, and a head.
THREE = methods.DENSE.replace("    - Dense", "    - [Dense: {units: !w 6}, ReLU]\n    - Dense")
ALONE = ("precision=float64", "levels.mix=a1", "optimizer.clip_norm=null", *methods.PLAIN)
STAGES = "client.stages={name: blockwise, peers: true}"


@functools.cache
def built(*settings):
    """Four clients with equally many examples, all at width 1."""
    return tiny.process(THREE, *ALONE, *settings, data=tiny.images((5, 5, 5, 5)))


def taught(weight, budget=2):
    """The same with peers whose divergence counts so much."""
    coupling = f"client.coupling={{name: mutual, ramp: null, weight: {weight}}}"
    return built(STAGES, f"levels.budgets={{a: {budget}}}", coupling)


def after(process, rounds=3):
    state, _ = process.run(process.initialize(), tiny.plans(process, rounds))
    return state


def disagreement(process, state):
    """KL of what the clients' peers predict to what their own networks would, mean over the training examples."""
    start = {path: np.asarray(v) for path, v in state.weights.items()}
    x, found = tf.constant(oracle.batch(process, np.arange(20), 0, [0] * 4)[0]), []
    for client in range(4):
        own = process.network(state)
        teacher = tf.nn.softmax(own(x, training=False))
        for path, value in state.clients["peers"].items():
            start[path] = value[client, 0]
        for variable in own.trainable_variables:
            variable.assign(start[variable.path])
        learned = tf.nn.log_softmax(own(x, training=False))
        found.append(tf.reduce_mean(tf.reduce_sum(teacher * (tf.math.log(teacher) - learned), -1)))
    return float(np.mean(found))


def test_networks_that_teach_each_other_nothing_are_trained_as_if_each_were_alone():
    assert tiny.gap(tiny.arrays(after(taught(0.0))), tiny.arrays(after(built()))) < 1e-10


def test_what_peers_teach_moves_the_returned_network_and_brings_both_together():
    apart, together = after(taught(0.0)), after(taught(2.0))
    assert tiny.gap(tiny.arrays(apart), tiny.arrays(together)) > 1e-3
    process = taught(2.0)
    gaps = [disagreement(process, state) for state in (process.initialize(), apart, together)]
    assert 0 < gaps[2] < 0.8 * gaps[1], gaps


def test_peers_start_from_values_of_their_own_and_outlive_a_round():
    process = taught(1.0, budget=3)
    state = process.initialize()
    for path, peers in state.clients["peers"].items():
        value = np.asarray(state.weights[path])
        assert peers.shape == (4, 2, *value.shape)
        assert (np.asarray(peers) == np.asarray(peers)[:1]).all()
        if path.endswith("kernel"):
            first, second = np.asarray(peers)[0]
            assert (first != value).any() and (second != first).any()
    one, _ = process.run(state, [process.plan(0, [2])])
    for path, old in state.clients["peers"].items():
        changed = (np.asarray(one.clients["peers"][path]) != np.asarray(old)).reshape(4, -1).any(1)
        assert changed.tolist() == [False, False, True, False], path
    # The next round goes on with them: with the first ones again it ends elsewhere.
    two, _ = process.run(one, [process.plan(1, [2])])
    again, _ = process.run(
        type(one)(1, one.weights, one.server, {**one.clients, "peers": state.clients["peers"]}), [process.plan(1, [2])]
    )
    assert tiny.gap(tiny.arrays(two), tiny.arrays(again)) > 1e-6


@pytest.mark.parametrize(
    ("budget", "networks", "stages"),
    [("1", 1, 1), ("2", 2, 1), ("7/6", 1, 1), ("1.4", 2, 2), ("2.4", 3, 2), ("3", 3, 1)],
)
def test_a_budget_holds_whole_networks_and_one_in_stages_where_all_units_fit(budget, networks, stages):
    text = methods.DEEP
    settings = (methods.ENDS, *methods.blockwise("peers: true", budgets=f"a: {budget}, c: 0.2"))
    found = tiny.process(text, *settings, "client.coupling={name: mutual, ramp: null}").family.stages["a"]
    assert len(found) == stages and {len(stage.trained_by_network) for stage in found} == {networks}
    assert all(stage.trained == set(methods.TRUNK) for stage in found)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        (
            "client.correction={name: dynamic, alpha: 0.3}",
            "client.correction: must be null or proximal where client.stages.peers is true: nothing is remembered of "
            "peers. Received: dynamic",
        ),
        ("levels.members={a: 2}", "levels.members: does not go with client.stages.peers: a client trains an "),
    ],
)
def test_what_does_not_go_with_peers_is_refused(setting, told):
    given = [*ALONE, STAGES, "levels.budgets={a: 2}", "client.coupling={name: mutual, ramp: null}", setting]
    if "dynamic" in setting:
        given.append("round.server={name: dynamic, alpha: 0.3}")
    assert told in refusal(recipe.loads, THREE, "r.yaml", given)
