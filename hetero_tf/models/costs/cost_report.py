"""Costs of a model at every level: parameters, operations, traffic and memory.

Operations are counted twice: `paper_flops` follows the convention of the HeteroFL paper's tables for comparison, and
`multiply_adds` counts the executed products.
"""

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hetero_tf.base import registry
from hetero_tf.base.units import MIB
from hetero_tf.methods.stages import Stage
from hetero_tf.models.costs.counting import total, unit_costs
from hetero_tf.models.costs.level_costs import LevelCosts
from hetero_tf.models.family import ModelFamily

# Numbers of a level that are averaged over the clients of a mix.
MEANS = ("parameters", "paper_flops", "mebibytes", "multiply_adds", "bytes_down", "bytes_up")


@dataclass(frozen=True)
class TrainingMemory:
    """Estimated memory of training a complete sub-model (one network of an ensemble), in bytes by kind.

    Attributes:
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
        by_unit: With the weights of one unit at a time.

    Reference: FeDepth (Zhang et al. 2023, arXiv 2303.04887), "memory-efficient inference".
    """

    whole: int
    by_unit: int


@dataclass(frozen=True)
class LevelCost:
    """Costs of one level: its sub-model with its exits, or all networks of an ensemble that its clients train.

    Attributes:
        parameters: Trainable values, with all labels.
        paper_flops, multiply_adds: Counts of one forward pass of one example, see `counting.ForwardCost`.
        mebibytes: Size of the parameters, 2**20 bytes each.
        bytes_down, bytes_up: Weights that a client of this level receives and sends in a round, mean over all
            clients. With label cuts, only rows of the client's labels count. The row of the mask token is only sent
            down. Local units are not transferred.
        shapes: `{variable path: shape}` of one network, with all labels.
    """

    width: float
    parameters: int
    paper_flops: int
    multiply_adds: int
    mebibytes: float
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
        names: Levels of the recipe, in or outside of the mix.
        example: Shape of one input: (height, width, channels), or (positions,) for text.
        labels: int [clients], number of labels of each client.
        batch: Maximum examples of a local step.
    """
    costs = LevelCosts(family, example, family.classes)
    return {name: _level_cost(costs, name, labels, batch) for name in names}


def _level_cost(costs, level, labels, batch):
    """Return the `LevelCost` of one level; arguments: `level_costs`."""
    family, recipe, classes = costs.family, costs.family.recipe, costs.classes
    size, members, width = (
        np.dtype(recipe.float_type).itemsize,
        recipe.levels.members.get(level, 1),
        recipe.levels.widths[level],
    )
    parameters = sum(math.prod(value.shape) for value in family.training_model(level, classes).trainable_variables)
    layers = costs.layers(level, width)
    network, units = total(layers), unit_costs(layers, recipe.model.units)
    other_widths = () if family.drawn else stage_widths(costs.stages(level)) - {width}
    activations = network.activations + sum(total(costs.layers(level, other)).activations for other in other_widths)
    down, up = (round(members * count * size) for count in costs.transferred(level, labels))
    weights, slots = parameters * size, len(registry.find("optimizers", recipe.optimizer.method.name).SLOTS)
    return LevelCost(
        width=width,
        parameters=members * parameters,
        paper_flops=members * network.paper_flops,
        multiply_adds=members * network.multiply_adds,
        mebibytes=members * weights / MIB,
        bytes_down=down,
        bytes_up=up,
        memory=TrainingMemory(weights, weights, slots * weights, batch * activations * size),
        inference=InferenceMemory(
            size * network.prediction_values, size * max(unit.prediction_values for unit in units)
        ),
        shapes=costs.shapes(level),
    )


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
    plain = {**dataclasses.asdict(cost), "training_bytes": cost.memory.total}
    del plain["shapes"]
    return plain


def stage_widths(stages: tuple[Stage, ...]) -> frozenset[float]:
    """Return the widths at which local steps run the sub-model of a client."""
    return frozenset(route.width for stage in stages for route in stage.routes)
