"""A device with LiteRT: it trains an exported file with `hetero_tf.devices.on_device`, without TensorFlow and Keras."""

from dataclasses import dataclass

import numpy as np

from hetero_tf.base import seeds
from hetero_tf.base.errors import shorten_repr
from hetero_tf.devices.messages import NOTHING, Member, Message, Refused, build_introduction, from_npy
from hetero_tf.devices.on_device import Client
from hetero_tf.recipe.schema import Recipe


@dataclass(frozen=True)
class LiteRTClient:
    """A device that trains with LiteRT.

    Attributes:
        recipe: The recipe of the run.
        device: The exported file of its level.
        member: The device as it introduces itself.
        x, y: Its examples, see `devices.on_device.Client.batches`.
        earlier: Numbers of examples of the preceding clients, since the simulator shuffles clients in order.
    """

    recipe: Recipe
    device: Client
    member: Member
    x: np.ndarray
    y: np.ndarray | None
    earlier: tuple[int, ...]

    def respond(self, action: str, request: Message) -> Message:
        """Return the response to a request; raise `Refused` if the file does not support it."""
        if action == "introduction":
            return build_introduction(self.member, self.recipe)
        if action == "training":
            return self._train(request)
        return self._measure(request)

    def _train(self, request):
        """Take the local steps of a round; the order of batches is the simulator's if it draws nothing else."""
        round, rate = request.metadata["round"], request.metadata["learning_rate"]
        self._push(request.arrays)
        rng = seeds.rng(self.recipe.seed, "batches", round, self.member.client)
        batches = self.device.batches(self.x, self.y, self.recipe.client.epochs_of(self.member.level), rng)
        draws = seeds.rng(self.recipe.seed, "device", round, self.member.client)
        present = self.device.present(self.x if self.y is None else self.y)
        report = self.device.train(batches, rate, present, draws)
        metadata = {
            "loss": report.loss,
            "gradient_norm": report.gradient_norm,
            "steps": report.steps,
            "train_seconds": report.seconds,
        }
        return Message({path: self._pack_value(path, value) for path, value in self.device.pull().items()}, metadata)

    def _measure(self, request):
        """Means of the statistics of static batch normalization with its level's model, on the device's examples."""
        level = request.metadata["level"]
        if level != self.member.level or self.member.measures == NOTHING:
            raise Refused(
                f"the file of level {self.member.level} cannot measure statistics of level {shorten_repr(level)}"
            )
        self._push(request.arrays)
        rng = seeds.rng(self.recipe.seed, "statistics", request.metadata["round"])
        for count in self.earlier:
            rng.permutation(count)
        draws = seeds.rng(self.recipe.seed, "device statistics", request.metadata["round"], self.member.client)
        batches = self.device.statistics_batches(self.x, self.y, rng)
        return Message(self.device.statistics(batches, draws).means(), {})

    def _push(self, arrays):
        """Load received values into the file, with their statistics if the server sent them."""
        shapes, statistics = self.device.shapes, self.device.statistics_shapes
        received = shapes.keys() | (statistics.keys() & arrays.keys() and statistics.keys())
        if arrays.keys() != received:
            raise Refused(f"the values are not those of the file: {sorted(arrays.keys() ^ received)[:3]}")
        weights = {path: self._unpack_value(arrays[path], path, shape) for path, shape in shapes.items()}
        dtype = np.dtype(np.float32)
        measured = {path: from_npy(arrays[path], path, statistics[path], dtype) for path in received - shapes.keys()}
        self.device.push(weights, measured or None)

    def _unpack_value(self, data, path, shape):
        """A value in the file's shape. If only rows of the device's labels were sent, the other rows are zeros."""
        label_axes = self._label_axes(path, shape)
        extra = {axis: size - self._classes for axis, size in enumerate(shape) if axis in label_axes}
        sent = tuple(
            len(self.member.labels) + extra[axis] if axis in label_axes else size for axis, size in enumerate(shape)
        )
        if sent == shape or not self._is_cut(data, path, shape):
            return from_npy(data, path, shape, np.dtype(np.float32))
        value = from_npy(data, path, sent, np.dtype(np.float32))
        full = np.zeros(shape, np.float32)
        full[np.ix_(*self._rows(shape, label_axes, extra))] = value
        return full

    def _is_cut(self, data, path, shape):
        """True if the data are not the complete value."""
        try:
            from_npy(data, path, shape, np.dtype(np.float32))
        except Refused:
            return True
        return False

    def _pack_value(self, path, value):
        """The values to merge: on label axes, the rows of the device's labels."""
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
        """The label axes of a value."""
        return tuple(self.device.settings["label_axes"].get(path, ()))
