"""Class maps of `predict --maps`: the file of each picture, its size, classes and colors."""

import numpy as np
import predicted
import pytest
import tensorflow as tf
from refusals import refusal

import hetero_tf
from hetero_tf.data.masks import decode_mask
from hetero_tf.export.prediction_files import encode_class_map, write_maps
from hetero_tf.export.predictions import predictor_of_process
from hetero_tf.recipe import load


@pytest.fixture(scope="module")
def predictor():
    layers = "model.layers=[{PaddedConv2D: {filters: !w 4}}, ReLU, {Conv2D: {filters: !classes, kernel_size: 1}}]"
    process = hetero_tf.learning_process(load("tiny/shapes_unet", ["levels.mix=a", "model.settings={}", layers]))
    return predictor_of_process(process, process.network(process.initialize()))


def test_a_map_has_the_size_of_its_picture_and_is_a_mask_of_the_classes():
    classes = np.array([[0, 1, 2], [3, 4, 255]], np.int32)
    png = encode_class_map(classes, (6, 4))
    np.testing.assert_array_equal(decode_mask("map.png", png), np.kron(classes, np.ones((2, 2), int)))
    np.testing.assert_array_equal(decode_mask("map.png", encode_class_map(classes, (2, 1))), [[3, 255]])
    colors = tf.io.decode_png(encode_class_map(np.arange(256)[None], (256, 1)), 3).numpy()[0]
    assert colors[:4].tolist() == [[0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0]]
    assert len(np.unique(colors, axis=0)) == 256


def test_every_valid_picture_gets_a_map_under_its_name(predictor, tmp_path):
    rng = np.random.default_rng(0)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        picture = tf.constant(rng.integers(0, 256, (20, 30, 3), np.uint8))
        (tmp_path / folder / "a.png").write_bytes(tf.io.encode_png(picture).numpy())
    (tmp_path / "one" / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n123")
    maps = tmp_path / "new" / "maps"
    predictions = list(write_maps(maps, predictor.form, predicted.run(predictor, [tmp_path / "one", tmp_path / "two"])))
    paths = [prediction.fields["map"] for prediction in predictions]
    assert paths == [str(maps / "a.png"), None, str(maps / "a_2.png")]
    assert "is not a readable" in predictions[1].error and sorted(map(str, maps.iterdir())) == [paths[0], paths[2]]
    for path, prediction in zip(paths[::2], predictions[::2]):
        mask = decode_mask(path, (maps / path).read_bytes())
        assert mask.shape == (20, 30)
        rows, columns = ((np.arange(size) + 0.5) * 16 // size for size in mask.shape)
        expected = prediction.class_map[np.ix_(rows.astype(int), columns.astype(int))]
        np.testing.assert_array_equal(mask, expected)
        assert prediction.to_row(False).keys() >= {"class", "share", "map", "error"}


def test_a_folder_of_maps_does_not_replace_a_file(predictor, tmp_path):
    (tmp_path / "maps").write_text("")
    assert "expected a folder or nothing" in refusal(list, write_maps(tmp_path / "maps", predictor.form, []))
