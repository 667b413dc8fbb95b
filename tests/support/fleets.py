"""A fleet in this process: devices answer as they would over Flower, their values as the bytes of .npy files."""

import numpy as np

from hetero_tf.devices.device_index import Placement
from hetero_tf.devices.messages import (
    NARROWER_LEVELS,
    Member,
    Message,
    Refused,
    checked,
    introduction,
    member_of,
    packed,
    put,
    shapes_of,
    taken,
)
from hetero_tf.evaluation.calibration import statistics_paths


class HonestDevice:
    """A device without a model: it moves each value that it received by a step that its client and round determine."""

    def __init__(self, process, client):
        self.process, self.placement = process, Placement(process)
        names = process.recipe.levels.names
        labels = np.flatnonzero(process.partition.label_mask[client]).astype(np.int32)
        examples = len(process.partition.train[client])
        self.member = Member(client, names[client % len(names)], examples, labels, NARROWER_LEVELS)

    def answer(self, action, question):
        """The answer to a question of one of `fleet.ACTIONS`."""
        process, dtype = self.process, self.process.parts.placement.dtype
        if action == "introduction":
            return introduction(self.member, process.recipe)
        if action == "statistics":
            model = process.family.predictor(question.told["level"])
            paths = set(statistics_paths(model))
            shapes = {v.path: tuple(v.shape) for v in model.non_trainable_variables if v.path in paths}
            return Message({path: np.ones(shape, dtype) for path, shape in shapes.items()})
        round = question.told["round"]
        transfer = self.placement.travels(self.member.client, self.member.level, self.member.labels, round)
        values = {path: np.zeros(value.shape, dtype) for path, value in process.blank().weights.items()}
        put(checked(question.arrays, shapes_of(transfer.down), dtype), transfer.down, values)
        generator = np.random.default_rng([self.member.client, round])
        moved = {path: value + 0.01 * generator.standard_normal(value.shape) for path, value in values.items()}
        trained = taken({path: value.astype(dtype) for path, value in moved.items()}, transfer.up)
        return Message(trained, {"loss": 1.5, "gradient_norm": 0.5, "steps": 1})


class LocalFleet:
    """Devices by client; `wrong` replaces some devices' answers to the question for training."""

    def __init__(self, process, devices, wrong=None):
        self.process, self.devices, self.wrong, self.said = process, devices, wrong or {}, []

    def say(self, sentence):
        self.said.append(sentence)

    def members(self, least):
        return {
            client: self.member(device.answer("introduction", Message()).told, client)
            for client, device in self.devices.items()
        }

    def member(self, told, client):
        """The device that introduces itself with a client's key."""
        return member_of(told, client, self.process.recipe, self.process.dataset.classes)

    def ask(self, action, questions):
        answers = {}
        for client, question in questions.items():
            try:
                answer = sent(self.devices[client].answer(action, sent(question)))
                if action == "training" and client in self.wrong:
                    answer = self.wrong[client](answer)
            except Refused as problem:
                answer = problem
            if answer is not None:
                answers[client] = answer
        return answers


def sent(message):
    """A message as the other side receives it."""
    return Message({path: packed(value) for path, value in message.arrays.items()}, message.told)


def check_equal(found, wanted):
    """Two states have the same values within 1e-6 of the largest of each array."""
    for path, value in wanted.weights.items():
        largest = max(np.abs(value).max(), 1)
        np.testing.assert_allclose(found.weights[path], value, rtol=0, atol=1e-6 * largest, err_msg=path)
