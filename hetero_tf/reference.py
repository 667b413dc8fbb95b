"""The round of HeteroFL as the paper states it: a plain, eager loop over clients. Read this file first.

A round has three steps. Every active client receives a sub-model: the first channels of each global variable (`cut`).
It trains it on its examples (`train_client`). The server replaces each entry of a global variable by the mean over the
clients that trained this entry (`merge`); entries that no client trained keep their value.

`rounds/` computes the same for all clients at once in one `tf.function`; `tests/rounds` compares the two. Nothing here
calls it: the cut is NumPy indexing, and the optimizer and the loss are written out.

    python -m hetero_tf.reference tiny/digits        trains a recipe by this loop and prints the metrics of each round

Source: Diao, Ding and Tarokh, "HeteroFL", ICLR 2021 (arXiv 2010.01264), Algorithm 1 and section 3.
"""

import dataclasses
import functools
import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.console import format_metrics
from hetero_tf.base.errors import InputError
from hetero_tf.base.metrics import displayed_metrics
from hetero_tf.data.inputs import all_labels
from hetero_tf.models.cut import first_entries
from hetero_tf.models.variables import constants
from hetero_tf.run.learning_process import LearningProcess, Plan, State, learning_process

Weights = dict[str, np.ndarray]  # {variable path: value}
Coordinates = dict[str, list[np.ndarray]]  # {variable path: the global indices of each axis}

# The keys of each part of a recipe that the loop follows, or on which only the data, a plan or the evaluation
# depend. Of all other keys the loop knows the default alone.
FOLLOWED = {
    "": "name seed data task input partition rounds schedule precision engine evaluate checkpoint",
    "model": "settings initial_weights reinitialize frozen layers",
    "levels": "widths rounding mix assignment budgets tolerance fit measure",
    "round": "clients",
    "client": "epochs batch_size sampling loss label_cut",
    "optimizer": "method learning_rate clip_norm",
}


