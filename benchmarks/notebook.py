# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Train your own Keras model in your own loop
#
# This notebook trains a custom Keras model on a custom `tf.data` pipeline, with clients of two levels and three seeds.
# It plots the accuracy of both levels. It needs no YAML file and takes half a minute on two cores.

# %%
import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

import hetero_tf
from hetero_tf.data import digits
from hetero_tf.data.in_memory import from_tf_data
from hetero_tf.run.callbacks import EarlyStopping, log

# %% [markdown]
# ## Data
#
# You can use any finite `tf.data.Dataset` of pairs `(x, y)`. Here it contains the digits of the package, 8 x 8 pixels,
# enlarged to 16 x 16.

# %%
embedded = digits.load(None)


def enlarged(image, label):
    pixels = tf.image.resize(image, (16, 16), "bicubic")
    return tf.saturate_cast(tf.round(pixels), tf.uint8), label


def pipeline(split):
    return tf.data.Dataset.from_tensor_slices((split.x, split.y)).map(enlarged)


dataset = from_tf_data(pipeline(embedded.train), pipeline(embedded.test), source="enlarged digits")
print(dataset.train.x.shape, dataset.train.x.dtype, dataset.classes, "classes")

# %% [markdown]
# ## Model
#
# A function of a width and the number of classes returns a Keras model with logits as outputs. Each level trains the
# model of its width. Its weights are cut from those of the widest model, so the layers must be the same at every width.
# `static_norms` replaces Keras' batch normalisation with static batch normalisation.


# %%
def residual_network(width, classes):
    channels = round(24 * width)
    inputs = keras.Input((16, 16, 1))
    value = keras.layers.Conv2D(channels, 3, padding="same")(inputs)
    for _ in range(2):
        branch = keras.layers.ReLU()(keras.layers.BatchNormalization()(value))
        branch = keras.layers.Conv2D(channels, 3, padding="same")(branch)
        value = keras.layers.MaxPooling2D()(keras.layers.Add()([value, branch]))
    value = keras.layers.GlobalAveragePooling2D()(keras.layers.ReLU()(value))
    return hetero_tf.static_norms(keras.Model(inputs, keras.layers.Dense(classes)(value)))


# %% [markdown]
# ## Training
#
# The recipe is a dictionary with the keys of the YAML files. Ten clients have digits of different classes. One half of
# them trains the full width, the other half a third of it.

# %%
RECIPE = {
    "name": "notebook",
    "data": "digits",
    "input": "images",
    "partition": {"name": "dirichlet", "clients": 10, "alpha": 1.0},
    "levels": {"widths": {"a": 1, "b": "1/3"}, "mix": "a1-b1", "assignment": "fixed"},
    "round": {"clients": 5},
    "client": {"epochs": 1, "batch_size": 16},
    "optimizer": {"learning_rate": 0.1, "momentum": 0.9},
    "evaluate": {"levels": "all", "every": 3, "best": "global_accuracy"},
    "rounds": 45,
}

curves, last = {}, None
for seed in range(3):
    process = hetero_tf.learning_process({**RECIPE, "seed": seed}, dataset=dataset, model=residual_network)
    lines = [log()] if seed == 0 else []
    trained = hetero_tf.train(process, callbacks=[*lines, EarlyStopping("global_accuracy", patience=4)])
    curves[seed] = [row for row in trained.rows if "global_accuracy" in row]
    last = trained.state

# %% [markdown]
# ## Results
#
# Every evaluated round has the accuracy of both levels. This prints the last one of each seed, in percent.

# %%
for seed, rows in curves.items():
    row = rows[-1]
    print(f"seed {seed}, round {row['round']}: a {row['level_accuracy_a']:.1f}, b {row['level_accuracy_b']:.1f}")

# %%
figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
shared = min(len(rows) for rows in curves.values())
rounds = [row["round"] for row in curves[0][:shared]]
for level, colour, style in (("a", "#0072B2", "-"), ("b", "#D55E00", "--")):
    values = np.array([[row[f"level_accuracy_{level}"] for row in rows[:shared]] for rows in curves.values()])
    axes.fill_between(rounds, values.min(0), values.max(0), color=colour, alpha=0.2, linewidth=0)
    axes.plot(rounds, values.mean(0), style, color=colour, label=f"level {level}")
axes.set(xlabel="round", ylabel="accuracy of the level's model, %", title="Mean and range of three seeds")
axes.legend(frameon=False, loc="lower right")
plt.show()

# %% [markdown]
# The accuracy on the test examples of each client, as arrays:

# %%
results = process.client_results(last)
for client, level, examples, accuracy in zip(results.clients, results.levels, results.examples, results.accuracy):
    print(f"client {client}  level {level}  {examples:3d} test examples  {accuracy:5.1f} %")

# %% [markdown]
# The trained model of each level is a Keras model. Its inputs are pixels in the format of the data set:

# %%
narrow = process.model(last, "b")
print(np.argmax(narrow.predict(dataset.test.x[:10], verbose=0), -1), "are", dataset.test.y[:10])
print(f"{narrow.count_params():,} parameters of {process.model(last).count_params():,}")
