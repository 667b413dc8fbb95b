"""Personal models compared with a plain loop: one model for each client, one example at a time."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf
import tiny
from test_validation_metrics import inputs

from hetero_tf.base.metrics import all_metrics
from hetero_tf.data.partitions import partition as partitions
from hetero_tf.layers.static_batch_normalization import StaticBatchNormalization
from hetero_tf.models.variables import all_layers, values

pytestmark = pytest.mark.usefixtures("eager")

BASE = tiny.IMAGES.replace("mix: a-c", "mix: {a: 2, b: 2}").replace("assignment: dynamic", "assignment: fixed")
PERSONAL = ('round.personal=["0", "3"]', "precision=float64", "evaluate.batch_size=2", "evaluate.statistics_batch=3")


@functools.cache
def build_process(*overrides, base=BASE, test=11, share=0):
    """A process and a state with different personal values of every client; `share` of the examples is held out."""
    dataset, partition = tiny.images((7, 5, 9, 0), test)
    train, held_out = partitions.hold_out(partition.train, share) if share else (partition.train, partition.held_out)
    # A client without training examples has all labels, so that its outputs count.
    mask = partition.label_mask | ~partition.label_mask.any(1, keepdims=True)
    partition = dataclasses.replace(partition, train=train, held_out=held_out, label_mask=mask)
    process = tiny.process(base, *PERSONAL, *overrides, data=(dataset, partition))
    rng, state = np.random.default_rng(11), process.initialize()

    def moved(value):
        return tf.constant(np.asarray(value) + 0.1 * np.abs(rng.normal(size=value.shape)))

    weights = {path: moved(value) for path, value in state.weights.items()}
    personal = {path: moved(table) for path, table in state.clients["personal"].items()}
    return process, type(state)(2, weights, state.server, {**state.clients, "personal": personal})


def personal_model(process, state, client, level):
    """The client's personal Keras model; static batch normalisation by a loop over the batches of its examples."""
    model, personal = process.family.predictor(level), state.clients["personal"]
    for variable in values(model):
        value = np.asarray(
            personal[variable.path][client] if variable.path in personal else state.weights[variable.path]
        )
        variable.assign(value[tuple(map(slice, variable.shape))])
    rows, sums = process.partition.train[client], {}
    norms = [layer for layer in all_layers(model) if isinstance(layer, StaticBatchNormalization)]
    # Run no batch without such norms: a training step would move running averages.
    batches = [rows[first : first + 3] for first in range(0, len(rows), 3)] if norms else []
    for batch in batches:
        model(inputs(process, process.dataset.train.x[batch]), training=True)
        for statistic in (one for norm in norms for one in (norm.mean, norm.variance)):
            sums[statistic.path] = sums.get(statistic.path, 0) + statistic.numpy() / len(batches)
    for statistic in (one for norm in norms for one in (norm.mean, norm.variance)):
        statistic.assign(sums.get(statistic.path, statistic))
    return model


def measure_plain(process, state, levels, test=None, shares=None):
    """{metric: value} over the rows of `test` that each client has; by default those of the test split."""
    losses, hits, test = [], [], process.dataset.test if test is None else test
    shares = process.partition.test if shares is None else shares
    for client, rows in enumerate(shares):
        model = personal_model(process, state, client, levels[client])
        for row in rows:
            logits = model(inputs(process, test.x[[row]]), training=False).numpy()[0]
            logits = np.where(process.partition.label_mask[client], logits, 0)
            losses.append(np.log(np.exp(logits).sum()) - logits[test.y[row]])
            hits.append((client, logits.argmax() == test.y[row]))
    accuracies = [
        100 * np.mean([hit for tested, hit in hits if tested == client])
        for client, rows in enumerate(shares)
        if len(rows)
    ]
    return {
        "local_loss": np.mean(losses),
        "local_accuracy": 100 * np.mean([hit for _, hit in hits]),
        "local_mean": np.mean(accuracies),
        "local_std": np.std(accuracies),
        "local_worst_decile": min(accuracies),
    }


def compare_with_plain(process, state, levels):
    metrics, _ = process.evaluate(state)
    expected = measure_plain(process, state, levels)
    assert expected["local_std"] > 0
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-10)
    return metrics


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sbn", "bn", "ln"])
def test_every_client_is_tested_with_its_personal_model_at_its_level(kind):
    base = BASE.replace("kind: sbn", f"kind: {kind}").replace("stride: 2}", f"stride: 2, norm: {kind}}}")
    process, state = build_process(base=base)
    metrics = compare_with_plain(process, state, "aabb")
    assert {"clients_accuracy_a", "clients_accuracy_b"} <= set(metrics)
    evaluator = process.evaluator
    pooled = evaluator.measure_global(*evaluator.global_values(state, process.statistics(state)))
    assert metrics["local_loss"] != pytest.approx(float(pooled["local_loss"]), rel=1e-3)
    assert metrics["global_loss"] == float(pooled["global_loss"])


@pytest.mark.long
def test_clients_of_dynamic_levels_and_without_test_examples():
    process, state = build_process("levels.assignment=dynamic")
    assert "clients_accuracy_a" not in compare_with_plain(process, state, "aaaa")
    process, state = build_process(test=3)
    assert process.partition.test.sizes.tolist() == [1, 1, 1, 0]
    compare_with_plain(process, state, "aabb")
    assert process.client_results(state).examples.tolist() == [1, 1, 1]


def test_examples_that_clients_hold_out_are_predicted_by_their_personal_models():
    process, state = build_process("evaluate.best=validation_local_accuracy", share=0.4)
    metrics, held_out = compare_with_plain(process, state, "aabb"), process.partition.held_out
    expected = measure_plain(process, state, "aabb", process.dataset.train, held_out)
    for name in ("loss", "accuracy"):
        assert metrics[f"validation_local_{name}"] == pytest.approx(expected[f"local_{name}"], rel=1e-10)
    assert metrics["validation_local_loss"] != pytest.approx(metrics["validation_loss"], rel=1e-3)
    assert process.selection_metric == "validation_local_accuracy"
    assert not {name for name in metrics if name.startswith("validation_local")} - set(all_metrics())


def test_all_units_may_be_personal_and_are_trained():
    dataset, partition = tiny.images()
    data = dataclasses.replace(dataset, test=dataset.train), dataclasses.replace(partition, test=partition.train)
    process = tiny.process(
        tiny.DENSE, "round.personal=[all]", "client.epochs=9", "levels.mix=a1", "schedule=constant", data=data
    )
    state = process.initialize()
    before, _ = process.evaluate(state)
    after, _ = process.evaluate(process.next(state, [0, 1, 2, 3])[0])
    again, _ = process.evaluate(state)
    assert before == again
    assert after["local_loss"] < before["local_loss"]


def test_evaluation_without_personal_units_has_no_client_models():
    process = tiny.process(BASE, "precision=float64")
    assert process.setup.layout.personal == ()
    process.evaluate(process.initialize())
    assert "personal" not in vars(process.evaluator)
