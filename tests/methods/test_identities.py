"""Equalities between methods in float64, and unchanged values of lost clients."""

import dataclasses
import functools

import methods
import numpy as np
import oracle
import pytest
import tensorflow as tf
import tiny

pytestmark = pytest.mark.usefixtures("eager")

ONE = ("precision=float64", "levels.mix=a1", "optimizer.clip_norm=null", "client.batch_size=5", *methods.PLAIN)
EXACT = 1e-10
PEERS = "client.stages={name: blockwise, peers: true}"
# A stem, one unit and a head.
THREE = methods.DENSE.replace("    - Dense", "    - [Dense: {units: !w 6}, ReLU]\n    - Dense")


@functools.cache
def built(*settings):
    """Four clients with equal numbers of examples, all at width 1."""
    return tiny.process(THREE, *ONE, *settings, data=tiny.images((5, 5, 5, 5)))


@functools.cache
def averaged():
    """The weights after federated averaging."""
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


def test_networks_of_an_ensemble_are_trained_like_single_models():
    ensemble, single = built("levels.members={a: 3}"), built()
    start = ensemble.initialize()
    state, _ = ensemble.run(start, tiny.plans(ensemble, 2))
    assert {tuple(plan.members) for plan in tiny.plans(ensemble, 2)} != {(0,) * 3}
    for member in range(3):
        initial = dataclasses.replace(
            single.initialize(), weights={path: v[member] for path, v in start.weights.items()}
        )
        actual = {path: np.asarray(value)[member] for path, value in state.weights.items()}
        assert tiny.gap(actual, weights(single, state=initial)) < EXACT
    assert not np.array_equal(start.weights["0_1_dense/kernel"][0], start.weights["0_1_dense/kernel"][1])


def narrow(submodel):
    """Levels a and c, clients drawn."""
    return tiny.shared(methods.DENSE, "precision=float64", methods.ENDS, f"round.submodel={submodel}")


def test_rolling_sub_models_start_with_the_first_channels():
    plan = dataclasses.replace(narrow("prefix").plan(0, (0, 1, 2, 3)), levels=np.asarray([0, 0, 1, 1], np.int32))
    first, _ = narrow("prefix").run(narrow("prefix").initialize(), [plan])
    other, _ = narrow("rolling").run(narrow("rolling").initialize(), [plan])
    assert tiny.gap(tiny.arrays(other), tiny.arrays(first)) < EXACT


def test_random_sub_models_are_the_first_channels_of_a_permuted_model():
    process, client = narrow("random"), 2
    plan = dataclasses.replace(process.plan(0, [client]), levels=np.ones(1, np.int32))
    channels = oracle.coordinates(process, 8, 2, 0, client)
    order = np.concatenate([channels, np.setdiff1d(np.arange(8), channels)])
    axes = {"0_1_dense/kernel": 1, "0_1_dense/bias": 0, "1_0_dense/kernel": 0}
    start = process.initialize()
    turned = {path: np.take(v, order, axes[path]) if path in axes else v for path, v in start.weights.items()}
    permuted_result, _ = narrow("prefix").run(dataclasses.replace(start, weights=turned), [plan])
    expected = {
        path: np.take(v, np.argsort(order), axes[path]) if path in axes else np.asarray(v)
        for path, v in permuted_result.weights.items()
    }
    actual = tiny.arrays(process.run(start, [plan])[0])
    assert channels.tolist() != [0, 1] and tiny.gap(actual, expected) < EXACT
    assert not tiny.same(actual, tiny.arrays(start))


def test_clients_of_one_depth_train_the_model_of_that_depth():
    exits = ("precision=float64", methods.PAIR, methods.EVEN)
    shallow = tiny.process(methods.DEEP, *exits, "levels.depths={a: 2, b: 2}")
    lines = methods.DEEP.splitlines(keepends=True)
    at = [index for index, line in enumerate(lines) if "Exit" in line]
    lines[at[1] : at[1] + 3] = [lines[at[1]].replace("Exit: ", "")]
    short = tiny.process("".join(lines), *exits)
    assert list(short.initialize().weights) == list(shallow.initialize().weights)
    assert tiny.gap(weights(shallow), weights(short)) < EXACT


def test_values_of_lost_clients_stay_bit_equal():
    settings = ("levels.mix=b1", 'round.personal=["0"]', *methods.PLAIN, *methods.DYNAMIC, "engine=stacked")
    process = tiny.process(methods.DENSE, *settings, data=tiny.images(kind=np.float32))
    state, _ = process.run(process.initialize(), [process.plan(0, [0, 1, 2, 3])])
    x = process.dataset.train.x.copy()
    x[process.partition.train[1][0]] = np.nan
    broken = tiny.with_setup(process, examples={"x": tf.constant(x)})
    (actual, rows), (without, _) = (broken.run(state, [process.plan(1, cohort)]) for cohort in ([0, 1, 2], [0, 2]))
    assert rows[0]["non_finite"] == 1 and tiny.gap(tiny.arrays(actual), tiny.arrays(without)) < 1e-6
    for kind, table in state.clients.items():
        for path, old in table.items():
            changed = (np.asarray(old) != np.asarray(actual.clients[kind][path])).reshape(4, -1).any(1)
            assert changed.tolist() == [True, False, True, False], (kind, path)
    after_lost_client, _ = broken.run(state, [process.plan(1, [1])])
    for one, other in (
        (after_lost_client.weights, state.weights),
        *((after_lost_client.clients[kind], state.clients[kind]) for kind in state.clients),
        (after_lost_client.server["drift"], state.server["drift"]),
    ):
        assert tiny.same(one, other)


def example(process):
    """Some inputs of a model."""
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
