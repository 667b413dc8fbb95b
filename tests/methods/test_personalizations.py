"""Models of clients: identities with other methods, the order of FedRep, new clients, and noise of clients."""

import dataclasses
import functools

import keras
import methods
import numpy as np
import pytest
import tiny

from hetero_tf import recipe
from hetero_tf.base.errors import InputError
from hetero_tf.evaluation.client_metrics import has_client_models
from hetero_tf.models.state import flatten_state, unflatten_state

pytestmark = pytest.mark.usefixtures("eager")

PLAIN = ("precision=float64", "levels.mix=a-b", "optimizer.weight_decay=0", *methods.PLAIN)
HEAD = 'round.personal=["1"]'


@functools.cache
def built(*settings):
    return tiny.process(methods.DENSE, *PLAIN, *settings)


def arrays(table):
    return {path: np.asarray(value) for path, value in table.items()}


@functools.cache
def after_rounds(*settings):
    process = built(*settings)
    return process.run(process.initialize(), tiny.plans(process, 2))[0]


@pytest.mark.parametrize("name, options", [("ditto", {}), ("apfl", {"alpha": 0.3}), ("moon", {"mu": 0.0})])
def test_the_global_model_is_that_of_fedavg(name, options):
    assert tiny.same(tiny.arrays(after_rounds(methods.personalization(name, **options))), tiny.arrays(after_rounds()))


@pytest.mark.long
def test_without_a_pull_the_twin_of_ditto_trains_alone():
    twins = after_rounds(methods.personalization("ditto", strength=0.0)).clients["twin"]
    assert tiny.same(twins, after_rounds("round.personal=[all]").clients["personal"])
    pulled = after_rounds(methods.personalization("ditto", strength=0.4)).clients["twin"]
    assert tiny.gap(twins, arrays(pulled)) > 1e-4


def test_without_a_share_apfl_is_fedavg():
    settings = methods.personalization("apfl", alpha=0.0, adaptive="false")
    state = after_rounds(settings)
    assert tiny.same(state.clients["twin"], built(settings).initialize().clients["twin"])
    metrics, expected = built(settings).evaluate(state)[0], built().evaluate(after_rounds())[0]
    # With dynamic levels every client is tested at the global level.
    for name in ("local_loss", "local_mean", "local_worst_decile"):
        assert metrics[name] == pytest.approx(expected[name], rel=1e-12)


@pytest.mark.long
def test_with_the_whole_share_apfl_tests_the_twin():
    alone = after_rounds(methods.personalization("apfl", alpha=1.0, adaptive="false")).clients["twin"]
    assert tiny.gap(alone, arrays(after_rounds("round.personal=[all]").clients["personal"])) < 1e-12


def test_one_inner_step_of_pfedme_is_a_step_with_the_product_of_its_rates():
    one_step = ("client.batch_size=20", "client.epochs=1", "optimizer.momentum=0", "optimizer.clip_norm=null")
    options = {"strength": 4.0, "steps": 1, "rate": 0.05}
    state = after_rounds(*one_step, methods.personalization("pfedme", **options))
    expected = after_rounds(*one_step, f"optimizer.learning_rate={0.1 * 4.0 * 0.05}")
    assert tiny.gap(tiny.arrays(state), tiny.arrays(expected)) < 1e-12


@pytest.mark.long
def test_moon_turns_representations_from_the_last_model_to_the_global_one():
    def difference(mu):
        process = built("levels.mix=a1", methods.personalization("moon", mu=mu))
        clients = range(4)
        first, _ = process.run(process.initialize(), [process.plan(0, clients)])
        second, _ = process.run(first, [process.plan(1, clients)])
        model = process.network(first, "a")
        body = keras.Model(model.inputs, model.layers[-1].input)

        def directions(weights):
            for variable in model.trainable_variables:
                variable.assign(weights[variable.path])
            features = body([process.dataset.train.x / 255.0]).numpy()
            return features / np.linalg.norm(features, axis=1, keepdims=True)

        models = [
            [{path: rows[c] for path, rows in state.clients["previous"].items()} for c in clients]
            for state in (first, second)
        ]
        last, local = (np.stack(list(map(directions, each))) for each in models)
        return np.mean(np.sum(local * (directions(first.weights) - last), -1))

    assert difference(5.0) > difference(0.0) + 1e-4


def test_a_client_of_moon_is_tested_with_the_global_model():
    process = built(methods.personalization("moon"))
    state = after_rounds(methods.personalization("moon"))
    assert not has_client_models(state) and "local_new_mean" not in process.evaluate(state)[0]
    assert tiny.same(
        tiny.arrays(process.initialize()), {path: v[3] for path, v in process.initialize().clients["previous"].items()}
    )


