"""Updates: clipping of single clients."""

import numpy as np
import tensorflow as tf

from hetero_tf.base import registry

OPTIONS = {"clip": {"norm": 2.0}}  # {update: options without a default}
SHAPE, STEPS = (3, 7), (2, 1, 5)
KEYS = ((0, 1, 2), (0, 1, 5), (0, 1, 7))


def draw(dtype="float64"):
    """Weights and start; the first client moves less than the others."""
    start, change = np.random.default_rng(0).normal(size=(2, *SHAPE))
    return tf.constant(start + change * [[0.1], [1.0], [3.0]], dtype), tf.constant(start, dtype)


def updated(name, weights, start, clients=slice(None), **options):
    arguments = {**OPTIONS.get(name, {}), **options}
    keys, steps = (tf.constant(values)[clients] for values in (KEYS, STEPS))
    return registry.find("updates", name).update(weights[clients], start[clients], steps, keys, **arguments).numpy()


def test_clip_limits_each_clients_distance_and_keeps_its_direction():
    weights, start = draw()
    clipped = updated("clip", weights, start, norm=1.0)
    moved, change = clipped - start, (weights - start).numpy()
    lengths = np.linalg.norm(change, axis=1)
    assert lengths[0] < 1 < lengths[1] < lengths[2]
    assert clipped[0].tobytes() == weights[0].numpy().tobytes(), "who moves less stays bit-equal"
    np.testing.assert_allclose(np.linalg.norm(moved[1:], axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(moved[1:], change[1:] / lengths[1:, None], rtol=1e-12)


def test_clip_leaves_unchanged_clients_and_keeps_nan_visible():
    start = tf.zeros(SHAPE, tf.float64)
    assert not updated("clip", start, start).any()
    broken = tf.tensor_scatter_nd_update(start, [[1, 2]], tf.constant([np.nan], tf.float64))
    clipped = updated("clip", broken, start)
    assert np.isnan(clipped[1]).any() and np.isfinite(clipped[[0, 2]]).all()
