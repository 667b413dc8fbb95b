"""A local training step of a client as a function of tensors, for devices that train without this package."""

import contextlib
import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

from hetero_tf.export import portable_gradients
from hetero_tf.export.positions import NextWordTask
from hetero_tf.export.task import ExportTask
from hetero_tf.layers.dropout import STEPS, Dropout
from hetero_tf.layers.gelu import GELU
from hetero_tf.models.variables import all_layers, constants, queried, values
from hetero_tf.rounds.local_training import clip_by_norm
from hetero_tf.rounds.row_model import RowModel
from hetero_tf.rounds.training_step import Objective

UNIFORM = "uniform_"


def tape_gradients(function: Callable, values: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor], list]:
    """Return the results of `portable_gradients.gradients`, computed by TensorFlow's native gradients."""
    with tf.GradientTape() as tape:
        tape.watch(values)
        loss, others = function(values)
    return loss, tape.gradient(loss, values, unconnected_gradients="zero"), others


@dataclass(frozen=True, eq=False)
class LocalStep:
    """Training steps of a client of one level, and their variables. Make it with `build_local_step`.

    Attributes:
        task: Export task of the model that the level predicts with.
        row_model: Model that the client trains.
        values_by_path: `{path: value}` in the order of the model's values, trainable ones first: a tf.Variable for a
            value that the client returns, a tensor for a constant.
        slots: Slot variables of the optimizer for each trainable value, [1, values] each.
        count: int32 [1], the number of steps of the optimizer.
        is_portable: True to use only operations that LiteRT has; the others are TensorFlow's.
    """

    task: ExportTask
    row_model: RowModel
    values_by_path: dict[str, tf.Variable | tf.Tensor]
    slots: list[list[tf.Variable]]
    count: tf.Variable
    is_portable: bool

    @property
    def returned(self) -> dict[str, tf.Variable]:
        """Variables that the client returns, `{path: variable}`: trainable values, then running statistics."""
        return {path: value for path, value in self.values_by_path.items() if isinstance(value, tf.Variable)}

    @property
    def statistics(self) -> dict[str, tf.Variable]:
        """Statistics of static batch normalization, `{path: variable}`: `push` sets them, steps do not change them."""
        return {variable.path: variable.value for variable in queried(self.task.model)}

    def inputs(self, examples: int, positions: int) -> dict[str, tf.TensorSpec]:
        """Return the input specs of a step, by name.

        `image` float32 [examples, height, width, channels] with pixels in 0..1, `features` float32 [examples, features]
        of a table, or `token_ids` int32 [examples, positions] with masked words; `label`, the targets of the loss:
        int32 [examples, positions] of text, otherwise [examples, ...] in the type of `Task.encode`; `present` bool
        [outputs], those of the client's classes; `learning_rate`, a scalar; and for each Dropout `uniform_0` and so on,
        multiples of 2**-16 in [0, 1): values with a number below the rate are dropped.
        """
        process, targets = self.task.process, self.task.process.setup.examples.y
        if targets is None:
            rows = {name: tf.TensorSpec((examples, positions), tf.int32) for name in ("token_ids", "label")}
        else:
            shape = process.input.shape(process.dataset.train.x)
            rows = {self.task.portable_input: tf.TensorSpec((examples, *shape), tf.float32)}
            rows["label"] = tf.TensorSpec((examples, *targets.shape[1:]), targets.dtype)

        def forward(batch):
            empty = [tf.zeros([1, math.prod(shape)]) for shape in self.row_model.shapes]
            self.row_model.call(empty, self.row_model.shapes, tf.zeros([1, 1], tf.int32), batch[None])

        return {
            **rows,
            "present": tf.TensorSpec((process.family.classes,), tf.bool),
            "learning_rate": tf.TensorSpec((), tf.float32),
            **_draw_specs(self.row_model.model, forward, rows[self.task.portable_input]),
        }

    def statistics_inputs(self) -> dict[str, tf.TensorSpec]:
        """Return the input specs of `moments`: examples and draws of a step, for a batch of any size."""
        task = self.task
        positions = task.segment if isinstance(task, NextWordTask) else 1
        example = self.inputs(1, positions)[task.portable_input]
        specs = {
            task.portable_input: example,
            **_draw_specs(task.model, lambda x: task.model(x, training=True), example),
        }
        return {name: tf.TensorSpec((None, *spec.shape[1:]), spec.dtype) for name, spec in specs.items()}

    def moments(self, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return means and unbiased variances of a batch, by `statistic_names`.

        Layers normalize by the moments of the batch, as in `predictor.StatisticsQuery`.
        """
        model = self.task.model
        variables = model.trainable_variables, model.non_trainable_variables
        values = [[tf.convert_to_tensor(variable) for variable in group] for group in variables]
        with _drawing(model, _input_draws(inputs)):
            _, after = model.stateless_call(*values, self._model_inputs(inputs), training=True)
        by_path = {variable.path: value for variable, value in zip(variables[1], after, strict=True)}
        return {name: by_path[path] for name, path in self.statistic_names.items()}

    def train(self, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Run a step; return scalars "loss", before the step, and "gradient_norm", before clipping."""
        algorithm = self.task.process.setup.algorithm
        objective = Objective(algorithm.loss, algorithm.couple, 0, inputs["present"][None], tf.constant(0))
        rows = [tf.reshape(value, [1, -1]) for value in self.values_by_path.values()]

        def forward(trainable):
            outputs, running, penalties = self._call([*trainable, *rows[len(trainable) :]], inputs)
            return objective(outputs, inputs["label"][None], penalties)[0], running

        compute = portable_gradients.gradients if self.is_portable else tape_gradients
        loss, gradients, running = compute(forward, rows[: len(self.slots)])
        norm = tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(gradient)) for gradient in gradients]))
        self._apply_gradients(rows, gradients, norm, inputs["learning_rate"])
        variables = list(self.values_by_path.values())
        for position, value in running:
            variables[position].assign(tf.reshape(value, variables[position].shape))
        return {"loss": loss, "gradient_norm": norm}

    def _call(self, rows, inputs):
        for layer in all_layers(self.row_model.model):
            if isinstance(layer, GELU):
                layer.erf = portable_gradients.erf if self.is_portable else tf.math.erf
        # The key has no effect, since all random numbers are inputs.
        with _drawing(self.row_model.model, _input_draws(inputs)):
            batch = self._model_inputs(inputs)
            return self.row_model.call(rows, self.row_model.shapes, tf.zeros([1, 1], tf.int32), batch[None])

    def _model_inputs(self, inputs):
        batch = inputs[self.task.portable_input]
        return batch if isinstance(self.task, NextWordTask) else self.task.model_inputs(batch)

    def _apply_gradients(self, rows, gradients, norm, learning_rate):
        optimizer, variables = self.task.process.setup.algorithm.optimizer, self.values_by_path.values()
        for row, gradient, variable, slots in zip(rows, gradients, variables, self.slots):
            slot_values = tuple(tf.convert_to_tensor(slot) for slot in slots)
            gradient = clip_by_norm(gradient, norm[None], optimizer.clip_norm)
            new_row, slot_values = optimizer.step(
                row, gradient, slot_values, learning_rate, tf.convert_to_tensor(self.count)
            )
            variable.assign(tf.reshape(new_row, variable.shape))
            for slot, value in zip(slots, slot_values, strict=True):
                slot.assign(value)
        self.count.assign_add([1])

    def push(self, **new_values: tf.Tensor) -> dict[str, tf.Tensor]:
        """Set values by `names` and `statistic_names`, and reset the optimizer; return {"steps": [0]}."""
        for name, variable in self._variables.items():
            variable.assign(new_values[name])
        for slot in [slot for slots in self.slots for slot in slots]:
            slot.assign(tf.zeros_like(slot))
        self.count.assign([0])
        return {"steps": tf.convert_to_tensor(self.count)}

    def pull(self) -> dict[str, tf.Tensor]:
        """Return the current values of all variables that `push` sets, by `names` and `statistic_names`."""
        return {name: tf.identity(variable) for name, variable in self._variables.items()}

    @property
    def _variables(self):
        by_path = self.returned | self.statistics
        return {name: by_path[path] for name, path in (self.names | self.statistic_names).items()}

    @property
    def names(self) -> dict[str, str]:
        """Tensor names of returned values, `{name: path}`: paths have characters that tensor names do not allow."""
        return {f"value_{position}": path for position, path in enumerate(self.returned)}

    @property
    def statistic_names(self) -> dict[str, str]:
        """Tensor names of `statistics`, `{name: path}`."""
        return {f"statistic_{position}": path for position, path in enumerate(self.statistics)}


