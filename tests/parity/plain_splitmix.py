"""Vector files of SplitMix from plain loops."""

import json

import numpy as np
import tensorflow as tf
from plain_loops import DECAY, MOMENTUM, Net, batch_of, channels_last, cross_entropy, pair, with_norms


def splitmix_net(net, x, kind, atom, training):
    """Logits of one member; `atom`: what divides behind every product but the last while training."""

    def scaled(x):
        return x / atom if training is not None else x

    if kind == "digit":
        for part in (1, 2, 3):
            x = tf.nn.relu(net.norm(scaled(net.conv(x, f"conv{part}")), f"bn{part}", training is not None))
            x = tf.nn.max_pool2d(x, 2, 2, "VALID") if part < 3 else x
        x = tf.reshape(tf.transpose(x, [0, 3, 1, 2]), [len(x), -1])
        for part in (1, 2):
            x = tf.nn.relu(net.norm(scaled(net.dense(x, f"fc{part}")), f"bn{part + 3}", training is not None))
        return net.dense(x, "fc3")
    x = scaled(net.conv(x, "conv1"))
    for stage in (1, 2):
        stem = f"layer{stage}.0"
        h = tf.nn.relu(net.norm(x, f"{stem}.n1"))
        x = scaled(net.conv(h, f"{stem}.shortcut", 2)) if stage > 1 else x
        h = tf.nn.relu(net.norm(scaled(net.conv(h, f"{stem}.conv1", stage)), f"{stem}.n2"))
        x = scaled(net.conv(h, f"{stem}.conv2")) + x
    return net.dense(tf.reduce_mean(tf.nn.relu(net.norm(x, "n4")), [1, 2]), "linear")


def splitmix_values(rng, kind, members, classes=5):
    if kind == "digit":
        shapes = {
            "conv1.weight": (1, 2, 5, 5),
            "conv2.weight": (2, 1, 5, 5),
            "conv3.weight": (2, 2, 5, 5),
            "fc1.weight": (4, 8),
            "fc2.weight": (3, 4),
            "fc3.weight": (classes, 3),
        }
        shapes |= {name.replace("weight", "bias"): shape[:1] for name, shape in shapes.items()}
        for place, width in enumerate((1, 2, 2, 4, 3), 1):
            shapes |= pair(f"bn{place}", width)
    else:
        shapes = {"conv1.weight": (2, 2, 3, 3)}
        for stage, (before, width) in enumerate(((2, 2), (2, 3)), 1):
            stem = f"layer{stage}.0"
            shapes |= {
                **pair(f"{stem}.n1", before),
                f"{stem}.conv1.weight": (width, before, 3, 3),
                **pair(f"{stem}.n2", width),
                f"{stem}.conv2.weight": (width, width, 3, 3),
            }
        shapes |= {
            "layer2.0.shortcut.weight": (3, 2, 1, 1),
            **pair("n4", 3),
            "linear.weight": (classes, 3),
            "linear.bias": (classes,),
        }
    own = [
        with_norms(rng, {f"{member}.{name}": shape for name, shape in shapes.items()}, kind == "digit")
        for member in range(members)
    ]
    return {name: value for one in own for name, value in one.items()}


