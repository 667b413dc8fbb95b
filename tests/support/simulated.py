"""Inputs of a device that repeats a client of the simulator (cut, batches, draws), and a round by devices."""

import numpy as np
import tensorflow as tf

from hetero_tf.base import seeds
from hetero_tf.inputs import all_labels
from hetero_tf.inputs.images import crop_flip
from hetero_tf.layers.dropout import STEPS, Dropout
from hetero_tf.models import global_layout
from hetero_tf.models.state import in_order, state_of
from hetero_tf.models.variables import all_layers
from hetero_tf.rounds import layout
from hetero_tf.rounds.block_training import BlockPlan, train_block
from hetero_tf.rounds.gather import gather, scatter, select_coordinates, select_merged
from hetero_tf.rounds.global_row import pack_state
from hetero_tf.rounds.merge import axis_masks, coverage, merge_variables


class Simulated:
    """A client of a planned round, in a process whose label axes are not cut and whose clients run one by one."""

    def __init__(self, process, state, plan, slot, steps=None):
        self.process, self.state, self.plan, self.slot = process, state, plan, slot
        self.client, self.level = int(plan.clients[slot]), process.recipe.levels.names[plan.levels[slot]]
        self.submodel = process.family.submodel_of[plan.levels[slot]]
        planned = int(plan.steps[slot])
        self.steps = planned if steps is None else min(steps, planned)
        self.seed = tf.constant(seeds.seed32(process.recipe.seed, "round"))
        self.round = tf.constant(state.round)
        self.present = process.partition.label_mask[self.client]
        self.paths = list(global_layout.shapes(process.family, self.level, process.dataset.classes))

    @property
    def learning_rate(self):
        return self.process.learning_rate(self.state.round)

    @property
    def coordinates(self):
        """The coordinates of its sub-model."""
        labels, setup = tf.range(self.process.dataset.classes), self.process.setup
        client = tf.constant(self.client)
        choose = setup.algorithm.submodel
        return select_coordinates(
            setup.layout.cut, self.submodel, choose, self.round, client, self.seed, labels, tf.constant(0)
        )

    def cut(self):
        """Its values before the round, `{path: array}`."""
        values = gather(
            self.process.setup.layout.cut, self.submodel, list(self.state.weights.values()), self.coordinates
        )
        return {path: value.numpy() for path, value in zip(self.paths, values, strict=True)}

    def batches(self):
        """Its batches as `devices.on_device.Client.train` takes them, numbers of Dropouts included."""
        block = layout.build_client_block(self.process.family, self.level, 1, self.process.dataset.classes)
        routed = block.stages[0].models[0]
        for step in range(self.steps):
            rows = self.plan.rows[self.slot, step]
            key = tf.constant([int(self.seed), self.state.round, self.client, step])
            batch, inputs = self._batch(rows[rows >= 0], key, self.plan.starts[self.slot, step])
            yield batch | {f"uniform_{site}": draws for site, draws in enumerate(_draws(routed, key, inputs))}

    def _batch(self, rows, key, start):
        process, data = self.process, self.process.dataset.train
        inputs, label = process.input.batch(
            data.x, data.y, rows, start, key, all_labels(process.dataset.classes), training=True
        )
        if data.y is None:
            return {"token_ids": inputs.numpy(), "label": label.numpy()}, inputs
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
        rate = tf.constant(self.learning_rate, tf.float32)

        def trained():
            local = train_block(
                setup, self.submodel, pack_state(in_order(self.state)), self.round, self.seed, work, rate
            ).local
            return local.losses, local.weights

        losses, rows = tf.function(trained, autograph=False)()
        values = setup.engine.blocks[self.submodel].from_row(rows[0])
        return losses.numpy()[:, 0], {path: value.numpy() for path, value in zip(self.paths, values, strict=True)}


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


def round_by_devices(process, state, plan, devices):
    """The state after a round whose clients are trained by devices, `{level: device.Client}`."""
    setup, totals, merged_masks = process.setup, None, []
    cut = setup.layout.cut
    for slot in range(len(plan.clients)):
        client = Simulated(process, state, plan, slot)
        device = devices[client.level]
        device.push(client.cut())
        device.train(client.batches(), client.learning_rate, client.present, np.random.default_rng(0))
        pulled = device.pull()
        coordinates = select_merged(cut, client.coordinates, tf.constant(client.present))
        placed = scatter(cut, client.submodel, [tf.constant(pulled[path]) for path in client.paths], coordinates)
        totals = placed if totals is None else [total + value for total, value in zip(totals, placed)]
        merged_masks.append(axis_masks(cut, coordinates, setup.layout.dtype))
    masks = {axis: tf.stack([mask[axis] for mask in merged_masks]) for axis in cut.distinct}
    counts = [tf.ones([len(plan.clients)])] * len(cut.shapes)
    covered = coverage(cut, masks, counts, setup.layout.zeros_count)
    return state_of(state.round + 1, process.paths, (), merge_variables(setup, in_order(state), totals, covered))
