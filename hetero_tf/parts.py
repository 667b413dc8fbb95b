"""From a recipe and its data to the parts of a round: input, partition, models, cut and plug-ins."""

import functools

import numpy as np
import tensorflow as tf

from hetero_tf import cut as cuts
from hetero_tf import registry, seeds
from hetero_tf.models import build_model
from hetero_tf.rounds import RoundParts


def build_input(recipe):
    """The recipe's `inputs.Input`."""
    return registry.find("inputs", recipe.input.name).build(recipe.precision, **recipe.input.options)


def split(recipe, dataset):
    """The recipe's partition of a data set."""
    labels = dataset.train.x if dataset.train.y is None else dataset.train.y
    test_labels = dataset.test.x if dataset.test.y is None else dataset.test.y
    splitter = registry.find("partitions", recipe.partition.name).split
    rng = seeds.rng(recipe.seed, "partition")
    return splitter(labels, test_labels, dataset.classes, rng, **recipe.partition.options)


def find_objective(recipe):
    """The module of the recipe's loss."""
    return registry.find("objectives", recipe.client.loss.name)


def build_level(recipe, source, dataset, level, classes):
    """The recipe's Keras model as a client of a level trains it: Scalers divide by the level's relative width."""
    width, top = recipe.levels.widths[level], recipe.levels.widths[recipe.levels.global_level]
    return build_at(recipe, source, dataset, width, width / top, classes)


def build_at(recipe, source, dataset, width, scale, classes):
    """The recipe's Keras model at any width; see `models.build_model`."""
    shape = source.shape(dataset.train.x)
    return build_model(recipe.model, shape, width, scale, classes, recipe.precision,
                       seeds.seed32(recipe.seed, "model"))


def label_table(partition):
    """Each client's labels as int32 [clients, most labels], -1 behind them."""
    own = [np.flatnonzero(row) for row in partition.label_mask]
    table = np.full((len(own), max(map(len, own))), -1, np.int32)
    for client, labels in enumerate(own):
        table[client, :len(labels)] = labels
    return table


def round_parts(recipe, dataset, partition, source, global_model, parallel):
    """The `rounds.RoundParts` of a recipe; the label axis is cut where that is exact and shortens it."""
    objective = find_objective(recipe)
    table = label_table(partition)
    shortens = recipe.client.label_cut and objective.MASKS_LABELS and table.shape[1] < dataset.classes
    kept = table.shape[1] if shortens else dataset.classes
    models = tuple(build_level(recipe, source, dataset, level, kept) for level in recipe.levels.names)
    narrowest = min(recipe.levels.names, key=recipe.levels.widths.get)
    label_axes = cuts.find_label_axes(
        lambda classes: build_level(recipe, source, dataset, narrowest, classes))
    server = registry.find("servers", recipe.round.server.name).apply
    merge = registry.find("merges", recipe.round.merge.name).merge
    y = dataset.train.y
    return RoundParts(
        models=models, cut=cuts.build_cut(global_model, models, label_axes, dataset.classes),
        keep=registry.find("submodels", recipe.round.submodel.name).keep,
        objective=functools.partial(objective.loss, **recipe.client.loss.options),
        optimizer=recipe.optimizer,
        merge=functools.partial(merge, **recipe.round.merge.options),
        server=functools.partial(server, **recipe.round.server.options),
        input=source, x=tf.constant(dataset.train.x), y=None if y is None else tf.constant(y),
        labels=tf.constant(table) if shortens else None,
        present=tf.constant(table >= 0 if shortens else partition.label_mask), parallel=parallel)
