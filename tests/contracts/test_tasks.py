"""Contract of every task: names in constants, targets there and back, and predictions with marks for invalid ones."""

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.data.partitions.partition import ClientExamples, label_mask
from hetero_tf.data.targets import find, form_of, strata
from hetero_tf.devices import on_device
from hetero_tf.testing.loss_checks import TARGETS, class_count, example_targets, output_count, task_of, task_predictions
from hetero_tf.testing.subject import Subject


# The outputs of a model name the predictions of the task without metrics.
@pytest.mark.parametrize(
    "name", [name for name in registry.names("tasks") if registry.constant("tasks", name, "METRICS")]
)
def test_predictions_become_fields(name):
    subject = Subject("tasks", name)
    names = ("x", "y", "z")[: class_count(subject)]
    form = find(form_of(example_targets(subject)))
    values = form.read({key: values[0] for key, values in task_predictions(subject).items()}, names, 3)
    assert "x" in form.names(names, len(names), 3) or values[0] in ("x", ["x"])


@pytest.mark.parametrize("name", registry.names("tasks"))
def test_a_device_without_tensorflow_encodes_targets_as_the_task_does(name):
    subject = Subject("tasks", name)
    task, targets = task_of(subject), example_targets(subject)
    encoded, client = task.encode(targets), on_device.LiteRTTrainer.__new__(on_device.LiteRTTrainer)
    scaling = None if task.scaling is None else [values.tolist() for values in task.scaling]
    form = registry.constant("tasks", name, "OUTPUTS") or registry.constant("tasks", name, "TARGETS")
    client.settings = {
        "classes": output_count(subject),
        "targets": {"form": form, "dtype": encoded.dtype.name, "scaling": scaling},
    }
    np.testing.assert_array_equal(client.encode(targets), encoded)
    mask = label_mask(targets, ClientExamples.from_lists([np.arange(2, dtype=np.int32)]), class_count(subject))
    np.testing.assert_array_equal([client.present(targets[:2])], task.present_outputs(mask))


def test_regression_uses_the_units_of_the_data():
    task, targets = task_of(Subject("tasks", "regression")), TARGETS["numbers"]
    encoded = task.encode(targets)
    np.testing.assert_allclose(encoded.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(encoded.std(0), 1, rtol=1e-6)
    np.testing.assert_allclose(task.decode(tf.constant(encoded)), targets, rtol=1e-6)
    np.testing.assert_array_equal(task_of(Subject("tasks", "regression", {"scale": "none"})).encode(targets), targets)


def test_strata_divide_examples_by_their_targets():
    numbers = np.linspace(0, 1, 20, dtype=np.float32)[:, None]
    assert strata(numbers)[0].tolist() == [number // 2 for number in range(20)]
    # The second label is the rarest that occurs; an example without labels has a further class.
    assert strata(np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0]], bool))[0].tolist() == [1, 0, 2]
    maps = np.array([[[0, 0], [0, 2]], [[0, 0], [0, 0]]], np.int32)
    assert strata(maps)[0].tolist() == [1, 0]
    assert strata(maps[:1], maps)[1].tolist() == [0, 0]
    assert strata(TARGETS["label"], TARGETS["label"][:2])[1].tolist() == [0, 1]


def test_thresholds_predict_a_median_and_differences_of_probabilities():
    ordinal, exceeds = task_of(Subject("tasks", "ordinal")), np.array([[0.6, 0.45], [0.3, 0.4], [0.9, 0.8]])
    outputs = tf.constant(np.log(exceeds / (1 - exceeds)))
    predictions = ordinal.predict(outputs, tf.constant([True, True, True]))
    assert predictions["class"].numpy().tolist() == [1, 0, 2]
    # The second example has a negative difference, which counts 0.
    expected = np.array([[0.4, 0.15, 0.45], [0.7 / 1.1, 0, 0.4 / 1.1], [0.1, 0.1, 0.8]])
    np.testing.assert_allclose(predictions["probabilities"], expected, atol=1e-12)
    np.testing.assert_allclose(tf.nn.softmax(ordinal.decode(outputs)), expected, atol=1e-12)
    scores = ordinal.prediction_scores(outputs).numpy()
    assert scores.argmax(1).tolist() == [1, 0, 2] and scores.min() > 0
    values = find("label").read({key: value.numpy()[0] for key, value in predictions.items()}, ("x", "y", "z"), 2)
    assert values[::2] == ["y", "z"]


def test_thresholds_that_do_not_separate_the_classes_of_a_client_are_masked():
    present = np.array([[1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 1, 1], [0, 1, 0, 0], [0, 0, 0, 0]], bool)
    expected = [[1, 1, 1], [0, 1, 1], [0, 0, 1], [0, 0, 0], [0, 0, 0]]
    np.testing.assert_array_equal(
        task_of(Subject("tasks", "ordinal")).present_outputs(present), np.array(expected, bool)
    )


def test_the_loss_of_one_output_is_that_of_keras():
    labels, outputs = np.array([0, 1, 1], np.int32), np.array([[-1.0], [0.5], [-2.0]])
    loss = registry.find("losses", "sigmoid_cross_entropy").loss(
        tf.constant(outputs), tf.constant(task_of(Subject("tasks", "binary")).encode(labels)), None, 0
    )
    of_keras = tf.keras.losses.BinaryCrossentropy(from_logits=True, reduction=None)(labels[:, None], outputs)
    np.testing.assert_allclose(loss, of_keras, rtol=1e-6)
