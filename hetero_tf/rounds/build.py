"""From a recipe and its data to the parts of a round."""

import functools
import inspect
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from hetero_tf import data
from hetero_tf.base import hardware, registry
from hetero_tf.base.errors import BadInput
from hetero_tf.data.dataset import Dataset
from hetero_tf.inputs import Input, stored
from hetero_tf.models.family import ModelFamily, build_family
from hetero_tf.models.own_model import ModelFunction
from hetero_tf.partitions.partition import Partition
from hetero_tf.planning.availability import check_somebody_returns
from hetero_tf.planning.split import deal
from hetero_tf.recipe import located
from hetero_tf.recipe.fit import Facts, check_fit, check_kind
from hetero_tf.recipe.nodes import Wrong
from hetero_tf.recipe.schema import Optimizer, Plugin, Recipe
from hetero_tf.rounds import layout
from hetero_tf.rounds.buffers import Pass, check_buffers
from hetero_tf.rounds.engine import Engine, choose_engine
from hetero_tf.rounds.entry_mask import EntryMask
from hetero_tf.rounds.labels import label_table, may_cut_labels
from hetero_tf.rounds.parts import Algorithm, Examples, LocalOptimizer, Placement, RoundParts
from hetero_tf.rounds.replicas import Replicas


def build_input(recipe: Recipe, dataset: Dataset | None = None) -> Input:
    """Returns the recipe's `Input`; without data, one that knows no statistics of them."""
    build = registry.find("inputs", recipe.input.name).build
    learned = {}
    if dataset is not None and "statistics" in inspect.signature(build).parameters:
        learned["statistics"] = dataset.feature_statistics
    return build(recipe.float_type, **recipe.input.options, **learned)


def load_data(recipe: Recipe, data_dir: Path | str | None) -> Dataset:
    """Loads the data of a recipe.

    Raises:
        BadInput: Names file, line and key of the recipe; see `data.load`.
    """
    # A data folder that is none is no mistake of the recipe.
    folder = data.data_folder(data_dir)
    with located(recipe, "data"):
        return data.load(recipe.data.loader, recipe.data.fallback, folder)


def split(recipe: Recipe, dataset: Dataset) -> Partition:
    """Deals a data set out to the clients, as the recipe says.

    Raises:
        BadInput: The data are of another kind than the recipe's, or cannot be split so; names file, line and key.
            Where a stand-in took the place of the data, that is said too.
    """
    with located(recipe, "partition", check=lambda other: _split(other, dataset)):
        try:
            return _split(recipe, dataset)
        except BadInput as problem:
            if dataset.stand_in_for is None:
                raise
            raise BadInput(f"{problem}. These are not the data that the recipe is for: {dataset.source}") from None


def _split(recipe, dataset):
    check_kind(recipe, build_input(recipe).takes, dataset.kind, dataset.source)
    return deal(recipe, dataset)


def check_data(recipe: Recipe, dataset: Dataset) -> None:
    """Refuses a recipe that does not fit its data, before anything is built.

    Raises:
        BadInput: Names file, line and key of the recipe.
    """
    with located(recipe, check=lambda other: _check_data(other, dataset)):
        _check_data(recipe, dataset)


def _check_data(recipe, dataset):
    source = build_input(recipe)
    check_kind(recipe, source.takes, dataset.kind, dataset.source)
    check_fit(recipe, _facts(dataset, source), hardware.memory())


