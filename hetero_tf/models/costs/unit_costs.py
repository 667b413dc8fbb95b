"""Training memory by the convention of FeDepth's Table 1, and multiply-adds, of every unit of a Keras model.

Memory in bytes = 2 * batch * 4 * elements + 4 * parameters: for every example the values that layers hand on and their
gradients, and the weights. The rule is derived from the published numbers and meant for shares of a full model; it is
no bound on what TensorFlow allocates.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.models.build_model import build_model
from hetero_tf.models.costs.counting import OuterCall, known_shape, own_weights, trace
from hetero_tf.recipe.schema import Recipe

# The paper trains with batches of 128, but its table comes out with this one.
TABLE_BATCH = 32
VALUE_BYTES = 4


@dataclass(frozen=True)
class UnitCost:
    """What one unit of a model takes.

    Attributes:
        unit: Its name.
        elements: Values for one example that count, see `counted`.
        parameters: Trainable values.
        multiply_adds: Of one forward pass of one example.
        by_constants: Those of them by kernels that nobody trains.
    """

    unit: str
    elements: int
    parameters: int
    multiply_adds: int
    by_constants: int = 0

    def memory(self, batch: int) -> int:
        """Returns the bytes of training memory with so many examples in a step."""
        return VALUE_BYTES * (2 * batch * self.elements + self.parameters)

    def by(self, measure: str) -> int:
        """Returns what counts against a budget: bytes of memory with `TABLE_BATCH` examples, or multiply-adds."""
        return self.memory(TABLE_BATCH) if measure == "memory" else self.multiply_adds


def unit_costs(model: keras.Model, example: tuple[int, ...], units: dict[str, str]) -> tuple[UnitCost, ...]:
    """Traces one call of a model and counts what each unit takes.

    Args:
        model: Functional Keras model that was built for this purpose, see `counting.trace`.
        example: Shape of one input, without None.
        units: `{name of a layer of the model: name of its unit}`, such as `recipe.model.units`.

    Returns:
        One `UnitCost` for each unit that the model has, in the order of `units`.

    Raises:
        ValueError: A layer of the model is in no unit.
        InputError: A layer gives a shape that is known only when it runs.
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
    """Returns `{unit: share}`: what each unit takes of what the whole model takes, in the measure of the budgets.

    Args:
        recipe: The recipe.
        shape: Of one input without the batch axis, see `models.build_model.build_model`.
        example: The same without None.
        classes: Length of the global label axis.
    """
    width, whole = recipe.levels.widths[recipe.levels.global_level], whole_model(recipe, shape, example, classes)
    return {unit: amount / whole for unit, amount in _amounts(recipe, shape, example, classes, width).items()}


def whole_model(recipe: Recipe, shape: tuple[int | None, ...], example: tuple[int, ...], classes: int) -> float:
    """Returns what budgets are shares of: what the model takes at width 1, without exits. Arguments: `unit_shares`."""
    return sum(_amounts(recipe, shape, example, classes, 1.0).values())


def _amounts(recipe, shape, example, classes, width):
    """What each unit takes at a width, in the measure of the budgets."""
    model = build_model(recipe.model, shape, width, classes=classes, dtype=recipe.float_type)
    return {cost.unit: cost.by(recipe.levels.measure) for cost in unit_costs(model, example, recipe.model.units)}


def total(costs: Iterable[UnitCost], unit: str = "all") -> UnitCost:
    """Returns the cost of several units together, as one of the name `unit`."""
    sums = np.sum([(cost.elements, cost.parameters, cost.multiply_adds, cost.by_constants) for cost in costs], axis=0)
    return UnitCost(unit, *sums.tolist())


def _cost(unit, outer):
    products, constant = sum(outer.products), sum(map(_by_constants, outer.calls))
    return UnitCost(unit, counted(outer), _parameters(outer.layer), products, min(constant, products))


def _parameters(layer):
    return sum(math.prod(variable.shape) for variable in layer.trainable_variables)


def _by_constants(call):
    """Multiply-adds of a layer's own constant kernels: each meets every position of the output once."""
    kernels = [v for v in own_weights(call.layer) if v.name.endswith("kernel") and not v.trainable]
    if not kernels:
        return 0
    positions = math.prod(known_shape(call.outputs, call.layer.name)[:-1])
    return positions * sum(math.prod(kernel.shape) for kernel in kernels)


def counted(outer: OuterCall) -> int:
    """Counts the values that one call of an outermost layer keeps for one example.

    What a layer with weights hands on counts, and what a composite layer makes of that where it is a tensor of its
    own, as the sum of a residual block. Layers without weights (activations, pooling, Scaler) count nothing, and
    neither does an outermost layer whose weights are all vectors: the paper's total has no norm between the blocks.
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
