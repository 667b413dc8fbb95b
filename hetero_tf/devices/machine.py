"""What a machine of the fleet builds from its job: the recipe with its plug-ins, and the device that it is."""

import os
import sys
from dataclasses import dataclass

import numpy as np

from hetero_tf import data
from hetero_tf.base import hardware, registry
from hetero_tf.base.errors import InputError
from hetero_tf.data.dataset import Dataset
from hetero_tf.devices.job import Job
from hetero_tf.devices.litert_client import LiteRTClient
from hetero_tf.devices.messages import ITS_LEVEL, NOTHING, Member
from hetero_tf.devices.on_device import Client
from hetero_tf.partitions.partition import Partition
from hetero_tf.planning.level_assignment import assign
from hetero_tf.planning.split import deal
from hetero_tf.recipe import Recipe, loads


@dataclass(frozen=True)
class Share:
    """A device's part of the data.

    Attributes:
        position: Of its examples in the partition.
        level: Name of its level.
    """

    position: int
    level: str


def share_of(recipe: Recipe, partition: Partition, client: int, level: str | None) -> Share:
    """Returns what a device has.

    Args:
        recipe: Of the device.
        partition: Its split: of all clients, or of one, whose examples are then the device's own data.
        client: Its number.
        level: Name of its level; None: the recipe's for a client of that number.

    Raises:
        InputError: The partition has several shares, but none for it; or its level is not in the mix or unknown.
    """
    clients = len(partition.train)
    if client < 0 or clients > 1 and client >= clients:
        raise InputError(
            f"--client must be one of the {clients} clients of the recipe's partition, 0 to {clients - 1}; a device "
            f"with data of its own sets partition='{{name: iid, clients: 1}}'. Received: --client={client}"
        )
    if level is None and clients == 1:
        raise InputError(
            "--level is missing; a device with data of its own must say which level of the recipe it holds"
        )
    if level is None:
        level = recipe.levels.names[assign(recipe.levels, clients, recipe.seed, 0, np.asarray([client]))[0]]
    if level not in recipe.levels.names:
        raise InputError(f"--level must be one of the mix, {', '.join(recipe.levels.names)}. Received: --level={level}")
    return Share(0 if clients == 1 else client, level)


def own_examples(dataset: Dataset, partition: Partition, position: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns the examples of a share and their labels, None for text."""
    rows = partition.train[position]
    return dataset.train.x[rows], None if dataset.train.y is None else dataset.train.y[rows]


# A device computes one client.
ALONE = "engine=sequential"


def prepared_recipe(job: Job, *overrides: str) -> Recipe:
    """Returns the recipe of a job, whose plug-ins are imported."""
    if job.plugins:
        # Behind everything else: a file of the working folder never replaces a library.
        sys.path.append(os.getcwd())
        hardware.import_quietly()
    for module in job.plugins:
        registry.register_plugin(module)
    return loads(job.recipe, job.path, overrides)


def client_of(job: Job):
    """Returns the device of a job: a `LiteRTClient` or a `TensorFlowClient`.

    Raises:
        InputError: It cannot take part in the recipe; see `share.share_of` and `support.check_deployable`.
    """
    return _tensorflow_client(job) if job.litert is None else litert_client(job)


def litert_client(job: Job) -> LiteRTClient:
    """Returns the device that trains the export of a job; it needs no TensorFlow."""
    recipe = prepared_recipe(job)
    assert job.litert is not None
    device = Client(job.litert, job.threads)
    dataset = data.load(recipe.data.loader, recipe.data.fallback, data.data_folder(job.data_dir))
    partition = deal(recipe, dataset)
    share = share_of(recipe, partition, job.client, job.level or device.level)
    x, y = own_examples(dataset, partition, share.position)
    labels = np.flatnonzero(partition.label_mask[share.position]).astype(np.int32)
    measures = ITS_LEVEL if device.statistics_shapes else NOTHING
    member = Member(job.client, share.level, len(x), labels, measures)
    return LiteRTClient(recipe, device, member, x, y, tuple(partition.train.sizes[: share.position].tolist()))


def _tensorflow_client(job):
    hardware.import_quietly()
    from hetero_tf.devices.device_index import check_deployable
    from hetero_tf.devices.tensorflow_client import TensorFlowClient
    from hetero_tf.process.learning_process import learning_process

    process = learning_process(prepared_recipe(job, ALONE), data_dir=job.data_dir, parallel=job.threads, device="cpu")
    check_deployable(process)
    share = share_of(process.recipe, process.partition, job.client, job.level)
    return TensorFlowClient(process, job.client, share.position, share.level)
