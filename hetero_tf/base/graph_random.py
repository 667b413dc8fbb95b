"""Random numbers inside a graph: an integer hash of a key, identical natively, under XLA and in exports.

`tf.random.stateless_uniform` with a seed tensor gives different numbers natively and under XLA.
"""

from collections.abc import Sequence

import tensorflow as tf

GOLDEN = 0x9E3779B1
FACTORS = (0x85EBCA6B, 0xC2B2AE35)
GOLDEN64 = 0x9E3779B97F4A7C15
FACTORS64 = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def _mix(value):
    """The finaliser of MurmurHash3 (Appleby, public domain) on uint32."""
    return _fold(_fold(_fold(value, 16) * FACTORS[0], 13) * FACTORS[1], 16)


def _fold(value, shift):
    return tf.bitwise.bitwise_xor(value, tf.bitwise.right_shift(value, tf.constant(shift, value.dtype)))


def hash_key(key: tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
    """Return uint32 hashes that depend on every word of the key.

    Args:
        key: int32 [..., words], words static. A row of a batch gives the same numbers as the single key.
        count: Number of hashes for each key.

    Returns:
        uint32 [..., count].
    """
    key = tf.cast(key, tf.uint32)
    state = tf.constant(GOLDEN, tf.uint32)
    for word in tf.unstack(key, axis=-1):
        state = _mix(tf.bitwise.bitwise_xor(state, word)) + tf.constant(GOLDEN, tf.uint32)
    counter = tf.cast(tf.range(count), tf.uint32) * tf.constant(GOLDEN, tf.uint32)
    return _mix(_mix(counter + (state if key.shape.rank == 1 else state[..., None])))


def uniform(key: tf.Tensor, shape: Sequence) -> tf.Tensor:
    """Return float32 numbers in [0, 1) with 24 random bits.

    Args:
        key: int32 [..., words], words static, e.g. (seed, round, client, step).
        shape: Sizes, ints or scalar tensors.

    Returns:
        [..., *shape], with the leading axes of the key.
    """
    bits = tf.bitwise.right_shift(hash_key(key, tf.reduce_prod(shape)), tf.constant(8, tf.uint32))
    if bits.shape.rank > 1:
        shape = tf.concat([tf.shape(bits)[:-1], shape], 0)
    return tf.reshape(tf.cast(bits, tf.float32) * 2.0**-24, shape)


def bits16(key: tf.Tensor, rows: int | tf.Tensor, columns: int) -> tf.Tensor:
    """Return 16-bit random numbers, four from each 64-bit word of SplitMix64 seeded with the key.

    Args:
        key: int32 [..., 2], with or without leading axes.
        rows: Int or scalar tensor.
        columns: Python int. Each row starts at a new 64-bit word, so multiples of 4 waste no bits.

    Returns:
        uint16 [..., rows, columns].

    Reference: Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators".
    """
    words = -(-columns // 4)
    start = tf.bitcast(key, tf.uint64)
    counter = tf.bitcast(tf.range(tf.cast(rows * words, tf.int64)), tf.uint64) * GOLDEN64
    value = counter + (start if start.shape.rank == 0 else start[..., None])
    value = _fold(_fold(_fold(value, 30) * FACTORS64[0], 27) * FACTORS64[1], 31)
    bits = tf.reshape(tf.bitcast(value, tf.uint16), [*start.shape, rows, 4 * words])
    return bits if columns % 4 == 0 else bits[..., :columns]
