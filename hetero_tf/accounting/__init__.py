"""What a model costs at every level: parameters, operations, traffic and memory.

Two counts of operations stand side by side: `flops` in the convention of the HeteroFL paper's tables, so that the
numbers can be compared, and `multiply_adds`, the products that really run.
"""

import math
from dataclasses import dataclass

import numpy as np

from hetero_tf import cut as cuts
from hetero_tf import hardware, registry
from hetero_tf.accounting.counting import forward
from hetero_tf.accounting.tables import to_json, to_text
from hetero_tf.models import build_model

__all__ = ["Description", "LevelCost", "describe", "describe_recipe", "forward", "to_json", "to_text"]

MEGABYTE = 2**20
# Besides the weights a client holds their gradient and their momentum.
COPIES = 3


@dataclass(frozen=True)
class LevelCost:
    """One level of the recipe.

    Attributes:
        width: Share of channels.
        parameters: Trainable values, with all labels.
        flops, multiply_adds: Of one forward pass of one example, see `counting.Forward`.
        megabytes: Of the parameters, 2**20 bytes each.
        bytes_down, bytes_up: Weights that a client of this level receives and sends in a round, mean over all
            clients: only the rows of labels that it has, where the recipe cuts them. The mask token's row goes down
            only.
        training_bytes: Estimate of what local training holds: weights, gradient, momentum and activations.
        shapes: `{variable path: shape}`, with all labels.
    """

    width: float
    parameters: int
    flops: int
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
        engine: How clients are computed, as `hardware.report` gives it, or None: that depends on the data too.
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


def describe(process):
    """The `Description` of a `process.LearningProcess`, with the summary of its split."""
    dataset, partition = process.dataset, process.partition
    return describe_recipe(
        process.recipe, process.example_shape, dataset.classes, partition.label_mask.sum(axis=1),
        int(partition.train.sizes.max()), split=partition.summary(dataset.train.labels), source=dataset.source,
        stand_in_for=dataset.stand_in_for, engine=hardware.report(process))


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
    labels = np.asarray([classes] if labels is None else labels)
    shape = (None,) if len(example) == 1 else tuple(example)

    def build(width, classes):
        return build_model(recipe.model, shape, width, classes=classes, dtype=recipe.float_type)

    narrowest = min(recipe.levels.widths.values())
    label_axes = cuts.find_label_axes(lambda few: _shapes(build(narrowest, few)))
    batch = min(recipe.client.batch_size, examples or recipe.client.batch_size)
    levels = {}
    for name, width in recipe.levels.widths.items():
        model = build(width, classes)
        cost = forward(model, example)
        traffic = _traffic(recipe, _shapes(model), label_axes, classes, labels)
        levels[name] = _cost(recipe, width, _shapes(model), cost, traffic, batch)
    total = sum(share for _, share in recipe.levels.mix)
    mix = {name: share / total for name, share in recipe.levels.mix}
    return Description(recipe.name, tuple(example), classes, levels, mix, labels, **about)


def _shapes(model):
    return {variable.path: tuple(variable.shape) for variable in model.trainable_variables}


def _cost(recipe, width, shapes, found, traffic, batch):
    """The `LevelCost` of a model's shapes, its `counting.Forward`, and the values that go down and up."""
    size = np.dtype(recipe.float_type).itemsize
    parameters = sum(math.prod(shape) for shape in shapes.values())
    down, up = (round(values * size) for values in traffic)
    training = (COPIES * parameters + batch * found.activations) * size
    return LevelCost(width, parameters, found.flops, found.multiply_adds, parameters * size / MEGABYTE, down, up,
                     training, shapes)


def _traffic(recipe, shapes, label_axes, classes, labels):
    """How many values a client receives and sends, means over clients with so many `labels`."""
    masks = registry.find("objectives", recipe.client.loss.name).MASKS_LABELS
    # Rows of other labels are never merged, but without the cut a client trains them and so receives them.
    received = labels if recipe.client.label_cut and masks else np.full_like(labels, classes)
    return tuple(sum(float(np.mean(_size(shape, label_axes.get(path, {}), rows, extra)))
                     for path, shape in shapes.items())
                 for rows, extra in ((received, 1), (labels, 0)))


def _size(shape, behind, labels, extra):
    """Values of one variable where its label axis is `labels` long; `behind`: its rows behind the labels."""
    return math.prod(labels + extra * behind[place] if place in behind else size for place, size in enumerate(shape))
