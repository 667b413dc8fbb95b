"""Statistics and metrics against plain loops over batches, examples and clients."""

import dataclasses
import functools
from types import SimpleNamespace

import keras
import numpy as np
import oracle
import pytest
import tensorflow as tf
import tiny
from refusals import refusal

from hetero_tf.base import seeds
from hetero_tf.base.replicas import Replicas
from hetero_tf.data.partitions.partition import ClientExamples
from hetero_tf.evaluation import global_metrics, predictor, statistics_query
from hetero_tf.evaluation.fairness import accuracies
from hetero_tf.layers.static_batch_normalization import StaticBatchNormalization
from hetero_tf.models.variables import all_layers, values

SIZES = (7, 5, 9, 4)


@functools.cache
def images(*overrides):
    process = tiny.process(
        tiny.IMAGES, "precision=float64", "evaluate.batch_size=4", "evaluate.statistics_batch=2", *overrides
    )
    # Not the initial values: scales and offsets of the norms must matter.
    rng = np.random.default_rng(6)
    state = process.initialize()
    moved = {path: np.asarray(value) + 0.3 * rng.normal(size=value.shape) for path, value in state.weights.items()}
    return process, type(state)(3, {path: tf.constant(value) for path, value in moved.items()})


def build_assigned_model(process, state, values=()):
    model = process.family.predictor(process.recipe.levels.global_level)
    for variable in model.variables:
        value = {**state.weights, **dict(values)}.get(variable.path)
        if value is not None:
            variable.assign(value)
    return model


@pytest.mark.parametrize("way", ["pooled", "clients", "sample"])
def test_statistics_are_the_average_over_single_batches(way, monkeypatch):
    monkeypatch.setattr(predictor, "MIN_SAMPLE", 9)
    process, state = images(f"evaluate.statistics={way}")
    statistics = process.statistics(state)
    everything = [np.arange(sum(SIZES), dtype=np.int32)] if way == "pooled" else process.partition.train
    if way == "sample":
        everything = process.evaluator.statistics_rows
        assert len(set(everything[0].tolist()) & set(range(sum(SIZES)))) == 9
    full, short = statistics_query.statistics_batches(everything, 2, seeds.rng(0, "statistics", state.round))
    assert short
    model = build_assigned_model(process, state)
    norms = [layer for layer in all_layers(model) if isinstance(layer, StaticBatchNormalization)]
    sums = dict.fromkeys(statistics, 0.0)
    for rows in [*full, *short]:
        model(oracle.batch(process, rows, 0, [0])[0], training=True)
        for norm in norms:
            sums[norm.mean.path] += norm.mean.numpy()
            sums[norm.variance.path] += norm.variance.numpy()
    assert len(norms) == 3 and len(statistics) == 6
    for path, value in statistics.items():
        np.testing.assert_allclose(value, sums[path] / (len(full) + len(short)), rtol=1e-10)


def test_batches_per_call_do_not_change_results_and_scalers_are_off_at_a_narrow_level():
    process, state = images("evaluate.statistics=pooled")
    batches = (
        np.random.default_rng(0).integers(0, sum(SIZES), (statistics_query.BATCHES_PER_CALL + 7, 2)).astype(np.int32)
    )
    weights = list(state.weights.values())
    parts = [
        process.evaluator.global_predictor.calibrate(weights, part, [], 0) for part in (batches[:20], batches[20:])
    ]
    for value, first, second in zip(process.evaluator.global_predictor.calibrate(weights, batches, [], 0), *parts):
        np.testing.assert_allclose(value, (20 * first + (len(batches) - 20) * second) / len(batches), rtol=1e-11)
    statistics = process.statistics(state, "c")
    model = process.network(state, "c", statistics)
    inputs = oracle.batch(process, np.arange(3), 0, [0])[0]
    client = process.family.new_training_model("c", tiny.CLASSES)
    client.set_weights([np.asarray(value) for value in model.variables])
    assert client.count_params() == model.count_params()
    np.testing.assert_array_equal(client(inputs, training=False), model(inputs, training=False))
    plain = process.network(state, "c", statistics)
    assert np.abs(client(inputs, training=True) - plain(inputs, training=True)).max() > 1e-9


