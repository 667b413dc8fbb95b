"""Sequences: checks of their data, and recurrent layers of several clients."""

import numpy as np
import pytest
from refusals import refusal

import hetero_tf
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.recipe import load

SEQUENCES, NEXT = "tiny/text_topics", "tiny/wikitext2_lstm"


@pytest.mark.parametrize(
    "x, y, expected",
    [
        (
            np.zeros((2, 3), np.float32),
            [0, 1],
            "expected words int32 [n, length], all dimensions above 0. Received: float32 (2, 3)",
        ),
        (np.full((2, 3), 4, np.int32), [0, 1], "every word id must be in 0..3. Received: 4 at position 0"),
        (np.zeros((2, 3), np.int32), [0, 2], "every label must be in 0..1. Received: 2 at position 1"),
        (np.zeros((2, 3), np.int32), [0], "expected labels int32 [2], one per sequence. Received: int32 (1,)"),
    ],
)
def test_sequences_are_checked(x, y, expected):
    split = Split(x, np.array(y, np.int32))
    message = refusal(Dataset, split, split, 2, "mine", vocabulary=("<pad>", "<ukn>", "a", "b"))
    assert message == f"mine, train split: {expected}"


@pytest.mark.parametrize(
    "name, kind",
    [
        (SEQUENCES, "LSTM"),
        *(pytest.param(*pair, marks=pytest.mark.long) for pair in ((NEXT, "GRU"), (NEXT, "LSTM"), (SEQUENCES, "GRU"))),
    ],
)
def test_stacked_clients_train_to_the_values_of_sequential_ones(name, kind, eager):
    more = "" if name == SEQUENCES else ", return_sequences: true"
    layer = f"model.layers[1][0]={{{kind}: {{units: !setting units{more}}}}}"
    results = {}
    for engine in ("sequential", "stacked"):
        changes = [layer, "precision=float64", f"engine={engine}", "model.layers[1][2]={Dropout: {rate: 0.0}}"]
        changes.append("levels.mix=c")
        process = hetero_tf.learning_process(load(name, changes))
        state, _ = process.next(process.initialize())
        results[engine] = state.weights, process.engine_report()
    for path, value in results["sequential"][0].items():
        np.testing.assert_allclose(value, results["stacked"][0][path], atol=1e-9, err_msg=path)
    assert results["stacked"][1] != results["sequential"][1]
