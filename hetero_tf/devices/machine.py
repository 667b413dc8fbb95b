"""Builds the device of a machine, and keeps it connected to its server.

A device with LiteRT trains an exported file by `on_device`, without TensorFlow and Keras.
"""

import contextlib
import dataclasses
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from hetero_tf.base import hardware, processes, seeds
from hetero_tf.base.errors import InputError, UserError, shorten_repr
from hetero_tf.devices.messages import ITS_LEVEL, NOTHING, Member, Message, Refused, build_introduction, parse_array
from hetero_tf.devices.on_device import THRESHOLDS, LiteRTTrainer
from hetero_tf.planning.plan import assign_levels
from hetero_tf.recipe import Recipe, loads
from hetero_tf.run.data import fit_data, load_data, split

# A device trains one client.
SEQUENTIAL_OVERRIDE = "engine=sequential"
# Exit code of a process whose connection is lost, and seconds until the next one starts.
DISCONNECTED, RETRY_PAUSE = 75, 5.0
FLOAT32 = np.dtype(np.float32)


def share_of(recipe: Recipe, clients: int, client: int, level: str | None) -> tuple[int, str]:
    """Return the index of a device's examples in the partition, and the name of its level.

    Args:
        clients: Number of clients of its partition; 1 if the device has local data.
        level: Name of its level; None: the recipe's level of that client.

    Raises:
        InputError: The partition has several clients but not this one, or its level is missing or not in the mix.
    """
    if client < 0 or clients > 1 and client >= clients:
        raise InputError(
            f"--client must be one of the {clients} clients of the recipe's partition, 0 to {clients - 1}; a device "
            f"with local data sets partition='{{name: iid, clients: 1}}'. Received: --client={client}"
        )
    if level is None and clients == 1:
        raise InputError("--level is missing; a device with local data needs a level of the recipe")
    if level is None:
        level = recipe.levels.names[assign_levels(recipe.levels, clients, recipe.seed, 0, np.asarray([client]))[0]]
    if level not in recipe.levels.names:
        raise InputError(f"--level must be one of the mix, {', '.join(recipe.levels.names)}. Received: --level={level}")
    return 0 if clients == 1 else client, level


@dataclass(frozen=True)
class DeviceSettings:
    """Settings of the command line for a device.

    Attributes:
        litert: Folder of an export to train with LiteRT, or None to train with TensorFlow.
    """

    recipe: Recipe
    data_dir: Path | None
    threads: int
    client: int
    level: str | None = None
    litert: str | None = None


@dataclass(frozen=True)
class LiteRTClient:
    """A device that trains with LiteRT.

    Attributes:
        trainer: Trains the exported file of its level.
        member: The device as it introduces itself.
        x, y: Its examples, see `on_device.LiteRTTrainer.batches`.
        earlier: Numbers of examples of the preceding clients, since the simulator shuffles clients in order.
    """

    recipe: Recipe
    trainer: LiteRTTrainer
    member: Member
    x: np.ndarray
    y: np.ndarray | None
    earlier: tuple[int, ...]

    def respond(self, action: str, request: Message) -> Message:
        """Return the response to a request; raise `Refused` if the file does not support it."""
        if action == "introduction":
            return build_introduction(self.member, self.recipe)
        return self._train(request) if action == "training" else self._measure(request)

    def _train(self, request):
        """Take the local steps of a round; the order of batches is the simulator's if it draws nothing else."""
        round, rate = request.metadata["round"], request.metadata["learning_rate"]
        self._push(request.arrays)
        rng = seeds.rng(self.recipe.seed, "batches", round, self.member.client)
        batches = self.trainer.batches(self.x, self.y, self.recipe.client.epochs_of(self.member.level), rng)
        draws = seeds.rng(self.recipe.seed, "device", round, self.member.client)
        present = self.trainer.present(self.x if self.y is None else self.y)
        report = dataclasses.asdict(self.trainer.train(batches, rate, present, draws))
        metadata = {name: report[name] for name in ("loss", "gradient_norm", "steps")}
        arrays = {path: self._pack_value(path, value) for path, value in self.trainer.pull().items()}
        return Message(arrays, {**metadata, "train_seconds": report["seconds"]})

    def _measure(self, request):
        """Return means of the statistics of static batch normalization of its level's model on its examples."""
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
        return Message(self.trainer.statistics(self.trainer.statistics_batches(self.x, self.y, rng), draws), {})

    def _push(self, arrays):
        """Load received values into the file, with their statistics if the server sent them."""
        shapes, statistics = self.trainer.shapes, self.trainer.statistics_shapes
        if arrays.keys() not in (shapes.keys(), shapes.keys() | statistics.keys()):
            raise Refused(f"the values are not those of the file: {sorted(arrays.keys() ^ shapes.keys())[:3]}")
        weights = {path: self._unpack_value(arrays[path], path, shape) for path, shape in shapes.items()}
        measured = {
            path: parse_array(arrays[path], path, shape, FLOAT32)
            for path, shape in statistics.items()
            if path in arrays
        }
        self.trainer.push(weights, measured or None)

    def _unpack_value(self, data, path, shape):
        """Return a value in the file's shape. If only rows of the device's labels were sent, the others are zeros."""
        with contextlib.suppress(Refused):
            return parse_array(data, path, shape, FLOAT32)
        rows = self._rows(path, shape, True)
        full = np.zeros(shape, np.float32)
        full[np.ix_(*rows)] = parse_array(data, path, tuple(map(len, rows)), FLOAT32)
        return full

    def _pack_value(self, path, value):
        """Return the values to merge: on label axes, the rows of the device's labels."""
        if path not in self.trainer.settings["label_axes"] or self.recipe.round.label_rows == "all":
            return value
        return np.ascontiguousarray(value[np.ix_(*self._rows(path, value.shape, False))])

    def _rows(self, path, shape, has_rest):
        """Return the indices of each axis; of a label axis, those of the labels, and of the rest if it has one."""
        settings = self.trainer.settings
        axes, classes = settings["label_axes"].get(path, ()), settings["classes"]
        return [
            np.concatenate([self.member.labels, np.arange(classes, size if has_rest else classes)])
            if axis in axes
            else np.arange(size)
            for axis, size in enumerate(shape)
        ]


