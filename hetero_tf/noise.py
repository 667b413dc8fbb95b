"""Random numbers inside a graph as an integer hash of a key: the same natively, under XLA and when exported.

`tf.random.stateless_uniform` with a seed known only at run time draws differently natively and under XLA.
"""

import tensorflow as tf

GOLDEN = 0x9E3779B1
FACTORS = (0x85EBCA6B, 0xC2B2AE35)


def _mix(value):
    """The finaliser of MurmurHash3 (Appleby, public domain) on uint32."""
    for shift, factor in ((16, FACTORS[0]), (13, FACTORS[1])):
        value = tf.bitwise.bitwise_xor(value, tf.bitwise.right_shift(value, tf.constant(shift, tf.uint32)))
        value = value * tf.constant(factor, tf.uint32)
    return tf.bitwise.bitwise_xor(value, tf.bitwise.right_shift(value, tf.constant(16, tf.uint32)))


def hashed(key, count):
    """`count` uint32 numbers that depend on every word of `key`, an int32 vector of static length."""
    state = tf.constant(GOLDEN, tf.uint32)
    for word in tf.unstack(tf.cast(key, tf.uint32)):
        state = _mix(tf.bitwise.bitwise_xor(state, word)) + tf.constant(GOLDEN, tf.uint32)
    counter = tf.cast(tf.range(count), tf.uint32) * tf.constant(GOLDEN, tf.uint32)
    return _mix(_mix(counter + state))


def uniform(key, shape):
    """Float32 numbers in [0, 1) with 24 random bits.

    Args:
        key: int32 vector of static length, e.g. (seed, round, client, step).
        shape: Sizes, ints or scalar tensors.
    """
    bits = tf.bitwise.right_shift(hashed(key, tf.reduce_prod(shape)), tf.constant(8, tf.uint32))
    return tf.reshape(tf.cast(bits, tf.float32) * 2.0**-24, shape)
