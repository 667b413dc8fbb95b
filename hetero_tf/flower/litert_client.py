"""A device with LiteRT: it trains an exported file by `hetero_tf.device`, without TensorFlow and Keras."""

from dataclasses import dataclass

import numpy as np

from hetero_tf.base import seeds
from hetero_tf.device import Client
from hetero_tf.flower.messages import Member, Message, Refused, introduction, unpacked
from hetero_tf.recipe.schema import Recipe


@dataclass(frozen=True)
class LiteRTClient:
    """A device.

    Attributes:
        recipe: What it takes part in.
        device: The file of its level.
        member: What it says of itself.
        x, y: Its examples, see `device.Client.batches`.
    """

    recipe: Recipe
    device: Client
    member: Member
    x: np.ndarray
    y: np.ndarray | None

    def answer(self, action: str, question: Message) -> Message:
        """Returns the answer to a question; `Refused` is raised where the file cannot give one."""
        if action == "introduction":
            return introduction(self.member, self.recipe)
        if action == "training":
            return self._train(question)
        raise Refused("a file for LiteRT measures no statistics")

    def _train(self, question):
        """Takes the local steps of a round; batches are in the simulator's order where it draws nothing else."""
        round, rate = question.told["round"], question.told["learning_rate"]
        shapes = self.device.shapes
        if question.arrays.keys() != shapes.keys():
            raise Refused(f"other values than those of the file: {sorted(question.arrays.keys() ^ shapes.keys())[:3]}")
        self.device.push({path: self._filled(question.arrays[path], path, shapes[path]) for path in shapes})
        rng = seeds.rng(self.recipe.seed, "batches", round, self.member.client)
        batches = self.device.batches(self.x, self.y, self.recipe.client.epochs_of(self.member.level), rng)
        draws = seeds.rng(self.recipe.seed, "device", round, self.member.client)
        present = self.device.present(self.x if self.y is None else self.y)
        report = self.device.train(batches, rate, present, draws)
        told = {"loss": report.loss, "gradient_norm": report.gradient_norm, "steps": report.steps}
        return Message({path: self._returned(path, value) for path, value in self.device.pull().items()}, told)

    def _filled(self, data, path, shape):
        """A value as the file has it: where only rows of the device's labels came, the others are zeros."""
        axes = self._label_axes(path, shape)
        extra = {axis: size - self._classes for axis, size in enumerate(shape) if axis in axes}
        sent = tuple(len(self.member.labels) + extra[axis] if axis in axes else size for axis, size in enumerate(shape))
        if sent == shape or not self._is_cut(data, path, shape):
            return unpacked(data, path, shape, np.dtype(np.float32))
        value = unpacked(data, path, sent, np.dtype(np.float32))
        whole = np.zeros(shape, np.float32)
        whole[np.ix_(*self._rows(shape, axes, extra))] = value
        return whole

    def _is_cut(self, data, path, shape):
        """Whether anything but the whole value came."""
        try:
            unpacked(data, path, shape, np.dtype(np.float32))
        except Refused:
            return True
        return False

    def _returned(self, path, value):
        """The values that the merge counts: of label axes the rows of the device's labels."""
        axes = self._label_axes(path, value.shape)
        if not axes or self.recipe.round.label_rows == "all":
            return value
        return np.ascontiguousarray(value[np.ix_(*self._rows(value.shape, axes, dict.fromkeys(axes, 0)))])

    def _rows(self, shape, axes, extra):
        return [
            np.concatenate([self.member.labels, np.arange(self._classes, self._classes + extra[axis])])
            if axis in axes
            else np.arange(size)
            for axis, size in enumerate(shape)
        ]

    @property
    def _classes(self):
        return self.device.settings["classes"]

    def _label_axes(self, path, shape):
        """Which dimensions of a value are label axes."""
        return tuple(self.device.settings["label_axes"].get(path, ()))
