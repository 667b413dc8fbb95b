"""A device with LiteRT: it trains an exported file by `hetero_tf.devices.on_device`, without TensorFlow and Keras."""

from dataclasses import dataclass

import numpy as np

from hetero_tf.base import seeds
from hetero_tf.base.errors import short
from hetero_tf.devices.messages import NOTHING, Member, Message, Refused, introduction, unpacked
from hetero_tf.devices.on_device import Client
from hetero_tf.recipe.schema import Recipe


@dataclass(frozen=True)
class LiteRTClient:
    """A device.

    Attributes:
        recipe: What it takes part in.
        device: The file of its level.
        member: What it says of itself.
        x, y: Its examples, see `devices.on_device.Client.batches`.
        earlier: Numbers of examples of the clients before it, as the simulator shuffles one after the other.
    """

    recipe: Recipe
    device: Client
    member: Member
    x: np.ndarray
    y: np.ndarray | None
    earlier: tuple[int, ...]

    def answer(self, action: str, question: Message) -> Message:
        """Returns the answer to a question; `Refused` is raised where the file cannot give one."""
        if action == "introduction":
            return introduction(self.member, self.recipe)
        if action == "training":
            return self._train(question)
        return self._measure(question)

    def _train(self, question):
        """Takes the local steps of a round; batches are in the simulator's order where it draws nothing else."""
        round, rate = question.told["round"], question.told["learning_rate"]
        self._push(question.arrays)
        rng = seeds.rng(self.recipe.seed, "batches", round, self.member.client)
        batches = self.device.batches(self.x, self.y, self.recipe.client.epochs_of(self.member.level), rng)
        draws = seeds.rng(self.recipe.seed, "device", round, self.member.client)
        present = self.device.present(self.x if self.y is None else self.y)
        report = self.device.train(batches, rate, present, draws)
        told = {"loss": report.loss, "gradient_norm": report.gradient_norm, "steps": report.steps}
        return Message({path: self._returned(path, value) for path, value in self.device.pull().items()}, told)

    def _measure(self, question):
        """Its means of the statistics of static batch normalization, with the model of its level."""
        level = question.told["level"]
        if level != self.member.level or self.member.measures == NOTHING:
            raise Refused(f"the file of level {self.member.level} cannot measure statistics of level {short(level)}")
        self._push(question.arrays)
        rng = seeds.rng(self.recipe.seed, "statistics", question.told["round"])
        for count in self.earlier:
            rng.permutation(count)
        draws = seeds.rng(self.recipe.seed, "device statistics", question.told["round"], self.member.client)
        batches = self.device.statistics_batches(self.x, self.y, rng)
        return Message(self.device.statistics(batches, draws).means(), {})

    def _push(self, arrays):
        """Hands received values to the file, with the statistics that belong to them where the server has them."""
        shapes, statistics = self.device.shapes, self.device.statistics_shapes
        received = shapes.keys() | (statistics.keys() & arrays.keys() and statistics.keys())
        if arrays.keys() != received:
            raise Refused(f"other values than those of the file: {sorted(arrays.keys() ^ received)[:3]}")
        weights = {path: self._filled(arrays[path], path, shape) for path, shape in shapes.items()}
        dtype = np.dtype(np.float32)
        measured = {path: unpacked(arrays[path], path, statistics[path], dtype) for path in received - shapes.keys()}
        self.device.push(weights, measured or None)

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
