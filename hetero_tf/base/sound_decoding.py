"""Decodes WAV files in a graph, like `sound_files.read_clip` in Python."""

import tensorflow as tf

from hetero_tf.base.sound_files import (
    ENCODINGS,
    EXTENSIBLE,
    FLOAT,
    HIGHEST_RATE,
    LOWEST_RATE,
    MARGIN,
    MOST_CHUNKS,
    UNKNOWN_SIZE,
)

# Zeros after a file, so that its header can be read if it is cut off.
PADDING = 64


def decode(data: tf.Tensor, rate: int, count: int) -> tf.Tensor:
    """Return the beginning of a WAV file as one channel, float32 [count] in -1..1; zeros follow its end.

    The graph raises an error for a file that `sound_files.read_header` rejects.

    Args:
        data: Scalar string.
        rate: Samples per second of the result.
        count: Samples of the result.
    """
    layout, first, frames, (channels, source_rate, bits) = _read_header(data)
    periods, before, after = _resampling_sizes(source_rate, rate, count)
    used = tf.minimum(frames, tf.where(tf.equal(source_rate, rate), count, periods * before))
    samples = _to_floats(tf.strings.substr(data, first, used * channels * (bits // 8)), layout)
    mono = tf.reduce_mean(tf.reshape(samples, [-1, channels]), -1)

    def resample():
        old, new = periods * before, periods * after
        spectrum = tf.signal.rfft(mono, old[None])[: tf.minimum(old, new) // 2 + 1]
        return tf.signal.irfft(spectrum, new[None])[:count] * tf.cast(new / old, tf.float32)

    clip = tf.cond(tf.equal(source_rate, rate), lambda: mono, resample)
    clip = tf.where(tf.math.is_finite(clip), tf.clip_by_value(clip, -1.0, 1.0), float("nan"))
    return tf.ensure_shape(tf.pad(clip, [[0, count - tf.size(clip)]]), [count])


def _read_header(data):
    """Return the index in `ENCODINGS`, the first byte and the frames of the samples, and (channels, rate, bits)."""
    stream = tf.concat([tf.io.decode_raw(data, tf.uint8), tf.zeros([PADDING], tf.uint8)], 0)
    end = tf.strings.length(data)
    layout, first = _find_chunks(stream, end)
    layout_bytes = tf.minimum(_integer(stream, layout - 4, 4), tf.cast(end - layout, tf.int64))
    code = _integer(stream, layout, 2)
    is_extensible = tf.equal(code, EXTENSIBLE) & (layout_bytes >= 26)
    code = tf.where(is_extensible, _integer(stream, layout + 24, 2), code)
    channels, rate, bits = (_integer(stream, layout + at, size) for at, size in ((2, 2), (4, 4), (14, 2)))
    matches = tf.reduce_all(tf.equal(tf.constant(list(ENCODINGS), tf.int64), tf.stack([code, bits])), 1)
    size, available = _integer(stream, first - 4, 4), tf.cast(end - first, tf.int64)
    frames = tf.minimum(size, available) // tf.maximum(channels * bits // 8, 1)
    is_whole = (size <= available) | tf.equal(size, UNKNOWN_SIZE)
    is_riff = tf.strings.regex_full_match(
        tf.strings.substr(tf.strings.join([data, bytes(12)]), 0, 12), r"RIFF\C{4}WAVE"
    )
    is_valid = is_riff & tf.reduce_any(matches) & is_whole & (layout_bytes >= 16) & (first > 0) & (frames > 0)
    is_valid &= (channels > 0) & (rate >= LOWEST_RATE) & (rate <= HIGHEST_RATE)
    with tf.control_dependencies([tf.debugging.Assert(is_valid, ["not a WAV file of a supported format"])]):
        index = tf.argmax(matches, output_type=tf.int32)
    return index, first, tf.cast(frames, tf.int32), [tf.cast(value, tf.int32) for value in (channels, rate, bits)]


def _find_chunks(stream, end):
    """Return the positions of the format and of the samples in a file, 0 for a missing one."""
    format_name, data_name = (int.from_bytes(name, "little") for name in (b"fmt ", b"data"))

    def step(position, layout, first):
        name, size = _integer(stream, position, 4), _integer(stream, position + 4, 4)
        layout = tf.where(tf.equal(name, format_name), position + 8, layout)
        first = tf.where(tf.equal(name, data_name) & (layout > 0), position + 8, first)
        following = tf.cast(position + 8, tf.int64) + size + size % 2
        return tf.cast(tf.minimum(following, tf.cast(end, tf.int64)), tf.int32), layout, first

    _, layout, first = tf.while_loop(
        lambda position, _, first: tf.equal(first, 0) & (position + 8 <= end),
        step,
        (tf.constant(12), tf.constant(0), tf.constant(0)),
        maximum_iterations=MOST_CHUNKS,
    )
    return layout, first


def _integer(stream, position, count):
    """Return `count` little-endian bytes as an int64; a negative position means 0."""
    factors = tf.constant([256**byte for byte in range(count)], tf.int64)
    first = tf.maximum(position, 0)
    return tf.reduce_sum(tf.cast(stream[first : first + count], tf.int64) * factors)


def _to_floats(data, encoding):
    """Return samples as float32 in -1..1; `encoding` is an index in `ENCODINGS`."""

    def convert(code, bits):
        if code == FLOAT:
            return tf.io.decode_raw(data, tf.float32)
        if bits != 24:
            values = tf.cast(tf.io.decode_raw(data, {8: tf.uint8, 16: tf.int16, 32: tf.int32}[bits]), tf.float32)
            return (values - (128.0 if bits == 8 else 0.0)) / 2 ** (bits - 1)
        parts = tf.cast(tf.reshape(tf.io.decode_raw(data, tf.uint8), [-1, 3]), tf.int32)
        whole = tf.reduce_sum(parts * [1, 2**8, 2**16], -1)
        return tf.cast(tf.where(whole < 2**23, whole, whole - 2**24), tf.float32) / 2**23

    return tf.switch_case(encoding, [lambda pair=pair: convert(*pair) for pair in ENCODINGS])


def _resampling_sizes(source_rate, rate, count):
    """Return the number of blocks, and the samples of a block before and after; see `sound_files.resampling_sizes`."""
    divisors = tf.constant([number for number in range(1, rate + 1) if rate % number == 0])
    blocks = tf.reduce_max(tf.where(tf.equal(source_rate % divisors, 0), divisors, 1))
    periods = tf.cast(tf.math.ceil((count / rate + MARGIN) * tf.cast(blocks, tf.float64)), tf.int32)
    return periods, source_rate // blocks, rate // blocks
