"""From a recipe and its data to the parts of a round: input, partition, models, cut and plug-ins."""

import functools
import inspect
import itertools

import numpy as np
import tensorflow as tf

from hetero_tf import cut as cuts
from hetero_tf import engines, registry, seeds
from hetero_tf.accounting.counting import forward
from hetero_tf.models import build_model
from hetero_tf.stack_round import RoundParts


def build_input(recipe):
    """The recipe's `inputs.Input`."""
    return registry.find("inputs", recipe.input.name).build(recipe.float_type, **recipe.input.options)


def split(recipe, dataset):
    """The recipe's partition of a data set."""
    labels = dataset.train.x if dataset.train.y is None else dataset.train.y
    test_labels = dataset.test.x if dataset.test.y is None else dataset.test.y
    splitter = registry.find("partitions", recipe.partition.name).split
    rng = seeds.rng(recipe.seed, "partition")
    owners = {"train_owners": dataset.train.owners, "test_owners": dataset.test.owners}
    asked = inspect.signature(splitter).parameters
    return splitter(labels, test_labels, dataset.classes, rng, **recipe.partition.options,
                    **{name: given for name, given in owners.items() if name in asked})


def find_objective(recipe):
    """The module of the recipe's loss."""
    return registry.find("objectives", recipe.client.loss.name)


def build_level(recipe, source, dataset, level, classes, clients=1):
    """The recipe's Keras model as clients of a level train it: Scalers divide by the level's relative width."""
    width, top = recipe.levels.widths[level], recipe.levels.widths[recipe.levels.global_level]
    return build_at(recipe, source, dataset, width, width / top, classes, recipe.precision, clients)


def build_at(recipe, source, dataset, width, scale, classes, dtype, clients=1):
    """The recipe's Keras model at any width; see `models.build_model`."""
    shape = source.shape(dataset.train.x)
    return build_model(recipe.model, shape, width, scale, classes, dtype,
                       seeds.seed32(recipe.seed, "model"), clients=clients)


def label_table(partition):
    """Each client's labels as int32 [clients, most labels], -1 behind them."""
    client, label = np.nonzero(partition.label_mask)
    sizes = np.bincount(client, minlength=len(partition.label_mask))
    table = np.full((len(sizes), sizes.max()), -1, np.int32)
    table[client, np.arange(len(label)) - np.repeat(np.cumsum(sizes) - sizes, sizes)] = label
    return table


def round_parts(recipe, dataset, partition, source, global_model, parallel, device):
    """The `stack_round.RoundParts` of a recipe; the label axis is cut where that is exact and shortens it."""
    objective = find_objective(recipe)
    table = label_table(partition)
    shortens = recipe.client.label_cut and objective.MASKS_LABELS and table.shape[1] < dataset.classes
    kept = table.shape[1] if shortens else dataset.classes

    def build(level, clients=1, classes=kept):
        return build_level(recipe, source, dataset, level, classes, clients)

    models = tuple(build(level) for level in recipe.levels.names)
    narrowest = min(recipe.levels.names, key=recipe.levels.widths.get)
    label_axes = cuts.find_label_axes(lambda classes: build(narrowest, classes=classes))
    server = registry.find("servers", recipe.round.server.name).apply
    merge = registry.find("merges", recipe.round.merge.name).merge
    most, example = int(partition.train.sizes.max()), example_shape(source, dataset)
    y = dataset.train.y
    engine = engines.choose(recipe, models, build, device, parallel,
                            lambda level: product_cost(recipe, build(level), example, most))
    kinds = batch_kinds(recipe, dataset, partition, source) if engine.compiled else (None,)
    return RoundParts(
        models=models, engine=engine, kinds=kinds,
        cut=cuts.build_cut(global_model, models, label_axes, dataset.classes),
        keep=registry.find("submodels", recipe.round.submodel.name).keep,
        objective=functools.partial(objective.loss, **recipe.client.loss.options),
        optimizer=recipe.optimizer,
        merge=functools.partial(merge, **recipe.round.merge.options),
        server=functools.partial(server, **recipe.round.server.options),
        input=source, x=tf.constant(dataset.train.x), y=None if y is None else tf.constant(y),
        labels=tf.constant(table) if shortens else None,
        present=tf.constant(table >= 0 if shortens else partition.label_mask), parallel=parallel)


def batch_kinds(recipe, dataset, partition, source):
    """(examples, positions) of every batch that some client can read, see `clients.Batches.kinds`."""
    size, counts = recipe.client.batch_size, np.unique(partition.train.sizes)
    examples = {size} if (counts >= size).any() else set()
    examples |= set((counts % size).tolist()) - {0}
    lengths = {int(source.length(dataset.train.x, start)) for start in source.starts(dataset.train.x)}
    return tuple(sorted(itertools.product(examples, lengths), reverse=True))


def example_shape(source, dataset):
    """Shape of one input: (height, width, channels), or (positions,) of a segment of text."""
    x = dataset.train.x
    shape = source.shape(x)
    # The second piece of a row starts where the first one ends.
    return (*source.starts(x), x.shape[1])[1:2] if shape == (None,) else shape


def product_cost(recipe, model, example, examples):
    """Multiply-adds of a product over a batch, on average over a forward pass; the model is not usable afterwards.

    Args:
        examples: Most training examples of a client, which limits its batch.
    """
    cost = forward(model, example)
    return min(recipe.client.batch_size, examples) * cost.multiply_adds / max(cost.products, 1)
