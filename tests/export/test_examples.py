"""Example requests from the description of a model's input; `test_serve_page.py` sends them to models."""

import base64

import numpy as np
import tensorflow as tf

from hetero_tf.export.examples import example_request, example_row

COLUMNS = [
    {"name": "power", "features": ["power"], "categories": []},
    {"name": "fuel", "features": ["fuel=diesel", "fuel=petrol"], "categories": ["diesel", "petrol"]},
    {"name": "sold", "features": [f"sold.{part}" for part in range(8)], "categories": [], "date": "dmy"},
    {"name": "weight", "features": ["weight", "weight is missing"], "categories": [], "fill": "7"},
]


def instance(signature, inputs, **spec):
    """The example for a model with one signature, whose inputs have these shapes."""
    specs = {name: {"dtype": "float32", "shape": [None, *shape]} for name, shape in inputs.items()}
    request = example_request({"signatures": {signature: {"inputs": specs}}, "input": spec})
    assert request["signature_name"] == signature and len(request["instances"]) == 1
    return request["instances"][0]


def test_a_row_has_the_means_of_its_columns_a_category_and_a_date_in_their_order():
    means = [1234.5, 0.5, 0.5, *[0.0] * 8, 0.012345, 0.1]
    assert example_row({"columns": COLUMNS, "normalised_by": {"mean": means}}) == [
        "1230",
        "diesel",
        "31.12.2024",
        "0.0123",
    ]
    assert example_row({"columns": COLUMNS, "normalised_by": {}}) == ["0", "diesel", "31.12.2024", "7"]


def test_numbers_are_means_or_waves_around_them():
    features = instance(
        "serving_default", {"features": [2]}, kind="table", normalised_by={"mean": [3.14159, 2], "std": [1, 1]}
    )
    assert features == [3.142, 2.0]
    normalised_by = {"mean": [50.0, 0.0], "std": [5.0, 1.0]}
    series = np.array(instance("serving_default", {"series": [24, 2]}, kind="series", normalised_by=normalised_by))
    assert series.shape == (24, 2) and 45 <= series[:, 0].min() < 46 and 54 < series[:, 0].max() <= 55
    arrays = instance("serving_default", {"row": [3], "picture": [2, 2, 1]}, kind="arrays")
    assert arrays == {"row": [0, 0, 0], "picture": [[[0], [0]], [[0], [0]]]}
    assert instance("serving_default", {"token_ids": [None]}, kind="text") == [0]


def test_files_have_the_size_of_the_input():
    picture = instance("serve_bytes", {"image_bytes": []}, kind="images", height=8, width=12, channels=3)
    pixels = tf.io.decode_png(base64.b64decode(picture["b64"])).numpy()
    assert pixels.shape == (64, 96, 3) and set(np.unique(pixels)) == {0, 255} and pixels[32, 48, 0] == 0
    clip = instance("serve_bytes", {"audio_bytes": []}, kind="audio", shape=[4000], rate=8000)
    samples, rate = tf.audio.decode_wav(base64.b64decode(clip["b64"]))
    assert samples.shape == (4000, 1) and rate == 8000 and 0.4 < np.max(samples) <= 0.5


def test_a_sentence_suits_the_kind_of_text():
    assert "<mask>" in instance("serve_text", {"text": []}, kind="text")
    assert instance("serve_text", {"text": []}, kind="next_word") == "the end of the"
