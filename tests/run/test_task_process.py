"""Tasks beside classification: trained, measured, cut, merged and exported in the units of the data."""

import functools
import json

import cases
import numpy as np
import pytest
import tensorflow as tf
import tiny
from refusals import refusal

from hetero_tf import export
from hetero_tf.base.errors import InputError
from hetero_tf.data import from_arrays
from hetero_tf.data.described import describe, from_description
from hetero_tf.export.formats.litert_train import check_trainable
from hetero_tf.recipe import load, loads
from hetero_tf.run.learning_process import learning_process

pytestmark = pytest.mark.usefixtures("eager")

TABLE = """
name: targets
data: {name: synthetic, kind: table, size: 6, classes: 3, examples: 120, test_examples: 60}
task: regression
input: table
partition: {name: iid, clients: 4}
model: {layers: [{Dense: {units: !w 16}}, ReLU, {Dense: {units: !classes}}]}
levels: {widths: {a: 1, b: 0.5}, mix: a-b}
round: {clients: 4}
client: {epochs: 2, batch_size: 30}
optimizer: {name: sgd, learning_rate: 0.1}
rounds: 3
"""
MAPS = (
    "data={name: shapes, size: 8, objects: 1, examples: 40, test_examples: 20}",
    "task=segmentation",
    "input={name: images}",
    "model.layers=[{PaddedConv2D: {filters: !w 8, kernel_size: 3}}, ReLU, {Conv2D: {filters: !classes, kernel_size: 1}}]",
    "client.batch_size=5",
)
SERIES = (
    "data={name: synthetic, kind: series, length: 12, channels: 2, classes: 2, examples: 120, test_examples: 60}",
    "input=series",
    "model.layers=[{Conv1D: {filters: !w 8, kernel_size: 3, padding: causal, dilation_rate: 2}}, Scaler, Norm, ReLU, "
    "MaxPooling1D, {LSTM: {units: !w 8}}, {Dense: {units: !classes}}]",
)
ATTENTION = (
    *SERIES[:2],
    "model.layers=[{Dense: {units: !w 8}}, PositionEmbedding, {TransformerBlock: {heads: 2, head_width: 4, hidden: 8}}, "
    "GlobalAveragePooling1D, {Dense: {units: !classes}}]",
)
TASKS = {
    "ordinal": ("task=ordinal", "optimizer.learning_rate=0.6"),
    "binary": ("task=binary", "data.classes=2", "optimizer.learning_rate=0.6"),
    "series": SERIES,
    "regression": (),
    "multi_label": ("task=multi_label", "optimizer.learning_rate=1.0"),
    "segmentation": MAPS,
}


@functools.cache
def trained(*overrides):
    """(process, state after all rounds, metrics after the first and the last round)."""
    process = learning_process(loads(TABLE, overrides=overrides))
    first, _ = process.next(process.initialize())
    state, _ = process.run(first, tiny.plans(process, process.recipe.rounds)[1:])
    return process, state, [process.evaluate(each)[0] for each in (first, state)]


# The others differ from these by one metric or loss, which the contracts test.
QUICK = ("binary", "series")


@pytest.mark.parametrize(
    "task", [pytest.param(task, marks=[] if task in QUICK else pytest.mark.long) for task in TASKS]
)
def test_a_task_learns_and_its_export_has_the_same_metrics(task, tmp_path):
    process, state, rows = trained(*TASKS[task])
    assert rows[-1]["global_loss"] < rows[0]["global_loss"]
    assert {f"global_{name}" for name in process.recipe.metrics} <= set(rows[-1])
    # `local_worst_decile` is that of the accuracy of labels.
    fixed = {"loss", "accuracy"} if process.recipe.targets == "label" else set()
    names = {"loss", *process.recipe.metrics} - fixed
    assert {f"local_{name}_{of}" for name in names for of in ("worst_decile", "std")} <= set(rows[-1])
    _, about = export.export(process, state, process.statistics(state), tmp_path, {})
    measured = about["measured"]
    for name in ("loss", *process.recipe.metrics):
        np.testing.assert_allclose(measured[name], rows[-1][f"global_{name}"], rtol=1e-4)


