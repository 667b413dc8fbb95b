"""The formulas of `oracle_methods`: the loss of a step, and the update of a value by the server; from the papers.

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
