"""What a machine of the fleet builds from its job: the recipe with its plug-ins, and the device that it is."""

import os
import sys

import numpy as np

from hetero_tf import data
from hetero_tf.base import hardware, registry
from hetero_tf.device import Client
from hetero_tf.flower.job import Job
from hetero_tf.flower.litert_client import LiteRTClient
from hetero_tf.flower.messages import ITS_LEVEL, NOTHING, Member
from hetero_tf.flower.share import own_examples, share_of
from hetero_tf.planning.split import deal
from hetero_tf.recipe import Recipe, loads

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
        BadInput: It cannot take part in the recipe; see `share.share_of` and `support.check_deployable`.
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
    from hetero_tf.flower.support import check_deployable
    from hetero_tf.flower.tensorflow_client import TensorFlowClient
    from hetero_tf.process import learning_process

    process = learning_process(prepared_recipe(job, ALONE), data_dir=job.data_dir, parallel=job.threads, device="cpu")
    check_deployable(process)
    share = share_of(process.recipe, process.partition, job.client, job.level)
    return TensorFlowClient(process, job.client, share.position, share.level)
