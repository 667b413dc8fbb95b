"""A fleet in this process: devices answer as they would over Flower, their values as the bytes of .npy files."""

import numpy as np

from hetero_tf.flower.messages import Message, Refused, member_of, packed


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
