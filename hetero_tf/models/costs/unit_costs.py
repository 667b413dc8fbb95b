"""Training memory by the convention of FeDepth's Table 1, and multiply-adds, of every unit of a Keras model.

Memory in bytes = 2 * batch * 4 * elements + 4 * parameters: the layers' outputs for every example and their gradients,
and the weights. The rule is derived from the published numbers and meant for shares of a full model; it does not bound
the memory that TensorFlow allocates.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.models.build_model import build_model
from hetero_tf.models.costs.counting import OuterCall, direct_weights, known_shape, trace
from hetero_tf.recipe.schema import Recipe

# The paper trains with batches of 128, but its table follows from this one.
TABLE_BATCH = 32
VALUE_BYTES = 4


@dataclass(frozen=True)
class UnitCost:
    """Cost of one unit of a model.

    Attributes:
        unit: Its name.
        elements: Counted values for one example, see `count_values`.
        parameters: Trainable values.
        multiply_adds: Of one forward pass of one example.
        by_constants: Those of them by constant kernels.
    """

    unit: str
    elements: int
    parameters: int
    multiply_adds: int
    by_constants: int = 0

    def memory(self, batch: int) -> int:
        """Return the bytes of training memory with `batch` examples in a step."""
        return VALUE_BYTES * (2 * batch * self.elements + self.parameters)

    def by(self, measure: str) -> int:
        """Return the amount that counts for a budget: bytes of memory with `TABLE_BATCH` examples, or multiply-adds."""
        return self.memory(TABLE_BATCH) if measure == "memory" else self.multiply_adds


def unit_costs(model: keras.Model, example: tuple[int, ...], units: dict[str, str]) -> tuple[UnitCost, ...]:
    """Trace one call of a model and count the cost of each unit.

    Args:
        model: Functional Keras model that was built for this purpose, see `counting.trace`.
        example: Shape of one input, without None.
        units: `{name of a layer of the model: name of its unit}`, such as `recipe.model.units`.

    Returns:
        One `UnitCost` for each unit that the model has, in the order of `units`.

    Raises:
        ValueError: A layer of the model is in no unit.
        InputError: A layer has a shape that is only known at run time.
    """
    layers = [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]
    missing = [layer.name for layer in layers if layer.name not in units]
    if missing:
        raise ValueError(f"`units` must name the unit of every layer. Received: units without {', '.join(missing)}")
    outer_calls = {outer.layer.name: outer for outer in trace(model, example)}
    costs: dict[str, UnitCost] = {}
    for name, unit in units.items():
        if name in outer_calls:
            cost = _cost(unit, outer_calls[name])
            costs[unit] = total([costs[unit], cost], unit) if unit in costs else cost
    return tuple(costs.values())


def unit_shares(
    recipe: Recipe, shape: tuple[int | None, ...], example: tuple[int, ...], classes: int
) -> dict[str, float]:
    """Return `{unit: share}`: each unit's share of the full model's cost, in the measure of the budgets.

    Args:
        recipe: The recipe.
        shape: Of one input without the batch axis, see `models.build_model.build_model`.
        example: The same without None.
        classes: Length of the global label axis.
    """
    width, whole = recipe.levels.widths[recipe.levels.global_level], full_model_cost(recipe, shape, example, classes)
    return {unit: amount / whole for unit, amount in _amounts(recipe, shape, example, classes, width).items()}


def full_model_cost(recipe: Recipe, shape: tuple[int | None, ...], example: tuple[int, ...], classes: int) -> float:
    """Return the cost that budgets are shares of: the model at width 1, without exits. Arguments: `unit_shares`."""
    return sum(_amounts(recipe, shape, example, classes, 1.0).values())


def _amounts(recipe, shape, example, classes, width):
    """Return the cost of each unit at a width, in the measure of the budgets."""
    model = build_model(recipe.model, shape, width, classes=classes, dtype=recipe.float_type)
    return {cost.unit: cost.by(recipe.levels.measure) for cost in unit_costs(model, example, recipe.model.units)}


def total(costs: Iterable[UnitCost], unit: str = "all") -> UnitCost:
    """Return the cost of several units together, under the name `unit`."""
    sums = np.sum([(cost.elements, cost.parameters, cost.multiply_adds, cost.by_constants) for cost in costs], axis=0)
    return UnitCost(unit, *sums.tolist())


def _cost(unit, outer):
    products, constant = sum(outer.products), sum(map(_by_constants, outer.calls))
    return UnitCost(unit, count_values(outer), _parameters(outer.layer), products, min(constant, products))


def _parameters(layer):
    return sum(math.prod(variable.shape) for variable in layer.trainable_variables)


def _by_constants(call):
    """Return the multiply-adds of a layer's constant kernels: each meets every position of the output once."""
    kernels = [v for v in direct_weights(call.layer) if v.name.endswith("kernel") and not v.trainable]
    if not kernels:
        return 0
    positions = math.prod(known_shape(call.outputs, call.layer.name)[:-1])
    return positions * sum(math.prod(kernel.shape) for kernel in kernels)


def count_values(outer: OuterCall) -> int:
    """Count the values that one call of a top-level layer keeps for one example.

    Outputs of layers with weights count, and outputs of composite layers if they are another tensor, as the sum of a
    residual block. Layers without weights (activations, pooling, Scaler) count nothing, and neither does a top-level
    layer whose weights are all vectors: the paper's total has no norm between the blocks.
    """
    if all(len(variable.shape) < 2 for variable in outer.layer.trainable_variables):
        return 0
    seen, values = set(), 0
    for call in outer.calls:
        for output in tf.nest.flatten(call.outputs):
            if call.layer.trainable_variables and id(output) not in seen:
                values += math.prod(known_shape(output, call.layer.name))
            seen.add(id(output))
    return values
