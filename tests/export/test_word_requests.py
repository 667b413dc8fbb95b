"""Exports of models of sequences and of next words: numbers and sentences are answered as the model would."""

import json

import numpy as np
import pytest
import tensorflow as tf
from refusals import refusal

import hetero_tf
from hetero_tf import export
from hetero_tf.data.sentences import encode_sentences, words_of
from hetero_tf.export import saved_model, sequences, text
from hetero_tf.export.predictions import predict
from hetero_tf.inputs import all_labels, next_word
from hetero_tf.models.costs import counting
from hetero_tf.recipe import load


@pytest.fixture(scope="module", params=["text_topics", "wikitext2_lstm"])
def trained(request):
    """The process of a tiny recipe, and its state behind a round."""
    process = hetero_tf.learning_process(load(f"tiny/{request.param}"))
    state, _ = process.next(process.initialize())
    return process, state


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    process, state = trained
    return export.export(process, state, {}, tmp_path_factory.mktemp("export"), {}, level="a")


def logits_of(trained, ids):
    process, state = trained
    return process.network(state)(tf.constant(ids, tf.int32), training=False).numpy()


def test_numbers_get_the_logits_of_the_model_and_wrong_ones_nan(trained, exported):
    ask, x = saved_model.answering(exported[0]), trained[0].dataset.train.x[:3, :12].copy()
    np.testing.assert_allclose(ask(token_ids=x)["logits"], logits_of(trained, x), atol=1e-5)
    x[1, 2] = 50
    found = ask(token_ids=x)["logits"]
    assert np.isnan(found[1]).all() and np.isfinite(found[[0, 2]]).all()
    assert ask(token_ids=np.zeros((0, 12), np.int32))["logits"].shape[0] == 0


def test_sentences_get_what_their_words_get(trained, exported):
    process, _ = trained
    ask = saved_model.answering(exported[0], "serve_text")
    sentences = ["word3 word4  unheard\tword7", "word9"]
    found = ask(text=np.array(sentences, object))
    if process.dataset.kind == "sequences":
        ids = encode_sentences(list(map(words_of, sentences)), process.dataset.vocabulary, 12)
        assert list(ids[0, :5]) == [3, 4, 1, 7, 0]
        np.testing.assert_allclose(found["logits"], logits_of(trained, ids), atol=1e-5)
        empty = ask(text=np.array(["", "word9", " \n"], object))
        np.testing.assert_allclose(empty["logits"][1], found["logits"][1], atol=1e-5)
        assert np.isnan(empty["logits"][[0, 2]]).all() and list(empty["class"][[0, 2]]) == [-1, -1]
        return
    for row, ids in enumerate(([3, 4, 0, 7], [9])):
        chances = tf.nn.softmax(logits_of(trained, [ids])[0, -1]).numpy()
        best = np.argsort(-chances)[:5]
        np.testing.assert_allclose(found["next_probabilities"][row], chances[best], rtol=1e-4)
        assert [word.decode() for word in found["next_words"][row]] == [process.dataset.vocabulary[one] for one in best]
    empty = ask(text=np.array(["", "word9"], object))
    assert list(empty["lengths"]) == [0, 1] and np.isnan(empty["next_probabilities"][0]).all()
    assert set(empty["next_words"][0]) == {b""}


def test_signs_and_capitals_are_split_in_the_graph_as_by_the_loader(tmp_path):
    sentences = ["The FILM's\tgood,(isn't it?)", "ÄÖ ΣΑΣ\u2003x", "a_b~c`d[e]", "", "<pad> ''"]
    words = sorted({word for one in sentences for word in words_of(one)})
    vocabulary = ("<pad>", "<ukn>", *words[1:])
    numbers, _ = text.tables(vocabulary, tmp_path, sequences.UNKNOWN)
    found = sequences.encode(tf.constant(sentences), numbers, 9)
    np.testing.assert_array_equal(found, encode_sentences(list(map(words_of, sentences)), vocabulary, 9))


def test_the_whole_test_set_is_measured_by_the_files(trained, exported):
    process, state = trained
    metrics, _ = process.evaluate(state)
    for name, value in exported[1]["measured"].items():
        assert name == "on" or value == pytest.approx(float(metrics[f"global_{name}"]), rel=1e-4)
    about = json.loads((exported[0] / "export.json").read_text())
    assert about["input"]["kind"] == ("sequences" if process.dataset.kind == "sequences" else "next_word")
    card = (exported[0] / "MODEL_CARD.md").read_text()
    assert "`serve_text`: text string [any]" in card and "Token ids are 0..49" in card


def test_the_calls_of_the_card_run(exported, monkeypatch, capsys):
    monkeypatch.chdir(exported[0])
    code = (exported[0] / "MODEL_CARD.md").read_text().split("```python\n")[1].split("```")[0]
    exec(code, {})
    assert "tf.Tensor" in capsys.readouterr().out


def test_predict_answers_a_sentence(trained):
    process, state = trained
    (found,) = predict(process, process.network(state), ["word3 word4"])
    assert len(found["answers"]) == (3 if process.dataset.kind == "sequences" else 5)
    percents = [percent for _, percent in found["answers"]]
    assert percents == sorted(percents, reverse=True) and 0 < sum(percents) <= 100
    assert "must hold a word. Received: ' '" in refusal(predict, process, process.network(state), [" "])


@pytest.mark.parametrize("name", ["litert", "litert_int8"])
def test_litert_says_why_it_does_not(trained, tmp_path, name):
    process, state = trained
    sentence = refusal(export.export, process, state, {}, tmp_path / "out", {}, level="c", others=[name])
    assert "LiteRT cannot run the loop over positions of a recurrent layer; export to onnx or keras" in sentence
    assert not list(tmp_path.glob("out/c/[0-9]*"))


def test_targets_are_the_words_behind_the_inputs():
    x = tf.reshape(tf.range(22), [2, 11])
    source, found = next_word.build("float32", segment=4), []
    assert source.starts(x) == (0, 4, 8)
    for start in source.starts(x):
        labels = all_labels(22)
        inputs, targets = source.batch(x, None, tf.constant([1]), start, None, labels, training=True)
        np.testing.assert_array_equal(inputs + 1, targets)
        found += list(inputs[0].numpy())
    assert found == list(range(11, 21))
    sentence = refusal(source.starts, np.zeros((3, 1), np.int32))
    assert sentence == "next words need rows of at least 2 words of text. Received: 1 in a row"


def test_costs_count_every_turn_of_the_loop():
    recipe = load("tiny/text_topics")
    process = hetero_tf.learning_process(recipe)
    counted = counting.forward(process.family.predictor("a"), (12,))
    assert counted.multiply_adds == 12 * (16 * 64 + 16 * 64) + 16 * 4