def test_values_of_an_exported_regression_are_in_the_units_of_the_data(tmp_path):
    process, state, rows = trained()
    folder, _ = export.export(process, state, process.statistics(state), tmp_path, {})
    test = process.dataset.test
    values = tf.saved_model.load(str(folder)).signatures["serve_numbers"](features=test.x)["values"]
    rmse = float(np.sqrt(np.mean((values - test.y) ** 2)))
    np.testing.assert_allclose(rmse, rows[-1]["global_rmse"], rtol=1e-4)
    assert rmse < test.y.std(0).mean()


@pytest.mark.long
def test_an_export_undoes_relative_series(tmp_path):
    values = 100 + 3 * np.arange(80) + 2 * np.sin(np.arange(80))
    (tmp_path / "grows.csv").write_text("\n".join(["day,sales", *(f"{day},{one}" for day, one in enumerate(values))]))
    source = f"data={{name: series, path: '{tmp_path}/grows.csv', time: day, label: sales, window: 6, relative: true}}"
    process, state, rows = trained(source, *SERIES[1:])
    windows = np.lib.stride_tricks.sliding_window_view(values, 7)[-len(process.dataset.test.x) :].astype(np.float32)
    described = learning_process(
        process.recipe, dataset=from_description(json.loads(json.dumps(describe(process.dataset))), "data")
    )
    for each in (process, described):
        folder, _ = export.export(each, state, process.statistics(state), tmp_path / each.dataset.source[:4], {})
        predict = tf.saved_model.load(str(folder)).signatures["serving_default"]
        errors = predict(series=windows[:, :-1, None])["values"][:, 0] - windows[:, -1]
        np.testing.assert_allclose(float(np.sqrt(np.mean(errors**2))), rows[-1]["global_rmse"], rtol=1e-3)
    assert rows[-1]["global_rmse"] < 3
    assert "Received: data.relative" in refusal(check_trainable, process, "a")


@pytest.mark.long
@pytest.mark.parametrize("overrides", [SERIES, ATTENTION], ids=["convolutions", "attention"])
def test_clients_of_series_are_computed_together_or_one_by_one(overrides):
    weights, engines = [], ("stacked", "sequential")
    for engine in engines:
        process = learning_process(loads(TABLE, overrides=(*overrides, "precision=float64", f"engine={engine}")))
        state, _ = process.run(process.initialize(), [process.plan(0)])
        weights.append({path: np.asarray(value) for path, value in state.weights.items()})
        assert (max(process.setup.block_sizes) > 1) == (engine == "stacked")
    for path, value in weights[0].items():
        np.testing.assert_allclose(value, weights[1][path], atol=1e-10)


@pytest.mark.long
@pytest.mark.parametrize(
    ("overrides", "formats"),
    [
        (SERIES, ("keras", "onnx")),
        ((*SERIES[:2], SERIES[2].replace("{LSTM: {units: !w 8}}", "GlobalAveragePooling1D")), ("onnx", "litert")),
        (ATTENTION, ("onnx", "litert")),
    ],
)
def test_every_format_of_a_series_model_has_equal_metrics(overrides, formats, tmp_path):
    process = learning_process(loads(TABLE, overrides=overrides))
    state = tiny.perturbed(process.initialize())
    metrics, _ = process.evaluate(state)
    _, about = export.export(process, state, process.statistics(state), tmp_path, {}, others=formats)
    for name in formats:
        np.testing.assert_allclose(about["formats"][name]["measured"]["rmse"], metrics["global_rmse"], rtol=1e-4)


def test_a_threshold_that_does_not_separate_the_labels_of_a_client_keeps_its_row():
    partition = "partition={name: labels, clients: 5, per_client: 2}"
    overrides = ("task=ordinal", "data.classes=5", partition, "round.clients=1")
    process = learning_process(loads(TABLE, overrides=overrides))
    state, client = process.initialize(), int(np.flatnonzero(process.present_outputs.sum(1) < 4)[0])
    after, _ = process.next(state, [client])
    low, high = np.flatnonzero(process.partition.label_mask[client])
    before, now = (np.asarray(each.weights[process.paths[-1]]) for each in (state, after))
    assert (now != before).tolist() == [low <= threshold < high for threshold in range(4)]


