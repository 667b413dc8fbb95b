"""WAV files: formats, rates and channels, in Python and in a graph; damaged files."""

import struct

import folders
import numpy as np
import pytest
import tensorflow as tf
from refusals import refusal

from hetero_tf.base.sound_files import read_header
from hetero_tf.data.codecs.sound import decode_clip, read_clip

RATE = 8000
TONE = folders.tone(440, RATE)
# Bits, and the largest error of a sample of 16 bits.
FORMATS = [(8, 2**-7), (16, 2**-15), (24, 2**-15), (32, 2**-15)]


def values(clip):
    return clip / 2**15


@pytest.mark.parametrize(("bits", "error"), FORMATS)
@pytest.mark.parametrize("is_extensible", [False, True])
def test_every_format_has_the_same_samples(bits, error, is_extensible):
    clip = read_clip(folders.wav(TONE, RATE, bits, is_extensible=is_extensible), RATE, len(TONE))
    assert clip.dtype == np.int16
    np.testing.assert_allclose(values(clip), TONE, atol=error)


def test_channels_are_averaged_and_clips_are_cut_off_or_followed_by_zeros():
    stereo = np.stack([TONE, np.zeros_like(TONE)], 1)
    clip = read_clip(folders.wav(stereo, RATE), RATE, len(TONE) + 7)
    np.testing.assert_allclose(values(clip[: len(TONE)]), TONE / 2, atol=2**-14)
    assert not clip[len(TONE) :].any()
    assert read_clip(folders.wav(stereo, RATE), RATE, 100).tolist() == clip[:100].tolist()


@pytest.mark.parametrize("source_rate", [4000, 11_025, 16_000, 44_100])
def test_another_rate_keeps_a_tone_and_removes_what_the_lower_rate_cannot_have(source_rate):
    times = np.arange(3 * source_rate) / source_rate
    high = 0.4 * np.sin(2 * np.pi * 6000 * times) if source_rate > 2 * 6000 else 0
    content = folders.wav(folders.tone(440, source_rate, 3 * source_rate) + high, source_rate)
    clip = values(read_clip(content, RATE, 2 * RATE))
    # A cut tone ends in a step, which rings.
    np.testing.assert_allclose(clip[200:-200], folders.tone(440, RATE, 2 * RATE)[200:-200], atol=2e-3)


@pytest.fixture(scope="module")
def graph():
    """`decode` to one second."""
    return tf.function(lambda data: decode_clip(data, RATE, RATE), input_signature=[tf.TensorSpec((), tf.string)])


@pytest.mark.parametrize("source_rate", [RATE, 11_025, 16_000, 44_100])
@pytest.mark.parametrize("seconds", [0.2, 3])
def test_the_graph_gives_the_samples_of_python(graph, source_rate, seconds):
    content = folders.wav(np.random.default_rng(0).uniform(-0.9, 0.9, (int(seconds * source_rate), 2)), source_rate)
    clip = graph(tf.constant(content))
    assert clip.shape == (RATE,)
    np.testing.assert_allclose(clip, values(read_clip(content, RATE, RATE)), atol=2**-15)


def header(rate=RATE, channels=1, code=1, bits=16, size=8):
    layout = struct.pack("<HHIIHH", code, channels, rate, 0, 0, bits)
    return b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<I", 16) + layout + b"data" + struct.pack("<I", size)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty; copy it again"),
        (b"ID3 an mp3 file", "is not a readable WAV file: file does not start with RIFF id; save it as WAV of 8, 16"),
        (header()[:10], "is not a readable WAV file: "),
        (header()[:26], "is not a readable WAV file: "),
        (header(code=2, bits=4) + bytes(8), "is not a readable WAV file: unknown format: 2; save it as WAV"),
        (header(code=3, bits=16) + bytes(8), "unknown format: 3; save it as WAV of 8, 16, 24 or 32 bits, for example"),
        (header(rate=0) + bytes(8), "must have 1,000 to 384,000 samples per second. Received: 0"),
        (header(rate=2**31 - 1) + bytes(8), "Received: 2,147,483,647"),
        (header(channels=0) + bytes(8), "is not a readable WAV file: bad # of channels"),
        (header(size=10) + bytes(8), "is cut off before its end; copy it again"),
        (header(size=0), "has no samples; remove it or copy it again"),
        (header(channels=65_535, size=8) + bytes(8), "has no samples"),
    ],
)
def test_damaged_files_are_rejected_with_the_reason(graph, content, message):
    assert message in refusal(read_clip, content, RATE, 4)
    with pytest.raises(tf.errors.InvalidArgumentError):
        graph(tf.constant(content))


def test_a_file_from_a_pipe_has_an_unknown_size():
    content = header(size=2**32 - 1) + b"\0\x10" * 4
    assert read_header(content, len(content)).frames == 4


def test_exports_survive_flipped_bits_and_cuts(graph):
    outcomes = set()
    for data in folders.damaged(folders.wav(TONE[:40], RATE), 300):
        try:
            clip = graph(tf.constant(data))
        # Messages of TensorFlow quote bytes of the file.
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError):
            outcomes.add("rejected")
        else:
            outcomes.add("decoded")
            assert np.abs(clip).max() <= 1
    assert outcomes == {"rejected", "decoded"}
