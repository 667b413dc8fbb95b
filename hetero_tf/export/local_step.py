"""A client's step of local training as a function of arrays, for devices that train without this package."""

import contextlib
import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import keras
import tensorflow as tf

from hetero_tf.export import portable_gradients
from hetero_tf.export.kinds import kind_of
from hetero_tf.export.portable_erf import erf
from hetero_tf.layers.dropout import STEPS, Dropout
from hetero_tf.layers.gelu import GELU
from hetero_tf.models.variables import all_layers, constants, queried, values
from hetero_tf.process.learning_process import LearningProcess
from hetero_tf.rounds.local_training import clipped
from hetero_tf.rounds.objective import Objective
from hetero_tf.rounds.row_model import RowModel

UNIFORM = "uniform_"


@dataclass(frozen=True)
class Arithmetic:
    """What differs between a step in TensorFlow and the same step for LiteRT.

    Attributes:
        gradients: `(function, values) -> (loss, gradients, others)`, as `portable_gradients.gradients`.
        erf: The error function.
    """

    gradients: Callable
    erf: Callable


def by_tape(function: Callable, values: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor], list]:
    """Returns what `portable_gradients.gradients` returns, by TensorFlow's own gradients."""
    with tf.GradientTape() as tape:
        tape.watch(values)
        loss, others = function(values)
    return loss, tape.gradient(loss, values, unconnected_gradients="zero"), others


PORTABLE = Arithmetic(portable_gradients.gradients, erf)
NATIVE = Arithmetic(by_tape, tf.math.erf)


