"""Builds the setup of a round from a recipe and its data."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.base.replicas import Replicas
from hetero_tf.data.dataset import Dataset
from hetero_tf.inputs import Input, stored
from hetero_tf.inputs.examples import Examples, Pass, batch_shapes
from hetero_tf.models import global_layout
from hetero_tf.models.custom_model import ModelBuilder
from hetero_tf.models.family import ModelFamily, build_family
from hetero_tf.models.global_layout import label_table, may_cut_labels
from hetero_tf.partitions.partition import Partition
from hetero_tf.process.data import example_shape
from hetero_tf.recipe.schema import Optimizer, Plugin, Recipe
from hetero_tf.rounds.buffers import check_buffers
from hetero_tf.rounds.engine import Engine, choose_engine
from hetero_tf.rounds.layout import entry_masks
from hetero_tf.rounds.round_setup import Algorithm, GlobalLayout, LocalOptimizer, RoundSetup, build_submodels


def family_of(recipe: Recipe, source: Input, dataset: Dataset, function: ModelBuilder | None = None) -> ModelFamily:
    """Build the `ModelFamily` of a recipe for its data; see `models.family.build_family`."""
    x = dataset.train.x
    return build_family(recipe, source.shape(x), example_shape(source, x), dataset.classes, function)


def build_setup(
    recipe: Recipe,
    dataset: Dataset,
    partition: Partition,
    family: ModelFamily,
    source: Input,
    replicas: Replicas,
    device: str,
) -> RoundSetup:
    """Build the `RoundSetup` of a recipe.

    Args:
        replicas: Replicas that share the round, and the number of blocks that each trains in parallel.
        device: "cpu" or "gpu", the device for which the engine is chosen.
    """
    labels = cut_labels(recipe, dataset, partition)
    label_axis = dataset.classes if labels is None else labels.shape[1]
    batch = min(recipe.client.batch_size, int(partition.train.sizes.max()))
    example = example_shape(source, dataset.train.x)
    engine, blocks = choose_engine(recipe, family, label_axis, example, batch, replicas, device)
    for block in blocks:
        check_buffers(source, dataset.train.x, block)
    layout = _global_layout(recipe, family, label_axis)
    return RoundSetup(
        _examples(recipe, dataset, partition, source, labels, engine),
        _algorithm(recipe, len(partition.train)),
        layout,
        build_submodels(layout, blocks, entry_masks(family, label_axis)),
        engine,
        on_progress=None,
    )


def cut_labels(recipe: Recipe, dataset: Dataset, partition: Partition) -> np.ndarray | None:
    """Return the table of labels of each client that label axes are cut to; None if not exact or without effect."""
    if not may_cut_labels(recipe):
        return None
    table = label_table(partition.label_mask)
    return table if table.shape[1] < dataset.classes else None


def _examples(
    recipe: Recipe, dataset: Dataset, partition: Partition, source: Input, labels: np.ndarray | None, engine: Engine
) -> Examples:
    sizes, y = partition.train.sizes, dataset.train.y
    shapes = batch_shapes(recipe, dataset, partition, source)
    # XLA needs all shapes in advance; a single static shape also simplifies gradients.
    known = engine.compiled or (len(shapes) == 1 and recipe.engine == "auto")
    return Examples(
        input=source,
        x=stored(dataset.train.x),
        y=None if y is None else tf.constant(y),
        # XLA compiles a program per number of rows, so use the maximum over all cohorts.
        min_rows=int(np.sort(sizes)[-recipe.round.clients :].sum()) if engine.compiled else 0,
        labels=None if labels is None else tf.constant(labels),
        present=tf.constant(partition.label_mask if labels is None else labels >= 0),
        counts=None if recipe.round.weighting == "uniform" else tf.constant(sizes, recipe.float_type),
        batch_shapes=shapes if known else (None,),
        sizes=tf.constant(sizes, tf.int32),
        longest=Pass.of(int(sizes.max()), recipe.client.batch_size),
    )


def _algorithm(recipe: Recipe, registered: int) -> Algorithm:
    client, server = recipe.client, registry.find("servers", recipe.round.server.name)
    correct, remember, reads = _correction(client.correction)
    return Algorithm(
        submodel=_function("submodels", recipe.round.submodel),
        loss=_function("losses", client.loss),
        couple=_function("couplings", client.coupling),
        correct=correct,
        remember=remember,
        read_slots=tuple(server.SLOTS.index(name) for name in reads),
        update=_function("updates", client.update),
        optimizer=local_optimizer(recipe.optimizer),
        server=functools.partial(_function("servers", recipe.round.server), registered=registered),
        sums_memory="memory_change" in inspect.signature(server.apply).parameters,
    )


def _global_layout(recipe: Recipe, family: ModelFamily, label_axis: int) -> GlobalLayout:
    cut, personal = global_layout.build_cut(family, label_axis), global_layout.personal_positions(family)
    return GlobalLayout(
        cut=cut,
        dtype=recipe.float_type,
        trainable=global_layout.count_trainable(family),
        first_merged_stage=global_layout.first_merged_stages(family, cut, personal),
        merge_absent_labels=recipe.round.label_rows == "all",
        zeros_count=recipe.round.uncovered == "zeros",
        personal=personal,
    )


def local_optimizer(optimizer: Optimizer) -> LocalOptimizer:
    """Return the `LocalOptimizer` of a recipe."""
    slots = registry.find("optimizers", optimizer.method.name).SLOTS
    return LocalOptimizer(_function("optimizers", optimizer.method), len(slots), optimizer.clip_norm)


def _correction(plugin: Plugin | None) -> tuple[Callable | None, Callable | None, tuple[str, ...]]:
    """Return the functions `correct` and `remember` of a correction (or None), and the server slots that it reads."""
    if plugin is None:
        return None, None, ()
    module = registry.find("corrections", plugin.name)
    remember = functools.partial(module.remember, **plugin.options) if module.REMEMBERS else None
    return functools.partial(module.correct, **plugin.options), remember, module.READS


def _function(kind: str, plugin: Plugin | None) -> Any:
    """Return a plug-in's function with the options of the recipe; None without a plug-in."""
    if plugin is None:
        return None
    return functools.partial(getattr(registry.find(kind, plugin.name), registry.EXPORTS[kind]), **plugin.options)
