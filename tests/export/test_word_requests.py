"""Exports of sequence and next-word models: token ids and sentences give the outputs of the Keras model."""

import json

import exports
import numpy as np
import predicted
import pytest
import tensorflow as tf
from refusals import refusal

import hetero_tf
from hetero_tf import export
from hetero_tf.data import graph_tokenizer
from hetero_tf.data.graph_tokenizer import GraphTokenizer, vocabulary_tables
from hetero_tf.data.inputs import all_labels, next_word
from hetero_tf.data.words import TokenOptions, build_tokenizer, encode_sentences, learn_vocabulary, split_words
from hetero_tf.export import positions, saved_model
from hetero_tf.models.costs import counting
from hetero_tf.recipe import load


@pytest.fixture(scope="module", params=["text_topics", "wikitext2_lstm"])
def trained(request):
    """The process of a tiny recipe, and a state that differs from its initial one."""
    process = exports.process(f"tiny/{request.param}")
    return process, exports.state(process)


@pytest.fixture(scope="module")
def exported(trained):
    return exports.versions(trained[0])["a"]


def logits_of(trained, ids):
    process, state = trained
    return process.network(state)(tf.constant(ids, tf.int32), training=False).numpy()


def test_valid_ids_give_logits_and_invalid_ids_nan(trained, exported):
    predict_ids, x = saved_model.load_runtime(exported[0]), trained[0].dataset.train.x[:3, :12].copy()
    np.testing.assert_allclose(predict_ids(token_ids=x)["logits"], logits_of(trained, x), atol=1e-5)
    x[1, 2] = 50
    logits = predict_ids(token_ids=x)["logits"]
    assert np.isnan(logits[1]).all() and np.isfinite(logits[[0, 2]]).all()
    assert predict_ids(token_ids=np.zeros((0, 12), np.int32))["logits"].shape[0] == 0


def test_sentences_give_the_outputs_of_their_ids(trained, exported):
    process, _ = trained
    predict_text = saved_model.load_runtime(exported[0], "serve_text")
    sentences = ["word3 word4  unheard\tword7", "word9"]
    outputs = predict_text(text=np.array(sentences, object))
    if process.dataset.codec.KIND == "sequences":
        ids = encode_sentences(list(map(split_words, sentences)), process.dataset.codec.vocabulary, 12)
        assert list(ids[0, :5]) == [3, 4, 1, 7, 0]
        np.testing.assert_allclose(outputs["logits"], logits_of(trained, ids), atol=1e-5)
        empty = predict_text(text=np.array(["", "word9", " \n"], object))
        np.testing.assert_allclose(empty["logits"][1], outputs["logits"][1], atol=1e-5)
        assert np.isnan(empty["logits"][[0, 2]]).all() and list(empty["class"][[0, 2]]) == [-1, -1]
        return
    for row, ids in enumerate(([3, 4, 0, 7], [9])):
        probabilities = tf.nn.softmax(logits_of(trained, [ids])[0, -1]).numpy()
        best = np.argsort(-probabilities)[:5]
        np.testing.assert_allclose(outputs["next_probabilities"][row], probabilities[best], rtol=1e-4)
        assert [word.decode() for word in outputs["next_words"][row]] == [
            process.dataset.codec.vocabulary[one] for one in best
        ]
    empty = predict_text(text=np.array(["", "word9"], object))
    assert list(empty["lengths"]) == [0, 1] and np.isnan(empty["next_probabilities"][0]).all()
    assert set(empty["next_words"][0]) == {b""}


def test_files_are_measured_on_the_whole_test_set(trained, exported, eager):
    process, state = trained
    metrics, _ = process.evaluate(state)
    for name, value in exported[1]["measured"].items():
        assert name == "on" or value == pytest.approx(float(metrics[f"global_{name}"]), rel=1e-4)
    about = json.loads((exported[0] / "export.json").read_text())
    assert about["input"]["kind"] == ("sequences" if process.dataset.codec.KIND == "sequences" else "next_word")
    card = (exported[0] / "MODEL_CARD.md").read_text()
    assert "`serve_text`: text string [any]" in card and "Token ids are 0..49" in card


def test_predict_accepts_a_sentence(trained):
    process, state = trained
    prediction, blank = predicted.of_process(process, process.network(state), ["word3 word4", " "], top=9)
    shares = list(prediction.fields.values())[1::2]
    assert len(shares) == (min(9, process.dataset.classes) if process.dataset.codec.KIND == "sequences" else 5)
    assert shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 1 + 1e-6
    assert blank.error.endswith("must contain a word")


@pytest.mark.parametrize("name", ["litert", "litert_int8"])
def test_litert_rejects_recurrent_layers(trained, exported, tmp_path, monkeypatch, name):
    exported.reuse(monkeypatch)
    sentence = refusal(export.export, *trained, {}, tmp_path / "out", {}, level="a", others=[name])
    assert "LiteRT cannot run the loop over positions of a recurrent layer; export to onnx or keras" in sentence
    assert not list(tmp_path.glob("out/a/[0-9]*"))


