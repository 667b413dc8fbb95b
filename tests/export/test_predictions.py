"""`predict`: predictions for pictures and sentences, equal to those of the evaluation and the export."""

import dataclasses
import json

import numpy as np
import programs
import pytest
import tensorflow as tf
from refusals import refusal

import hetero_tf
from hetero_tf.export.predictions import predict
from hetero_tf.recipe import load

NAMES = tuple(f"digit {index}" for index in range(10))


@pytest.fixture(scope="module")
def pictures():
    """A process with class names, and its model."""
    process = hetero_tf.learning_process(load("tiny/digits"))
    dataset = dataclasses.replace(process.dataset, class_names=NAMES)
    process = hetero_tf.learning_process(process.recipe, dataset=dataset, partition=process.partition)
    state, _ = process.next(process.initialize())
    return process, process.network(state)


@pytest.fixture(scope="module")
def sentences():
    process = hetero_tf.learning_process(load("tiny/wikitext2", ["input.segment=5", "data.length=40"]))
    return process, process.network(process.initialize())


def picture(folder, pixels, name="picture.png"):
    path = folder / name
    path.write_bytes(tf.io.encode_png(pixels).numpy())
    return str(path)


def test_pictures_get_the_labels_of_the_model(pictures, tmp_path):
    process, model = pictures
    raw = np.rint(process.dataset.test.x[:2] * (255 / process.dataset.test.x.max())).astype(np.uint8)
    predictions = predict(
        process, model, [picture(tmp_path, prediction, f"{index}.png") for index, prediction in enumerate(raw)]
    )
    inputs, _ = process.input.batch(
        tf.constant(raw),
        tf.zeros([2], tf.int32),
        tf.range(2),
        0,
        tf.zeros([1], tf.int32),
        _every_label(),
        training=False,
    )
    probabilities = tf.nn.softmax(model(inputs, training=False)).numpy()
    for prediction, expected in zip(predictions, probabilities, strict=True):
        best = np.argsort(-expected)[:3]
        assert [name for name, _ in prediction["answers"]] == [NAMES[label] for label in best]
        np.testing.assert_allclose([percent for _, percent in prediction["answers"]], 100 * expected[best], rtol=1e-3)
    assert predictions[0]["input"].endswith("0.png")


def _every_label():
    from hetero_tf.inputs import all_labels

    return all_labels(10)


def test_each_mask_gets_likely_words(sentences):
    process, model = sentences
    (prediction,) = predict(process, model, ["word3 <mask> word4<MASK>"])
    assert [len(words) for words in prediction["answers"]] == [5, 5]
    assert all(word in process.dataset.vocabulary for words in prediction["answers"] for word, _ in words)
    shares = [percent for _, percent in prediction["answers"][0]]
    assert shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 100


def test_invalid_input_gives_one_message(pictures, sentences, tmp_path):
    process, model = pictures
    good = picture(tmp_path, np.zeros((8, 8, 1), np.uint8))
    glass = picture(tmp_path, np.full((8, 8, 4), 9, np.uint8), "glass.png")
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    cut = tmp_path / "cut.png"
    cut.write_bytes((tmp_path / "picture.png").read_bytes()[:40])
    empty = tmp_path / "empty.jpg"
    empty.write_bytes(b"")
    assert refusal(predict, process, model, [good, str(text)]) == (
        f"{text}: is not a picture: it begins with b'hello'; convert it to PNG, JPEG, BMP, GIF or WebP"
    )
    assert refusal(predict, process, model, [glass]) == (
        f"{glass}: has translucent pixels, whose background is unknown; save it without transparency"
    )
    assert refusal(predict, process, model, [str(cut)]) == f"{cut}: is cut off before its end; copy it again"
    assert refusal(predict, process, model, [str(empty)]) == f"{empty}: is empty; copy it again"
    assert refusal(predict, process, model, [str(tmp_path)]).startswith(f"{tmp_path}: ")
    assert "no such" in refusal(predict, process, model, [str(tmp_path / "missing.png")]).lower()
    message = refusal(predict, *sentences, ["no hidden word"])
    assert message == "a sentence must contain <mask> for the word to predict. Received: 'no hidden word'"
    process = dataclasses.replace(sentences[0], dataset=dataclasses.replace(sentences[0].dataset, vocabulary=None))
    assert refusal(predict, process, sentences[1], ["<mask>"]).startswith("predict needs a data set with a vocabulary.")


def test_command_predicts_with_the_model_of_a_level(tmp_path):
    path = programs.recipe_file(tmp_path)
    assert programs.shared().run("--recipe", path, "--run_dir", tmp_path / "run", "--set", "rounds=2").code == 0
    paths = [picture(tmp_path, np.full((8, 8, 1), shade, np.uint8), f"{shade}.png") for shade in (0, 255)]
    command = ["predict", "--run_dir", tmp_path / "run"]
    run = programs.shared().run(*command, *paths)
    assert run.code == 0 and [line.partition(": ")[0] for line in run.out.splitlines()] == paths, run.err
    output = json.loads(programs.shared().run(*command, "--level", "b", "--json", "--input", paths[0], paths[1]).out)
    assert output["level"] == "b" and [one["input"] for one in output["predictions"]] == paths
    assert programs.shared().run(*command).err == (
        "hetero_tf: predict needs a picture file, a row such as 5.1,red, or a sentence\n"
    )
    assert "--level A: no such level; known: a, b" in programs.shared().run(*command, paths[0], "--level", "A").err