def connect(settings: DeviceSettings, server: str, authority: bytes, key: Any, say: Callable[[str], None]) -> NoReturn:
    """Run a device in a process that is restarted whenever it is killed or loses its connection.

    Raises:
        SystemExit: The process ended after an error, which it printed.
    """
    say(f"client {settings.client} takes part in the run of {server} until it is stopped")
    is_reported = False
    while True:
        code = run_fork(lambda: _run(settings, server, authority, key))
        if code < 0:
            say(f"note: the process of the device {processes.describe_exit(code)}; it is restarted")
        elif code != DISCONNECTED:
            raise SystemExit(code)
        elif not is_reported:
            say(f"the server does not accept the key, or was restarted; retrying every {RETRY_PAUSE:g} s")
            is_reported = True
        time.sleep(RETRY_PAUSE)


def run_fork(work: Callable[[], int]) -> int:
    """Return the exit code of `work` in a fork of this process, negative for the number of a signal.

    The fork exits together with this process; SIGINT raises KeyboardInterrupt in it.
    """
    reading, writing = os.pipe()

    def child():
        os.close(writing)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        processes.exit_with_parent(reading)
        return work()

    try:
        return processes.run_fork(child)
    finally:
        os.close(reading)
        os.close(writing)


def _run(settings, server, authority, key):
    """Respond to the requests of a server; return the exit code of this process."""
    from hetero_tf.devices import fleet_api

    try:
        fleet_api.respond(server, authority, key, build_device(settings).respond)
    except UserError as error:
        print(f"hetero_tf: {error}", file=sys.stderr, flush=True)
        return error.code
    except fleet_api.Rejected:
        pass
    except Exception:
        traceback.print_exc()
        return 1
    return DISCONNECTED


def build_device(settings: DeviceSettings):
    """Return the device: a `LiteRTClient` or a `TensorFlowClient`.

    Raises:
        InputError: The device cannot run the recipe; see `share_of` and `device_index.check_deployable`.
    """
    if settings.litert is None:
        return _tensorflow_client(settings)
    recipe, client = settings.recipe, settings.client
    try:
        trainer = LiteRTTrainer(settings.litert, settings.threads)
    except (OSError, ValueError) as error:
        raise InputError(f"--litert {settings.litert}: {error}") from error
    dataset = load_data(recipe, settings.data_dir)
    dataset, partition = fit_data(dataset, split(recipe, dataset))
    position, level = share_of(recipe, len(partition.train), client, settings.level or trainer.level)
    rows = partition.train[position]
    x, y = dataset.train.x[rows], None if dataset.train.y is None else dataset.train.y[rows]
    present = partition.label_mask[position]
    if y is not None and trainer.settings["targets"]["form"] == THRESHOLDS:
        present = trainer.present(y)
    labels = np.flatnonzero(present).astype(np.int32)
    measures = ITS_LEVEL if trainer.statistics_shapes else NOTHING
    member = Member(client, level, len(x), labels, measures)
    return LiteRTClient(recipe, trainer, member, x, y, tuple(partition.train.sizes[:position].tolist()))


def _tensorflow_client(settings):
    hardware.import_quietly()
    from hetero_tf.devices.device_index import check_deployable
    from hetero_tf.devices.tensorflow_client import TensorFlowClient
    from hetero_tf.run.learning_process import learning_process

    recipe = loads(settings.recipe.source, settings.recipe.path, (SEQUENTIAL_OVERRIDE,))
    process = learning_process(recipe, data_dir=settings.data_dir, parallel=settings.threads, device="cpu")
    check_deployable(process)
    position, level = share_of(recipe, len(process.partition.train), settings.client, settings.level)
    if len(process.partition.train) == 1 and process.evaluator.measures.task.scaling is not None:
        raise InputError(
            "a device with local data does not know the mean and deviation of the targets of all devices; server and "
            "devices must set task='{name: regression, scale: none}'. Received: task: regression"
        )
    return TensorFlowClient(process, settings.client, position, level)
