"""Vector files of FeDepth from plain loops."""

import json

import numpy as np
import tensorflow as tf
from plain_loops import DECAY, MOMENTUM, Net, batch_of, channels_last, cross_entropy, divergence, pair, with_norms


def fedepth_net(net, x, last, exits, skipped=(), training=True, units=2):
    """Logits behind the unit `last`: by a link, or by that unit's own exit."""
    x = net.norm(net.conv(x, "first"), "first_norm", training)
    for unit in (unit for unit in range(1, last + 1) if unit not in skipped):
        stem = f"layer{unit}.0"
        x = tf.nn.relu(net.norm(x, f"{stem}.bn1", training))
        strided = f"{stem}.shortcut.weight" in net.values
        shortcut = net.conv(x, f"{stem}.shortcut", 2) if strided else x
        x = net.conv(x, f"{stem}.conv1", 2 if strided else 1)
        x = shortcut + net.conv(tf.nn.relu(net.norm(x, f"{stem}.bn2", training)), f"{stem}.conv2")
    if exits:
        return net.dense(tf.reduce_mean(net.norm(x, f"pre_linear{last}", training), [1, 2]), f"linear{last}")
    if last < units:
        stride, lacking = x.shape[1] // 2, net.values["linear.weight"].shape[1] - x.shape[-1]
        x = tf.pad(x[:, ::stride, ::stride], [[0, 0]] * 3 + [[lacking // 2, lacking // 2]])
    return net.dense(tf.reduce_mean(tf.nn.relu(net.norm(x, "bn9", training)), [1, 2]), "linear")


def fedepth_values(rng, running, exits, classes=4):
    shapes, channels = {"first.weight": (2, 2, 3, 3), **pair("first_norm", 2)}, 2
    for unit, width in ((1, 2), (2, 4)):
        stem = f"layer{unit}.0"
        shapes |= {
            **pair(f"{stem}.bn1", channels),
            f"{stem}.conv1.weight": (width, channels, 3, 3),
            **pair(f"{stem}.bn2", width),
            f"{stem}.conv2.weight": (width, width, 3, 3),
        }
        if width != channels:
            shapes[f"{stem}.shortcut.weight"] = (width, channels, 1, 1)
        channels = width
        if exits:
            shapes |= {
                **pair(f"pre_linear{unit}", width),
                f"linear{unit}.weight": (classes, width),
                f"linear{unit}.bias": (classes,),
            }
    if not exits:
        shapes |= {**pair("bn9", 4), "linear.weight": (classes, 4), "linear.bias": (classes,)}
    return with_norms(rng, shapes, running)


def fedepth(variant, running=False):
    """One round of clients of groups 0, 3 and 0 with two, one and two batches: the arrays of a file."""
    rng, exits, rate = np.random.default_rng(5), variant == "heads", 0.05
    groups, sizes = [0, 3, 0], [6, 4, 7]
    skipped = (1,) if variant == "partial" else ()
    stages = {"0": [[2]] if skipped else [[1], [2]], "3": [[1, 2]]}
    meta = {
        "method": "fedepth",
        "variant": variant,
        "hidden": [2, 4],
        "num_classes": 4,
        "momentum": MOMENTUM,
        "track_running_stats": running,
        "lr_per_round": [rate],
        "weight_decay": DECAY,
        "users_per_round": [[0, 1, 2]],
        "client_train_sizes": sizes,
        "budget_group": groups,
        "stages_by_group": stages,
        "resource_weight": False,
    }
    start = fedepth_values(rng, running, exits)
    arrays = {"meta.json": np.asarray(json.dumps(meta)), **{f"global_init/{name}": v for name, v in start.items()}}
    returned = [
        _fedepth_client(arrays, rng, variant, start, client, groups, stages, sizes, skipped, running)
        for client in range(3)
    ]
    factors = {1: (4, 0, 0, 0)}

    def counts(name, client):
        exit = next((number for number in factors if exits and f"linear{number}." in name), None)
        return sizes[client] * (factors[exit][groups[client]] if exit else 1)

    after = {
        name: sum(counts(name, client) * returned[client][name] for client in range(3)) / sum(sizes) for name in start
    }
    arrays |= {f"f64/round0/global_after/{name}": value for name, value in after.items()}
    images, labels = batch_of(rng, 5, (2, 4, 4), 4)
    logits = fedepth_net(Net(after, running), channels_last(images), 2, exits, training=False)
    return arrays | {"eval/batch0/img": images, "eval/batch0/label": labels, "f64/eval/batch0/logits": logits.numpy()}


def _fedepth_client(arrays, rng, variant, start, client, groups, stages, sizes, skipped, running):
    """Trains one client, writes what a file has of it, and gives its values."""
    place, own, exits = f"round0/client{client}", stages[str(groups[client])], variant == "heads"
    parts = [4, sizes[client] - 4] if sizes[client] > 4 else [4]
    batches = [batch_of(rng, count, (2, 4, 4), 4) for count in parts]
    for number, (images, labels) in enumerate(batches):
        arrays |= {f"{place}/batch{number}/img": images, f"{place}/batch{number}/label": labels}
    arrays[f"{place}/step_batch"] = np.tile(np.arange(len(batches)), len(own))
    arrays[f"{place}/step_stage"] = np.repeat(np.arange(len(own)), len(batches))
    net, peer, losses = Net(start, running), None, []
    if variant == "mkd" and groups[client] == 3:
        peer = Net({name: value + 0.125 for name, value in start.items()}, running)
        arrays |= {f"f64/{place}/aux_before/{name}": value for name, value in peer.arrays().items()}
    for number, units in enumerate(own):
        before, heads = net.arrays(), f"linear{units[-1]}." if exits else ("bn9.", "linear.")
        moving = [
            name
            for name in start
            if name.startswith(tuple(f"layer{unit}." for unit in units))
            or name.startswith(heads)
            or (exits and name.startswith(f"pre_{heads}"))
            or (number == 0 and name.startswith("first"))
        ]
        for images, labels in batches:

            def logits(net, x=channels_last(images), last=units[-1], out=skipped if groups[client] == 0 else ()):
                return fedepth_net(net, x, last, exits, out)

            losses.append(_fedepth_step(net, peer, logits, labels, moving))
        if number + 1 < len(own):
            after = net.arrays()
            arrays |= {
                f"f64/{place}/after_stage{number + 1}/{name}": after[name]
                for name in after
                if (after[name] != before[name]).any()
            }
    names = ("loss", "kl", "aux_loss", "aux_kl") if peer else ("loss",)
    arrays |= {f"f64/{place}/{name}": np.asarray(part) for name, part in zip(names, zip(*losses))}
    arrays |= {f"f64/{place}/after/{name}": value for name, value in net.arrays().items()}
    if peer:
        arrays |= {f"f64/{place}/aux_after/{name}": value for name, value in peer.arrays().items()}
    return net.arrays()


def _fedepth_step(net, peer, logits, labels, moving):
    """One step, with a peer of both networks against what the other said before it: the parts of the loss."""
    if peer is None:
        return (net.step(lambda: cross_entropy(logits(net), labels), moving, 0.05),)
    said, parts = [logits(net), logits(peer)], []
    for own, other in ((net, said[1]), (peer, said[0])):
        parts += [cross_entropy(logits(own), labels).numpy(), divergence(other, logits(own)).numpy()]
        own.step(
            lambda own=own, other=other: cross_entropy(logits(own), labels) + divergence(other, logits(own)),
            moving,
            0.05,
        )
    return parts
