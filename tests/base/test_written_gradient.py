"""Gradients that are written out: right in a graph and eagerly, and no graph outlives its use."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import ops

from hetero_tf.layers.stacked.normalization import normalize_channels
from hetero_tf.layers.static_batch_normalization import normalize
from hetero_tf.methods.losses.cross_entropy import softmax_cross_entropy

X = tf.constant(np.random.default_rng(0).normal(size=(4, 3, 5)))
TARGETS = tf.constant([[0, 4, 2]] * 4)
FUNCTIONS = {
    "batch": lambda x: normalize(x, tf.ones(5, x.dtype), tf.zeros(5, x.dtype), 1e-5)[0],
    "layer": lambda x: normalize_channels(x, epsilon=1e-5),
    "loss": lambda x: softmax_cross_entropy(x, TARGETS, tf.constant([1.0, 0, 1, 1, 1], x.dtype), 2),
}


def slope(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = tf.reduce_sum(function(x) ** 3)
    return tape.gradient(value, x)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_graph_with_or_without_a_tape_has_the_eager_gradient_and_is_freed_with_its_last_reference(name):
    function, registered = FUNCTIONS[name], set(ops.gradient_registry.list())

    def slope_of_graph(x):
        return tf.gradients(tf.reduce_sum(function(x) ** 3), x)[0]

    for traced in (lambda x: slope(function, x), slope_of_graph):
        compiled = tf.function(traced, autograph=False)
        np.testing.assert_allclose(compiled(X), slope(function, X), rtol=1e-12, atol=1e-14)
        graph = weakref.ref(compiled.get_concrete_function(X).graph)
        assert graph() is not None
        del compiled
        gc.collect()
        assert graph() is None
    assert set(ops.gradient_registry.list()) == registered
