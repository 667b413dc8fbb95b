"""Decodes WAV files in a graph, like `sound_files.read_clip` in Python."""

import tensorflow as tf

from hetero_tf.base.sound_files import HIGHEST_RATE, LOWEST_RATE, MARGIN


def decode(data: tf.Tensor, rate: int, count: int) -> tf.Tensor:
    """Return the beginning of a WAV file as one channel, float32 [count] in -1..1; zeros follow its end.

    The graph raises an error for a file that is damaged or has not 16 bits, the only ones that TensorFlow decodes.
    """
    samples, source_rate = tf.audio.decode_wav(data)
    is_valid = (source_rate >= LOWEST_RATE) & (source_rate <= HIGHEST_RATE) & (tf.size(samples) > 0)
    with tf.control_dependencies([tf.debugging.Assert(is_valid, ["not a WAV file of a supported rate"])]):
        mono = tf.reduce_mean(samples, -1)

    def resample():
        periods, before, after = _resampling_sizes(source_rate, rate, count)
        old, new = periods * before, periods * after
        spectrum = tf.signal.rfft(mono, old[None])[: tf.minimum(old, new) // 2 + 1]
        return tf.signal.irfft(spectrum, new[None]) * tf.cast(new / old, tf.float32)

    clip = tf.cond(tf.equal(source_rate, rate), lambda: mono, resample)[:count]
    clip = tf.clip_by_value(clip, -1.0, 1.0)
    return tf.ensure_shape(tf.pad(clip, [[0, count - tf.size(clip)]]), [count])


def _resampling_sizes(source_rate, rate, count):
    """Return the number of blocks, and the samples of a block before and after; see `sound_files.resampling_sizes`."""
    divisors = tf.constant([number for number in range(1, rate + 1) if rate % number == 0])
    blocks = tf.reduce_max(tf.where(tf.equal(source_rate % divisors, 0), divisors, 1))
    periods = tf.cast(tf.math.ceil((count / rate + MARGIN) * tf.cast(blocks, tf.float64)), tf.int32)
    return periods, source_rate // blocks, rate // blocks