def splitmix(kind, bases, local_bn=False, masked=False):
    """Rounds of clients with the members that each trains, `bases[round][client]`: the arrays of a file."""
    rng, atom, rate, sizes = np.random.default_rng(6), 0.5, 0.05, [7, 4, 5]
    side = 8 if kind == "digit" else 4
    meta = {
        "method": "splitmix",
        "net": kind,
        "track": kind == "digit",
        "local_bn": local_bn,
        "mask_loss": masked,
        "rescale_layer": True,
        "classes": 5,
        "atom": atom,
        "slim_ratios": "2-1",
        "client_sizes": sizes,
        "base_hidden": [2, 3],
        "num_blocks": [1, 1],
        "base_conv": [1, 2, 2],
        "base_fc": [4, 3],
        "momentum": MOMENTUM,
        "weight_decay": DECAY,
        "users_per_round": [list(own) for own in bases],
        "lr_per_round": [rate] * len(bases),
        "image": [2, side, side],
    }
    weights = splitmix_values(rng, kind, 2)
    arrays = {"meta.json": np.asarray(json.dumps(meta)), **{f"global_init/{name}": v for name, v in weights.items()}}
    batches = {}
    for client, size in enumerate(sizes):
        counts = [4, size - 4] if size > 5 else [size]
        batches[client] = [batch_of(rng, count, (2, side, side), 5) for count in counts]
        for number, (images, labels) in enumerate(batches[client]):
            arrays |= {f"client{client}/batch{number}/img": images, f"client{client}/batch{number}/label": labels}
    kept = {client: dict(weights) for client in range(3)}
    for number, cohort in enumerate(bases):
        total = {name: [0.0, 0.0] for name in weights}
        for client, own in cohort.items():
            start = {
                name: kept[client][name] if local_bn and "bn" in name else value for name, value in weights.items()
            }
            after = _splitmix_client(
                arrays, f"round{number}/client{client}", start, batches[client], own, kind, atom, masked, rate
            )
            kept[client] |= {name: value for name, value in after.items() if "bn" in name}
            for name in [name for name in after if not (local_bn and "bn" in name)]:
                total[name] = [total[name][0] + sizes[client] * after[name], total[name][1] + sizes[client]]
        weights = {name: total[name][0] / total[name][1] if total[name][1] else old for name, old in weights.items()}
        arrays |= {f"f64/round{number}/global_after/{name}": value for name, value in weights.items()}
    return arrays | _splitmix_tests(rng, weights, kept, kind, atom, local_bn, side)


def _splitmix_client(arrays, place, start, batches, own, kind, atom, masked, rate):
    """Trains one client's members, writes what a file has of it, and gives their values."""
    losses, after = [], {}
    for member in own:
        net = Net(start, kind == "digit").part(member)
        losses.append(
            [
                net.step(
                    lambda x=images, y=labels: cross_entropy(
                        splitmix_net(net, channels_last(x), kind, atom, True), y, masked
                    ),
                    list(net.values),
                    rate,
                )
                for images, labels in batches
            ]
        )
        after |= {f"{member}.{name}": value for name, value in net.arrays().items()}
    arrays |= {f"f64/{place}/after/{name}": value for name, value in after.items()}
    arrays |= {
        f"f64/{place}/loss": np.transpose(losses),
        f"{place}/bases": np.asarray(own),
        f"{place}/step_batch": np.arange(len(batches)),
    }
    return after


def _splitmix_tests(rng, weights, kept, kind, atom, local_bn, side):
    """Predictions of the first members: of the server's, or of each client that keeps its norms."""
    images, labels = batch_of(rng, 6, (2, side, side), 5)
    found = {"eval/batch0/img": images, "eval/batch0/label": labels}

    def logits(values):
        net = Net(values, kind == "digit")
        return [splitmix_net(net.part(member), channels_last(images), kind, atom, None).numpy() for member in range(2)]

    if not local_bn:
        own = logits(weights)
        order = np.argsort([np.mean(np.argmax(one, -1) == labels) for one in own])[::-1]
        found["f64/sort/base_acc"] = np.asarray([np.mean(np.argmax(one, -1) == labels) for one in own])
        found["f64/sort/members1/batch0/logits"] = own[order[0]]
        return found | {f"f64/eval/members{members}/batch0/logits": np.mean(own[:members], 0) for members in (1, 2)}
    for client, norms in kept.items():
        found |= {f"f64/local_bn/client{client}/{name}": value for name, value in norms.items() if "bn" in name}
        own = logits({name: norms[name] if "bn" in name else value for name, value in weights.items()})
        found |= {
            f"f64/eval/client{client}/members{members}/batch0/logits": np.mean(own[:members], 0) for members in (1, 2)
        }
    return found
