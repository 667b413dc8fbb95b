"""The formulas of `oracle` and `oracle_methods`, from the papers: losses, optimizers, updates, masks, servers.

Nothing of the package is used, only the names and options of a recipe's plug-ins.
"""

import numpy as np
import tensorflow as tf


def examples(process, z, targets, client):
    """Cross-entropy of each example; masked: labels that the client does not have get logit 0."""
    if process.recipe.client.loss.name == "masked_cross_entropy":
        z = z * process.partition.label_mask[client].astype(process.recipe.precision)
    return -tf.gather(logs(z), targets, batch_dims=len(targets.shape))


def logs(z):
    """Logarithms of the softmax."""
    return z - tf.reduce_logsumexp(z, -1, keepdims=True)


def divergence(teacher, z, floor=0.0):
    """KL divergence of each example, without gradient for the teacher."""
    taught = tf.stop_gradient(tf.exp(logs(teacher))) + floor
    return tf.reduce_sum(taught * (tf.math.log(taught) - logs(z)), -1)


def couple(process, losses, z, number):
    """The loss of each example from those of all outputs."""
    name, options = process.recipe.client.coupling.name, process.recipe.client.coupling.options
    if name == "last":
        return losses[-1]
    if name == "self_distillation":
        taught = tf.stop_gradient(tf.exp(logs(z[-1])))
        return losses[-1] - sum(tf.reduce_sum(taught * logs(one), -1) for one in z[:-1])
    total = sum(losses)
    if name == "mutual" and len(z) > 1:
        ramp = options["ramp"]
        weight = options["weight"] * (1 if ramp is None else np.exp(-5 * (1 - min(number, ramp) / ramp) ** 2))
        total += (
            weight
            / (len(z) - 1)
            * sum(divergence(z[j], z[i], options["floor"]) for i in range(len(z)) for j in range(len(z)) if i != j)
        )
    if name == "weighted":
        hot, share = options["temperature"], 2 / (len(z) * (len(z) + 1))
        total = share * sum((j + 1) * loss for j, loss in enumerate(losses))
        if number >= options["from_round"]:
            total += (
                options["gamma"]
                * hot**2
                * share
                * sum((j + 1) * divergence(z[-1] / hot, one / hot) for j, one in enumerate(z[:-1]))
            )
    return total


def spring(process):
    """The factor of a client's distance from its start in its gradient."""
    correction = process.recipe.client.correction
    return 0 if correction is None else correction.options.get("mu", correction.options.get("alpha", 0))


def serve(process, old, mean, count, slots):
    """The server's step of one variable: the new value and the new slots."""
    name, options, change = process.recipe.round.server.name, process.recipe.round.server.options, mean - old
    if name == "replace":
        return mean, *slots
    rate = options.get("learning_rate")
    if name == "sgd":
        return old + rate * change, *slots
    if name == "momentum":
        slots = (options["momentum"] * slots[0] + change, slots[1])
        return old + rate * slots[0], *slots
    if name == "dynamic":
        slots = (slots[0] - options["alpha"] * count / len(process.partition.train) * change, slots[1])
        return mean - slots[0] / options["alpha"], *slots
    if name == "scaffold":
        return old + rate * change, *slots
    first, square = options["beta1"] * slots[0] + (1 - options["beta1"]) * change, change**2
    if name == "adagrad":
        second = slots[1] + square
    elif name == "adam":
        second = options["beta2"] * slots[1] + (1 - options["beta2"]) * square
    else:
        second = slots[1] - (1 - options["beta2"]) * square * np.sign(slots[1] - square)
    return old + rate * first / (np.sqrt(second) + options["adaptivity"]), first, second


