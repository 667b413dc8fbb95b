"""Gradients for LiteRT, compared with the native gradients of TensorFlow at every stride, padding and size."""

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.export import portable_gradients
from hetero_tf.export.portable_gradients import erf


def arrays(*shapes):
    rng = np.random.default_rng(0)
    return [tf.constant(rng.normal(size=shape)) for shape in shapes]


def portable_and_native_gradients(function, values):
    @tf.function(autograph=False)
    def portable():
        return portable_gradients.gradients(lambda values: (tf.reduce_sum(function(*values) ** 3), ()), values)[1]

    with tf.GradientTape() as tape:
        tape.watch(values)
        loss = tf.reduce_sum(function(*values) ** 3)
    return portable(), tape.gradient(loss, values)


def conv(stride, padding):
    return lambda x, kernel: tf.nn.conv2d(x, kernel, stride, padding)


CASES = {
    f"convolution of {size} by {kernel}, stride {stride}, {padding}": (
        conv(stride, padding),
        [(2, *size, 3), (*kernel, 3, 4)],
    )
    for size in ((6, 7), (5, 8))
    for kernel in ((1, 1), (3, 3), (5, 3))
    for stride in (1, 2, 3)
    for padding in ("SAME", "VALID")
} | {
    f"max pool of {size} by {window}, {padding}": (
        lambda x, window=window, padding=padding: tf.nn.max_pool2d(x, window, window, padding),
        [(2, *size, 3)],
    )
    for size in ((6, 6), (5, 7))
    for window in (2, 3)
    for padding in ("SAME", "VALID")
}
CASES |= {
    f"slice {name}": (function, [(4, 6, 5)])
    for name, function in {
        "with strides": lambda x: x[:, ::2, 1::3],
        "of one position": lambda x: x[:, 2],
        "with negative indices": lambda x: x[-3:-1, :-2],
        "of the last": lambda x: x[..., -1],
        "with a new axis": lambda x: x[1:3, None, ..., 2:4],
        "of everything": lambda x: x[None],
        "up to a computed end": lambda x: x[: tf.shape(x)[1] // 2],
    }.items()
}
CASES["tile"] = (lambda x: tf.tile(x, [2, 1, 3]), [(3, 4, 2)])
CASES["repeat"] = (lambda x: tf.repeat(x, 2, axis=1), [(3, 4, 2, 2)])
CASES["relu"] = (tf.nn.relu, [(3, 4)])
CASES["bias"] = (tf.nn.bias_add, [(3, 4, 4, 5), (5,)])


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_tensorflow(name):
    function, shapes = CASES[name]
    actual, expected = portable_and_native_gradients(function, arrays(*shapes))
    for gradient, expected_gradient in zip(actual, expected, strict=True):
        assert np.abs(expected_gradient).max() > 0
        np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-9, atol=1e-9)


def test_first_of_equal_values_gets_the_gradient_of_a_maximum():
    actual, expected = portable_and_native_gradients(
        lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID"), [tf.ones([1, 4, 4, 1], tf.float64)]
    )
    np.testing.assert_array_equal(actual[0], expected[0])


def test_custom_gradients_and_unused_values():
    from hetero_tf.layers.static_batch_normalization import normalize

    def function(x, gamma, beta, unused):
        return normalize(x, gamma, beta, 1e-5)[0]

    actual, expected = portable_and_native_gradients(function, arrays((4, 3), (3,), (3,), (2,)))
    for gradient, expected_gradient in zip(actual[:3], expected):
        np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(actual[3], np.zeros(2))


@pytest.mark.parametrize(
    ("function", "shapes", "sentence"),
    [
        (lambda x: x[::-1], [(3,)], "must have positive strides"),
        (lambda x: tf.nn.max_pool2d(x, 3, 2, "VALID"), [(1, 6, 6, 1)], "square windows without overlap"),
        (lambda x, k: tf.nn.conv2d(x, k, 1, "SAME", dilations=2), [(1, 6, 6, 1), (3, 3, 1, 1)], "no dilation"),
        (lambda x, k: tf.nn.conv2d(x, k, 1, "SAME"), [(1, 6, 6, 4), (3, 3, 2, 4)], "a grouped convolution"),
    ],
)
def test_unsupported_operation_is_rejected(function, shapes, sentence):
    values = arrays(*shapes)
    traced = tf.function(lambda: portable_gradients.gradients(lambda v: (tf.reduce_sum(function(*v)), ()), values))
    with pytest.raises(NotImplementedError, match=sentence):
        traced.get_concrete_function()


def test_erf_is_exact_to_float32():
    values = tf.linspace(-6.0, 6.0, 100_001)
    assert np.abs(erf(values).numpy() - tf.math.erf(tf.cast(values, tf.float64)).numpy()).max() < 4e-7
