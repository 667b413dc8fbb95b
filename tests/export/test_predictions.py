"""`predict`: predictions for pictures, rows and texts, equal to those of the evaluation and the export."""

import dataclasses
import shutil

import exports
import numpy as np
import predicted
import pytest
import tables
import tensorflow as tf
import tiny
from refusals import refusal

import hetero_tf
from hetero_tf.data.inputs import all_labels
from hetero_tf.export import predictions
from hetero_tf.export.predictions import predict, predictor_of_export, predictor_of_process
from hetero_tf.recipe import load
from hetero_tf.run.data import load_data

NAMES = tuple(f"digit {index}" for index in range(10))


@pytest.fixture(scope="module")
def pictures():
    """A process with class names, its model and its predictor."""
    recipe = load("tiny/digits", ["levels.mix=a"])
    dataset = dataclasses.replace(load_data(recipe, None), class_names=NAMES)
    process = hetero_tf.learning_process(recipe, dataset=dataset)
    with tiny.eagerly():
        model = process.network(exports.state(process))
    return process, model, predictor_of_process(process, model)


@pytest.fixture(scope="module")
def sentences():
    process = exports.process(*exports.TEXT)
    return predictor_of_process(process, process.network(exports.state(process)))


def picture(folder, pixels, name="picture.png"):
    path = folder / name
    path.write_bytes(tf.io.encode_png(pixels).numpy())
    return str(path)


def test_pictures_get_the_labels_of_the_model(pictures, tmp_path):
    process, model, predictor = pictures
    raw = np.rint(process.dataset.test.x[:2] * (255 / process.dataset.test.x.max())).astype(np.uint8)
    paths = [picture(tmp_path, prediction, f"{index}.png") for index, prediction in enumerate(raw)]
    inputs, _ = process.input.batch(
        tf.constant(raw),
        tf.zeros([2], tf.int32),
        tf.range(2),
        0,
        tf.zeros([1], tf.int32),
        all_labels(10),
        training=False,
    )
    probabilities = tf.nn.softmax(model(inputs, training=False)).numpy()
    for prediction, path, expected in zip(predicted.run(predictor, paths), paths, probabilities, strict=True):
        best = np.argsort(-expected)[:3]
        names, shares = list(prediction.fields.values())[::2], list(prediction.fields.values())[1::2]
        assert list(prediction.fields)[2:4] == ["class_2", "probability_2"] and names == [
            NAMES[label] for label in best
        ]
        np.testing.assert_allclose(shares, expected[best], rtol=1e-5)
        assert (prediction.source, prediction.value, prediction.error) == (path, None, None)


def test_each_mask_gets_likely_words(sentences):
    (prediction,) = predicted.run(sentences, ["word3 <mask> word4<MASK>"], top=9)
    words, shares = list(prediction.fields.values())[::2], np.array(list(prediction.fields.values())[1::2])
    assert [len(pair) for pair in words] == [2] * 5 and {word for pair in words for word in pair} <= {
        *exports.process(*exports.TEXT).dataset.codec.vocabulary
    }
    assert (np.diff(shares, axis=0) <= 0).all() and (shares > 0).all() and (shares.sum(0) <= 1).all()


def test_an_invalid_item_does_not_lose_the_others(pictures, sentences, tmp_path):
    good = picture(tmp_path, np.zeros((8, 8, 1), np.uint8))
    colour = picture(tmp_path, np.zeros((30, 12, 3), np.uint8), "colour.png")
    (tmp_path / "notes.txt").write_text("hello")
    results = predicted.run(pictures[2], [good, tmp_path / "notes.txt", tmp_path / "gone.png", colour])
    assert [prediction.error for prediction in results] == [
        None,
        "is not a readable PNG, JPEG, BMP, GIF or WebP picture; convert it, or copy it again",
        "could not read: No such file or directory",
        None,
    ]
    assert set(results[1].fields.values()) == {None}
    # A batch of another size may differ in the last bits.
    assert results[0].fields == {
        key: value if isinstance(value, str) else pytest.approx(value, abs=1e-6)
        for key, value in results[-1].fields.items()
    }
    bad, best = predicted.run(sentences, ["no hidden word", "one <mask>"])
    assert bad.error == "a sentence must contain <mask> for the word to predict" and best.error is None
    process = exports.without_vocabulary()
    assert refusal(predictor_of_process, process, process.network(process.initialize())).startswith(
        "predict needs a data set with a vocabulary."
    )


