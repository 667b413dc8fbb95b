"""The query for the statistics of static batch normalisation: its batches, and the keys of their random inputs."""

from types import SimpleNamespace

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.replicas import Replicas
from hetero_tf.evaluation.predictor import StatisticsQuery, statistics_batches
from hetero_tf.layers.static_batch_normalization import StaticBatchNormalization
from hetero_tf.models.variables import values


def test_batches_do_not_cross_arrays_and_lose_nothing():
    rng = np.random.default_rng(0)
    for _ in range(30):
        parts = [np.arange(first, first + rng.integers(0, 9), dtype=np.int32) for first in (0, 100, 200)]
        full, short = statistics_batches(parts, 3, rng)
        assert full.shape[1:] == (3,)
        batches = [*full.tolist(), *(rows.tolist() for rows in short)]
        assert sorted(sum(batches, [])) == np.concatenate(parts).tolist()
        assert all(len({row // 100 for row in batch}) == 1 for batch in batches)
        assert all(0 < len(rows) < 3 for rows in short)
        assert len(short) == sum(len(part) % 3 > 0 for part in parts)
    full, short = statistics_batches([np.arange(5)], 2)
    assert (full.tolist(), [rows.tolist() for rows in short]) == ([[0, 1], [2, 3]], [[4]])


def test_every_batch_of_random_inputs_has_its_key(eager):
    keys, x = [], tf.constant(np.random.default_rng(0).normal(size=(47, 3)), tf.float32)

    def read(x, y, rows, start, key, labels, training):
        keys.append(tuple(key.numpy().tolist()))
        return tf.gather(x, rows), None

    models = [keras.Sequential([keras.Input((3,)), StaticBatchNormalization()]) for _ in range(2)]
    examples = SimpleNamespace(input=SimpleNamespace(batch=read), x=x, y=None)
    query = StatisticsQuery(*models, examples, 2, Replicas(1))
    weights = [tf.convert_to_tensor(value) for value in values(models[0])]
    query(weights, *statistics_batches([np.arange(43), np.arange(43, 44), np.arange(44, 45)], 2), 2**31 - 2)
    # 21 full batches in two calls, and three short ones; a seed behind the largest number wraps to 0.
    assert keys == [(2**31 - 2, 0), (2**31 - 2, 20), (2**31 - 1, -1), (0, -1), (1, -1)]
