"""Training memory by the convention of FeDepth's Table 1, and multiply-adds, of every unit of a Keras model.

Memory in bytes = 2 * batch * 4 * elements + 4 * parameters: for every example the values that layers hand on and their
gradients, and the weights. The rule is derived from the published numbers and meant for shares of a full model; it is
no bound on what TensorFlow allocates.
"""

import math
from dataclasses import dataclass

import keras
import tensorflow as tf

from hetero_tf.models.build import build_model
from hetero_tf.models.counting import known_shape, multiply_adds
from hetero_tf.models.variables import all_layers

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
    """

    unit: str
    elements: int
    parameters: int
    multiply_adds: int

    def memory(self, batch):
        """Bytes of training memory with so many examples in a step."""
        return VALUE_BYTES * (2 * batch * self.elements + self.parameters)

    def by(self, measure):
        """What counts against a budget: bytes of memory with `TABLE_BATCH` examples, or multiply-adds."""
        return self.memory(TABLE_BATCH) if measure == "memory" else self.multiply_adds


def unit_costs(model, example, units):
    """Traces one call of a model and counts what each unit takes.

    Args:
        model: Built functional Keras model.
        example: Shape of one input, without None.
        units: `{name of a layer of the model: name of its unit}`; of a recipe's model
            `recipe.model.units`.

    Returns:
        Tuple of `UnitCost`, one for each unit that the model has, in the order of `units`.

    Raises:
        ValueError: A layer of the model is in no unit.
        BadInput: A layer gives a shape that is known only when it runs.
    """
    outermost = [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]
    missing = [layer.name for layer in outermost if layer.name not in units]
    if missing:
        raise ValueError(f"`units` must name the unit of every layer. Received: units without {', '.join(missing)}")
    traced, found = _trace(model, example, outermost), {}
    for layer in sorted(outermost, key=lambda layer: list(units).index(layer.name)):
        calls, products = traced[layer.name]
        sums = found.setdefault(units[layer.name], [0, 0, 0])
        for place, value in enumerate((counted(layer, calls), _parameters(layer), products)):
            sums[place] += value
    return tuple(UnitCost(unit, *sums) for unit, sums in found.items())


def unit_shares(recipe, shape, example, classes):
    """`{unit: share}`: what each unit takes by what all of them take, in the measure of the recipe's budgets.

    Args:
        recipe: `recipe.schema.Recipe`.
        shape: Of one input without the batch axis, see `models.build_model`; example: the same without None.
        classes: Length of the global label axis.
    """
    width = recipe.levels.widths[recipe.levels.global_level]
    model = build_model(recipe.model, shape, width, classes=classes, dtype=recipe.float_type)
    units = recipe.model.units
    found = {cost.unit: cost.by(recipe.levels.measure) for cost in unit_costs(model, example, units)}
    return {unit: held / sum(found.values()) for unit, held in found.items()}


def total(costs):
    """The `UnitCost` of all units together, "all"."""
    return UnitCost(
        "all", *(sum(getattr(cost, name) for cost in costs) for name in ("elements", "parameters", "multiply_adds"))
    )


def _trace(model, example, outermost):
    """`{name of an outermost layer: (calls in it as (layer, output tensors), its own last; multiply-adds)}`."""
    found, calls = {}, []

    def recorded(layer, call):
        def record(*args, **kwargs):
            graph = tf.compat.v1.get_default_graph()
            before = len(graph.get_operations())
            outputs = call(*args, **kwargs)
            calls.append((layer, tf.nest.flatten(outputs)))
            if layer in outermost:
                found[layer.name] = calls.copy(), sum(map(multiply_adds, graph.get_operations()[before:]))
                calls.clear()
            return outputs

        return record

    layers = list(all_layers(model))
    for layer in layers:
        layer.call = recorded(layer, layer.call)
    spec = tf.TensorSpec((1, *example), model.inputs[0].dtype)
    try:
        tf.function(lambda inputs: model(inputs, training=False)).get_concrete_function(spec)
    finally:
        # The class's own method shows again: clients train this model too.
        for layer in layers:
            del layer.call
    return found


def _parameters(layer):
    return sum(math.prod(variable.shape) for variable in layer.trainable_variables)


def counted(outermost, calls):
    """Values for one example that count in the call of one outermost layer.

    What a layer with weights hands on counts, and what a composite layer makes of that where it is a tensor of its
    own, as the sum of a residual block. Layers without weights (activations, pooling, Scaler) count nothing, and
    neither does an outermost layer whose weights are all vectors: the paper's total has no norm between the blocks.

    Args:
        outermost: The layer.
        calls: (layer, output tensors) of every call in it, in the order in which they end, its own the last.
    """
    if all(len(variable.shape) < 2 for variable in outermost.trainable_variables):
        return 0
    seen, values = set(), 0
    for layer, outputs in calls:
        for output in outputs:
            if layer.trainable_variables and id(output) not in seen:
                values += math.prod(known_shape(output, layer.name))
            seen.add(id(output))
    return values
