"""Parts of training that a Keras model brings: a round of one client and one step equals a step of Keras."""

import keras
import numpy as np
import pytest

from hetero_tf.data import from_arrays
from hetero_tf.run.learning_process import learning_process

CLASSES = 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 4)).astype(np.float32)
Y = np.arange(20) % CLASSES
RECIPE = {
    "name": "keras",
    "data": "synthetic",
    "input": "table",
    "partition": {"name": "iid", "clients": 1},
    "levels": {"widths": {"a": 1}, "mix": "a"},
    "round": {"clients": 1},
    "client": {"batch_size": len(X)},
    "optimizer": {"learning_rate": 0.1, "momentum": 0, "weight_decay": 0, "clip_norm": None},
    "rounds": 1,
}
CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class Adding(keras.layers.Layer):
    def call(self, inputs):
        self.add_loss(keras.ops.mean(inputs**2))
        return inputs


def dense(width, classes, last=None, layer=None, **options):
    """A model of two Dense layers; the first one has these options."""
    inputs = keras.Input(X.shape[1:])
    hidden = keras.layers.Dense(round(8 * width), "relu", **options)(inputs)
    return keras.Model(inputs, keras.layers.Dense(classes, last)(layer(hidden) if layer else hidden))


def process_of(model, recipe=RECIPE, dataset=None, **arguments):
    dataset = from_arrays(X, Y, X, Y) if dataset is None else dataset
    return learning_process(recipe, dataset=dataset, parallel=1, model=model, **arguments)


def check_step(process, loss, y=Y, weights=None):
    """Compare the values and the loss after a round with those of Keras."""
    state = process.initialize()
    network, optimizer = process.network(state), keras.optimizers.SGD(0.1)
    mean, std = process.dataset.feature_statistics
    network.compile(optimizer, loss)
    expected_loss = network.train_on_batch((X - mean) / std, y, weights)
    state, row = process.next(state)
    assert row["loss"] == pytest.approx(float(expected_loss), rel=1e-5)
    for value, expected in zip(state.weights.values(), network.get_weights(), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-6)


PENALTIES = {
    "kernel": {"kernel_regularizer": "l2"},
    "bias": {"bias_regularizer": "l1"},
    "activity": {"activity_regularizer": "l2"},
    "add_loss": {"layer": Adding()},
}


@pytest.mark.parametrize("options", PENALTIES.values(), ids=PENALTIES)
def test_losses_of_the_model_are_added(options, eager):
    recipe = RECIPE | {"client": {"batch_size": len(X), "loss": "cross_entropy"}}
    check_step(process_of(lambda width, classes: dense(width, classes, **options), recipe), CROSS_ENTROPY)
