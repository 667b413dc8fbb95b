"""Notes on the levels of a process, and the accuracy of the most frequent class."""

import numpy as np
import pytest
import tables

from hetero_tf.process import notes


@pytest.mark.parametrize(("units", "expected"), [("24", True), ("!w 24", False)])
def test_levels_without_widths_are_the_same_model(units, expected):
    layers = f"model.layers=[[Dense: {{units: {units}}}, Scaler, ReLU], Dense: {{units: !classes }}]"
    sentences = notes.warnings(tables.process(layers))
    message = (
        "levels a, b are the same model, since no size of the model depends on the width; write `!w n` for sizes that "
        "shrink with it"
    )
    assert (message in sentences) == expected


def test_accuracy_of_the_most_frequent_class():
    process = tables.process()
    metric, percent, prediction = notes.baseline(process)
    label = np.bincount(process.dataset.train.y).argmax()
    assert (metric, prediction) == ("global_accuracy", f"{tables.NAMES[label]}, the most frequent class")
    assert percent == pytest.approx(100 * np.mean(process.dataset.test.y == label))
    assert notes.data_description(process)[0] == "columns: 5 of 60 rows"