def check_split(recipe: Recipe, partition: Partition, starts: Sequence[int]) -> None:
    """Refuses a recipe in which nobody could return in time, or which chooses by examples that nobody has.

    Args:
        recipe: The recipe.
        partition: Which client has which examples.
        starts: As the recipe's `Input` says.

    Raises:
        Wrong: Names the key.
    """
    sizes = partition.train.sizes
    batches = -(-int(sizes[sizes > 0].min()) // recipe.client.batch_size)
    steps = {name: recipe.client.epochs_of(name) * batches * len(starts) for name in recipe.levels.names}
    check_somebody_returns(recipe, steps)
    best = recipe.evaluate.best or ""
    if best.startswith("local_") and not partition.test.sizes.any():
        raise Wrong(
            ("evaluate", "best"),
            "no client has test examples, so it cannot be measured; take one of the global metrics, or more test "
            f"examples. Received: {best}",
        )
    for name, value, asks in (
        ("best", best, best.startswith("validation_")),
        ("members", recipe.evaluate.members, recipe.evaluate.members == "best"),
    ):
        if asks and not partition.held_out.sizes.any():
            raise Wrong(
                ("evaluate", name),
                "no client holds examples out, so there is nothing to choose by; give partition.held_out, such as 0.1, "
                f"or another value. Received: {value}",
            )


def _facts(dataset, source):
    x, labels = dataset.train.x, dataset.train.labels
    pixels = (float(x.min()), float(x.max())) if np.issubdtype(x.dtype, np.floating) else (0.0, 1.0)
    return Facts(
        source=dataset.source,
        example=example_shape(source, x),
        classes=dataset.classes,
        several=bool((labels != labels.flat[0]).any()),
        pixels=(min(0.0, pixels[0]), max(0.0, pixels[1])),
        train=len(x),
        test=len(dataset.test.x),
        words=len(dataset.vocabulary) if dataset.kind == "sequences" else None,
    )


def family_of(recipe: Recipe, source: Input, dataset: Dataset, function: ModelFunction | None = None) -> ModelFamily:
    """Returns the `ModelFamily` of a recipe on its data, see `models.family.build_family`."""
    x = dataset.train.x
    return build_family(recipe, source.shape(x), example_shape(source, x), dataset.classes, function)


def example_shape(source: Input, x: np.ndarray) -> tuple[int, ...]:
    """Shape of one input: (height, width, channels), or (positions,) of a segment of text."""
    shape = source.shape(x)
    return (int(source.length(x, source.starts(x)[0])),) if shape == (None,) else shape


def build_parts(
    recipe: Recipe,
    dataset: Dataset,
    partition: Partition,
    family: ModelFamily,
    source: Input,
    replicas: Replicas,
    device: str,
) -> RoundParts:
    """Builds the parts of a round.

    Args:
        replicas: Who computes the round, and how many stacks each has in flight at once.
        device: "cpu" or "gpu", what the engine is chosen for.
    """
    labels = cut_labels(recipe, dataset, partition)
    label_axis = dataset.classes if labels is None else labels.shape[1]
    batch = min(recipe.client.batch_size, int(partition.train.sizes.max()))
    example = example_shape(source, dataset.train.x)
    engine = choose_engine(recipe, family, label_axis, example, batch, replicas, device)
    for stack in engine.stacks:
        check_buffers(source, dataset.train.x, stack)
    return RoundParts(
        _examples(recipe, dataset, partition, source, labels, engine),
        _algorithm(recipe, len(partition.train), layout.entry_masks(family, label_axis)),
        _placement(recipe, family, label_axis),
        engine,
        watch=None,
    )


def cut_labels(recipe: Recipe, dataset: Dataset, partition: Partition) -> np.ndarray | None:
    """The table of labels that label axes are cut to; None where that is not exact or shortens nothing."""
    if not may_cut_labels(recipe):
        return None
    table = label_table(partition.label_mask)
    return table if table.shape[1] < dataset.classes else None


def _examples(
    recipe: Recipe, dataset: Dataset, partition: Partition, source: Input, labels: np.ndarray | None, engine: Engine
) -> Examples:
    sizes, y = partition.train.sizes, dataset.train.y
    shapes = batch_shapes(recipe, dataset, partition, source)
    # XLA asks for all shapes beforehand; one that all batches have spares gradients the question.
    known = engine.compiled or (len(shapes) == 1 and recipe.engine == "auto")
    return Examples(
        input=source,
        x=stored(dataset.train.x),
        y=None if y is None else tf.constant(y),
        # For XLA, to which another number of rows is another program: as many as any cohort has.
        rows_given=int(np.sort(sizes)[-recipe.round.clients :].sum()) if engine.compiled else 0,
        labels=None if labels is None else tf.constant(labels),
        present=tf.constant(partition.label_mask if labels is None else labels >= 0),
        counts=None if recipe.round.weighting == "uniform" else tf.constant(sizes, recipe.float_type),
        batch_shapes=shapes if known else (None,),
        sizes=tf.constant(sizes, tf.int32),
        longest=Pass.of(int(sizes.max()), recipe.client.batch_size),
    )


def _algorithm(recipe: Recipe, registered: int, masks: tuple[EntryMask | None, ...] | None) -> Algorithm:
    client, server = recipe.client, registry.find("servers", recipe.round.server.name)
    correct, remember, reads = _correction(client.correction)
    return Algorithm(
        submodel=_function("submodels", recipe.round.submodel),
        loss=_function("losses", client.loss),
        couple=_function("couplings", client.coupling),
        masks=masks,
        correct=correct,
        remember=remember,
        read_slots=tuple(server.SLOTS.index(name) for name in reads),
        update=_function("updates", client.update),
        optimizer=local_optimizer(recipe.optimizer),
        server=functools.partial(_function("servers", recipe.round.server), registered=registered),
        sums_memory="memory_change" in inspect.signature(server.apply).parameters,
    )


def _placement(recipe: Recipe, family: ModelFamily, label_axis: int) -> Placement:
    cut, personal = layout.build_cut(family, label_axis), layout.personal_positions(family)
    return Placement(
        cut=cut,
        dtype=recipe.float_type,
        trainable=layout.count_trainable(family),
        merged_from=layout.merged_from(family, cut, personal),
        merge_absent_labels=recipe.round.label_rows == "all",
        zeros_count=recipe.round.uncovered == "zeros",
        personal=personal,
    )


def local_optimizer(optimizer: Optimizer) -> LocalOptimizer:
    """Returns the local steps of a recipe's optimizer."""
    slots = registry.find("optimizers", optimizer.method.name).SLOTS
    return LocalOptimizer(_function("optimizers", optimizer.method), len(slots), optimizer.clip_norm)


def _correction(plugin: Plugin | None) -> tuple[Callable | None, Callable | None, tuple[str, ...]]:
    """The functions `correct` and `remember` of a correction, None where there is none, and the slots it reads."""
    if plugin is None:
        return None, None, ()
    module = registry.find("corrections", plugin.name)
    remember = functools.partial(module.remember, **plugin.options) if module.REMEMBERS else None
    return functools.partial(module.correct, **plugin.options), remember, module.READS


def _function(kind: str, plugin: Plugin | None) -> Any:
    """A plug-in's function with the options of the recipe; None without a plug-in."""
    if plugin is None:
        return None
    return functools.partial(getattr(registry.find(kind, plugin.name), registry.EXPORTS[kind]), **plugin.options)


def batch_shapes(recipe: Recipe, dataset: Dataset, partition: Partition, source: Input) -> tuple[tuple[int, int], ...]:
    """(examples, positions) of every batch that some client can read, the largest first."""
    size, counts = recipe.client.batch_size, np.unique(partition.train.sizes)
    examples = {size} if (counts >= size).any() else set()
    examples |= set((counts % size).tolist()) - {0}
    lengths = {int(source.length(dataset.train.x, start)) for start in source.starts(dataset.train.x)}
    return tuple(sorted(itertools.product(examples, lengths), reverse=True))