def cross_entropy(logits, label):
    return np.log(np.exp(logits).sum()) - logits[label]


def test_image_metrics_equal_a_loop_over_examples_and_clients():
    process, state = images("evaluate.statistics=pooled")
    metrics, statistics = process.evaluate(state)
    model, test = build_assigned_model(process, state, statistics["a"]), process.dataset.test
    inputs = (test.x / 255 - process.recipe.input.options["mean"]) / process.recipe.input.options["std"]
    logits = model(inputs, training=False).numpy()
    rows = range(len(test.y))
    np.testing.assert_allclose(metrics["global_loss"], np.mean([cross_entropy(logits[r], test.y[r]) for r in rows]))
    assert metrics["global_accuracy"] == pytest.approx(100 * np.mean([logits[r].argmax() == test.y[r] for r in rows]))
    losses, hits = [], []
    for client, client_rows in enumerate(process.partition.test):
        for row in client_rows:
            # One forward pass per test example of the client.
            client_logits = np.where(process.partition.label_mask[client], model(inputs[[row]], training=False)[0], 0)
            losses.append(cross_entropy(client_logits, test.y[row]))
            hits.append(client_logits.argmax() == test.y[row])
    assert len(losses) == len(test.y)
    np.testing.assert_allclose(metrics["local_loss"], np.mean(losses))
    assert metrics["local_accuracy"] == pytest.approx(100 * np.mean(hits))
    assert metrics["local_loss"] != pytest.approx(metrics["global_loss"])
    client_rows = np.split(np.asarray(hits, float), np.cumsum(process.partition.test.sizes)[:-1])
    shares = [100 * each.mean() for each in client_rows]
    assert len(set(shares)) > 1
    assert metrics["local_mean"] == pytest.approx(np.mean(shares))
    assert metrics["local_worst_decile"] == pytest.approx(min(shares))
    assert metrics["local_std"] == pytest.approx(np.std(shares))
    np.testing.assert_allclose(accuracies(tf.constant(np.asarray(hits, float)), process.evaluator.tests), shares)


def test_evaluating_every_round_traces_once():
    process, traced = tiny.process(tiny.IMAGES), []

    def counted(*args, **kwargs):
        # `batch` runs in Python only while a function is traced.
        traced.append(kwargs["training"])
        return process.input.batch(*args, **kwargs)

    examples = process.evaluator.examples
    examples = dataclasses.replace(examples, input=dataclasses.replace(examples.input, batch=counted))
    watched = dataclasses.replace(process, evaluator=dataclasses.replace(process.evaluator, examples=examples))
    state = watched.initialize()
    watched.evaluate(state)
    first = len(traced)
    for round in range(1, 4):
        watched.evaluate(dataclasses.replace(state, round=round))
    assert first >= 2 and len(traced) == first


def test_without_test_examples_of_clients_there_are_no_local_metrics():
    dataset, partition = tiny.images()
    untested = dataclasses.replace(partition, test=ClientExamples.empty(4))
    process = tiny.process(tiny.DENSE, data=(dataset, untested))
    metrics, _ = process.evaluate(process.initialize())
    assert set(metrics) == {"global_loss", "global_accuracy"}
    sentence = refusal(tiny.process, tiny.DENSE, "evaluate.best=local_accuracy", data=(dataset, untested))
    assert "evaluate.best: cannot be measured, because no client has test examples; choose a global metric" in sentence


def test_local_metrics_of_an_unmasked_loss_see_all_logits():
    process, state = images("client.loss=cross_entropy")
    metrics, _ = process.evaluate(state)
    assert metrics["local_loss"] == pytest.approx(metrics["global_loss"])
    assert metrics["local_accuracy"] == pytest.approx(metrics["global_accuracy"])


