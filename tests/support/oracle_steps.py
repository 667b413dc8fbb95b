"""One local step of a variable in NumPy, as PyTorch's optimizers do it; nothing of the package is used."""

import numpy as np


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
