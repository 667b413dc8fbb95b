"""Contract of every task: names in constants, targets there and back, and predictions with marks for invalid ones."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.base.constraints import Plugin
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.targets import form_of, strata
from hetero_tf.devices import on_device
from hetero_tf.export.prediction_fields import to_fields
from hetero_tf.export.prediction_items import ItemForm
from hetero_tf.partitions.partition import ClientExamples, label_mask
from hetero_tf.process.checks import build_task

X = np.random.default_rng(0).random((12, 4, 4, 1)).astype(np.float32)
TARGETS = {
    "label": np.arange(12, dtype=np.int32) % 3,
    "numbers": np.random.default_rng(1).normal(5, 2, (12, 3)).astype(np.float32),
    "label_set": np.arange(12)[:, None] % np.array([2, 3, 4]) == 0,
    "label_map": np.arange(12 * 16, dtype=np.int32).reshape(12, 4, 4) % 3,
}


@pytest.fixture(params=registry.names("tasks"))
def name(request):
    return request.param


def targets_of(name):
    targets = TARGETS[registry.constant("tasks", name, "TARGETS")]
    return targets % classes_of(name) if targets.dtype == np.int32 else targets


def classes_of(name):
    return registry.constant("tasks", name, "CLASSES") or 3


def task_of(name, **options):
    split = Split(X, targets_of(name))
    recipe = SimpleNamespace(task=Plugin(name, options))
    return build_task(recipe, Dataset(split, split, classes_of(name), "test"))


def outputs_of(name):
    """The number of outputs of a model of three classes or targets."""
    return classes_of(name) - (registry.constant("tasks", name, "OUTPUTS") == "thresholds")


def test_constants_name_plug_ins_for_the_targets(name):
    form = registry.constant("tasks", name, "TARGETS")
    assert form_of(targets_of(name)) == form
    of_losses = registry.constant("tasks", name, "LOSS_TARGETS") or form
    for kind, targets, names in (
        ("losses", of_losses, [registry.constant("tasks", name, key) for key in ("LOSS", "TEST_LOSS")]),
        ("metrics", form, registry.constant("tasks", name, "METRICS")),
    ):
        assert names and all(targets in (registry.constant(kind, each, "TARGETS") or ("label",)) for each in names)


def test_the_loss_of_encoded_targets_falls_towards_the_metrics_best_value(name):
    task, targets = task_of(name), targets_of(name)
    encoded = task.encode(targets)
    if encoded.dtype == np.int32:
        outputs = tf.constant(np.eye(3)[encoded])
    else:
        outputs = tf.constant(encoded if targets.dtype == np.float32 else 2.0 * encoded - 1, tf.float64)
    assert outputs.shape[-1] == outputs_of(name)
    loss = registry.find("losses", registry.constant("tasks", name, "TEST_LOSS")).loss
    right, wrong = (
        tf.reduce_mean(loss(each, tf.constant(encoded), None, 0)) for each in (outputs, tf.roll(outputs, 1, 0))
    )
    assert right < wrong
    metric = registry.find("metrics", registry.constant("tasks", name, "METRICS")[0])
    best = float(metric.metric(task.prediction_scores(outputs), tf.constant(targets)))
    np.testing.assert_allclose(best, 100 if metric.UNIT == "%" else 0, atol=1e-6)


def test_predictions_mark_invalid_examples(name):
    task, targets = task_of(name), targets_of(name)
    count = outputs_of(name)
    shape = (2, *(targets.shape[1:] if targets.ndim == 3 else ()), count)
    first = -3.0 if registry.constant("tasks", name, "OUTPUTS") == "thresholds" else 3.0
    outputs = np.full(shape, [first, -4, -5][:count], np.float32)
    outputs[1] = np.nan
    predictions = task.predict(tf.constant(outputs), tf.constant([True, False]))
    assert {task.output_name, task.prediction_name} <= set(predictions)
    np.testing.assert_array_equal(predictions[task.output_name], outputs)
    for key, value in predictions.items():
        valid, invalid = value.numpy()
        assert np.isfinite(valid).all()
        assert (invalid == -1).all() if key == task.index_name else np.isnan(invalid).all()
    names = ("x", "y", "z")[: classes_of(name)]
    form = ItemForm("table", form_of(targets), len(names), names, None, None, "text", (), True)
    fields = to_fields(form, {key: value.numpy()[0] for key, value in predictions.items()}, 3)
    assert "x" in fields or fields.get("class", fields.get("labels")) in ("x", ["x"])


def test_a_device_without_tensorflow_encodes_targets_as_the_task_does(name):
    task, targets = task_of(name), targets_of(name)
    encoded, client = task.encode(targets), on_device.Client.__new__(on_device.Client)
    scaling = None if task.scaling is None else [values.tolist() for values in task.scaling]
    form = registry.constant("tasks", name, "OUTPUTS") or registry.constant("tasks", name, "TARGETS")
    client.settings = {
        "classes": outputs_of(name),
        "targets": {"form": form, "dtype": encoded.dtype.name, "scaling": scaling},
    }
    np.testing.assert_array_equal(client.encode(targets), encoded)
    mask = label_mask(targets, ClientExamples.from_lists([np.arange(2, dtype=np.int32)]), classes_of(name))
    np.testing.assert_array_equal([client.present(targets[:2])], task.present_outputs(mask))


def test_regression_uses_the_units_of_the_data():
    task, targets = task_of("regression"), TARGETS["numbers"]
    encoded = task.encode(targets)
    np.testing.assert_allclose(encoded.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(encoded.std(0), 1, rtol=1e-6)
    np.testing.assert_allclose(task.decode(tf.constant(encoded)), targets, rtol=1e-6)
    np.testing.assert_array_equal(task_of("regression", scale="none").encode(targets), targets)


def test_strata_divide_examples_by_their_targets():
    numbers = np.linspace(0, 1, 20, dtype=np.float32)[:, None]
    assert strata(numbers)[0].tolist() == [number // 2 for number in range(20)]
    sets = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0]], bool)
    # The second label is the rarest that occurs; an example without labels has a further class.
    assert strata(sets)[0].tolist() == [1, 0, 2]
    maps = np.array([[[0, 0], [0, 2]], [[0, 0], [0, 0]]], np.int32)
    assert strata(maps)[0].tolist() == [1, 0]
    assert strata(maps[:1], maps)[1].tolist() == [0, 0]
    assert strata(TARGETS["label"], TARGETS["label"][:2])[1].tolist() == [0, 1]


def test_thresholds_predict_a_median_and_differences_of_probabilities():
    ordinal, exceeds = task_of("ordinal"), np.array([[0.6, 0.45], [0.3, 0.4], [0.9, 0.8]])
    outputs = tf.constant(np.log(exceeds / (1 - exceeds)))
    predictions = ordinal.predict(outputs, tf.constant([True, True, True]))
    assert predictions["class"].numpy().tolist() == [1, 0, 2]
    # The second example has a negative difference, which counts 0.
    expected = np.array([[0.4, 0.15, 0.45], [0.7 / 1.1, 0, 0.4 / 1.1], [0.1, 0.1, 0.8]])
    np.testing.assert_allclose(predictions["probabilities"], expected, atol=1e-12)
    np.testing.assert_allclose(tf.nn.softmax(ordinal.decode(outputs)), expected, atol=1e-12)
    scores = ordinal.prediction_scores(outputs).numpy()
    assert scores.argmax(1).tolist() == [1, 0, 2] and scores.min() > 0
    fields = to_fields(
        ItemForm("table", "label", 3, ("x", "y", "z"), None, None, "text", (), True),
        {key: value.numpy()[0] for key, value in predictions.items()},
        2,
    )
    assert (fields["class"], fields["class_2"]) == ("y", "z")


def test_thresholds_that_do_not_separate_the_classes_of_a_client_are_masked():
    present = np.array([[1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 1, 1], [0, 1, 0, 0], [0, 0, 0, 0]], bool)
    expected = [[1, 1, 1], [0, 1, 1], [0, 0, 1], [0, 0, 0], [0, 0, 0]]
    np.testing.assert_array_equal(task_of("ordinal").present_outputs(present), np.array(expected, bool))


def test_the_loss_of_one_output_is_that_of_keras():
    labels, outputs = np.array([0, 1, 1], np.int32), np.array([[-1.0], [0.5], [-2.0]])
    loss = registry.find("losses", "sigmoid_cross_entropy").loss(
        tf.constant(outputs), tf.constant(task_of("binary").encode(labels)), None, 0
    )
    of_keras = tf.keras.losses.BinaryCrossentropy(from_logits=True, reduction=None)(labels[:, None], outputs)
    np.testing.assert_allclose(loss, of_keras, rtol=1e-6)
