"""Shipped inputs; crops and masked words are compared with plain loops."""

import numpy as np
import oracle
import pytest
import tensorflow as tf
from refusals import refusal

from hetero_tf.base import registry
from hetero_tf.data.inputs import all_labels
from hetero_tf.data.inputs.images import PAD, crop_flip
from hetero_tf.testing.data_checks import STORED
from hetero_tf.testing.data_checks import read_batch as batch

IMAGES, TEXT, CLIPS = (STORED[kind][0] for kind in ("images", "text", "audio"))


def test_bytes_are_scaled_to_0_1_and_floats_are_unchanged_by_means_of_one_length():
    build = registry.find("inputs", "images").build
    mean, std = np.asarray([0.4, 0.5]), np.asarray([0.3, 0.2])
    source = build("float64", mean=(0.4, 0.5), std=(0.3, 0.2))
    inputs, labels = batch(source, IMAGES, all_labels(4), [5, 0])
    np.testing.assert_allclose(inputs, (IMAGES[0][[5, 0]] / 255 - mean) / std, atol=1e-14)
    assert labels.numpy().tolist() == IMAGES[1][[5, 0]].tolist()
    inputs, _ = batch(source, (IMAGES[0] / 100.0, IMAGES[1]), all_labels(4), [5, 0])
    np.testing.assert_allclose(inputs, (IMAGES[0][[5, 0]] / 100 - mean) / std, atol=1e-12)
    # A single mean or deviation applies to all channels.
    white = np.full((1, 2, 2, 3), 255, np.uint8), np.zeros(1, np.int32)
    for mean, std, expected in (((0.5, 0.1, 0.9), (0.25,), (2, 3.6, 0.4)), ((0.5,), (0.5, 0.25, 0.1), (1, 2, 5))):
        inputs, _ = batch(build("float64", mean=mean, std=std), white, all_labels(4), [0])
        np.testing.assert_allclose(inputs[0, 0, 0], expected, atol=1e-14)
    assert refusal(build, "float32", mean=(0.1, 0.2), std=(0.1, 0.2, 0.3)).startswith(
        "`mean` and `std` must have the same length, or one of them a single number. Received: mean=(0.1, 0.2)"
    )


def test_rows_are_normalised_on_request():
    rows, build = STORED["table"][0], registry.find("inputs", "table").build
    statistics = np.arange(7.0), np.arange(1.0, 8)
    for normalise, (mean, std) in {"standard": statistics, "none": (0, 1)}.items():
        inputs, _ = batch(build("float64", normalise=normalise, statistics=statistics), rows, all_labels(4), [2, 0])
        np.testing.assert_allclose(inputs, (rows[0][[2, 0]] - mean) / std)


def ways(image):
    """All crops of an image padded with zeros, and their mirror images."""
    height, width = image.shape[:2]
    padded = np.pad(image, ((PAD, PAD), (PAD, PAD), (0, 0)))
    crops = [
        padded[top : top + height, left : left + width] for top in range(2 * PAD + 1) for left in range(2 * PAD + 1)
    ]
    return [*crops, *(crop[:, ::-1] for crop in crops)]