class ReferenceRounds:
    """Trains rounds one client after another, with the recipe, data, partition and Keras models of a process."""

    def __init__(self, process: LearningProcess):
        self.process = process
        self.models: dict[str, keras.Model] = {}

    def run(self, weights: Weights, plans: list[Plan], first_round: int = 0) -> tuple[Weights, list[np.ndarray]]:
        """Return the weights after some rounds, and `[mean loss, mean gradient norm]` of each round."""
        metrics = []
        for round, plan in enumerate(plans, first_round):
            weights, of_clients = self.run_round(weights, plan, round)
            metrics.append(np.mean(of_clients, axis=0))
        return weights, metrics

    def run_round(self, weights: Weights, plan: Plan, round: int) -> tuple[Weights, list[np.ndarray]]:
        """Return the weights after a round, and `[loss, gradient norm]` of each client, means over its steps.

        `plan` has the clients, their levels and the examples of each local step; `round` counts from 0.
        """
        total = {path: np.zeros_like(value) for path, value in weights.items()}
        count = {path: np.zeros_like(value) for path, value in weights.items()}
        metrics = []
        for slot, client in enumerate(plan.clients.tolist()):
            if plan.steps[slot] == 0:
                continue
            model = self.model(self.process.recipe.levels.names[plan.levels[slot]])
            coordinates = self.coordinates(weights, model, round, client)
            received = {path: weights[path][np.ix_(*axes)] for path, axes in coordinates.items()}
            trained, of_client = self.train_client(model, received, plan, slot, round)
            metrics.append(of_client)
            for path, value in trained.items():
                self.add(total[path], count[path], path, value, coordinates[path], client)
        return self.merge(weights, total, count), metrics

    def model(self, level: str) -> keras.Model:
        """Return the Keras model of a level, with all classes."""
        if level not in self.models:
            self.models[level] = self.process.family.new_training_model(level, self.process.dataset.classes)
        return self.models[level]

    def cut_variables(self, model: keras.Model) -> list[keras.Variable]:
        """List the variables of a model that have a global value."""
        return [*model.trainable_variables, *constants(model)]

    @functools.cached_property
    def label_axes(self) -> dict[str, set[int]]:
        """The axes of each variable that grow with the number of classes."""
        family = self.process.family
        two, three = (
            {variable.path: variable.shape for variable in self.cut_variables(family.training_model(level, classes))}
            for level, classes in ((family.recipe.levels.global_level, count) for count in (2, 3))
        )
        return {
            path: {axis for axis, size in enumerate(shape) if size != three[path][axis]} for path, shape in two.items()
        }

    def coordinates(self, weights: Weights, model: keras.Model, round: int, client: int) -> Coordinates:
        """Return the part of each global variable that a client receives."""
        shapes = {
            variable.path: (weights[variable.path].shape, variable.shape) for variable in self.cut_variables(model)
        }
        return {path: [self.axis(*sizes, round, client) for sizes in zip(*pair)] for path, pair in shapes.items()}

    def axis(self, size: int, count: int, round: int, client: int) -> np.ndarray:
        """Return the `count` of `size` global indices that a client has of one axis: the first ones (section 3)."""
        parts = self.process.family.parts.get((size, count))
        return np.arange(count) if parts is None else first_entries(parts)

    def train_client(
        self, model: keras.Model, received: Weights, plan: Plan, slot: int, round: int
    ) -> tuple[Weights, np.ndarray]:
        """Take the local steps of one client; return its values, and the means of loss and gradient norm."""
        client, rate = int(plan.clients[slot]), self.process.learning_rate(round) * plan.rate_factor
        for variable in self.cut_variables(model):
            variable.assign(received[variable.path])
        slots: dict = {}
        metrics = []
        for step in range(plan.steps[slot]):
            rows, key = plan.rows[slot, step], [int(self.process.seed), round, client, step]
            inputs, targets = self.batch(rows[rows >= 0], plan.starts[slot, step], key)
            self.prepare_step(model, key)
            with tf.GradientTape() as tape:
                loss = self.loss(model(inputs, training=True), targets, client)
            gradients = [np.asarray(tf.convert_to_tensor(g)) for g in tape.gradient(loss, model.trainable_variables)]
            norm = np.sqrt(sum(np.sum(gradient**2) for gradient in gradients))
            clip_norm = self.process.recipe.optimizer.clip_norm
            scale = 1 if clip_norm is None else min(1, clip_norm / (norm + 1e-6))
            for variable, gradient in zip(model.trainable_variables, gradients):
                variable.assign(self.step(variable.path, variable.numpy(), gradient * scale, slots, rate, step))
            metrics.append((float(loss), norm))
        return {variable.path: variable.numpy() for variable in model.trainable_variables}, np.mean(metrics, axis=0)

    def prepare_step(self, model: keras.Model, key: list[int]) -> None:
        """Does nothing: dropout draws from Keras, so its noise differs from that of the compiled round."""

    def batch(self, rows: np.ndarray, start: int, key: list[int]) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the model inputs and the targets of one step."""
        train = self.process.dataset.train
        labels, key = all_labels(self.process.dataset.classes), tf.constant(key, tf.int32)
        return self.process.input.batch(train.x, train.y, tf.constant(rows), start, key, labels, training=True)

    def loss(self, logits: tf.Tensor, targets: tf.Tensor, client: int) -> tf.Tensor:
        """Mean cross-entropy of logits [..., classes]; labels that the client lacks have logit 0 (section 3)."""
        if self.process.recipe.loss.name == "masked_cross_entropy":
            logits *= self.process.partition.label_mask[client].astype(self.process.recipe.precision)
        target_logits = tf.reduce_sum(logits * tf.one_hot(targets, logits.shape[-1], dtype=logits.dtype), -1)
        return tf.reduce_mean(tf.reduce_logsumexp(logits, -1) - target_logits)

    def step(
        self, path: str, value: np.ndarray, gradient: np.ndarray, slots: dict, rate: float, step: int
    ) -> np.ndarray:
        """Return a variable after a step of SGD with momentum and weight decay; `slots` keeps the velocities."""
        options = self.process.recipe.optimizer.method.options
        gradient = gradient + options["weight_decay"] * value
        velocity = slots[path] = options["momentum"] * slots.get(path, 0) + gradient
        push = gradient + options["momentum"] * velocity if options["nesterov"] else velocity
        return value - rate * push

    def add(
        self, total: np.ndarray, count: np.ndarray, path: str, value: np.ndarray, axes: list[np.ndarray], client: int
    ) -> None:
        """Add the merged part of a trained value, which has the coordinates `axes`, to the sums, in place."""
        merged = [self.merged_part(path, number, axis, client) for number, axis in enumerate(axes)]
        total[np.ix_(*merged)] += value[np.ix_(*[np.isin(axis, part) for axis, part in zip(axes, merged)])]
        count[np.ix_(*self.counted(merged, count.shape))] += 1

    def merged_part(self, path: str, number: int, axis: np.ndarray, client: int) -> np.ndarray:
        """Return the coordinates of an axis that are merged: of a label axis the client's labels, no mask token."""
        if number not in self.label_axes[path]:
            return axis
        return np.flatnonzero(self.process.partition.label_mask[client])

    def counted(self, merged: list[np.ndarray], shape: tuple[int, ...]) -> list[np.ndarray]:
        """Return the coordinates in whose mean a client counts: those that it trained."""
        return merged

    def merge(self, weights: Weights, total: Weights, count: Weights) -> Weights:
        """Return the mean over the clients that trained an entry; other entries keep their value (Algorithm 1)."""
        return {
            path: np.where(count[path] > 0, total[path] / np.maximum(count[path], 1), value)
            for path, value in weights.items()
        }


