"""A small table of numbers and categories, a recipe for it, and a cached learning process of both."""

import functools

import numpy as np

import hetero_tf
from hetero_tf import recipe
from hetero_tf.data.codecs import Field, category, number
from hetero_tf.data.dataset import Dataset, Split

NAMES = ("cow", "ox", "pig")
FIELDS = (
    Field("size (cm)", number.Codec()),
    Field("weight", number.Codec()),
    Field("colour", category.Codec(("blue", "red"))),
    Field("coat", category.Codec(("no", "yes"), False)),
)
RECIPE = """
name: tiny_table
data: {name: synthetic}
input: table
partition: {name: natural, clients: 4}
model:
  layers:
    - [Dense: {units: !w 24}, Scaler, ReLU]
    - Dense: {units: !classes, kernel_initializer: fan_in_uniform}
levels: {widths: {a: 1.0, b: 0.5, c: 0.25}, mix: a-b}
round: {clients: 3}
client: {epochs: 2, batch_size: 5}
optimizer: {learning_rate: 0.1}
rounds: 3
evaluate: {batch_size: 7}
"""


def dataset(train=60, test=21):
    """Rows whose features differ a lot in size; one never changes within the training rows of colour blue."""
    rng = np.random.default_rng(5)

    def split(count):
        y = np.arange(count, dtype=np.int32) % 3
        red = rng.integers(0, 2, count)
        x = [
            1e4 + 100 * y + rng.normal(0, 20, count),
            1e-3 * (y == 1) + rng.normal(0, 1e-4, count),
            1 - red,
            red,
            y == 2,
        ]
        return Split(np.stack(x, 1).astype(np.float32), y, np.arange(count, dtype=np.int32) % 4)

    return Dataset(split(train), split(test), FIELDS, 3, "a table", class_names=NAMES)


@functools.cache
def process(*overrides):
    """The learning process of the recipe on the table."""
    return hetero_tf.learning_process(recipe.loads(RECIPE, "tiny", overrides), dataset=dataset(), parallel=2)