def test_every_augmented_image_is_a_crop_or_its_mirror_and_all_offsets_occur():
    image = np.arange(1, 51).reshape(5, 5, 2).astype(np.uint8)
    known = {way.tobytes(): number for number, way in enumerate(ways(image))}
    assert len(known) == 162
    augmented = crop_flip(tf.constant(np.stack([image] * 1500)), tf.constant([3, 1, 4])).numpy()
    seen = np.asarray([known[one.tobytes()] for one in augmented])  # KeyError: not a crop
    assert len(set(seen.tolist())) > 155
    assert abs((seen >= 81).mean() - 0.5) < 0.07
    for offset in (seen % 81 // 9, seen % 9):
        assert abs(np.bincount(offset, minlength=9) - 1500 / 9).max() < 5 * (1500 / 9) ** 0.5


def test_a_label_map_moves_with_its_image():
    label_maps = np.random.default_rng(5).integers(1, 9, (4, 6, 6)).astype(np.int32)
    source = registry.find("inputs", "images").build("float64", augment="crop_flip")
    arguments = tf.constant([0, 3]), tf.constant(0), tf.constant([1, 2, 3, 4]), all_labels(9)
    pixels, targets = source.batch(
        tf.constant(label_maps[..., None].astype(np.uint8)), tf.constant(label_maps), *arguments, training=True
    )
    np.testing.assert_allclose(255 * pixels[..., 0], targets, atol=1e-12)
    assert (targets.numpy() != label_maps[[0, 3]]).any()


def test_augmentation_depends_on_the_key_and_is_only_used_in_training():
    source = registry.find("inputs", "images").build("float32", augment="crop_flip")
    rows = list(range(6))

    def draw(key, training=True):
        return batch(source, IMAGES, all_labels(4), rows, key, training)[0].numpy()

    assert draw((1, 2, 3, 4)).tolist() == draw((1, 2, 3, 4)).tolist()
    assert draw((1, 2, 3, 4)).tolist() != draw((1, 2, 3, 5)).tolist()
    np.testing.assert_allclose(draw((1, 2, 3, 4), training=False), IMAGES[0] / 255, atol=1e-7)


def test_masked_words_are_the_mask_token_and_targets_are_all_words():
    source = registry.find("inputs", "masked_text").build("float32", segment=4, mask_share=0.3)
    assert source.starts(TEXT[0]) == (0, 4, 8)
    for start in source.starts(TEXT[0]):
        for training in (False, True):
            rows, key = tf.constant([2, 5]), tf.constant([7, start])
            inputs, targets = source.batch(
                TEXT[0], None, rows, tf.constant(start), key, all_labels(9), training=training
            )
            expected = TEXT[0][[2, 5], start : start + 4]
            hidden = oracle.uniform([7, start], expected.shape) < 0.3
            assert targets.numpy().tolist() == expected.tolist()
            assert inputs.numpy().tolist() == np.where(hidden, 9, expected).tolist()


def test_the_share_of_masked_words():
    long = np.zeros((20, 500), np.int32)
    for share in (0.0, 0.15, 1.0):
        source = registry.find("inputs", "masked_text").build("float32", segment=500, mask_share=share)
        inputs, _ = batch(source, (long, None), all_labels(9), list(range(20)))
        assert abs((inputs.numpy() == 9).mean() - share) <= 5 * (share * (1 - share) / 10_000) ** 0.5


@pytest.mark.parametrize(("rate", "window", "hop"), [(8000, 0.025, 0.01), (16_000, 0.02, 0.02), (8000, 0.016, 0.0201)])
def test_spectrograms_equal_those_of_tensorflow(rate, window, hop):
    source = registry.find("inputs", "audio").build(
        "float64", rate=rate, window=window, hop=hop, bands=12, mean=1, std=2
    )
    maps, _ = batch(source, CLIPS, all_labels(4), [0, 5])
    samples = CLIPS[0][[0, 5]] / 2**15
    waves = tf.signal.stft(samples, round(window * rate), round(hop * rate))
    weights = tf.signal.linear_to_mel_weight_matrix(12, waves.shape[-1], rate, 20.0, rate / 2, tf.float64)
    expected = tf.math.log(tf.abs(waves) ** 2 @ weights + 1e-6)
    np.testing.assert_allclose(maps[..., 0], (expected - 1) / 2, atol=1e-6)
    floats, _ = batch(source, (samples, CLIPS[1][:2]), all_labels(4), [0, 1])
    np.testing.assert_allclose(floats, maps, atol=1e-12)


def test_impossible_spectrograms_are_rejected_and_a_clip_has_at_least_one_frame():
    build = registry.find("inputs", "audio").build
    for options, message in (
        (
            {"window": 0.00005},
            "`window` and `hop` must have at least 2 and 1 samples at 16000 Hz. Received: window=5e-05",
        ),
        ({"bands": 200}, "`bands` is too large for `window`: a mel band has no frequency at 16000 Hz; use fewer bands"),
    ):
        assert message in refusal(build, "float32", **options)
    assert refusal(build("float32").shape, CLIPS[0][:, :300]) == (
        "input.window is longer than a clip; use a shorter `window` or longer clips. Received: 400 samples, clips of 300"
    )