def aggregated(process, old, rows, covered, weights, steps, losses, rate):
    """The merge of rows [clients, values], entry after entry.

    Args:
        covered: bool [clients, values].
        weights, steps, losses: Of each client.
    """
    name, options, new = process.recipe.round.merge.name, process.recipe.round.merge.options, old.copy()
    changes = np.where(covered, rows - old, 0)

    def distances(center):
        return np.array([np.sqrt(np.mean((row - center)[inside] ** 2)) for row, inside in zip(rows, covered)])

    if name == "bounded":
        limit = options["multiple"] * np.median(distances(old))
        changes *= np.minimum(1, limit / distances(old))[:, None]
    squares, a = np.sum((changes / rate) ** 2, axis=1), coefficients(process, steps, rate)
    for _ in range(options.get("iterations", 1)):
        shares = weights / np.maximum(distances(new), options["smoothing"]) if "smoothing" in options else weights
        for entry in np.flatnonzero(covered.any(0)):
            holders = np.flatnonzero(covered[:, entry])
            p, change, loss, count = shares[holders], changes[holders, entry], losses[holders], len(holders)
            step = p @ change / p.sum()
            if name == "median":
                step = np.median(change)
            elif name == "trimmed_mean":
                cut = min(int(np.ceil(options["share"] * count)), (count - 1) // 2)
                step = np.mean(np.sort(change)[cut : count - cut])
            elif name == "fednova":
                step = (p @ a[holders] / p.sum()) * (p @ (change / a[holders]) / p.sum())
            elif name == "qfedavg":
                q = options["q"]
                curvature = q * loss ** (q - 1) * squares[holders] + loss**q / rate
                step = (p @ (loss**q * change / rate)) / (p @ curvature)
            new[entry] = old[entry] + step
    return new


def coefficients(process, steps, rate):
    """The sum of the coefficients of each client's gradients, with momentum or a proximal term."""
    rho, mu, counts = process.recipe.optimizer.method.options["momentum"], spring(process), []
    for count in steps:
        if mu:
            total = 0.0
            for _ in range(count):
                total = total * (1 - rate * mu) + 1
        else:
            total = (count - rho * (1 - rho**count) / (1 - rho)) / (1 - rho)
        counts.append(total)
    return np.array(counts)


def moved(method, weights, gradient, slots, rate, count):
    """The new value and the new slots.

    Args:
        method: Name and options of the optimizer, a `recipe.schema.Plugin`.
        weights: The old value.
        gradient: After clipping.
        slots: Two arrays, zeros before the first step of a round.
        rate: Learning rate.
        count: Number of earlier steps of the client.
    """
    options = method.options
    if method.name == "sgd":
        gradient = gradient + options["weight_decay"] * weights
        velocity = options["momentum"] * slots[0] + gradient
        push = gradient + options["momentum"] * velocity if options["nesterov"] else velocity
        return weights - rate * push, (velocity, slots[1])
    if method.name == "adam":
        gradient = gradient + options["weight_decay"] * weights
    else:
        weights = weights - rate * options["weight_decay"] * weights
    first = slots[0] + (1 - options["beta1"]) * (gradient - slots[0])
    second = slots[1] + (1 - options["beta2"]) * (gradient**2 - slots[1])
    corrected = np.sqrt(second) / np.sqrt(1 - options["beta2"] ** (count + 1))
    rate = rate / (1 - options["beta1"] ** (count + 1))
    return weights - rate * first / (corrected + options["epsilon"]), (first, second)


def updated(process, initial, trained, errors, inside):
    """The values that a client sends, `{path: value}`; a compression changes the client's errors, `{path: value}`.

    `inside`: bool arrays of the entries that are sent.
    """
    update = process.recipe.client.update
    if update is None:
        return trained
    change = {path: trained[path] - initial[path] for path in trained if "moving_" not in path}
    if update.name in ("top_k", "sign"):
        change = {path: (trained[path] + errors[path] - initial[path]) * inside[path] for path in change}
        sent = {path: initial[path] + value for path, value in compressed(update, change, inside).items()}
        for path, value in sent.items():
            errors[path][:] = np.where(inside[path], trained[path] + errors[path] - value, 0)
        return trained | sent
    length = np.sqrt(sum(np.sum(value**2) for value in change.values()))
    share = min(1, update.options["norm"] / length) if length else 1
    return trained | {path: initial[path] + share * value for path, value in change.items()}


def compressed(update, change, inside):
    """The part of a client's change that its message has: `{path: value}`."""
    values = np.concatenate([value[inside[path]] for path, value in change.items()])
    if update.name == "sign":
        mean = np.mean(np.abs(values))
        return {path: inside[path] * np.where(value < 0, -mean, mean) for path, value in change.items()}
    least = np.sort(np.abs(values))[-int(np.ceil(update.options["share"] * len(values)))]
    return {path: np.where(np.abs(value) >= least, value, 0) for path, value in change.items()}


def remembered(process, moved, control, steps, rate):
    """The change of a client's memory of a variable."""
    correction = process.recipe.client.correction
    if correction is None or correction.name == "proximal":
        return np.zeros_like(moved)
    if correction.name == "dynamic":
        return -correction.options["alpha"] * moved
    return -control - moved / (steps * rate)


def changed_entries(process, initial, trained):
    """A bool array of the entries of a variable that count: with a mask, those that changed."""
    return np.ones(initial.shape, bool) if process.recipe.round.mask is None else initial != trained


def thresholds(process, level, values):
    """`{path: smallest magnitude inside the mask}`; 0 where nothing is masked."""
    masked = [path for path in values if path.rpartition("/")[2] in ("kernel", "bias", "embeddings")]
    if process.recipe.round.mask is None:
        return dict.fromkeys(values, 0.0)
    sizes = np.sort(np.concatenate([np.abs(values[path]).ravel() for path in masked]))[::-1]
    number = max(1, int(len(sizes) * process.recipe.levels.entries.get(level, 1.0)))
    return {path: sizes[number - 1] if path in masked else 0.0 for path in values}


def inside(value, threshold):
    """bool, the entries of a variable that its mask lets through."""
    return np.abs(value) >= threshold


def factor(process, value, threshold):
    """The derivative of a masked value by the value."""
    mask = process.recipe.round.mask
    if mask is None or not mask.options["surrogate"]:
        return 1.0
    size = np.abs(value)
    return 1 + np.divide(2 * threshold * size, (size + threshold) ** 2, where=size + threshold > 0, out=0 * size)
