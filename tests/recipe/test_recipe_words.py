"""Recipes for words: which embedding an input needs, what recurrent layers leave, and what must not see everything."""

import numpy as np
import pytest
from refusals import refusal

import hetero_tf
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.recipe import load

EMBEDDING = "Embedding: {words: !classes, width: 8}"
SEQUENCES, NEXT = "tiny/text_topics", "tiny/wikitext2_lstm"
LAST = "Dense: {units: !classes}"


def refused(name, *layers, changes=()):
    """The first line of what a tiny recipe with other layers is refused with, behind the layer's place."""
    given = [f"model.layers=[{', '.join(f'{{{one}}}' if ':' in one else one for one in layers)}]", "model.settings={}"]
    return refusal(load, name, [*given, *changes]).split("\n")[0]


@pytest.mark.parametrize(
    "name, layers, sentence",
    [
        (NEXT, [LAST], "text needs an embedding first, such as Embedding. Received: Dense"),
        (
            NEXT,
            ["Embedding: {words: 50, width: 8}", LAST],
            "must be `!classes`: a row for each word of the vocabulary. Received: 50",
        ),
        (SEQUENCES, [LAST], "sequences need an embedding first, such as Embedding. Received: Dense"),
        (
            SEQUENCES,
            ["MaskedTokenEmbedding: {classes: !classes, positions: 12, width: 8}", LAST],
            "sequences need an embedding first, such as Embedding. Received: MaskedTokenEmbedding",
        ),
        (
            SEQUENCES,
            [EMBEDDING, "LSTM: {units: 8}", LAST],
            "must be a number, at least as many as the vocabulary of the data has words: `!classes` are the labels of "
            "sequences, and a level has all words. Received: !classes",
        ),
        (
            "tiny/wikitext2",
            [EMBEDDING, LAST],
            "text needs an embedding first, such as MaskedTokenEmbedding. Received: Embedding",
        ),
        (
            NEXT,
            [EMBEDDING, "TransformerBlock: {heads: 2, head_width: 4, hidden: 8}", LAST],
            "TransformerBlock looks at all positions, so with the input next_word it would see the words that it "
            "predicts; use LSTM or GRU",
        ),
        (
            SEQUENCES,
            ["Embedding: {words: 50, width: 8}", "SelfAttention: {heads: 2, head_width: 4}", LAST],
            "SelfAttention looks at all positions, so with the input sequences it would see the padding; "
            "use LSTM or GRU",
        ),
        (
            NEXT,
            [EMBEDDING, "GRU: {units: 8}", LAST],
            "GRU leaves one vector of all positions, but a model for text gives logits for every position; give it "
            "`return_sequences: true`",
        ),
        (
            SEQUENCES,
            ["Embedding: {words: 50, width: 8}", "LSTM: {units: 8, return_sequences: true}", LAST],
            "the model ends in a row of tokens, but a sequence has one label; leave out `return_sequences` of the last "
            "LSTM or GRU",
        ),
    ],
)
def test_layers_that_do_not_fit_words(name, layers, sentence):
    assert refused(name, *layers).endswith(f": {sentence}")


def test_a_table_that_is_smaller_than_the_vocabulary():
    sentence = refusal(hetero_tf.learning_process, load(SEQUENCES, ["model.settings.words=49"])).split("\n")[0]
    assert sentence.endswith(
        "must be at least 50, the size of the vocabulary of synthetic sequences (seed 0); or give the data a smaller "
        "vocabulary. Received: 49"
    )


def test_an_input_for_sequences_refuses_other_data():
    text = refusal(hetero_tf.learning_process, load(SEQUENCES, ["data={name: synthetic, kind: text}"]))
    assert "sequences takes sequences, but the data are text, synthetic text (seed 0)" in text


@pytest.mark.parametrize(
    "x, y, sentence",
    [
        (
            np.zeros((2, 3), np.float32),
            [0, 1],
            "expected words int32 [n, length], none of them 0. Received: float32 (2, 3)",
        ),
        (np.full((2, 3), 4, np.int32), [0, 1], "every word number must be in 0..3. Received: 4 at position 0"),
        (np.zeros((2, 3), np.int32), [0, 2], "every label must be in 0..1. Received: 2 at position 1"),
        (np.zeros((2, 3), np.int32), [0], "expected labels int32 [2], one per sequence. Received: int32 (1,)"),
    ],
)
def test_sequences_are_checked(x, y, sentence):
    split = Split(x, np.array(y, np.int32))
    found = refusal(Dataset, split, split, 2, "mine", vocabulary=("<pad>", "<ukn>", "a", "b"))
    assert found == f"mine, train split: {sentence}"


@pytest.mark.parametrize(
    "name, kind",
    [
        (SEQUENCES, "LSTM"),
        (NEXT, "GRU"),
        *(pytest.param(*pair, marks=pytest.mark.long) for pair in ((NEXT, "LSTM"), (SEQUENCES, "GRU"))),
    ],
)
def test_several_clients_at_once_train_to_the_values_of_one_by_one(name, kind):
    more = "" if name == SEQUENCES else ", return_sequences: true"
    layer = f"model.layers[1][0]={{{kind}: {{units: !setting units{more}}}}}"
    found = {}
    for stack in ("sequential", "stacked"):
        changes = [layer, "precision=float64", f"engine={stack}", "model.layers[1][2]={Dropout: {rate: 0.0}}"]
        process = hetero_tf.learning_process(load(name, changes))
        state, _ = process.next(process.initialize())
        found[stack] = state.weights, process.engine_report()
    for path, value in found["sequential"][0].items():
        np.testing.assert_allclose(value, found["stacked"][0][path], atol=1e-9, err_msg=path)
    assert found["stacked"][1] != found["sequential"][1]