@dataclass(frozen=True, eq=False)
class LocalStep:
    """The steps of a client of one level, and the variables that they change. Make it with `build_local_step`.

    Attributes:
        process: What the client takes part in.
        routed: The model that it trains.
        model: The model by which its level predicts.
        held: `{path: value}` in the order of the model's values, trainable ones first: a tf.Variable of what the client
            returns, a tensor of what is constant.
        slots: For each trainable value what the optimizer keeps beside it, [1, values] each.
        count: int32 [1], how many steps the optimizer has taken.
        arithmetic: `PORTABLE` or `NATIVE`.
    """

    process: LearningProcess
    routed: RowModel
    model: keras.Model
    held: dict[str, tf.Variable | tf.Tensor]
    slots: list[list[tf.Variable]]
    count: tf.Variable
    arithmetic: Arithmetic

    @property
    def returned(self) -> dict[str, tf.Variable]:
        """`{path: variable}` of what the client returns: trainable values, then running statistics."""
        return {path: value for path, value in self.held.items() if isinstance(value, tf.Variable)}

    @property
    def statistics(self) -> dict[str, tf.Variable]:
        """`{path: variable}` of static batch normalization's statistics, which `push` sets and no step changes."""
        return {variable.path: variable.value for variable in queried(self.model)}

    def inputs(self, examples: int, positions: int) -> dict[str, tf.TensorSpec]:
        """What a step takes, by name.

        `image` float32 [examples, height, width, channels] with pixels in 0..1, `features` float32 [examples, features]
        of a table, or `token_ids` int32 [examples, positions] in which words are hidden already; `label` int32,
        [examples] or [examples, positions]; `present` bool [classes], the labels that the client has; `learning_rate`,
        a scalar; and for each Dropout `uniform_0` and so on, multiples of 2**-16 in [0, 1): values whose number is
        below its rate are dropped.
        """
        process = self.process
        if process.dataset.kind == "text":
            rows = {name: tf.TensorSpec((examples, positions), tf.int32) for name in ("token_ids", "label")}
        else:
            shape = process.input.shape(process.dataset.train.x)
            rows = {kind_of(process).GIVEN: tf.TensorSpec((examples, *shape), tf.float32)}
            rows["label"] = tf.TensorSpec((examples,), tf.int32)

        def forward(given):
            empty = [tf.zeros([1, math.prod(shape)]) for shape in self.routed.shapes]
            self.routed.call(empty, self.routed.shapes, tf.zeros([1, 1], tf.int32), given[None])

        return {
            **rows,
            "present": tf.TensorSpec((process.dataset.classes,), tf.bool),
            "learning_rate": tf.TensorSpec((), tf.float32),
            **_draw_specs(self.routed.model, forward, rows[kind_of(process).GIVEN]),
        }

    def statistics_inputs(self) -> dict[str, tf.TensorSpec]:
        """Inputs of `moments` by name: the examples and draws of a step, for a batch of any number of examples."""
        kind = kind_of(self.process)
        positions = kind.segment_of(self.process, self.process.dataset.train.x) if kind.GIVEN == "token_ids" else 1
        example = self.inputs(1, positions)[kind.GIVEN]
        specs = {kind.GIVEN: example, **_draw_specs(self.model, lambda x: self.model(x, training=True), example)}
        return {name: tf.TensorSpec((None, *spec.shape[1:]), spec.dtype) for name, spec in specs.items()}

    def moments(self, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Means and unbiased variances of a batch by `statistic_names`, each layer's after the layers before it
        normalized by those of the batch, as `calibration.build_calibrate` takes them."""
        variables = self.model.trainable_variables, self.model.non_trainable_variables
        values = [[tf.convert_to_tensor(variable) for variable in group] for group in variables]
        with _drawing(self.model, _given_draws(inputs)):
            _, after = self.model.stateless_call(*values, self._model_inputs(inputs), training=True)
        by_path = {variable.path: value for variable, value in zip(variables[1], after, strict=True)}
        return {name: by_path[path] for name, path in self.statistic_names.items()}

    def train(self, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Takes a step: scalars "loss", before it, and "gradient_norm", before the gradient is clipped."""
        algorithm = self.process.parts.algorithm
        objective = Objective(algorithm.loss, algorithm.couple, 0, inputs["present"][None], tf.constant(0))
        rows = [tf.reshape(value, [1, -1]) for value in self.held.values()]

        def forward(trainable):
            outputs, running = self._call([*trainable, *rows[len(trainable) :]], inputs)
            return objective(outputs, inputs["label"][None])[0], running

        loss, gradients, running = self.arithmetic.gradients(forward, rows[: len(self.slots)])
        norm = tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(gradient)) for gradient in gradients]))
        self._move(rows, gradients, norm, inputs["learning_rate"])
        variables = list(self.held.values())
        for position, value in running:
            variables[position].assign(tf.reshape(value, variables[position].shape))
        return {"loss": loss, "gradient_norm": norm}

    def _call(self, rows, inputs):
        """Logits [1, examples, ...] of each exit, and the running statistics, see `RowModel.call`."""
        for layer in all_layers(self.routed.model):
            if isinstance(layer, GELU):
                layer.erf = self.arithmetic.erf
        # The key decides nothing, as all numbers come from outside.
        with _drawing(self.routed.model, _given_draws(inputs)):
            given = self._model_inputs(inputs)
            return self.routed.call(rows, self.routed.shapes, tf.zeros([1, 1], tf.int32), given[None])

    def _model_inputs(self, inputs):
        kind = kind_of(self.process)
        given = inputs[kind.GIVEN]
        return given if self.process.dataset.kind == "text" else kind.model_inputs(self.process, given)

    def _move(self, rows, gradients, norm, learning_rate):
        """Takes the optimizer's step."""
        optimizer, variables = self.process.parts.algorithm.optimizer, self.held.values()
        for row, gradient, variable, slots in zip(rows, gradients, variables, self.slots):
            kept = tuple(tf.convert_to_tensor(slot) for slot in slots)
            gradient = clipped(gradient, norm[None], optimizer.clip_norm)
            stepped, kept = optimizer.step(row, gradient, kept, learning_rate, tf.convert_to_tensor(self.count))
            variable.assign(tf.reshape(stepped, variable.shape))
            for slot, value in zip(slots, kept, strict=True):
                slot.assign(value)
        self.count.assign_add([1])

    def push(self, **named: tf.Tensor) -> dict[str, tf.Tensor]:
        """Takes over values by `names` and `statistic_names`, and resets the optimizer; "steps" are 0 then."""
        variables = {name: self.returned[path] for name, path in self.names.items()}
        variables |= {name: self.statistics[path] for name, path in self.statistic_names.items()}
        for name, variable in variables.items():
            variable.assign(named[name])
        for slot in [slot for slots in self.slots for slot in slots]:
            slot.assign(tf.zeros_like(slot))
        self.count.assign([0])
        return {"steps": tf.convert_to_tensor(self.count)}

    def pull(self) -> dict[str, tf.Tensor]:
        """The current values, by `names` and `statistic_names`: all that `push` sets."""
        values = {name: tf.identity(self.returned[path]) for name, path in self.names.items()}
        return values | {name: tf.identity(self.statistics[path]) for name, path in self.statistic_names.items()}

    @property
    def names(self) -> dict[str, str]:
        """`{name: path}` of the values that a client returns: paths have signs that names of tensors must not have."""
        return {f"value_{position}": path for position, path in enumerate(self.returned)}

    @property
    def statistic_names(self) -> dict[str, str]:
        """`{name: path}` of `statistics`."""
        return {f"statistic_{position}": path for position, path in enumerate(self.statistics)}


