"""Builds the device of a machine, and keeps it connected to its server."""

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

from hetero_tf.base import children, hardware
from hetero_tf.base.errors import InputError, UserError
from hetero_tf.devices.litert_client import LiteRTClient
from hetero_tf.devices.messages import ITS_LEVEL, NOTHING, Member, Message
from hetero_tf.devices.on_device import THRESHOLDS, Client
from hetero_tf.planning.level_assignment import assign_levels
from hetero_tf.recipe import Recipe, loads
from hetero_tf.run.data import load_data, split


@dataclass(frozen=True)
class Share:
    """A device's share of the data.

    Attributes:
        position: Index of its examples in the partition.
        level: Name of its level.
    """

    position: int
    level: str


def share_of(recipe: Recipe, clients: int, client: int, level: str | None) -> Share:
    """Return the share of a device.

    Args:
        recipe: The device's recipe.
        clients: Number of clients of its partition; 1 if the device has local data.
        client: Client number.
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
    return Share(0 if clients == 1 else client, level)


# A device trains one client.
SEQUENTIAL_OVERRIDE = "engine=sequential"
# Exit code of a process whose connection is lost, and seconds until the next one starts.
DISCONNECTED, RETRY_PAUSE = 75, 5.0


@dataclass(frozen=True)
class DeviceSettings:
    """Settings of the command line for a device.

    Attributes:
        recipe: The device's recipe.
        data_dir: Folder of the data, or None.
        threads: Threads of a step.
        client: Client number.
        level: Name of the level, or None for the recipe's.
        litert: Folder of an export to train with LiteRT, or None to train with TensorFlow.
    """

    recipe: Recipe
    data_dir: Path | None
    threads: int
    client: int
    level: str | None = None
    litert: str | None = None


def connect(settings: DeviceSettings, server: str, authority: bytes, key: Any, say: Callable[[str], None]) -> NoReturn:
    """Run a device in a process that is restarted whenever it is killed or loses its connection.

    Args:
        settings: Settings of the device.
        server: host:port of the server.
        authority: Certificate of the server's authority in PEM.
        key: Private key of the device.
        say: Prints messages.

    Raises:
        SystemExit: The process ended after an error, which it printed.
    """
    say(f"client {settings.client} takes part in the run of {server} until it is stopped")
    is_reported = False
    while True:
        code = run_fork(lambda: _run(settings, server, authority, key))
        if code < 0:
            say(f"note: the process of the device {children.describe_exit(code)}; it is restarted")
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
    pid = os.fork()
    if not pid:
        os.close(writing)
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            children.exit_with_parent(reading)
            code = work()
        finally:
            os._exit(code)
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        os.close(reading)
        os.close(writing)


def _run(settings, server, authority, key):
    """Respond to the requests of a server; return the exit code of this process."""
    from hetero_tf.devices import fleet_api

    try:
        device = build_device(settings)

        def answer(action: str, request: Message, transfers: dict[str, float]) -> Message:
            response = device.respond(action, request)
            if action != "training":
                return response
            return dataclasses.replace(response, metadata={**response.metadata, **transfers})

        fleet_api.respond(server, authority, key, answer)
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
    return _tensorflow_client(settings) if settings.litert is None else litert_client(settings)


def litert_client(settings: DeviceSettings) -> LiteRTClient:
    """Return the device that trains an export, without TensorFlow."""
    recipe, client = settings.recipe, settings.client
    assert settings.litert is not None
    try:
        device = Client(settings.litert, settings.threads)
    except (OSError, ValueError) as error:
        raise InputError(f"--litert {settings.litert}: {error}") from error
    dataset = load_data(recipe, settings.data_dir)
    partition = split(recipe, dataset)
    share = share_of(recipe, len(partition.train), client, settings.level or device.level)
    rows = partition.train[share.position]
    x, y = dataset.train.x[rows], None if dataset.train.y is None else dataset.train.y[rows]
    present = partition.label_mask[share.position]
    if y is not None and device.settings["targets"]["form"] == THRESHOLDS:
        present = device.present(y)
    labels = np.flatnonzero(present).astype(np.int32)
    measures = ITS_LEVEL if device.statistics_shapes else NOTHING
    member = Member(client, share.level, len(x), labels, measures)
    return LiteRTClient(recipe, device, member, x, y, tuple(partition.train.sizes[: share.position].tolist()))


def _tensorflow_client(settings):
    hardware.import_quietly()
    from hetero_tf.devices.device_index import check_deployable
    from hetero_tf.devices.tensorflow_client import TensorFlowClient
    from hetero_tf.run.learning_process import learning_process

    recipe = loads(settings.recipe.source, settings.recipe.path, (SEQUENTIAL_OVERRIDE,))
    process = learning_process(recipe, data_dir=settings.data_dir, parallel=settings.threads, device="cpu")
    check_deployable(process)
    share = share_of(recipe, len(process.partition.train), settings.client, settings.level)
    if len(process.partition.train) == 1 and process.evaluator.measures.task.scaling is not None:
        raise InputError(
            "a device with local data does not know the mean and deviation of the targets of all devices; server and "
            "devices must set task='{name: regression, scale: none}'. Received: task: regression"
        )
    return TensorFlowClient(process, settings.client, share.position, share.level)
