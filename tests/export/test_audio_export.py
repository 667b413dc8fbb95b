"""The export of an audio model: samples and WAV files, in TensorFlow and in other formats, and `predict`."""

import folders
import numpy as np
import pytest
import tensorflow as tf
import tiny

from hetero_tf import export
from hetero_tf.export.card import CARD
from hetero_tf.export.formats import keras as keras_format
from hetero_tf.recipe import load
from hetero_tf.run.learning_process import learning_process

FORMATS = ("keras", "onnx", "litert")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A process on WAV files, its state, and the folder and description of its export."""
    root = tmp_path_factory.mktemp("sounds")
    folders.write_sounds(root / "own", clips=12)
    overrides = [
        f"data={{name: audio, path: {root / 'own'}, rate: 4000, seconds: 0.2}}",
        "partition.clients=4",
        "levels.mix=a",
    ]
    process = learning_process(load("tiny/audio_tones", overrides))
    state = tiny.perturbed(process.initialize())
    folder, about = export.export(process, state, process.statistics(state), root / "export", {}, others=FORMATS)
    return process, state, folder, about


@pytest.mark.long
def test_every_format_has_the_metrics_of_the_evaluation(exported):
    process, state, folder, about = exported
    loss = process.evaluate(state)[0]["global_loss"]
    for entry in (about, *about["formats"].values()):
        np.testing.assert_allclose(entry["measured"]["loss"], loss, rtol=1e-4)
    assert about["formats"].keys() == set(FORMATS)
    assert "A clip has 800 samples of one channel in -1..1, 0.2 seconds at 4,000 samples per second" in (
        (folder / CARD).read_text()
    )
    assert "base64 < clip.wav" in (folder / CARD).read_text()


@pytest.mark.long
def test_files_and_samples_have_equal_outputs(exported):
    process, _, folder, about = exported
    signatures = tf.saved_model.load(str(folder)).signatures
    wave = folders.tone(600, 8000)
    contents = [folders.wav(wave, 8000), b"RIFF", folders.wav(wave[::2], 4000)]
    outputs = signatures["serve_bytes"](audio_bytes=tf.constant(contents))
    samples = np.stack([wave[::2][:800], np.full(800, np.nan)]).astype(np.float32)
    expected = signatures["serving_default"](samples=samples)
    assert outputs["class"].numpy().tolist() == [*expected["class"].numpy(), expected["class"][0]]
    assert outputs["class"][1] == -1 and np.isnan(outputs["logits"][1]).all()
    np.testing.assert_allclose(outputs["logits"][0], expected["logits"][0], atol=0.05)
    np.testing.assert_allclose(outputs["logits"][2], expected["logits"][0], atol=1e-3)
    assert outputs["class_name"][0] == ("high", "low")[int(outputs["class"][0])]
    assert about["input"]["fields"][0]["rate"] == 4000 and about["limits"]["clips"] > 1000


@pytest.mark.long
def test_stored_examples_and_samples_are_inputs_of_keras_models(exported):
    process, state, folder, _ = exported
    clips = process.dataset.test.x[:3]
    model = keras_format.load(folder / "model.keras")
    expected = tf.saved_model.load(str(folder)).signatures["serving_default"](
        samples=(clips / 2**15).astype(np.float32)
    )
    np.testing.assert_allclose(model(clips / 2**15), expected["logits"], atol=1e-5)
    np.testing.assert_allclose(process.model(state)(clips.astype(np.float32)), expected["logits"], atol=1e-5)
