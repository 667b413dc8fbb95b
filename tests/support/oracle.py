"""A reference round: one client after the other, eager, with NumPy indices. Slow, short, and independent.

The compiled round must agree with it. Nothing here calls the package's cut, local training, merge or noise; the label
axis is never cut, so that agreement also shows that cutting it changes nothing.
"""

import numpy as np
import oracle_steps
import tensorflow as tf

from hetero_tf.models.variables import constants


def play(process, weights, planned, first_round=0):
    """Runs the planned rounds; returns the new weights by path, and (mean loss, mean gradient norm) per round."""
    metrics, models = [], {}
    for number, plan in enumerate(planned, first_round):
        weights, round_metrics = play_round(process, models, weights, plan, number)
        metrics.append(np.mean(round_metrics, axis=0))
    return weights, metrics


def play_round(process, models, weights, plan, number):
    """One round. Clients without a step are left out; `models` holds one Keras model of each level."""
    recipe, classes = process.recipe, process.dataset.classes
    total = {path: np.zeros(value.shape, recipe.precision) for path, value in weights.items()}
    count = {path: np.zeros(value.shape, recipe.precision) for path, value in weights.items()}
    metrics = []
    for slot, client in enumerate(plan.clients.tolist()):
        level = recipe.levels.names[plan.levels[slot]]
        if level not in models:
            models[level] = process.family.new_training_model(level, classes)
        model = models[level]
        indices = {
            v.path: [
                coordinates(process, size, level_size, number, client)
                for size, level_size in zip(weights[v.path].shape, v.shape)
            ]
            for v in [*model.trainable_variables, *constants(model)]
        }
        for variable in [*model.trainable_variables, *constants(model)]:
            variable.assign(np.asarray(weights[variable.path])[np.ix_(*indices[variable.path])])
        if plan.steps[slot]:
            metrics.append(train(process, model, plan, slot, number))
            for variable in model.trainable_variables:
                merged_indices = [merged(process, index, client) for index in indices[variable.path]]
                value = variable.numpy()[
                    np.ix_(*[np.isin(i, j) for i, j in zip(indices[variable.path], merged_indices)])
                ]
                total[variable.path][np.ix_(*merged_indices)] += value
                counted_indices = [
                    counting(process, axis, size) for axis, size in zip(merged_indices, weights[variable.path].shape)
                ]
                count[variable.path][np.ix_(*counted_indices)] += 1
    new = {path: np.where(count[path] > 0, total[path] / np.maximum(count[path], 1), weights[path]) for path in weights}
    return new, metrics


def coordinates(process, size, count, number, client):
    """The global coordinates of one axis. Label axes are kept whole, they are never shorter here."""
    if count == size:
        return np.arange(size)
    if process.recipe.round.submodel.name == "prefix":
        return np.arange(count)
    if process.recipe.round.submodel.name == "rolling":
        return (np.arange(count) - number) % size
    draws = uniform([int(process._seed), number, client, size], [size])
    return np.sort(np.argsort(draws, kind="stable")[:count])


def merged(process, index, client):
    """The part of an axis that is merged: of the label axis (with or without mask token) only the client's labels."""
    if len(index) - process.dataset.classes not in (0, 1):
        return index
    return np.flatnonzero(process.partition.label_mask[client])


def counting(process, merged_index, size):
    """The part of an axis whose mean includes a client: the merged part, or, with zeros, all of an unlabelled axis."""
    if process.recipe.round.uncovered == "left_out" or size - process.dataset.classes in (0, 1):
        return merged_index
    return np.arange(size)


def train(process, model, plan, slot, number):
    """Local steps in place; returns the means of loss and gradient norm over the steps."""
    settings, client = process.recipe.optimizer, int(plan.clients[slot])
    slots = [(np.zeros(v.shape, process.recipe.precision),) * 2 for v in model.trainable_variables]
    step_metrics = []
    for step in range(plan.steps[slot]):
        key, rows = [int(process._seed), number, client, step], plan.rows[slot, step]
        inputs, targets = batch(process, rows[rows >= 0], plan.starts[slot, step], key)
        seed_dropout(model, key)
        with tf.GradientTape() as tape:
            loss = objective(process, model(inputs, training=True), targets, client)
        gradients = [np.asarray(tf.convert_to_tensor(g)) for g in tape.gradient(loss, model.trainable_variables)]
        norm = np.sqrt(sum(np.sum(g**2) for g in gradients))
        factor = 1 if settings.clip_norm is None else min(1, settings.clip_norm / (norm + 1e-6))
        for index, (variable, gradient) in enumerate(zip(model.trainable_variables, gradients)):
            value, slots[index] = oracle_steps.moved(
                settings.method, variable.numpy(), gradient * factor, slots[index], process.learning_rate(number), step
            )
            variable.assign(value)
        step_metrics.append((float(loss), norm))
    return np.mean(step_metrics, axis=0)


def batch(process, rows, start, key):
    """Model inputs and targets of one step."""
    train_split, options = process.dataset.train, process.recipe.input.options
    if train_split.y is None:
        tokens = train_split.x[rows, start : start + options["segment"]]
        return np.where(uniform(key, tokens.shape) < options["mask_share"], process.dataset.classes, tokens), tokens
    if process.recipe.input.name == "table":
        return standard_rows(process.dataset, rows).astype(process.recipe.precision), train_split.y[rows]
    pixels = train_split.x[rows]
    values = pixels.astype(process.recipe.precision) / (255 if pixels.dtype == np.uint8 else 1)
    return ((values - options["mean"]) / options["std"]).astype(process.recipe.precision), train_split.y[rows]


def standard_rows(dataset, rows):
    """Rows of a table with mean 0 and deviation 1 over all training rows; constant columns are 0."""
    x = dataset.train.x.astype(np.float64)
    spread = x.std(axis=0)
    return (x[rows] - x.mean(axis=0)) / np.where(spread > 0, spread, 1)


def seed_dropout(model, key):
    """Set two words in every dropout layer, hashed from the key of the step and the index of the layer."""
    for index, variable in enumerate(model.non_trainable_variables):
        if variable.path.endswith("seed_generator_state"):
            variable.assign((hashed([*key, index], 2) >> np.uint32(1)).astype(np.int32))


def objective(process, logits, targets, client):
    """Cross-entropy; masked: labels that the client does not have get logit 0."""
    if process.recipe.client.loss.name == "masked_cross_entropy":
        logits = logits * process.partition.label_mask[client].astype(process.recipe.precision)
    chosen = tf.reduce_sum(logits * tf.one_hot(targets, logits.shape[-1], dtype=logits.dtype), -1)
    return tf.reduce_mean(tf.reduce_logsumexp(logits, -1) - chosen)


def uniform(key, shape):
    """The package's random numbers in [0, 1)."""
    return ((hashed(key, np.prod(shape)) >> np.uint32(8)) * 2.0**-24).reshape(shape)


def hashed(key, count):
    """The package's hash, written out: MurmurHash3's finaliser over the words of the key and a counter."""

    def mix(value):
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
            value = (value ^ (value >> np.uint32(shift))) * np.uint32(factor)
        return value

    golden, state = np.uint32(0x9E3779B1), np.full(1, 0x9E3779B1, np.uint32)
    for word in key:
        state = mix(state ^ np.uint32(word & 0xFFFFFFFF)) + golden
    return mix(mix(np.arange(count, dtype=np.uint32) * golden + state))
