"""A small file of FedRolex in the format of the methods' vectors, by plain loops."""

import math

import numpy as np
import tensorflow as tf
from made_vectors import CLASSES, Maker, conv, cross_entropy, normed

# FedRolex: a stem, a block that keeps its input and one that halves it.
ROLEX = {
    "method": "FedRolex",
    "hidden": [3, 5],
    "blocks": [1, 1],
    "levels": ["a", "b"],
    "global_level": "a",
    "level_rate": {"a": 1, "b": 0.5},
    "label_split": [[0, 1, 3], [2, 3]],
    "norm": "bn",
    "scale": 1,
    "mask": 1,
    "lr": 0.1,
    "momentum": 0.9,
    "weight_decay": 1e-2,
    "clip_norm": 1.0,
    "rounds": [{"t": 0, "users": [0, 1]}, {"t": 4, "users": [1]}],
}
# Of each tensor the convolutions whose outputs its axes are, as PyTorch orders them.
WINDOWS = {
    "conv1.weight": ("conv1", None),
    "layer1.0.n1": ("conv1",),
    "layer1.0.conv1.weight": ("layer1.0.conv1", "conv1"),
    "layer1.0.n2": ("layer1.0.conv1",),
    "layer1.0.conv2.weight": ("layer1.0.conv2", "layer1.0.conv1"),
    "layer2.0.n1": ("layer1.0.conv2",),
    "layer2.0.conv1.weight": ("layer2.0.conv1", "layer1.0.conv2"),
    "layer2.0.n2": ("layer2.0.conv1",),
    "layer2.0.conv2.weight": ("layer2.0.conv2", "layer2.0.conv1"),
    "layer2.0.shortcut.weight": ("layer2.0.conv2", "layer1.0.conv2"),
    "n4": ("layer2.0.conv2",),
    "linear.weight": (None, "layer2.0.conv2"),
    "linear.bias": (None,),
}
SIZES = {"conv1": 3, "layer1.0.conv1": 3, "layer1.0.conv2": 3, "layer2.0.conv1": 5, "layer2.0.conv2": 5}


def fedrolex(path, algo):
    """A file of FedRolex with windows that roll or coordinates at random."""
    make, sizes = Maker(1), SIZES | {"image": 2}
    for name, (out, *into) in WINDOWS.items():
        if ".n" in name or name == "n4":
            make.tensor(f"{name}.weight", sizes[out], around=1.0)
            make.tensor(f"{name}.bias", sizes[out])
        else:
            kernel = [1, 1] if "shortcut" in name else [3, 3] if "conv" in name else []
            make.tensor(name, sizes.get(out, CLASSES), *[sizes[one or "image"] for one in into], *kernel)
    weights = make.start()
    for number, cohort in enumerate(ROLEX["rounds"]):
        trained = [_rolex_client(make, weights, number, cohort["t"], client, algo) for client in cohort["users"]]
        weights = {
            name: _mean_of_covering(old, [(values[name], places[name]) for values, places in trained])
            for name, old in weights.items()
        }
        make.results(f"round{number}/global_after", weights)
    make.batch("eval", range(CLASSES), 5)
    images, labels = make.read("eval")
    logits = _rolex_net(weights, images, 1.0)
    make.results("eval/global", {"logits": logits, "loss": cross_entropy(logits, labels)})
    make.results("eval/global_first3", {"logits": _rolex_net(weights, images[:3], 1.0)})
    for client, own in enumerate(ROLEX["label_split"]):
        make.results(f"eval/local{client}", {"logits": logits * np.isin(range(CLASSES), own)})
    make.save(path, ROLEX | {"algo": algo})


def _rolex_client(make, weights, number, t, client, algo):
    """Trains a client: its values, and for each tensor the global coordinates that count in the merge."""
    place, rate = f"round{number}/client{client}", ROLEX["level_rate"][ROLEX["levels"][client]]
    labels, window = ROLEX["label_split"][client], {None: None}
    for name, size in SIZES.items():
        kept = math.ceil(rate * size)
        window[name] = (np.arange(kept) - t) % size if algo == "roll" else make.rng.permutation(size)[:kept]
        if algo == "random":
            make.arrays[f"{place}/index/{name}.weight"] = window[name].astype(np.int16)
    places = {}
    for name, value in weights.items():
        windows = WINDOWS.get(name) or WINDOWS[name.rpartition(".")[0]]
        found = [np.arange(size) if one is None else window[one] for one, size in zip(windows, value.shape)]
        places[name] = [*found, *(np.arange(size) for size in value.shape[len(found) :])]
    values = {name: tf.Variable(value[np.ix_(*places[name])]) for name, value in weights.items()}
    losses, norms = _rolex_steps(make, values, place, labels, rate)
    make.results(place, {"loss": losses, "grad_norm": norms})
    make.results(f"{place}/after", values)
    for name in ("linear.weight", "linear.bias"):
        values[name] = tf.gather(values[name], labels)
        places[name][0] = np.asarray(labels)
    return values, places


def _rolex_steps(make, values, place, labels, rate):
    momenta, losses, norms = dict.fromkeys(values, 0.0), [], []
    for step in range(2):
        make.batch(f"{place}/batch{step}", labels)
        images, wanted = make.read(f"{place}/batch{step}")
        with tf.GradientTape() as tape:
            loss = cross_entropy(_rolex_net(values, images, rate) * np.isin(range(CLASSES), labels), wanted)
        gradients = tape.gradient(loss, values)
        norm = tf.sqrt(sum(tf.reduce_sum(one**2) for one in gradients.values()))
        for name, value in values.items():
            clipped = gradients[name] * min(1.0, 1.0 / (float(norm) + 1e-6))
            momenta[name] = ROLEX["momentum"] * momenta[name] + clipped + ROLEX["weight_decay"] * value
            value.assign_sub(ROLEX["lr"] * momenta[name])
        losses.append(loss)
        norms.append(norm)
    return losses, norms


def _rolex_net(w, x, rate):
    def active(name, x):
        mean, variance = tf.nn.moments(x / rate, [0, 1, 2])
        return tf.nn.relu(normed(x / rate, mean, variance, w[f"{name}.weight"], w[f"{name}.bias"]))

    x = conv(x, w["conv1.weight"])
    for stem, stride in (("layer1.0", 1), ("layer2.0", 2)):
        hidden = active(f"{stem}.n1", x)
        x = conv(hidden, w["layer2.0.shortcut.weight"], 2) if stride == 2 else x
        hidden = active(f"{stem}.n2", conv(hidden, w[f"{stem}.conv1.weight"], stride))
        x += conv(hidden, w[f"{stem}.conv2.weight"])
    return tf.reduce_mean(active("n4", x), (1, 2)) @ tf.transpose(w["linear.weight"]) + w["linear.bias"]


def _mean_of_covering(old, found):
    total, count = np.zeros(old.shape), np.zeros(old.shape)
    for value, places in found:
        total[np.ix_(*places)] += np.asarray(value)
        count[np.ix_(*places)] += 1
    return np.where(count > 0, total / np.maximum(count, 1), old)
