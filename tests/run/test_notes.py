"""Notes on the levels of a process, and the accuracy of the most frequent class."""

import numpy as np
import programs
import pytest
import runs
import tables

from hetero_tf.run import notes


@pytest.mark.parametrize(("units", "expected"), [("24", True), ("!w 24", False)])
def test_levels_without_widths_are_the_same_model(units, expected):
    layers = f"model.layers=[[Dense: {{units: {units}}}, Scaler, ReLU], Dense: {{units: !classes }}]"
    sentences = notes.warnings(tables.process(layers))
    message = "levels a, b are the same model, since no size of the model depends on the width; write `!w n` for sizes that shrink with it"
    assert (message in sentences) == expected


@pytest.mark.parametrize(("mix", "expected"), [("b-c", 1), ("c", 0), ("a-c", 0)])
def test_a_mix_without_the_widest_level_is_worth_a_note(mix, expected):
    process = tables.process("levels.widths={a: 1, b: 1/2, c: 1/4}", f"levels.mix={mix}")
    message = "levels.mix has no level a, so the global model has the channels of level b: width 0.5 instead of 1"
    assert notes.warnings(process).count(message) == expected


ORDERED = "partition={name: labels, clients: 10, per_client: 3, draw: consecutive}"
# Client k has the labels k to k + 2; the first five have level a.
LEVELS = ("levels.assignment=fixed", "levels.mix=a-b")


@pytest.mark.parametrize(
    ("overrides", "lacking"),
    [
        ((*LEVELS, ORDERED), "7, 8, 9"),
        ((*LEVELS, ORDERED, "partition.per_client=6"), None),
        ((*LEVELS, ORDERED, "round.submodel=rolling"), None),
        (("levels.mix=a-b", ORDERED), None),
        ((*LEVELS, ORDERED, "levels.widths={a: 1, b: 1}"), None),
        ((*LEVELS, ORDERED, "levels.widths={a: 1, b: 1, c: 1}", "levels.idle=[b]"), None),
    ],
)
def test_labels_that_the_widest_channels_never_learn_are_named(overrides, lacking):
    process = runs.built(programs.RECIPE, *overrides)
    sentences = [sentence for sentence in notes.warnings(process) if sentence.startswith("no client of level a")]
    expected = f"no client of level a has the labels {lacking}, so the channels that only it trains never learn them; "
    assert len(sentences) == (lacking is not None) and all(each.startswith(expected) for each in sentences)
    if lacking:
        # Clients 0 to 4, and all of them.
        assert notes.label_coverage(process).tolist() == [[1, 2, 3, 3, 3, 2, 1, 0, 0, 0], [3] * 10]


def test_accuracy_of_the_most_frequent_class():
    process = tables.process()
    metric, percent, prediction = notes.baseline(process)
    label = np.bincount(process.dataset.train.y).argmax()
    assert (metric, prediction) == ("global_accuracy", f"{tables.NAMES[label]}, the most frequent class")
    assert percent == pytest.approx(100 * np.mean(process.dataset.test.y == label))
    assert notes.data_description(process)[0] == "columns: 5 of 60 rows"


REPORT = {"by_taps": [], "by_winograd": [], "reasons": [], "compiled": False, "precision": "float32", "device": "cpu"}
REPORT |= {"clients_at_once": {"a": 1, "b": 2, "c": 5, "e": 5}, "parallel": 2, "threads": 1, "replicas": 1}
TOGETHER = "5 clients together at levels c, e, 2 clients together at level b, one client at a time at level a"
ALONE, TAPS = {"clients_at_once": {"e": 1}}, {"by_taps": ["a", "b"], "by_winograd": ["a"]}
FORMS = "wide kernels tap by tap at levels a, b; convolutions by Winograd's algorithm at level a"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, f"CPU, float32; 2 threads, each training {TOGETHER}"),
        (ALONE | {"threads": 4}, "CPU, float32; 2 threads of 4 kernel threads, each training one client at a time"),
        (ALONE | TAPS, f"CPU, float32; 2 threads, each training one client at a time; {FORMS}"),
        (ALONE | {"device": "gpu", "compiled": True, "parallel": 1}, "GPU, float32, compiled by XLA; 1 thread, training one client at a time"),
        (ALONE | {"reasons": ["level e: why", "f"]}, "CPU, float32; 2 threads, each training one client at a time\nlevel e: why\nf"),
    ],
)  # fmt: skip
def test_engine_is_one_line_with_a_line_for_each_reason(change, text):
    assert notes.format_engine(REPORT | change) == f"engine: {text}"
