"""What plain loops of the methods need: nothing of hetero_tf, PyTorch's names and layouts, float64."""

import numpy as np
import tensorflow as tf

MOMENTUM, DECAY = 0.9, 5e-4
NORMED = ("bn", "n", "first_norm", "pre_linear")


class Net:
    """Values by name; `running` says whether norms move their statistics, which stand among the values."""

    def __init__(self, values, running):
        self.values = {name: tf.Variable(value) for name, value in values.items()}
        self.running, self.pushed = running, {}

    def part(self, member):
        """The values of one member of an ensemble."""
        own = {name[2:]: value for name, value in self.values.items() if name.startswith(f"{member}.")}
        return Net(own, self.running)

    def conv(self, x, name, stride=1):
        kernel = self.values[f"{name}.weight"]
        side = kernel.shape[-1] // 2
        x = tf.pad(x, [[0, 0], [side, side], [side, side], [0, 0]])
        x = tf.nn.conv2d(x, tf.transpose(kernel, [2, 3, 1, 0]), stride, "VALID")
        return x + self.values[f"{name}.bias"] if f"{name}.bias" in self.values else x

    def dense(self, x, name):
        return x @ tf.transpose(self.values[f"{name}.weight"]) + self.values[f"{name}.bias"]

    def norm(self, x, name, training=True):
        axes, running = list(range(len(x.shape) - 1)), [f"{name}.running_mean", f"{name}.running_var"]
        if training or not self.running:
            mean, variance = tf.nn.moments(x, axes)
            count = tf.size(x).numpy() / x.shape[-1]
            for which, moment in zip(running if self.running else (), (mean, variance * count / (count - 1))):
                self.values[which].assign(0.9 * self.values[which] + 0.1 * tf.stop_gradient(moment))
        else:
            mean, variance = (self.values[which] for which in running)
        x = (x - mean) / tf.sqrt(variance + 1e-5)
        return x * self.values[f"{name}.weight"] + self.values[f"{name}.bias"]

    def step(self, loss, names, rate):
        """One step of SGD for some of the values; the others keep even their momentum. Gives the loss."""
        moving = [name for name in names if "running" not in name]
        with tf.GradientTape() as tape:
            value = loss()
        for name, slope in zip(moving, tape.gradient(value, [self.values[name] for name in moving])):
            slope = slope + DECAY * self.values[name]
            self.pushed[name] = MOMENTUM * self.pushed[name] + slope if name in self.pushed else slope
            self.values[name].assign_sub(rate * self.pushed[name])
        return value.numpy()

    def arrays(self):
        return {name: value.numpy() for name, value in self.values.items()}


def cross_entropy(logits, labels, masked=False):
    if masked:
        logits = logits * np.isin(np.arange(logits.shape[-1]), labels)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def divergence(teacher, logits):
    return tf.reduce_mean(
        tf.reduce_sum(
            tf.stop_gradient(tf.nn.softmax(teacher)) * tf.stop_gradient(tf.nn.log_softmax(teacher))
            - tf.stop_gradient(tf.nn.softmax(teacher)) * tf.nn.log_softmax(logits),
            -1,
        )
    )


def with_norms(rng, shapes, running):
    """Initial values by name, norms off 1 and 0; float32 numbers, as vectors have them."""
    values = {
        name: rng.normal(0, 0.4, shape)
        + (name.split(".")[-2].strip("012345").startswith(NORMED) and name.endswith("weight"))
        for name, shape in shapes.items()
    }
    for name in [name for name in shapes if running and name.endswith("bias")]:
        stem = name.removesuffix(".bias")
        if stem.split(".")[-1].strip("012345").startswith(NORMED):
            values |= {
                f"{stem}.running_mean": rng.normal(size=shapes[name]),
                f"{stem}.running_var": rng.uniform(0.5, 2, shapes[name]),
            }
    return {name: np.asarray(value, np.float32).astype(np.float64) for name, value in values.items()}


def pair(stem, channels):
    return {f"{stem}.weight": (channels,), f"{stem}.bias": (channels,)}


def batch_of(rng, count, shape, classes):
    images = rng.integers(-8, 9, (count, *shape)) / 8
    return np.asarray(images, np.float32), rng.integers(0, classes, count)


def channels_last(images):
    return images.astype(np.float64).transpose(0, 2, 3, 1)
