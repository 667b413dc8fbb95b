"""Contract of every metric: it equals scikit-learn 1.9 to 1e-12, in a graph, for each form of targets."""

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.base import metrics, registry
from hetero_tf.testing.loss_checks import draw_scores

# Computed with scikit-learn 1.9.1: accuracy_score, f1_score, balanced_accuracy_score, the minimum of recall_score,
# roc_auc_score(multi_class="ovr"), average_precision_score, cohen_kappa_score(weights="quadratic"), root of mean_squared_error, mean_absolute_error, r2_score
# and jaccard_score(average="macro").
EXPECTED = {
    "label": {
        "accuracy": 62.5,
        "mae": 0.625,
        "quadratic_kappa": 0.47314049586776863,
        "balanced_accuracy": 59.61538461538461,
        "macro_f1": 58.86243386243386,
        "micro_f1": 62.5,
        "roc_auc": 78.30919994867604,
        "weighted_f1": 63.46560846560847,
        "worst_recall": 50.0,
    },
    "label_set": {
        "macro_f1": 56.094012672960034,
        "mean_average_precision": 56.26322413833569,
        "micro_f1": 56.41025641025641,
        "roc_auc": 67.5499497628808,
        "weighted_f1": 56.34701687333267,
    },
    "numbers": {"mae": 0.38628422267166584, "r2": 0.7030800233818151, "rmse": 0.487350015479622},
    "label_map": {
        "accuracy": 72.5,
        "balanced_accuracy": 72.22222222222221,
        "macro_f1": 72.27713489767493,
        "mean_iou": 56.636826670782526,
        "micro_f1": 72.5,
        "weighted_f1": 72.47292872066859,
        "worst_recall": 68.0,
    },
}
CASES = [(name, form) for name in registry.names("metrics") for form in registry.constant("metrics", name, "TARGETS")]


def value_of(name, scores, targets):
    return float(tf.function(registry.find("metrics", name).metric)(tf.constant(scores), tf.constant(targets)))


@pytest.mark.parametrize(("name", "form"), CASES)
def test_a_metric_equals_that_of_scikit_learn(name, form):
    value = value_of(name, *draw_scores()[form])
    # Another library bins calibration errors differently; its own test is below.
    if name != "calibration_error":
        np.testing.assert_allclose(value, EXPECTED[form][name], rtol=1e-12)


def test_calibration_error_is_the_weighted_gap_of_the_bins_whose_upper_edge_belongs_to_them(monkeypatch):
    # Two predictions with confidence 0.9, one of them right, and two with confidence 0.6, both right.
    scores = np.log([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.4, 0.6]])
    error = value_of("calibration_error", scores, np.array([0, 1, 0, 1], np.int32))
    np.testing.assert_allclose(error, 100 * (abs(1 - 1.8) + abs(2 - 1.2)) / 4, rtol=1e-12)
    # Of two bins the first has confidence 0.5 and the second 0.6, so the gaps do not cancel.
    monkeypatch.setattr(registry.find("metrics", "calibration_error"), "BINS", 2)
    error = value_of("calibration_error", np.array([[0, 0], np.log([6, 4])]), np.array([0, 1], np.int32))
    np.testing.assert_allclose(error, 100 * (0.5 + 0.6) / 2, rtol=1e-12)


def test_classes_without_targets_do_not_count():
    scores, targets = np.eye(4)[[0, 1, 1]], np.array([0, 1, 1], np.int32)
    assert value_of("macro_f1", scores, targets) == value_of("balanced_accuracy", scores, targets) == 100
    constant = np.ones((3, 1), np.float32)
    assert (value_of("r2", constant, constant), value_of("r2", 2 * constant, constant)) == (1, 0)


def test_every_metric_has_entries_for_the_global_model_and_every_level():
    known = metrics.all_metrics()
    for name in registry.names("metrics"):
        for entry in (f"global_{name}", f"validation_{name}", f"level_{name}_LEVEL"):
            assert known[entry].better in ("higher", "lower") and known[entry].meaning
