"""What a model costs at every level: parameters, operations, traffic and memory.

Two counts of operations stand side by side: `paper_flops` in the convention of the HeteroFL paper's tables, so that the
numbers can be compared, and `multiply_adds`, the products that really run.
"""

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from hetero_tf.accounting.levels import Costs, travelling
from hetero_tf.base import registry
from hetero_tf.describe import trained
from hetero_tf.describe.loads import Loads
from hetero_tf.describe.tables import to_json, to_text
from hetero_tf.models.counting import forward
from hetero_tf.models.family import build_family
from hetero_tf.models.variables import values
from hetero_tf.rounds import layout
from hetero_tf.rounds.cut import find_label_axes

__all__ = ["Description", "LevelCost", "describe", "describe_recipe", "forward", "to_json", "to_text"]

MEGABYTE = 2**20


@dataclass(frozen=True)
class LevelCost:
    """One level of the recipe: its sub-model with its exits, in an ensemble all networks that its clients train.

    Attributes:
        width: Share of channels.
        parameters: Trainable values, with all labels.
        paper_flops, multiply_adds: Of one forward pass of one example, see `counting.Forward`.
        megabytes: Of the parameters, 2**20 bytes each.
        bytes_down, bytes_up: Weights that a client of this level receives and sends in a round, mean over all
            clients: only the rows of labels that it has, where the recipe cuts them. The mask token's row goes down
            only. What stays with the clients does not travel.
        training_bytes: Estimate of what local training of the whole sub-model (one network of an ensemble) holds:
            weights, gradient, what the optimizer keeps and activations.
        shapes: `{variable path: shape}` of one network, with all labels.
    """

    width: float
    parameters: int
    paper_flops: int
    multiply_adds: int
    megabytes: float
    bytes_down: int
    bytes_up: int
    training_bytes: int
    shapes: dict


@dataclass(frozen=True)
class Description:
    """The cost of a recipe.

    Attributes:
        recipe: Its name.
        example: Shape of one input.
        classes: Labels, or words of the vocabulary.
        levels: `{level: LevelCost}`, all widths of the recipe.
        mix: `{level: share of the clients}`, adding up to 1; the first level is the global model's.
        labels: int [clients], how many labels each client has.
        split: Summary of the partition, or None where it is not known.
        source: Where the data came from, or None.
        stand_in_for: What they stand in for, or None.
        engine: How clients are computed, as `rounds.engine.report` gives it, or None: that depends on the data too.
        loads: `loads.Loads` where the levels differ in more than their widths, or None.
    """

    recipe: str
    example: tuple
    classes: int
    levels: dict
    mix: dict
    labels: np.ndarray
    split: dict | None = None
    source: str | None = None
    stand_in_for: str | None = None
    engine: dict | None = None
    loads: Loads | None = None


def describe(process):
    """The `Description` of a `process.LearningProcess`, with the summary of its split."""
    dataset, partition, family = process.dataset, process.partition, process.family
    found = _described(
        family,
        process.example_shape,
        partition.label_mask.sum(axis=1),
        int(partition.train.sizes.max()),
        split=partition.summary(dataset.train.labels),
        source=dataset.source,
        stand_in_for=dataset.stand_in_for,
        engine=process.engine_report(),
    )
    if not trained.is_divided(family):
        return found
    steps = float(partition.train.sizes.mean()) * len(process.input.starts(dataset.train.x))
    costs = Costs(family, process.example_shape, dataset.classes)
    return dataclasses.replace(found, loads=trained.loads(costs, found.levels, steps))


def describe_recipe(recipe, example, classes, labels=None, examples=None, **about):
    """The `Description` of a recipe whose data need not be there.

    Args:
        recipe: `recipe.schema.Recipe`.
        example: Shape of one input: (height, width, channels), or (positions,) for text.
        classes: Labels, or words of the vocabulary.
        labels: int [clients], how many labels each client has; None: one client with all of them.
        examples: Most training examples of a client, which limits its batch; None: no limit.
        about: `split`, `source`, `stand_in_for` and `engine` of the `Description`.
    """
    shape = (None,) if len(example) == 1 else tuple(example)
    family = build_family(recipe, shape, tuple(example), classes)
    return _described(family, example, np.asarray([classes] if labels is None else labels), examples, **about)


def _described(family, example, labels, examples, **about):
    recipe, classes = family.recipe, family.classes
    narrowest = min(recipe.levels.widths.values())
    deepest = max(recipe.levels.widths, key=lambda name: len(family.route(name).exits))
    label_axes = find_label_axes(*(_shapes(family.fresh(deepest, few, narrowest)) for few in (2, 3)))
    costs = Costs(family, example, classes)
    batch = min(recipe.client.batch_size, examples or recipe.client.batch_size)
    levels = {}
    for name in recipe.levels.widths:
        model = family.fresh(name, classes)
        shapes = _shapes(model) | _tracked(family, name)
        learned = sum(math.prod(value.shape) for value in model.trainable_variables)
        moved = travelling(costs, name, shapes, label_axes, classes, labels)
        levels[name] = _cost(recipe, name, learned, shapes, forward(model, example), moved, batch)
    mix = recipe.levels.divided(1)
    return Description(recipe.name, tuple(example), classes, levels, mix, labels, **about)


def _shapes(model):
    return {variable.path: tuple(variable.shape) for variable in values(model)}


def _tracked(family, level):
    """What a level of the mix has besides: the running statistics of its narrower routes."""
    if level not in family.stages:
        return {}
    axes = family.recipe.levels.ensemble is not None
    return {path: shape[axes:] for path, shape in layout.shapes(family, level, family.classes).items()}


def _cost(recipe, level, parameters, shapes, found, moved, batch):
    """The `LevelCost` of one network's values, its `counting.Forward`, and the values that go down and up."""
    size, members = np.dtype(recipe.float_type).itemsize, recipe.levels.members.get(level, 1)
    down, up = (round(members * count * size) for count in moved)
    copies = 2 + len(registry.find("optimizers", recipe.optimizer.method.name).SLOTS)
    training = (copies * parameters + batch * found.activations) * size
    return LevelCost(
        recipe.levels.widths[level],
        members * parameters,
        members * found.paper_flops,
        members * found.multiply_adds,
        members * parameters * size / MEGABYTE,
        down,
        up,
        training,
        shapes,
    )
