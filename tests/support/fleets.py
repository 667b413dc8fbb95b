"""A fleet in this process: devices respond as over Flower, with values as bytes."""

import numpy as np

from hetero_tf.devices.device_index import transfer_of
from hetero_tf.devices.messages import (
    NARROWER_LEVELS,
    Member,
    Message,
    Refused,
    build_introduction,
    gather,
    parse_arrays,
    parse_member,
    scatter,
    shapes_of,
)
from hetero_tf.models.variables import queried


class HonestDevice:
    """A device without a model: it moves each value that it received by a step that its client and round determine."""

    def __init__(self, process, client):
        self.process = process
        names = process.recipe.levels.names
        labels = np.flatnonzero(process.present_outputs[client]).astype(np.int32)
        examples = len(process.partition.train[client])
        self.member = Member(client, names[client % len(names)], examples, labels, NARROWER_LEVELS)

    def respond(self, action, request):
        """The answer to a question of one of `messages.MESSAGE_TYPES`."""
        process, dtype = self.process, self.process.setup.layout.dtype
        if action == "introduction":
            return build_introduction(self.member, process.recipe)
        if action == "statistics":
            model = process.family.predictor(request.metadata["level"])
            return Message({variable.path: np.ones(variable.shape, dtype) for variable in queried(model)})
        round = request.metadata["round"]
        transfer = transfer_of(process, self.member.client, self.member.level, self.member.labels, round)
        values = {path: np.zeros(value.shape, dtype) for path, value in process.blank().weights.items()}
        scatter(parse_arrays(request.arrays, shapes_of(transfer.down), dtype), transfer.down, values)
        generator = np.random.default_rng([self.member.client, round])
        moved = {path: value + 0.01 * generator.standard_normal(value.shape) for path, value in values.items()}
        trained = gather({path: value.astype(dtype) for path, value in moved.items()}, transfer.up)
        return Message(trained, {"loss": 1.5, "gradient_norm": 0.5, "steps": 1})


class LocalFleet:
    """Devices by client; `wrong` replaces some devices' answers to the question for training."""

    def __init__(self, process, devices, wrong=None):
        self.process, self.devices, self.wrong, self.messages = process, devices, wrong or {}, []

    def say(self, sentence):
        self.messages.append(sentence)

    def members(self, least):
        return {
            client: self.member(device.respond("introduction", Message()).metadata, client)
            for client, device in self.devices.items()
        }

    def member(self, description, client):
        """The device that introduces itself with a client's key."""
        classes, examples = self.process.family.classes, len(self.process.dataset.train.x)
        return parse_member(description, client, self.process.recipe, classes, examples)

    def request(self, action, requests):
        responses = {}
        for client, request in requests.items():
            try:
                response = sent(self.devices[client].respond(action, sent(request)))
                if action == "training" and client in self.wrong:
                    response = self.wrong[client](response)
            except Refused as problem:
                response = problem
            if response is not None:
                responses[client] = response
        return responses


def sent(message):
    """A message as the other side receives it."""
    return Message({path: value.tobytes() for path, value in message.arrays.items()}, message.metadata)


def check_equal(actual, expected):
    """Two states have the same values within 1e-6 of the largest of each array."""
    for path, value in expected.weights.items():
        largest = max(np.abs(value).max(), 1)
        np.testing.assert_allclose(actual.weights[path], value, rtol=0, atol=1e-6 * largest, err_msg=path)
