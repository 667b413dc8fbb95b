"""From a recipe and its data to the parts of a round: input, partition, models, cut and plug-ins."""

import functools
import inspect
import itertools

import numpy as np
import tensorflow as tf

from hetero_tf.base import registry, seeds
from hetero_tf.base.errors import BadInput
from hetero_tf.models.counting import forward
from hetero_tf.models.family import build_family
from hetero_tf.models.unit_costs import unit_shares
from hetero_tf.rounds import buffers, layout
from hetero_tf.rounds.buffers import Epochs
from hetero_tf.rounds.engine import choose
from hetero_tf.rounds.local_training import LocalOptimizer
from hetero_tf.rounds.stack_update import RoundParts


def build_input(recipe):
    """The recipe's `inputs.Input`."""
    return registry.find("inputs", recipe.input.name).build(recipe.float_type, **recipe.input.options)


def split(recipe, dataset):
    """The recipe's partition of a data set.

    Raises:
        BadInput: The data cannot be split so; where a stand-in took their place, that is said too.
    """
    splitter = registry.find("partitions", recipe.partition.name).split
    rng = seeds.rng(recipe.seed, "partition")
    owners = {"train_owners": dataset.train.owners, "test_owners": dataset.test.owners}
    asked = inspect.signature(splitter).parameters
    owners = {name: given for name, given in owners.items() if name in asked}
    try:
        return splitter(
            dataset.train.labels, dataset.test.labels, dataset.classes, rng, **recipe.partition.options, **owners
        )
    except BadInput as problem:
        if dataset.stand_in_for is None:
            raise
        raise BadInput(f"{problem}. These are not the data that the recipe is for: {dataset.source}") from None


def find_objective(recipe):
    """The module of the recipe's loss."""
    return registry.find("losses", recipe.client.loss.name)


def family_of(recipe, source, dataset):
    """The `models.family.ModelFamily` of a recipe."""
    shape, example = source.shape(dataset.train.x), example_shape(source, dataset)
    return build_family(recipe, shape, dataset.classes, lambda: unit_shares(recipe, shape, example, dataset.classes))


def label_table(partition):
    """Each client's labels as int32 [clients, most labels], -1 behind them."""
    client, label = np.nonzero(partition.label_mask)
    sizes = np.bincount(client, minlength=len(partition.label_mask))
    table = np.full((len(sizes), sizes.max()), -1, np.int32)
    table[client, np.arange(len(label)) - np.repeat(np.cumsum(sizes) - sizes, sizes)] = label
    return table


def kept_labels(recipe, dataset, partition):
    """The table of labels that label axes are cut to, or None: they are where that is exact and shortens them."""
    reads = registry.find("couplings", recipe.client.coupling.name).READS_LOGITS
    # Weight decay moves the rows of absent labels: a client that keeps its rows keeps that, a correction answers it.
    follows = recipe.round.personal or recipe.client.correction or recipe.client.update or recipe.round.mask
    cuttable = recipe.client.label_cut and recipe.round.label_rows == "own" and find_objective(recipe).MASKS_LABELS
    if reads or follows or not cuttable:
        return None
    table = label_table(partition)
    return table if table.shape[1] < dataset.classes else None


def expected_clients(recipe, family):
    """`{one of its levels: clients of a round, on average}` of each sub-model; each network of an ensemble is one."""
    total, found = sum(share for _, share in recipe.levels.mix), dict.fromkeys(family.submodels, 0)
    for (name, share), place in zip(recipe.levels.mix, family.submodel_of):
        found[family.submodels[place]] += recipe.round.clients * share * recipe.levels.members.get(name, 1) / total
    return found


def round_parts(recipe, dataset, partition, family, source, parallel, device):
    """The `stack_round.RoundParts` of a recipe."""
    table = kept_labels(recipe, dataset, partition)
    kept = dataset.classes if table is None else table.shape[1]
    example, most = example_shape(source, dataset), int(partition.train.sizes.max())
    engine = choose(
        recipe.engine,
        expected_clients(recipe, family),
        lambda level, clients: layout.build_stack(family, level, clients, kept),
        family.apart,
        device,
        parallel,
        lambda level: product_cost(recipe, family.fresh(level, kept), example, most),
    )
    for stack in engine.stacks:
        buffers.check(source, dataset.train.x, stack)
    cut, y, sizes = layout.build_cut(family, kept), dataset.train.y, partition.train.sizes
    correct, remember = _correction(recipe.client.correction)
    personal = layout.personal(family)
    return RoundParts(
        models=tuple(family.trained(level, kept) for level in family.submodels),
        engine=engine,
        cut=cut,
        kinds=batch_kinds(recipe, dataset, partition, source) if engine.compiled else (None,),
        epochs=Epochs(recipe.client.epochs, -(-most // recipe.client.batch_size), min(recipe.client.batch_size, most)),
        keep=_function("submodels", recipe.round.submodel),
        objective=_function("losses", recipe.client.loss),
        couple=_function("couplings", recipe.client.coupling),
        correct=correct,
        remember=remember,
        optimizer=local_optimizer(recipe.optimizer),
        server=_server(recipe, len(partition.train)),
        input=source,
        x=tf.constant(dataset.train.x),
        y=None if y is None else tf.constant(y),
        labels=None if table is None else tf.constant(table),
        present=tf.constant(partition.label_mask if table is None else table >= 0),
        counts=None if recipe.round.weighting == "uniform" else tf.constant(sizes, recipe.float_type),
        merged=layout.merged(family, cut, personal),
        all_rows=recipe.round.label_rows == "all",
        personal=personal,
        parallel=parallel,
    )


def local_optimizer(optimizer):
    """The `LocalOptimizer` of a `recipe.schema.Optimizer`."""
    slots = registry.find("optimizers", optimizer.method.name).SLOTS
    return LocalOptimizer(_function("optimizers", optimizer.method), len(slots), optimizer.clip_norm)


def _correction(plugin):
    """The functions `correct` and `remember` of a correction, None where there is none."""
    if plugin is None:
        return None, None
    module = registry.find("corrections", plugin.name)
    remember = functools.partial(module.remember, **plugin.options) if module.REMEMBERS else None
    return functools.partial(module.correct, **plugin.options), remember


def _function(kind, plugin):
    """A plug-in's function with the options of the recipe; None without a plug-in."""
    if plugin is None:
        return None
    return functools.partial(getattr(registry.find(kind, plugin.name), registry.EXPORTS[kind]), **plugin.options)


def _server(recipe, registered):
    """The server's function `(old, mean, coverage, slots) -> (new, slots)`."""
    return functools.partial(_function("servers", recipe.round.server), registered=registered)


def batch_kinds(recipe, dataset, partition, source):
    """(examples, positions) of every batch that some client can read, see `batches.Batches.kinds`."""
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
