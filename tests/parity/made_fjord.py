"""A small file of FjORD in the format of the methods' vectors, by plain loops."""

import math

import numpy as np
import tensorflow as tf
from made_vectors import CLASSES, Maker, conv, cross_entropy, normed

# FjORD: a stem and a block that halves its input; the tensors' output and input channels.
FJORD = {
    "method": "FjORD",
    "widths": [3, 5],
    "blocks": [0, 1],
    "p_s": [0.4, 1.0],
    "max_p": [1.0, 0.4],
    "lr": 0.1,
    "momentum": 0.0,
    "weight_decay": 0.05,
    "rounds": [{"users": [0, 1], "draws": [[0.4, 1.0], [0.4, 0.4]]}, {"users": [1], "draws": [[0.4, 0.4]]}],
}
TENSORS = {
    "conv1": (3, 2, 3, 3),
    "layer2.0.conv1": (5, 3, 3, 3),
    "layer2.0.conv2": (5, 5, 3, 3),
    "layer2.0.shortcut.0": (5, 3, 1, 1),
    "linear": (CLASSES, 5),
}
NORMS = {"bn1": 3, "layer2.0.bn1": 5, "layer2.0.bn2": 5, "layer2.0.shortcut.1": 5}


def fjord(path, kd):
    """A file of FjORD without or with distillation."""
    make = Maker(2)
    for name, shape in TENSORS.items():
        make.tensor(f"{name}.weight", *shape)
    make.tensor("linear.bias", CLASSES)
    for name, size in NORMS.items():
        make.tensor(f"{name}.weight", size, 1, 1, around=1.0)
        make.tensor(f"{name}.bias", size, 1, 1)
        for width in {math.ceil(p * size) for p in FJORD["p_s"]}:
            make.tensor(f"{name}.bn.{width}.running_mean", width)
            make.tensor(f"{name}.bn.{width}.running_var", width, around=3.0)
    weights = make.start()
    for number, cohort in enumerate(FJORD["rounds"]):
        trained = [
            _fjord_client(make, weights, f"round{number}/client{client}", client, drawn, 3 + number + client, kd)
            for client, drawn in zip(cohort["users"], cohort["draws"])
        ]
        weights = {
            name: _nested_mean(name, old, [(values[name], *rest) for values, *rest in trained])
            for name, old in weights.items()
        }
        make.results(f"round{number}/global_after", weights)
    make.batch("eval", range(CLASSES), 5)
    images, labels = make.read("eval")
    for p in FJORD["p_s"]:
        logits = _fjord_net(weights, images, p, False)
        right = np.mean(np.argmax(logits, 1) == labels)
        make.results(f"eval/p{p}", {"logits": logits, "loss": cross_entropy(logits, labels), "accuracy": right})
    make.save(path, FJORD | {"kd": kd})


def _fjord_client(make, weights, place, client, drawn, size, kd):
    """Trains a client: its values, its largest width and the number of its examples."""
    values, most = {name: tf.Variable(value) for name, value in weights.items()}, FJORD["max_p"][client]
    learned = {name: value for name, value in values.items() if "running" not in name}
    losses, full = [], []
    for step, p in enumerate(drawn):
        make.batch(f"{place}/batch{step}", range(CLASSES), size)
        images, wanted = make.read(f"{place}/batch{step}")
        with tf.GradientTape() as tape:
            teacher = tf.nn.log_softmax(_fjord_net(values, images, most, True)) if kd else None
            logits = _fjord_net(values, images, p, True)
            full.append(cross_entropy(teacher, wanted) if kd else 0.0)
            soft = tf.stop_gradient(tf.exp(teacher)) if kd else tf.one_hot(wanted, CLASSES, dtype=tf.float64)
            losses.append(-tf.reduce_mean(tf.reduce_sum(soft * tf.nn.log_softmax(logits), 1)))
            total = losses[-1] + full[-1]
        for name, gradient in tape.gradient(total, learned).items():
            values[name].assign_sub(FJORD["lr"] * (gradient + FJORD["weight_decay"] * values[name]))
    make.results(place, {"loss": losses, "reported_loss": np.mean(losses)} | ({"full_loss": full} if kd else {}))
    make.results(f"{place}/after", values)
    return values, most, size * len(drawn)


def _fjord_net(w, x, p, training):
    def convolved(name, x, stride=1):
        kernel = tf.convert_to_tensor(w[f"{name}.weight"])
        return conv(x, kernel[: math.ceil(p * kernel.shape[0]), : x.shape[-1]], stride)

    def norm(name, x):
        width = x.shape[-1]
        own = [f"{name}.bn.{width}.running_{one}" for one in ("mean", "var")]
        scale, offset = (tf.convert_to_tensor(w[f"{name}.{one}"])[:width] for one in ("weight", "bias"))
        moments = [w[one] for one in own]
        if training:
            moments = tf.nn.moments(x, [0, 1, 2])
            count = np.prod(x.shape[:3])
            for one, newest in zip(own, (moments[0], moments[1] * count / (count - 1))):
                w[one].assign(0.9 * w[one] + 0.1 * newest)
        return normed(x, *moments, scale, offset)

    x = tf.nn.relu(norm("bn1", convolved("conv1", x)))
    hidden = tf.nn.relu(norm("layer2.0.bn1", convolved("layer2.0.conv1", x, 2)))
    shortcut = norm("layer2.0.shortcut.1", convolved("layer2.0.shortcut.0", x, 2))
    x = tf.nn.relu(norm("layer2.0.bn2", convolved("layer2.0.conv2", hidden)) + shortcut)
    kernel = tf.convert_to_tensor(w["linear.weight"])[:, : x.shape[-1]]
    return tf.reduce_mean(x, (1, 2)) @ tf.transpose(kernel) + w["linear.bias"]


def _nested_mean(name, old, found):
    """From the largest width to the smallest, the prefix that it has becomes the mean over those who can hold it."""
    new = np.array(old)
    for p in sorted(FJORD["p_s"], reverse=True):
        able = [(np.asarray(value), count) for value, most, count in found if most >= p]
        place = [slice(math.ceil(p * size)) for size in old.shape[:2]]
        if "running" in name:
            norm, width = name.split(".bn.")
            place = [slice(None)] if math.ceil(p * NORMS[norm]) == int(width.split(".")[0]) else [slice(0)]
        elif name.startswith("linear"):
            place = [slice(None), *place[1:]]
        elif name == "conv1.weight":
            place = [place[0], slice(None)]
        place = tuple(place)
        if able:
            total = sum(count for _, count in able)
            new[place] = sum(value[place] * count for value, count in able) / total
    return new