def test_fedrep_trains_the_head_before_the_body():
    process = built(methods.personalization("fedrep"), HEAD)
    start, plan = process.initialize(), process.plan(0, [0, 2])
    first = np.array([-(-len(process.partition.train[client]) // 4) for client in plan.clients])
    cut = dataclasses.replace(plan, steps=first, rows=plan.rows.copy())
    for slot, steps in enumerate(first):
        cut.rows[slot, steps:] = -1
    (half, _), (whole, _) = (process.run(start, [each]) for each in (cut, plan))
    bodies = [{path: v for path, v in tiny.arrays(state).items() if path[0] == "0"} for state in (start, half, whole)]
    assert tiny.same(bodies[0], bodies[1]) and tiny.gap(bodies[1], bodies[2]) > 1e-3
    heads = [arrays(state.clients["personal"]) for state in (start, half, whole)]
    assert tiny.same(heads[1], heads[2]) and tiny.gap(heads[0], heads[1]) > 1e-3


@pytest.mark.parametrize(
    "name, settings",
    [
        ("ditto", ()),
        *(pytest.param(*case, marks=pytest.mark.long) for case in (("apfl", ()), ("moon", ()), ("fedrep", (HEAD,)))),
    ],
)
def test_a_stored_state_continues_bit_by_bit(name, settings):
    settings = (methods.personalization(name), *settings)
    process = built(*settings)
    first, _ = process.run(process.initialize(), [process.plan(0)])
    stored = {path: np.asarray(value) for path, value in flatten_state(first).items()}
    loaded = unflatten_state(1, stored, process.initialize())
    assert process.evaluate(loaded)[0] == process.evaluate(first)[0]
    again, _ = process.run(loaded, [process.plan(1)])
    assert tiny.same(flatten_state(again), flatten_state(after_rounds(*settings)))


def test_a_new_client_is_tested_with_the_global_model():
    process = built(methods.personalization("ditto"))
    state, _ = process.run(process.initialize(), [process.plan(0, [0, 2])])
    _, values, _, is_new = process.evaluator.clients["test"].personal_values(state)
    assert is_new.numpy().tolist() == [False, True, False, True]
    for path, value in values.items():
        np.testing.assert_array_equal(value[1], state.weights[path])
        np.testing.assert_array_equal(value[2], state.clients["twin"][path][2])
    accuracy = process.client_results(state).accuracy
    assert process.evaluate(state)[0]["local_new_mean"] == pytest.approx(np.mean(accuracy[[1, 3]]))


def test_an_idle_client_has_the_mean_of_personal_values():
    process = built(HEAD, "levels.mix=a3-b1", "levels.assignment=fixed", "levels.idle=[b]", "round.clients=2")
    state, _ = process.run(process.initialize(), [process.plan(0)])
    _, values, _, is_new = process.evaluator.clients["test"].personal_values(state)
    assert is_new.numpy().sum() == 1
    for path, table in state.clients["personal"].items():
        np.testing.assert_allclose(values[path][is_new.numpy()][0], np.mean(table, 0))
    assert "local_new_mean" in process.evaluate(state)[0]


@pytest.mark.parametrize(
    "settings, text",
    [
        ((methods.personalization("ditto"), HEAD), "a twin has all values"),
        ((methods.personalization("moon"), "client.stages=slimmable"), "representations of one width"),
        ((methods.personalization("moon"), "evaluate.best=validation_local_loss"), "only with models of clients"),
        ((methods.personalization("fedrep"),), "fedrep needs round.personal"),
        ((methods.personalization("fedrep", personal_epochs=2), HEAD), "must be less than client.epochs"),
        ((methods.personalization("pfedme"),), "optimizer.momentum"),
    ],
)
def test_combinations_that_are_refused(settings, text):
    with pytest.raises(InputError, match=text):
        recipe.loads(methods.DENSE, "tiny", settings)


def test_a_twin_has_no_running_statistics():
    with pytest.raises(InputError, match="stores no running statistics"):
        tiny.process(tiny.IMAGES.replace("kind: sbn", "kind: bn"), methods.personalization("ditto"))


def test_noise_grows_over_the_clients_and_spares_the_test_set():
    noisy, clean = built("partition.noise=0.5"), built()
    ratio = 255 if clean.dataset.train.x.dtype == np.uint8 else 1
    change = noisy.setup.examples.x.numpy() - clean.dataset.train.x / ratio
    deviations = [float(np.std(change[ids])) for ids in noisy.partition.train]
    np.testing.assert_allclose(deviations, [0, 0.5 / 3, 1 / 3, 0.5], rtol=0.1, atol=1e-7)
    state = clean.initialize()
    metrics, expected = noisy.evaluate(state)[0], clean.evaluate(state)[0]
    assert metrics["global_loss"] == expected["global_loss"]
    assert metrics["local_loss"] != pytest.approx(expected["local_loss"], rel=1e-4)