def test_targets_are_the_next_words():
    x = tf.reshape(tf.range(22), [2, 11])
    source, words = next_word.build("float32", segment=4), []
    assert source.starts(x) == (0, 4, 8)
    for start in source.starts(x):
        inputs, targets = source.batch(x, None, tf.constant([1]), start, None, all_labels(22), training=True)
        np.testing.assert_array_equal(inputs + 1, targets)
        words += list(inputs[0].numpy())
    assert words == list(range(11, 21))
    sentence = refusal(source.starts, np.zeros((3, 1), np.int32))
    assert sentence == "input: next_word needs rows of at least 2 words. Received: 1 in a row"


def test_costs_count_every_iteration_of_the_loop():
    process = hetero_tf.learning_process(load("tiny/text_topics"))
    counted = counting.total(counting.forward(process.family.predictor("a"), (12,)))
    assert counted.multiply_adds == 12 * (16 * 64 + 16 * 64) + 16 * 4


LINES = [" é<b ", "", "ab\u3000\u2003c.", "时间 x", "<pad>", "the end< of thesis"]


def running_tokenizer(folder, name):
    """Return the tokens of LINES, and the tokenizer of an export for running text."""
    words = [word for line in LINES for word in (*line.split(), "<eos>")]
    vocabulary = learn_vocabulary(words, TokenOptions(name, 24))
    numbers, _ = vocabulary_tables(vocabulary, folder)
    return build_tokenizer(name, vocabulary)(words), GraphTokenizer(name, numbers, vocabulary, 0, ("<eos>", "<mask>"))


@pytest.mark.parametrize("name", ["words", "characters", "subwords"])
def test_graph_splits_lines_like_the_loader(tmp_path, name):
    tokens, tokenizer = running_tokenizer(tmp_path, name)
    split = tokenizer.split(tf.constant(["", "\r\n".join([*LINES, ""]), " x  ", "\n"])).to_list()
    assert [[token.decode() for token in row] for row in split] == [
        [],
        tokens,
        ["▁", "x"] if name == "subwords" else ["x"],
        ["<eos>"],
    ]
    assert tokenizer.split(tf.constant([], tf.string)).shape == (0, None)


def test_characters_of_a_request_are_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(graph_tokenizer, "MAX_CHARACTERS", 8)
    _, tokenizer = running_tokenizer(tmp_path, "subwords")
    with pytest.raises(tf.errors.InvalidArgumentError, match="a request must have at most 8 characters. Received"):
        tokenizer.split(tf.constant(["abcd", "efghi"]))


@pytest.mark.parametrize("tokenizer", [pytest.param("characters", marks=pytest.mark.long), "subwords"])
def test_prediction_for_a_text_is_that_of_its_tokens(tokenizer):
    process = hetero_tf.learning_process(load("tiny/pydoc", [f"data.tokenizer={tokenizer}", "model.settings.blocks=1"]))
    state, vocabulary = process.initialize(), process.dataset.codec.vocabulary
    model = process.network(state)
    (prediction,) = predicted.of_process(process, model, ["in <mask>"], top=5)
    tokens = build_tokenizer(tokenizer, vocabulary)(["in"]) + ["▁"] * (tokenizer == "characters")
    ids = tf.constant([[*map(vocabulary.index, tokens), len(vocabulary)]])
    best = tf.math.top_k(tf.nn.softmax(model(ids, training=False)[0, -1]), 5)
    values = [value for (value,) in prediction.fields.values()]
    assert values[::2] == [vocabulary[index] for index in best.indices]
    np.testing.assert_allclose(values[1::2], best.values.numpy(), rtol=1e-4)


def test_lines_are_split_at_every_white_space(tmp_path):
    numbers, _ = vocabulary_tables(("<ukn>", "<eos>", "é", "b"), tmp_path)
    spaces = [chr(code) for code in range(0x3100) if chr(code).isspace() and chr(code) != "\n"]
    lines = [f"{space}é{space}{space}b {space}c" for space in spaces]
    tokenizer = GraphTokenizer("words", numbers, (), 0, ("<eos>",))
    ids, *_ = positions.encode_masked(tf.constant([*lines, "b\r\nb\n<mask>"]), tokenizer, 4)
    assert len(lines) > 20 and ids.numpy().tolist() == [[2, 3, 0, -1, -1]] * len(lines) + [[3, 1, 3, 1, 4]]


@pytest.mark.parametrize(
    ("name", "text", "masked"),
    [
        ("words", "b<mask>.", [1]),
        ("words", "<MASK>", [0]),
        ("words", " <Mask> ", [0]),
        ("characters", "é<MASK> b<mask>c", [1, 4]),
        ("subwords", "é<MASK> b<mask>c", [2, 5]),
    ],
)
def test_mask_is_one_token_next_to_others_and_in_capitals(tmp_path, name, text, masked):
    _, tokenizer = running_tokenizer(tmp_path, name)
    ids, is_mask, lengths = positions.encode_masked(tf.constant([text, ""]), tokenizer, 99)
    assert is_mask.numpy().nonzero()[1].tolist() == masked and lengths.numpy()[1] == 0
    assert ids.numpy()[0, masked].tolist() == [99] * len(masked)
