"""Inputs of a device that repeats a client of the simulator: its cut, batches and draws."""

import numpy as np
import tensorflow as tf

from hetero_tf.base import seeds
from hetero_tf.data.inputs import all_labels
from hetero_tf.data.inputs.images import crop_flip
from hetero_tf.layers.dropout import STEPS, Dropout
from hetero_tf.models import global_layout
from hetero_tf.models.variables import all_layers
from hetero_tf.planning.packing import BlockPlan
from hetero_tf.rounds import client_block
from hetero_tf.rounds.block_training import RoundScalars, train_block


class Simulated:
    """A client of a planned round, in a process whose label axes are not cut and whose clients run one by one."""

    def __init__(self, process, state, plan, slot, steps=None):
        self.process, self.state, self.plan, self.slot = process, state, plan, slot
        self.client, self.level = int(plan.clients[slot]), process.recipe.levels.names[plan.levels[slot]]
        self.submodel = process.setup.submodels[process.family.submodel_of[plan.levels[slot]]]
        planned = int(plan.steps[slot])
        self.steps = planned if steps is None else min(steps, planned)
        self.seed = tf.constant(seeds.seed32(process.recipe.seed, "round"))
        self.round = tf.constant(state.round)
        self.present = process.present_outputs[self.client]
        self.paths = list(global_layout.shapes(process.family, self.level, process.family.classes))

    @property
    def learning_rate(self):
        return self.process.learning_rate(self.state.round)

    @property
    def coordinates(self):
        """The coordinates of its sub-model."""
        labels, setup = tf.range(self.process.family.classes), self.process.setup
        client, choose = tf.constant(self.client), setup.algorithm.submodel
        return self.submodel.cut.coordinates(choose, self.round, client, self.seed, labels, tf.constant(0))

    @property
    def rows(self):
        """The values of the state as rows."""
        layout = self.process.state_layout
        return layout.pack(layout.values_of(self.state))

    def cut(self):
        """Its values before the round, `{path: array}`."""
        (row,) = self.submodel.cut.gather(self.rows.weights, [self.coordinates])
        return self._by_path(row)

    def _by_path(self, row):
        values = self.submodel.block.values_of(row)
        return {path: value.numpy() for path, value in zip(self.paths, values, strict=True)}

    def batches(self):
        """Its batches as `devices.on_device.LiteRTTrainer.train` takes them, numbers of Dropouts included."""
        block = client_block.build_client_block(self.process.family, self.level, 1, self.process.family.classes)
        routed = block.stages[0].joint.models[0]
        for step in range(self.steps):
            rows = self.plan.rows[self.slot, step]
            key = tf.constant([int(self.seed), self.state.round, self.client, step])
            batch, inputs = self._batch(rows[rows >= 0], key, self.plan.starts[self.slot, step])
            yield batch | {f"uniform_{site}": draws for site, draws in enumerate(_draws(routed, key, inputs))}

    def _batch(self, rows, key, start):
        process, data, y = self.process, self.process.dataset.train, self.process.setup.examples.y
        inputs, label = process.input.batch(
            data.x, y, rows, start, key, all_labels(process.family.classes), training=True
        )
        if y is None:
            return {"token_ids": inputs.numpy(), "label": label.numpy()}, inputs
        if data.x.ndim == 2:
            return {"features": data.x[rows], "label": label.numpy()}, inputs
        pixels = tf.constant(data.x[rows])
        if process.recipe.input.options.get("augment") == "crop_flip":
            pixels = crop_flip(pixels, key)
        scale = 255 if data.x.dtype == np.uint8 else 1
        return {"image": pixels.numpy().astype(np.float32) / scale, "label": label.numpy()}, inputs

    def train(self):
        """(losses [steps], its values after them by path), by the simulator."""
        setup, plan = self.process.setup, self.plan
        rows, starts = plan.rows[self.slot, : self.steps], plan.starts[self.slot, : self.steps]
        work = BlockPlan(
            tf.constant([self.client]),
            tf.constant([0]),
            tf.constant(self.steps),
            tf.constant(rows[None]),
            tf.constant(starts),
            tf.zeros([self.steps], tf.int32),
        )
        scalars = RoundScalars(self.round, self.seed, tf.constant(self.learning_rate, tf.float32))

        def trained():
            local = train_block(setup, self.submodel, self.rows, scalars, work).local
            return local.losses, local.rows

        losses, rows = tf.function(trained, autograph=False)()
        return losses.numpy()[:, 0], self._by_path(rows[0])


def _draws(routed, key, inputs):
    """The draws of each Dropout of a step, in [0, 1), in the order of the step."""
    draws_by_layer = []

    def noted(layer):
        def draws(inputs):
            draws_by_layer.append(type(layer).draws(layer, inputs))
            return draws_by_layer[-1]

        return draws

    layers = [layer for layer in all_layers(routed.model) if isinstance(layer, Dropout)]
    for layer in layers:
        layer.draws = noted(layer)
    trainable = [tf.zeros(variable.shape) for variable in routed.model.trainable_variables]
    routed.model.stateless_call(trainable, routed.build_state(key[None]), inputs, training=True)
    for layer in layers:
        del layer.draws
    return [(draws.numpy() / STEPS).astype(np.float32) for draws in draws_by_layer]