def test_batches_do_not_cross_arrays_and_lose_nothing():
    rng = np.random.default_rng(0)
    for _ in range(30):
        parts = [np.arange(first, first + rng.integers(0, 9), dtype=np.int32) for first in (0, 100, 200)]
        full, short = statistics_query.statistics_batches(parts, 3, rng)
        assert full.shape[1:] == (3,)
        batches = [*full.tolist(), *(rows.tolist() for rows in short)]
        assert sorted(sum(batches, [])) == np.concatenate(parts).tolist()
        assert all(len({row // 100 for row in batch}) == 1 for batch in batches)
        assert all(0 < len(rows) < 3 for rows in short)
        assert len(short) == sum(len(part) % 3 > 0 for part in parts)
    full, short = statistics_query.statistics_batches([np.arange(5)], 2)
    assert (full.tolist(), [rows.tolist() for rows in short]) == ([[0, 1], [2, 3]], [[4]])


def test_every_batch_of_random_inputs_has_its_key(eager):
    keys, x = [], tf.constant(np.random.default_rng(0).normal(size=(47, 3)), tf.float32)

    def read(x, y, rows, start, key, labels, training):
        keys.append(tuple(key.numpy().tolist()))
        return tf.gather(x, rows), None

    models = [keras.Sequential([keras.Input((3,)), StaticBatchNormalization()]) for _ in range(2)]
    examples = SimpleNamespace(input=SimpleNamespace(batch=read), x=x, y=None)
    query = statistics_query.StatisticsQuery(*models, examples, 2, Replicas(1))
    weights = [tf.convert_to_tensor(value) for value in values(models[0])]
    query(
        weights,
        *statistics_query.statistics_batches([np.arange(43), np.arange(43, 44), np.arange(44, 45)], 2),
        2**31 - 2,
    )
    # 21 full batches in two calls, and three short ones; a seed behind the largest number wraps to 0.
    assert keys == [(2**31 - 2, 0), (2**31 - 2, 20), (2**31 - 1, -1), (0, -1), (1, -1)]


@pytest.mark.usefixtures("eager")
def test_perplexity_is_the_row_weighted_mean_of_exponentials():
    process = tiny.process(tiny.TEXT, "precision=float64")
    state = process.initialize()
    metrics, statistics = process.evaluate(state)
    assert statistics == {"a": {}}
    model, x = build_assigned_model(process, state), process.dataset.test.x
    key, losses, rows = seeds.seed32(0, "test masks"), [], []
    for row in (0, 2):  # batches of two rows; the third row is a short one
        for start in (0, 4, 8):  # and the last segment has two positions
            tokens = x[row : row + 2, start : start + 4]
            hidden = oracle.uniform([key, row, start], tokens.shape) < 0.3
            logits = model(np.where(hidden, tiny.WORDS, tokens), training=False).numpy()
            pairs = zip(logits.reshape(-1, tiny.WORDS), tokens.reshape(-1))
            losses.append(np.mean([cross_entropy(token_logits, token) for token_logits, token in pairs]))
            rows.append(len(tokens))
    np.testing.assert_allclose(metrics["global_loss"], np.average(losses, weights=rows), rtol=1e-12)
    np.testing.assert_allclose(metrics["global_perplexity"], np.average(np.exp(losses), weights=rows), rtol=1e-12)
    assert metrics["global_perplexity"] > np.exp(metrics["global_loss"])
    assert process.evaluate(state)[0] == metrics  # masked positions are the same at every call


@pytest.mark.long
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("logits", [1, 40])
@pytest.mark.parametrize("last", ["Dense", "Scaler"])
def test_perplexity_does_not_depend_on_the_number_of_logits_in_memory(monkeypatch, logits, last):
    # Only a last Dense is split off the model. A Scaler is inert in a test.
    base = tiny.TEXT if last == "Dense" else tiny.TEXT.replace("partition:", "    - Scaler\npartition:")
    monkeypatch.setattr(global_metrics, "MAX_LOGITS", logits)
    process = tiny.process(base, "precision=float64", data=tiny.text())
    metrics = process.evaluate(process.initialize())[0]
    assert process.evaluator.global_model.layers[-1].__class__.__name__ == last
    monkeypatch.undo()
    assert metrics == pytest.approx(whole_text(), rel=1e-13)


@functools.cache
def whole_text():
    process = tiny.process(tiny.TEXT, "precision=float64")
    return process.evaluate(process.initialize())[0]