def _input_draws(inputs):
    """Return `draw(layer, values)`, which returns the draws of the inputs in the order of the forward pass."""
    # Index by number: a traced function sorts its inputs by name, in which 10 precedes 2.
    draws = (inputs[f"{UNIFORM}{site}"] for site in itertools.count())
    return lambda layer, values: next(draws) * STEPS


def _draw_specs(model, forward, spec):
    """Return `{name: spec}` of the draws of each Dropout of a model, in the order of the forward pass."""
    shapes = []

    def record(layer, values):
        shapes.append(tuple(values.shape))
        return tf.zeros(shapes[-1])

    with _drawing(model, record):
        tf.function(forward, autograph=False).get_concrete_function(spec)
    return {f"{UNIFORM}{site}": tf.TensorSpec(shape, tf.float32) for site, shape in enumerate(shapes)}


@contextlib.contextmanager
def _drawing(model, draw):
    """Replace the draws of each Dropout of a model by `draw(layer, inputs)`."""
    drops = [layer for layer in all_layers(model) if isinstance(layer, Dropout)]
    for layer in drops:
        layer.draws = functools.partial(draw, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in drops:
            del layer.draws


def build_local_step(task: ExportTask, level: str, is_portable: bool) -> LocalStep:
    """Build the training steps of a client, which update the variables of a model."""
    process, model = task.process, task.model
    training_model = process.family.new_training_model(level, process.family.classes)
    variables_by_path = {variable.path: variable for variable in model.variables}
    constant_paths = {variable.path for variable in constants(training_model)}
    values_by_path = {
        variable.path: tf.constant(variables_by_path[variable.path].numpy())
        if variable.path in constant_paths
        else variables_by_path[variable.path].value
        for variable in values(training_model)
    }
    shapes = tuple(tuple(value.shape) for value in values_by_path.values())
    slots = [
        [
            tf.Variable(tf.zeros([1, variable.shape.num_elements()]))
            for _ in range(process.setup.algorithm.optimizer.slots)
        ]
        for variable in training_model.trainable_variables
    ]
    row_model = RowModel(training_model, 1, shapes, tuple(range(len(shapes))))
    return LocalStep(task, row_model, values_by_path, slots, tf.Variable([0]), is_portable)
