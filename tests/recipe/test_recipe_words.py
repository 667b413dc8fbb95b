"""Recipes for text: embeddings of each input, outputs of recurrent layers, and layers that must not see all positions."""

import numpy as np
import pytest
from refusals import refusal

import hetero_tf
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.recipe import load

EMBEDDING = "Embedding: {words: !classes, width: 8}"
SEQUENCES, NEXT = "tiny/text_topics", "tiny/wikitext2_lstm"
LAST = "Dense: {units: !classes}"


def error_of(name, *layers, changes=()):
    """The first line of the error of a tiny recipe with other layers."""
    overrides = [
        f"model.layers=[{', '.join(f'{{{one}}}' if ':' in one else one for one in layers)}]",
        "model.settings={}",
    ]
    return refusal(load, name, [*overrides, *changes]).split("\n")[0]


@pytest.mark.parametrize(
    "name, layers, message",
    [
        (
            NEXT,
            [LAST],
            "text needs an embedding as the first layer, such as Embedding or MaskedTokenEmbedding. Received: Dense",
        ),
        (
            NEXT,
            ["Embedding: {words: 50, width: 8}", LAST],
            "must be `!classes`, one row per word of the vocabulary. Received: 50",
        ),
        (SEQUENCES, [LAST], "sequences need an embedding as the first layer, such as Embedding. Received: Dense"),
        (
            SEQUENCES,
            [EMBEDDING, "LSTM: {units: 8}", LAST],
            "must be a number that is at least the vocabulary size: for sequences, `!classes` counts labels, and every "
            "level has all words. Received: !classes",
        ),
        (
            NEXT,
            [EMBEDDING, "TransformerBlock: {heads: 2, head_width: 4, hidden: 8}", LAST],
            "TransformerBlock reads several positions, so with the input next_word it would see the words to predict; "
            "use LSTM or GRU",
        ),
        (
            SEQUENCES,
            ["Embedding: {words: 50, width: 8}", "SelfAttention: {heads: 2, head_width: 4}", LAST],
            "SelfAttention reads several positions, so with the input sequences it would see the padding; "
            "use LSTM or GRU",
        ),
        (
            NEXT,
            [EMBEDDING, "GRU: {units: 8}", LAST],
            "GRU reduces all positions to one vector, but a text model returns logits for every position; set "
            "`return_sequences: true`",
        ),
        (
            SEQUENCES,
            ["Embedding: {words: 50, width: 8}", "LSTM: {units: 8, return_sequences: true}", LAST],
            "the model ends with a sequence, but a sequence has one label; remove `return_sequences` from the last "
            "LSTM or GRU",
        ),
    ],
)
def test_layers_that_cannot_process_text_are_rejected(name, layers, message):
    assert error_of(name, *layers).endswith(f": {message}")


def test_embedding_smaller_than_the_vocabulary_is_rejected():
    message = refusal(hetero_tf.learning_process, load(SEQUENCES, ["model.settings.words=49"])).split("\n")[0]
    assert message.endswith(
        "must be at least 50, the size of the vocabulary of synthetic sequences (seed 0); or choose a smaller "
        "vocabulary of the data. Received: 49"
    )


def test_sequences_input_rejects_other_data():
    text = refusal(hetero_tf.learning_process, load(SEQUENCES, ["data={name: synthetic, kind: text}"]))
    assert "the input sequences needs sequences, but the data are text, synthetic text (seed 0)" in text


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