def check_supported(process: LearningProcess) -> None:
    """Raise `InputError` if the recipe asks for a method that `ReferenceRounds` does not have."""
    recipe = process.recipe
    choices = {
        "client.loss": (recipe.loss.name, ("masked_cross_entropy", "cross_entropy")),
        "client.loss.label_smoothing": (recipe.loss.options.get("label_smoothing", 0.0), (0.0,)),
        "client.loss.class_weights": (recipe.loss.options.get("class_weights", "none"), ("none",)),
        "optimizer": (recipe.optimizer.method.name, ("sgd",)),
        "partition.noise": (recipe.partition.options.get("noise"), (None,)),
        "precision": (recipe.precision, ("float32", "float64")),
        "model.exits": (tuple(recipe.model.exits), ((),)),
        "loss of a Python function": (process.functions.loss is not None, (False,)),
        "weights of examples": (process.dataset.train.weights is not None, (False,)),
    }
    unknown = {key: value for key, (value, allowed) in choices.items() if value not in allowed} | _unknown_keys(recipe)
    named = {key: getattr(value, "name", value) for key, value in unknown.items()}
    missing = [f"{key} {value}" if isinstance(value, str | float) else key for key, value in named.items()]
    model = process.family.training_model(recipe.levels.global_level, process.dataset.classes)
    averages = process.initialize().weights.keys() - {v.path for v in ReferenceRounds(process).cut_variables(model)}
    for each in (*missing, *(f"running average {path}" for path in sorted(averages))):
        raise InputError(f"the reference has no {each}; use bin/hetero_tf for this recipe")


def _unknown_keys(section: Any, path: str = "") -> dict[str, Any]:
    """Return `{key: value}` of the keys of a part of a recipe that are not followed and do not have their default."""
    unknown: dict[str, Any] = {}
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if field.name in FOLLOWED and not path:
            unknown |= _unknown_keys(value, field.name)
        elif field.compare and field.name not in FOLLOWED[path].split():
            default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            # A recipe that names a plug-in has its options too.
            if getattr(value, "name", value) != getattr(default, "name", default):
                unknown[f"{path}.{field.name}".removeprefix(".")] = value
    return unknown


def main(recipe: str) -> None:
    """Train a recipe by the plain loop and print each round's loss and accuracy."""
    process = learning_process(recipe)
    check_supported(process)
    reference = ReferenceRounds(process)
    weights = {path: np.asarray(value) for path, value in process.initialize().weights.items()}
    for round in range(process.recipe.rounds):
        weights, [(loss, _)] = reference.run(weights, [process.plan(round)], round)
        metrics, _ = process.evaluate(State(round + 1, weights))
        print(f"round {round + 1}  loss {loss:.4f}  {format_metrics(displayed_metrics(metrics))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