@pytest.mark.parametrize(("task", "clients"), [("multi_label", 4), ("segmentation", 12)])
def test_labels_without_examples_keep_their_rows(task, clients):
    partition = f"partition={{name: labels, clients: {clients}, per_client: 1}}"
    process = learning_process(loads(TABLE, overrides=(*TASKS[task], partition, "round.clients=1")))
    state, absent = process.initialize(), ~process.partition.label_mask
    plan = process.plan(0)
    absent_labels = np.flatnonzero(absent[plan.clients[0]])
    assert len(absent_labels)
    after, _ = process.run(state, [plan])
    # The bias of the last layer.
    path = process.paths[-1]
    before, now = (np.asarray(each.weights[path]) for each in (state, after))
    np.testing.assert_array_equal(now[absent_labels], before[absent_labels])
    assert (now != before).sum() == len(before) - len(absent_labels)


def test_balanced_class_weights_use_the_shares_of_the_training_examples():
    weights = "client.loss={name: masked_cross_entropy, class_weights: balanced}"
    process = learning_process(loads(TABLE, overrides=("task=classification", weights)))
    y, present = process.dataset.train.y, process.setup.examples.present
    logits, targets = tf.zeros([1, 3, 3]), tf.constant([[0, 1, 2]])
    losses = process.setup.algorithm.loss(logits, targets, present[None, :1], 0)
    np.testing.assert_allclose(losses[0], np.log(3) * len(y) / (3 * np.bincount(y)), rtol=1e-6)


@pytest.mark.parametrize(("overrides", "message"), cases.of_words(__file__, "TASKS"))
def test_keys_that_do_not_fit_the_task_are_rejected(overrides, message):
    assert message in refusal(loads, TABLE, overrides=overrides)


def test_tasks_that_do_not_fit_the_data_or_the_method_are_rejected():
    message = (
        "task: the task binary needs 2 classes, but the data have 3, .*; choose classification, or ordinal if the "
        "classes have an order. Received: binary"
    )
    with pytest.raises(InputError, match=message):
        learning_process(loads(TABLE, overrides=["task=binary"]))
    assert "task: the task regression needs numbers as targets, but the data have one label" in refusal(
        learning_process,
        loads(
            TABLE,
            overrides=["data={name: digits}", "input=images", "model.layers=[Flatten, {Dense: {units: !classes}}]"],
        ),
    )
    message = "client.coupling: compares class probabilities, which the task multi_label does not have"
    assert message in refusal(load, "methods/depthfl", ["task=multi_label", "client.loss=sigmoid_cross_entropy"])


@pytest.mark.long
def test_balanced_sampling_raises_the_balanced_accuracy_of_rare_classes():
    rng = np.random.default_rng(0)
    y = (rng.random(600) < 0.08).astype(np.int32)
    x = (rng.normal(size=(600, 6)) + y[:, None]).astype(np.float32)
    data = from_arrays(x[:400], y[:400], x[400:], y[400:])
    accuracy = []
    for sampling in ("shuffled", "balanced"):
        overrides = (
            "task=binary",
            "client.batch_size=100",
            "optimizer.learning_rate=0.5",
            f"client.sampling={sampling}",
        )
        process = learning_process(loads(TABLE, overrides=overrides), data)
        state, plan = process.initialize(), process.plan(0)
        for _ in range(process.recipe.rounds):
            state, _ = process.next(state)
        accuracy.append(process.evaluate(state)[0]["global_balanced_accuracy"])
        share = data.train.y[plan.rows[plan.rows >= 0]].mean()
        assert share == (0.5 if sampling == "balanced" else data.train.y.mean())
    assert accuracy[1] > accuracy[0] + 5
