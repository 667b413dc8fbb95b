"""Stacks: K clients of one level computed at once, each client's values as one row of a matrix.

One row instead of dozens of variables makes an optimiser step a handful of operations, which is most of the cost of a
narrow model; several clients side by side share what is left.
"""

import math
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.models.variables import all_layers
from hetero_tf.rounds.routed_model import RoutedModel, check_twin


class CannotStack(Exception):
    """A model cannot compute several clients at once; the text says why."""


@dataclass(frozen=True)
class StageModels:
    """What is computed in a stage's steps.

    Attributes:
        models: `RoutedModel` of each route.
        trained: bool [learned], the values that move; None: all of them.
        before: `RoutedModel` of the frozen units where the steps begin behind them and read what they give from a buffer.
    """

    models: tuple[RoutedModel, ...]
    trained: np.ndarray | None
    before: RoutedModel | None


@dataclass(frozen=True)
class Stack:
    """How the clients of one level are computed.

    Attributes:
        clients: K.
        shapes: Of one client's values: the trainable ones of its network and of its peers, then their running
            statistics.
        learned: How many of them are trainable.
        copies: Networks of a client: 1 and its peers.
        stages: `StageModels` of each stage.
    """

    clients: int
    shapes: tuple
    learned: int
    copies: int
    stages: tuple[StageModels, ...]

    @property
    def sizes(self):
        """Number of values of each variable."""
        return [math.prod(shape) for shape in self.shapes]

    @property
    def parameters(self):
        """Number of trainable values."""
        return sum(self.sizes[: self.learned])

    def to_rows(self, clients):
        """A list of K clients' lists of values, those of one network, as one matrix [K, values]; peers start alike."""
        trainable = self.learned // self.copies
        rows = [[*values[:trainable] * self.copies, *values[trainable:] * self.copies] for values in clients]
        return tf.stack([tf.concat([tf.reshape(value, [-1]) for value in values], 0) for values in rows])

    def from_row(self, row):
        """The values in their own shapes of the first network of one client's row [values]."""
        return [tf.reshape(part, shape) for part, shape in zip(self._own(tf.split(row, self.sizes)), self.own_shapes)]

    @property
    def own_shapes(self):
        """Shapes of the values of the first network alone."""
        return self._own(self.shapes)

    def _own(self, values):
        trainable, running = self.learned // self.copies, (len(values) - self.learned) // self.copies
        return [*values[:trainable], *values[self.learned : self.learned + running]]

    @property
    def loops(self):
        """Positions of the stages that are trained in one loop: all, or one where a buffer is filled between them."""
        numbers = range(len(self.stages))
        return [[number] for number in numbers] if any(stage.before for stage in self.stages) else [list(numbers)]

    def handed_on(self, matrix, inputs, stage):
        """What the frozen units of a stage give for inputs [K, batch, ...], like them."""
        key = tf.zeros([self.clients, 1], tf.int32)
        (found,), _ = self.stages[stage].before.call(tf.split(matrix, self.sizes, axis=1), self.shapes, key, inputs)
        return found

    def call(self, matrix, key, inputs, stage=0):
        """One training step of a stage.

        Args:
            matrix: [K, values].
            key: int32 [K, words] for dropout.
            inputs: [K, batch, ...].
            stage: A Python int.

        Returns:
            List of logits [K, batch, ...], route by route and exit by exit; and the running statistics behind the
            trainable values after the step, [K, values], None where there are none.
        """
        parts, outputs = tf.split(matrix, self.sizes, axis=1), []
        for net in self.stages[stage].models:
            logits, moved = net.call(parts, self.shapes, key, inputs)
            outputs += logits
            for place, value in moved:
                parts[place] = value
        return outputs, tf.concat(parts[self.learned :], 1) if len(parts) > self.learned else None


def build_stack(alone, build, clients):
    """A `Stack` of several clients.

    Args:
        alone: The level's `Stack` of one client.
        build: `clients -> Stack`, of twins.
        clients: K > 1.

    Raises:
        CannotStack: A layer has no form for several clients, shown by its shapes or by wrong numbers in a probe.
    """
    try:
        stack = build(clients)
        for twins, ordinary in zip(stack.stages, alone.stages, strict=True):
            for twin, net in zip(twins.models, ordinary.models, strict=True):
                check_twin(twin, net)
        found = all(_probe(stack, alone, stage) for stage in range(len(alone.stages)))
    # A layer that was never meant for several clients may fail in any way; its model then still runs one client at a time.
    except Exception as problem:
        raise CannotStack((str(problem).strip() or repr(problem)).splitlines()[0]) from problem
    if not found:
        raise CannotStack("several clients at once give other numbers than one by one")
    return stack


def _probe(stack, alone, stage):
    """Runs two examples of random numbers through both; compares logits and gradients client by client."""
    rng, net = np.random.default_rng(0), alone.stages[stage].models[0]
    # Each result of a bfloat16 product is off by up to 0.4 %, and sums in another order round to the next one.
    mixed = any(layer.compute_dtype == "bfloat16" for layer in all_layers(net.model))
    tolerance = 5e-2 if mixed else 1e-2
    dtype = net.model.trainable_variables[0].dtype
    matrix = tf.constant(rng.normal(0, 0.1, (stack.clients, sum(stack.sizes))), dtype)
    inputs, key = _probe_inputs(stack.clients, net.model, rng), tf.reshape(tf.range(3 * stack.clients), [-1, 3])
    found = _slope(stack, stage, matrix, inputs, key)
    for client in range(stack.clients):
        own = slice(client, client + 1)
        wanted = _slope(alone, stage, matrix[own], inputs[own], key[own])
        for one, other in zip(found, wanted, strict=True):
            if not np.allclose(one[own], other, rtol=tolerance, atol=tolerance * np.max(np.abs(other))):
                return False
    return True


def _probe_inputs(clients, model, rng):
    """[clients, 2, ...] random inputs of an ordinary model; three positions where their number varies."""
    spec = model.inputs[0]
    shape = (clients, 2, *[3 if size is None else size for size in spec.shape[1:]])
    whole = spec.dtype.startswith("int")
    return tf.constant(rng.integers(0, 2, shape) if whole else rng.normal(size=shape), spec.dtype)


@tf.autograph.experimental.do_not_convert
def _slope(stack, stage, matrix, inputs, key):
    """Logits of each output, and the gradient of the sum of their squares, each [K, ...]."""
    with tf.GradientTape() as tape:
        tape.watch(matrix)
        outputs, _ = stack.call(matrix, key, inputs, stage)
        total = tf.add_n([tf.reduce_sum(logits**2) for logits in outputs])
    return [*(logits.numpy() for logits in outputs), tape.gradient(total, matrix).numpy()]