def _given_draws(inputs):
    """`draw(layer, values)` that returns the draws among the inputs, in the order of the forward pass."""
    # By number: a traced function gets its inputs in the order of their names, in which 10 comes before 2.
    draws = (inputs[f"{UNIFORM}{site}"] for site in itertools.count())
    return lambda layer, values: next(draws) * STEPS


def _draw_specs(model, forward, spec):
    """`{name: spec}` of the draws of each Dropout of a model, in the order of `forward(inputs of spec)`."""
    shapes = []

    def record(layer, values):
        with tf.init_scope():
            shapes.append(tuple(layer.draws_shape(tf.zeros(values.shape)).numpy().tolist()))
        return tf.zeros(shapes[-1])

    with _drawing(model, record):
        tf.function(forward, autograph=False).get_concrete_function(spec)
    return {f"{UNIFORM}{site}": tf.TensorSpec(shape, tf.float32) for site, shape in enumerate(shapes)}


@contextlib.contextmanager
def _drawing(model, draw):
    """Lets `draw(layer, inputs)` replace the draws of each Dropout of a model."""
    drops = [layer for layer in all_layers(model) if isinstance(layer, Dropout)]
    for layer in drops:
        layer.draws = functools.partial(draw, layer)
    try:
        yield
    finally:
        for layer in drops:
            del layer.draws


def build_local_step(process: LearningProcess, level: str, model: keras.Model, arithmetic: Arithmetic) -> LocalStep:
    """Builds the steps of a client that starts with the values of a model and changes its variables.

    Args:
        process: What the client takes part in.
        level: Of the client.
        model: By which the level predicts, see `LearningProcess.model`.
        arithmetic: `PORTABLE` or `NATIVE`.
    """
    trained = process.family.fresh(level, process.dataset.classes)
    of_path = {variable.path: variable for variable in model.variables}
    fixed = {variable.path for variable in constants(trained)}
    held = {
        variable.path: tf.constant(of_path[variable.path].numpy())
        if variable.path in fixed
        else of_path[variable.path].value
        for variable in values(trained)
    }
    shapes = tuple(tuple(value.shape) for value in held.values())
    slots = [
        [
            tf.Variable(tf.zeros([1, variable.shape.num_elements()]))
            for _ in range(process.parts.algorithm.optimizer.slots)
        ]
        for variable in trained.trainable_variables
    ]
    routed = RowModel(trained, 1, shapes, tuple(range(len(shapes))))
    return LocalStep(process, routed, model, held, slots, tf.Variable([0]), arithmetic)
