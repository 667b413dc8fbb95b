"""What a model costs at every level: parameters, operations, traffic and memory.

Two counts of operations stand side by side: `paper_flops` in the convention of the HeteroFL paper's tables, so that the
numbers can be compared, and `multiply_adds`, the products that really run.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hetero_tf.base import registry
from hetero_tf.methods.stages import Stage
from hetero_tf.models import global_layout
from hetero_tf.models.costs.level_costs import Costs, travelling
from hetero_tf.models.costs.memory import MEGABYTE
from hetero_tf.models.cut import find_label_axes
from hetero_tf.models.family import ModelFamily
from hetero_tf.models.variables import constants, values

# Numbers of a level of which a mix has a mean.
MEANS = ("parameters", "paper_flops", "megabytes", "multiply_adds", "bytes_down", "bytes_up")


@dataclass(frozen=True)
class TrainingMemory:
    """Estimate of what local training of a whole sub-model (one network of an ensemble) holds, in bytes by kind.

    Attributes:
        weights: Trainable values.
        gradients: As many.
        optimizer: What the optimizer keeps of each value, such as its momentum.
        activations: What the layers hand on for every example of a batch and the backward pass reads again, at all
            widths that a step trains. Gradients of activations are not counted: each is gone when the next is known.

    Reference: FeDepth (Zhang et al. 2023, arXiv 2303.04887), Figure 1, for the split by kind.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        """The sum of all kinds."""
        return self.weights + self.gradients + self.optimizer + self.activations


@dataclass(frozen=True)
class InferenceMemory:
    """Estimate of what predicting one example holds, in bytes: weights, and what a layer takes and hands on.

    Attributes:
        whole: With the weights of one whole network.
        by_unit: With those of one unit at a time, see `evaluation.unit_by_unit`.

    Reference: FeDepth (Zhang et al. 2023, arXiv 2303.04887), "memory-efficient inference".
    """

    whole: int
    by_unit: int


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
        memory: `TrainingMemory`.
        inference: `InferenceMemory`.
        shapes: `{variable path: shape}` of one network, with all labels.
    """

    width: float
    parameters: int
    paper_flops: int
    multiply_adds: int
    megabytes: float
    bytes_down: int
    bytes_up: int
    memory: TrainingMemory
    inference: InferenceMemory
    shapes: dict


def level_costs(
    family: ModelFamily, names: Iterable[str], example: tuple, labels: np.ndarray, batch: int
) -> dict[str, LevelCost]:
    """Counts what each of some levels of a recipe costs.

    Args:
        family: The models of all levels.
        names: Levels of the recipe, also outside of the mix.
        example: Shape of one input: (height, width, channels), or (positions,) for text.
        labels: int [clients], how many labels each client has.
        batch: Most examples of a local step.
    """
    recipe, classes = family.recipe, family.classes
    narrowest = min(recipe.levels.widths.values())
    deepest = max(recipe.levels.widths, key=lambda name: len(family.route(name).exits))
    route = dataclasses.replace(family.route(deepest), width=narrowest)
    label_axes = find_label_axes(*(_shapes(family.alone(route, few)) for few in (2, 3)))
    costs, described = Costs(family, example, classes), {}
    for name in names:
        model = family.trained(name, classes)
        shapes = _shapes(model) | _tracked(family, name)
        learned = sum(math.prod(value.shape) for value in model.trainable_variables)
        fixed = {variable.path for variable in constants(model)}
        moved = travelling(costs, name, shapes, fixed, label_axes, classes, labels)
        route = family.route(name)
        found = family.forward(route, classes, example)
        beside = () if family.drawn else widths_of(costs.stages(name)) - {recipe.levels.widths[name]}
        others = [family.forward(dataclasses.replace(route, width=width), classes, example) for width in beside]
        held = found.activations + sum(other.activations for other in others)
        described[name] = _cost(recipe, name, learned, shapes, found, held, moved, batch)
    return described


def costs_to_json(levels: dict[str, LevelCost], shares: dict[str, float]) -> dict:
    """Returns costs ready for JSON: "levels", and "mix" with the means over the clients.

    Args:
        levels: Costs of levels, among them those of the mix.
        shares: `{level: share of the clients}` of the mix; the first level is the global model's.
    """
    means = {name: sum(share * getattr(levels[level], name) for level, share in shares.items()) for name in MEANS}
    ratio = means["parameters"] / levels[next(iter(shares))].parameters
    return {
        "levels": {level: _to_json(cost) for level, cost in levels.items()},
        "mix": {"shares": dict(shares), **means, "ratio": ratio},
    }


def _to_json(cost):
    memory = {"memory": {**vars(cost.memory)}, "training_bytes": cost.memory.total}
    plain = {**vars(cost), **memory, "inference": {**vars(cost.inference)}}
    del plain["shapes"]
    return plain


def widths_of(stages: tuple[Stage, ...]) -> frozenset[float]:
    """Returns the widths at which a client's steps run its sub-model."""
    return frozenset(route.width for stage in stages for route in stage.routes)


def _shapes(model):
    return {variable.path: tuple(variable.shape) for variable in values(model)}


def _tracked(family, level):
    """What a level of the mix has besides: the running statistics of its narrower routes."""
    if level not in family.stages:
        return {}
    axes = family.recipe.levels.ensemble is not None
    return {path: shape[axes:] for path, shape in global_layout.shapes(family, level, family.classes).items()}


def _cost(recipe, level, parameters, shapes, found, held, moved, batch):
    """The `LevelCost` of one network's values.

    Args:
        found: Its `counting.Forward`.
        held: Activations of one example that a step holds: those of all widths that it trains.
        moved: Values that go down and up.
    """
    size, members = np.dtype(recipe.float_type).itemsize, recipe.levels.members.get(level, 1)
    down, up = (round(members * count * size) for count in moved)
    weights, slots = parameters * size, len(registry.find("optimizers", recipe.optimizer.method.name).SLOTS)
    return LevelCost(
        recipe.levels.widths[level],
        members * parameters,
        members * found.paper_flops,
        members * found.multiply_adds,
        members * parameters * size / MEGABYTE,
        down,
        up,
        TrainingMemory(weights, weights, slots * weights, batch * held * size),
        _inference(found, recipe.model.units, size),
        shapes,
    )


def _inference(found, units, size):
    """The `InferenceMemory` of a network; `units`: `{name of a layer: name of its unit}`."""
    by_unit = itertools.groupby(sorted(found.held, key=lambda one: units[one.layer]), lambda one: units[one.layer])
    return InferenceMemory(size * _peak(found.held), size * max(_peak(tuple(layers)) for _, layers in by_unit))


def _peak(layers):
    return sum(layer.weights for layer in layers) + max(layer.passed for layer in layers)
