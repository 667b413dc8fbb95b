"""What different methods must agree on in float64, and what a lost client keeps."""

import dataclasses
import functools

import methods
import numpy as np
import oracle
import pytest
import tensorflow as tf
import tiny

pytestmark = pytest.mark.usefixtures("eager")

ONE = ("precision=float64", "levels.mix=a1", "optimizer.clip_norm=null", *methods.PLAIN)
EXACT = 1e-10
PEERS = "client.stages={name: blockwise, peers: true}"
# A stem, a unit between, and a head.
THREE = methods.DENSE.replace("    - Dense", "    - [Dense: {units: !w 6}, ReLU]\n    - Dense")


@functools.cache
def built(*settings):
    """Four clients with equally many examples, all at width 1."""
    return tiny.process(THREE, *ONE, *settings, data=tiny.images((5, 5, 5, 5)))


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
    found, wanted = weights(built(*settings)), weights(built())
    assert tiny.gap(found, wanted) < EXACT
    assert tiny.gap(wanted, tiny.arrays(built().initialize())) > 1e-3


def test_each_network_of_an_ensemble_is_trained_as_if_it_were_alone():
    ensemble, alone = built("levels.members={a: 3}"), built()
    start = ensemble.initialize()
    state, _ = ensemble.run(start, tiny.plans(ensemble, 2))
    assert {tuple(plan.members) for plan in tiny.plans(ensemble, 2)} != {(0,) * 3}
    for member in range(3):
        own = dataclasses.replace(alone.initialize(), weights={path: v[member] for path, v in start.weights.items()})
        found = {path: np.asarray(value)[member] for path, value in state.weights.items()}
        assert tiny.gap(found, weights(alone, state=own)) < EXACT
    assert not np.array_equal(start.weights["0_1_dense/kernel"][0], start.weights["0_1_dense/kernel"][1])


def narrow(submodel):
    """Levels a and c, clients drawn."""
    return tiny.shared(methods.DENSE, "precision=float64", methods.ENDS, f"round.submodel={submodel}")


def test_rolling_sub_models_begin_as_the_first_channels():
    plan = dataclasses.replace(narrow("prefix").plan(0, (0, 1, 2, 3)), levels=np.asarray([0, 0, 1, 1], np.int32))
    first, _ = narrow("prefix").run(narrow("prefix").initialize(), [plan])
    other, _ = narrow("rolling").run(narrow("rolling").initialize(), [plan])
    assert tiny.gap(tiny.arrays(other), tiny.arrays(first)) < EXACT


def test_random_sub_models_are_the_first_channels_of_a_permuted_model():
    process, client = narrow("random"), 2
    plan = dataclasses.replace(process.plan(0, [client]), levels=np.ones(1, np.int32))
    own = oracle.coordinates(process, 8, 2, 0, client)
    order = np.concatenate([own, np.setdiff1d(np.arange(8), own)])
    axes = {"0_1_dense/kernel": 1, "0_1_dense/bias": 0, "1_0_dense/kernel": 0}
    start = process.initialize()
    turned = {path: np.take(v, order, axes[path]) if path in axes else v for path, v in start.weights.items()}
    wanted, _ = narrow("prefix").run(dataclasses.replace(start, weights=turned), [plan])
    back = {
        path: np.take(v, np.argsort(order), axes[path]) if path in axes else np.asarray(v)
        for path, v in wanted.weights.items()
    }
    found = tiny.arrays(process.run(start, [plan])[0])
    assert own.tolist() != [0, 1] and tiny.gap(found, back) < EXACT
    assert not tiny.same(found, tiny.arrays(start))


def test_clients_of_one_depth_train_the_model_that_ends_there():
    exits = ("precision=float64", methods.PAIR, methods.EVEN)
    shallow = tiny.process(methods.DEEP, *exits, "levels.depths={a: 2, b: 2}")
    lines = methods.DEEP.splitlines(keepends=True)
    at = [place for place, line in enumerate(lines) if "Exit" in line]
    lines[at[1] : at[1] + 3] = [lines[at[1]].replace("Exit: ", "")]
    short = tiny.process("".join(lines), *exits)
    assert list(short.initialize().weights) == list(shallow.initialize().weights)
    assert tiny.gap(weights(shallow), weights(short)) < EXACT


def test_lost_clients_keep_what_they_had_bit_by_bit():
    settings = ("levels.mix=b1", 'round.personal=["0"]', *methods.PLAIN, *methods.DYNAMIC, "engine=stacked")
    process = tiny.process(methods.DENSE, *settings, data=tiny.images(kind=np.float32))
    state, _ = process.run(process.initialize(), [process.plan(0, [0, 1, 2, 3])])
    x = process.dataset.train.x.copy()
    x[process.partition.train[1][0]] = np.nan
    broken = tiny.with_parts(process, examples={"x": tf.constant(x)})
    (found, rows), (without, _) = (broken.run(state, [process.plan(1, cohort)]) for cohort in ([0, 1, 2], [0, 2]))
    assert rows[0]["non_finite"] == 1 and tiny.gap(tiny.arrays(found), tiny.arrays(without)) < 1e-6
    for kind, table in state.clients.items():
        for path, old in table.items():
            changed = (np.asarray(old) != np.asarray(found.clients[kind][path])).reshape(4, -1).any(1)
            assert changed.tolist() == [True, False, True, False], (kind, path)
    alone, _ = broken.run(state, [process.plan(1, [1])])
    for one, other in (
        (alone.weights, state.weights),
        *((alone.clients[kind], state.clients[kind]) for kind in state.clients),
        (alone.server["drift"], state.server["drift"]),
    ):
        assert tiny.same(one, other)


def example(process):
    """Some inputs of a model."""
    return np.random.default_rng(1).normal(size=(4, *process.input.shape(process.dataset.train.x)))


def test_an_ensemble_predicts_the_mean_of_as_many_networks_as_a_level_has():
    settings = ("levels.mix=a1-c1", "levels.widths={a: 1, c: 1}", "levels.members={a: 3, c: 2}")
    ensemble, alone = tiny.process(THREE, *ONE, *settings), built()
    state, inputs = ensemble.initialize(), example(ensemble)
    own = [
        dataclasses.replace(alone.initialize(), weights={path: v[member] for path, v in state.weights.items()})
        for member in range(3)
    ]
    logits = [alone.network(one)(inputs).numpy() for one in own]
    for level, members in (("a", 3), ("c", 2)):
        np.testing.assert_allclose(ensemble.network(state, level)(inputs), np.mean(logits[:members], 0), rtol=EXACT)


def test_exits_predict_alone_or_by_their_mean():
    for exits in ("last", "mean"):
        process = tiny.process(methods.TRACKED, "precision=float64", *methods.DEPTHS, f"evaluate.exits={exits}")
        inputs, state = example(process), process.initialize()
        for level, depth in (("a", 3), ("c", 1)):
            model = process.family.fresh(level, tiny.CLASSES)
            for variable in model.variables:
                variable.assign(state.weights[variable.path])
            found = tf.nest.flatten(model(inputs, training=False))
            assert len(found) == depth
            expected = found[-1] if exits == "last" else sum(found) / depth
            np.testing.assert_allclose(process.network(state, level)(inputs), expected, rtol=1e-9)
