"""Peers: networks that a client trains together with the returned one, their initial values, and their effect."""

import functools

import methods
import numpy as np
import pytest
import tiny

pytestmark = pytest.mark.usefixtures("eager")

# A stem, a unit between, and a head.
THREE = methods.DENSE.replace("    - Dense", "    - [Dense: {units: !w 6}, ReLU]\n    - Dense")
ALONE = ("precision=float64", "levels.mix=a1", "optimizer.clip_norm=null", "client.batch_size=5", *methods.PLAIN)
STAGES = "client.stages={name: blockwise, peers: true}"


@functools.cache
def build_process(*settings):
    """Four clients with equal numbers of examples, all at width 1."""
    return tiny.process(THREE, *ALONE, *settings, data=tiny.images((5, 5, 5, 5)))


def build_teaching_process(weight, budget=2):
    """The same with peers and this weight of their divergence."""
    coupling = f"client.coupling={{name: mutual, ramp: null, weight: {weight}}}"
    return build_process(STAGES, f"levels.budgets={{a: {budget}}}", coupling)


def run_rounds(process, rounds=3):
    state, _ = process.run(process.initialize(), tiny.plans(process, rounds))
    return state


def test_networks_without_teaching_are_trained_like_single_ones():
    assert (
        tiny.gap(tiny.arrays(run_rounds(build_teaching_process(0.0))), tiny.arrays(run_rounds(build_process()))) < 1e-10
    )


def test_peers_have_separate_initial_values_and_survive_a_round():
    process = build_teaching_process(1.0, budget=3)
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
    # The next round starts from the new peers: with the initial ones its result differs.
    two, _ = process.run(one, [process.plan(1, [2])])
    again, _ = process.run(
        type(one)(1, one.weights, one.server, {**one.clients, "peers": state.clients["peers"]}), [process.plan(1, [2])]
    )
    assert tiny.gap(tiny.arrays(two), tiny.arrays(again)) > 1e-6


@pytest.mark.parametrize(
    ("budget", "networks", "stages"),
    [("1", 1, 1), ("2", 2, 1), ("7/6", 1, 1), ("1.4", 2, 2), ("2.4", 3, 2), ("3", 3, 1)],
)
def test_budget_fits_full_networks_and_one_in_stages(budget, networks, stages):
    text = methods.DEEP
    settings = (methods.ENDS, *methods.blockwise("peers: true", budgets=f"a: {budget}, c: 0.2"))
    stages_of_level = tiny.process(text, *settings, "client.coupling={name: mutual, ramp: null}").family.stages["a"]
    assert len(stages_of_level) == stages and {len(stage.trained_by_network) for stage in stages_of_level} == {networks}
    assert all(stage.trained == set(methods.TRUNK) for stage in stages_of_level)