def test_batches_keep_the_order_and_an_item_above_a_limit_fails_alone(sentences, monkeypatch):
    predictor, texts = sentences, [f"{'word3 ' * (index % 4)}<mask> word{index}" for index in range(9)]
    alone = [predicted.run(predictor, [text])[0] for text in texts]
    requests = []

    def serve(text):
        requests.append(len(text))
        return predictor.serve(text=text)

    together = predicted.run(dataclasses.replace(predictor, serve=serve), texts)
    assert requests == [9] and [each.source for each in together] == [each.source for each in alone] == texts
    for one, other in zip(alone, together):
        assert one.fields["word"] == other.fields["word"]
        np.testing.assert_allclose(one.fields["probability"], other.fields["probability"], rtol=1e-5)
    long = " ".join(["<mask>"] * (predictor.limits["words"] + 1))
    results = predicted.run(predictor, [texts[0], long, texts[1]])
    assert [each.fields for each in results[::2]] == [each.fields for each in alone[:2]]
    assert results[1].error == (
        f"a request must have at most {predictor.limits['words']} words, including the padding to its longest text."
    )
    monkeypatch.setattr(predictions, "BATCH_EXAMPLES", 2)
    requests.clear()
    predicted.run(dataclasses.replace(predictor, serve=serve), texts)
    assert requests == [2, 2, 2, 2, 1]
    assert not predictor.fits(2, predictor.limits["words"]) and predictor.fits(2, 9)


def test_an_export_predicts_the_same_as_its_run(tmp_path):
    process, version = tables.process(), exports.narrow_table()
    folder, about = shutil.copytree(version.folder, tmp_path / "export"), version.about
    table = tmp_path / "rows.csv"
    rows = [f"{index % 2},{['red', 'blue'][index % 2]},{1e4 + index},no,{index / 1e4}" for index in range(40)]
    table.write_text("\n".join(["kind,colour,size (cm),coat,weight", *rows]))
    expected, notes = predictor_of_process(process, process.network(exports.state(process), "b")), []
    same = predictor_of_export(folder)
    # An export has no statistics of columns, which only a model reads.
    described = [[field.describe() for field in each.form.fields] for each in (same, expected)]
    assert described[0] == described[1] and same.limits == expected.limits and about["items"]["labels"] == []
    assert dataclasses.replace(same.form, fields=()) == dataclasses.replace(expected.form, fields=())
    results = [list(predict(predictor, [str(table)], 3, notes.append)) for predictor in (expected, same)]
    assert results[0] == results[1] and len(results[0]) == 40
    assert notes == [f"{table}: ignored columns: kind"] * 2
    outputs = tf.saved_model.load(str(folder)).signatures["serve_numbers"](features=tf.constant([[1e4, 0, 0, 1, 0]]))
    assert float(outputs["probabilities"][0].numpy().max()) == pytest.approx(
        results[0][0].fields["probability"], rel=1e-6
    )
    (folder / "saved_model.pb").write_bytes(b"")
    assert refusal(predictor_of_export, folder) == (
        f"{folder}: cannot be loaded: the SHA-256 of saved_model.pb differs from export.json"
    )


def test_labels_are_compared():
    item = predictions.Item("a", label="cow")
    for fields, error, expected in (({"class": "cow"}, None, True), ({"class": "ox"}, None, False), ({}, "x", None)):
        assert dataclasses.replace(item, fields=fields, error=error).is_correct is expected
    assert predictions.Item("a", fields={"class": "cow"}).is_correct is None


def test_a_row_has_the_input_then_its_columns():
    fields = {"class": "ox", "probability": 0.5}
    item = predictions.Item("a.csv:2", columns={"size": "1", "class": "cow"}, fields=fields)
    assert list(item.to_row(False).items()) == [("input", "a.csv:2"), *fields.items(), ("error", None)]
    assert list(item.to_row(True).items())[:3] == [("input", "a.csv:2"), ("size", "1"), ("input.class", "cow")]
