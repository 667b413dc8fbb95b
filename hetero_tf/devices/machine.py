"""Builds the recipe, its plug-ins and the device of a machine from its job."""

import os
import sys
from dataclasses import dataclass

import numpy as np

from hetero_tf.base import hardware, registry
from hetero_tf.base.errors import InputError
from hetero_tf.devices.job import Job
from hetero_tf.devices.litert_client import LiteRTClient
from hetero_tf.devices.messages import ITS_LEVEL, NOTHING, Member
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


def prepare_recipe(job: Job, *overrides: str) -> Recipe:
    """Import the plug-ins of a job and return its recipe."""
    if job.plugins:
        # Append: a file of the working folder must not shadow a library.
        sys.path.append(os.getcwd())
        hardware.import_quietly()
    for module in job.plugins:
        registry.register_plugin(module)
    return loads(job.recipe, job.path, overrides)


def build_device(job: Job):
    """Return the device of a job: a `LiteRTClient` or a `TensorFlowClient`.

    Raises:
        InputError: The device cannot run the recipe; see `share_of` and `device_index.check_deployable`.
    """
    return _tensorflow_client(job) if job.litert is None else litert_client(job)


def litert_client(job: Job) -> LiteRTClient:
    """Return the device that trains the export of a job, without TensorFlow."""
    recipe = prepare_recipe(job)
    assert job.litert is not None
    device = Client(job.litert, job.threads)
    dataset = load_data(recipe, job.data_dir)
    partition = split(recipe, dataset)
    share = share_of(recipe, len(partition.train), job.client, job.level or device.level)
    rows = partition.train[share.position]
    x, y = dataset.train.x[rows], None if dataset.train.y is None else dataset.train.y[rows]
    present = partition.label_mask[share.position]
    if y is not None and device.settings["targets"]["form"] == THRESHOLDS:
        present = device.present(y)
    labels = np.flatnonzero(present).astype(np.int32)
    measures = ITS_LEVEL if device.statistics_shapes else NOTHING
    member = Member(job.client, share.level, len(x), labels, measures)
    return LiteRTClient(recipe, device, member, x, y, tuple(partition.train.sizes[: share.position].tolist()))


def _tensorflow_client(job):
    hardware.import_quietly()
    from hetero_tf.devices.device_index import check_deployable
    from hetero_tf.devices.tensorflow_client import TensorFlowClient
    from hetero_tf.run.learning_process import learning_process

    process = learning_process(
        prepare_recipe(job, SEQUENTIAL_OVERRIDE), data_dir=job.data_dir, parallel=job.threads, device="cpu"
    )
    check_deployable(process)
    share = share_of(process.recipe, len(process.partition.train), job.client, job.level)
    if len(process.partition.train) == 1 and process.evaluator.measures.task.scaling is not None:
        raise InputError(
            "a device with local data does not know the mean and deviation of the targets of all devices; server and "
            "devices must set task='{name: regression, scale: none}'. Received: task: regression"
        )
    return TensorFlowClient(process, job.client, share.position, share.level)
