"""Costs of a model at every level: parameters, operations, traffic and memory.

Operations are counted twice: `paper_flops` follows the convention of the HeteroFL paper's tables for comparison, and
`multiply_adds` counts the executed products.
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
from hetero_tf.models.costs.level_costs import LevelCosts, transferred_values
from hetero_tf.models.costs.memory import MEGABYTE
from hetero_tf.models.cut import find_label_axes
from hetero_tf.models.family import ModelFamily
from hetero_tf.models.variables import constants, values

# Numbers of a level that are averaged over the clients of a mix.
MEANS = ("parameters", "paper_flops", "megabytes", "multiply_adds", "bytes_down", "bytes_up")


@dataclass(frozen=True)
class TrainingMemory:
    """Estimated memory of training a complete sub-model (one network of an ensemble), in bytes by kind.

    Attributes:
        weights: Trainable values.
        gradients: Gradients of the trainable values.
        optimizer: Optimizer slots, such as momentum.
        activations: Layer outputs of a batch that the backward pass reads, at all widths that a step trains. Gradients
            of activations are not counted: each is freed when the next is computed.

    Reference: FeDepth (Zhang et al. 2023, arXiv 2303.04887), Figure 1, for the split by kind.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        """Sum of all kinds."""
        return self.weights + self.gradients + self.optimizer + self.activations


@dataclass(frozen=True)
class InferenceMemory:
    """Estimated memory of predicting one example, in bytes: weights, and input and output of a layer.

    Attributes:
        whole: With all weights of one network.
        by_unit: With the weights of one unit at a time, see `evaluation.unit_by_unit`.

    Reference: FeDepth (Zhang et al. 2023, arXiv 2303.04887), "memory-efficient inference".
    """

    whole: int
    by_unit: int


@dataclass(frozen=True)
class LevelCost:
    """Costs of one level: its sub-model with its exits, or all networks of an ensemble that its clients train.

    Attributes:
        width: Share of channels.
        parameters: Trainable values, with all labels.
        paper_flops, multiply_adds: Of one forward pass of one example, see `counting.Forward`.
        megabytes: Of the parameters, 2**20 bytes each.
        bytes_down, bytes_up: Weights that a client of this level receives and sends in a round, mean over all
            clients. With label cuts, only rows of the client's labels count. The row of the mask token is only sent
            down. Local units are not transferred.
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
    """Compute the costs of levels.

    Args:
        family: The models of all levels.
        names: Levels of the recipe, in or outside of the mix.
        example: Shape of one input: (height, width, channels), or (positions,) for text.
        labels: int [clients], number of labels of each client.
        batch: Maximum examples of a local step.
    """
    recipe, classes = family.recipe, family.classes
    narrowest = min(recipe.levels.widths.values())
    deepest = max(recipe.levels.widths, key=lambda name: len(family.route(name).exits))
    route = dataclasses.replace(family.route(deepest), width=narrowest)
    label_axes = find_label_axes(*(_shapes(family.single_client_model(route, few)) for few in (2, 3)))
    costs, cost_by_level = LevelCosts(family, example, classes), {}
    for name in names:
        model = family.training_model(name, classes)
        shapes = _shapes(model) | _running_statistics_shapes(family, name)
        parameters = sum(math.prod(value.shape) for value in model.trainable_variables)
        constant_paths = {variable.path for variable in constants(model)}
        transferred = transferred_values(costs, name, shapes, constant_paths, label_axes, classes, labels)
        route = family.route(name)
        forward_cost = family.forward(route, classes, example)
        other_widths = () if family.drawn else stage_widths(costs.stages(name)) - {recipe.levels.widths[name]}
        others = [family.forward(dataclasses.replace(route, width=width), classes, example) for width in other_widths]
        activations = forward_cost.activations + sum(other.activations for other in others)
        cost_by_level[name] = _cost(recipe, name, parameters, shapes, forward_cost, activations, transferred, batch)
    return cost_by_level


def costs_to_json(levels: dict[str, LevelCost], shares: dict[str, float]) -> dict:
    """Return costs ready for JSON: "levels", and "mix" with the means over the clients.

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


def stage_widths(stages: tuple[Stage, ...]) -> frozenset[float]:
    """Return the widths at which local steps run the sub-model of a client."""
    return frozenset(route.width for stage in stages for route in stage.routes)


def _shapes(model):
    return {variable.path: tuple(variable.shape) for variable in values(model)}


def _running_statistics_shapes(family, level):
    """Return shapes of the running statistics of the narrower routes of a level in the mix."""
    if level not in family.stages:
        return {}
    axes = family.recipe.levels.ensemble is not None
    return {path: shape[axes:] for path, shape in global_layout.shapes(family, level, family.classes).items()}


def _cost(recipe, level, parameters, shapes, forward_cost, activations, transferred, batch):
    """Return the `LevelCost` of one network.

    Args:
        forward_cost: Its `counting.Forward`.
        activations: Activations of one example, over all widths that a step trains.
        transferred: Values that are sent down and up.
    """
    size, members = np.dtype(recipe.float_type).itemsize, recipe.levels.networks_of(level)
    down, up = (round(members * count * size) for count in transferred)
    weights, slots = parameters * size, len(registry.find("optimizers", recipe.optimizer.method.name).SLOTS)
    return LevelCost(
        recipe.levels.widths[level],
        members * parameters,
        members * forward_cost.paper_flops,
        members * forward_cost.multiply_adds,
        members * parameters * size / MEGABYTE,
        down,
        up,
        TrainingMemory(weights, weights, slots * weights, batch * activations * size),
        _inference(forward_cost, recipe.model.units, size),
        shapes,
    )


def _inference(forward_cost, units, size):
    """Return the `InferenceMemory` of a network; `units` is `{layer name: unit name}`."""
    footprints = sorted(forward_cost.footprints, key=lambda footprint: units[footprint.layer])
    by_unit = itertools.groupby(footprints, key=lambda footprint: units[footprint.layer])
    return InferenceMemory(
        size * _peak(forward_cost.footprints), size * max(_peak(tuple(layers)) for _, layers in by_unit)
    )


def _peak(layers):
    return sum(layer.weights for layer in layers) + max(layer.passed for layer in layers)
