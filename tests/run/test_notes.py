"""Notes on the levels of a process, and the accuracy of the most frequent class."""

import numpy as np
import pytest
import tables

from hetero_tf.run import notes


@pytest.mark.parametrize(("units", "expected"), [("24", True), ("!w 24", False)])
def test_levels_without_widths_are_the_same_model(units, expected):
    layers = f"model.layers=[[Dense: {{units: {units}}}, Scaler, ReLU], Dense: {{units: !classes }}]"
    sentences = notes.warnings(tables.process(layers))
    message = (
        "levels a, b are the same model, since no size of the model depends on the width; write `!w n` for sizes that "
        "shrink with it"
    )
    assert (message in sentences) == expected


@pytest.mark.parametrize(("mix", "expected"), [("b-c", 1), ("c", 0), ("a-c", 0)])
def test_a_mix_without_the_widest_level_is_worth_a_note(mix, expected):
    process = tables.process("levels.widths={a: 1, b: 1/2, c: 1/4}", f"levels.mix={mix}")
    message = "levels.mix has no level a, so the global model has the channels of level b: width 0.5 instead of 1"
    assert notes.warnings(process).count(message) == expected


def test_accuracy_of_the_most_frequent_class():
    process = tables.process()
    metric, percent, prediction = notes.baseline(process)
    label = np.bincount(process.dataset.train.y).argmax()
    assert (metric, prediction) == ("global_accuracy", f"{tables.NAMES[label]}, the most frequent class")
    assert percent == pytest.approx(100 * np.mean(process.dataset.test.y == label))
    assert notes.data_description(process)[0] == "columns: 5 of 60 rows"
