"""The processes that share a run: read from flags or TF_CONFIG, and connected by TensorFlow's collectives."""

import contextlib
import faulthandler
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from hetero_tf.base import hardware
from hetero_tf.base.errors import InputError, WorkerLost, shorten_repr

# The jobs of TF_CONFIG, in the order of the workers.
JOBS = ("chief", "worker")
# Seconds until all workers must be connected.
PATIENCE = 300.0


@dataclass(frozen=True)
class Cluster:
    """The processes of a run. The first one leads: it plans, evaluates, saves checkpoints and prints.

    Attributes:
        addresses: `host:port` of each process, the same list in the same order everywhere.
    """

    addresses: tuple[str, ...]
    index: int

    @property
    def leads(self) -> bool:
        """True if this process leads."""
        return self.index == 0


def read_cluster(workers: Sequence[str], worker: int | None, environment: Mapping[str, str]) -> Cluster | None:
    """Read the cluster from flags or TF_CONFIG; None for a single process.

    Args:
        workers: Values of --workers, `host:port` of each process; empty: use TF_CONFIG.

    Raises:
        InputError: An address is invalid, or the index is out of range.
    """
    if workers:
        if worker is None:
            raise InputError(f"--workers needs --worker, the index of this process: 0 to {len(workers) - 1}")
        return _check_cluster("--workers", tuple(workers), worker)
    if worker is not None:
        raise InputError("--worker needs --workers, the host:port of each process, separated by commas")
    text = environment.get("TF_CONFIG")
    return None if not text else _read_config(text)


def _read_config(text):
    """Return the cluster of TF_CONFIG; None without addresses. Tasks of other jobs must not lead a run."""
    try:
        config = json.loads(text)
        jobs, task = config.get("cluster"), config.get("task")
        if not jobs:
            return None
        addresses = {(job, str(index)): address for job in JOBS for index, address in enumerate(jobs.get(job, ()))}
        index = list(addresses).index((task["type"], str(task["index"])))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError(
            'TF_CONFIG must be JSON such as {"cluster": {"chief": ["host:port"], "worker": ["host:port", ...]}, '
            '"task": {"type": "worker", "index": 0}}, and the task must be one of the cluster. '
            f"Received: {shorten_repr(text)}"
        ) from error
    return _check_cluster("TF_CONFIG", tuple(addresses.values()), index)


def _check_cluster(source, addresses, index):
    for address in addresses:
        parse_address(source, address)
    if not 0 <= index < len(addresses):
        raise InputError(f"{source}: worker must be 0 to {len(addresses) - 1}. Received: {index}")
    return Cluster(addresses, index) if len(addresses) > 1 else None


def parse_address(source: str, address: str) -> tuple[str, int]:
    """Return the host and the port of `host:port`.

    Args:
        source: The flag or variable, for error messages.
    """
    with contextlib.suppress(ValueError):
        parts = urlsplit(f"//{address}")
        if parts.hostname and parts.port:
            return parts.hostname, parts.port
    raise InputError(f"{source}: an address must be host:port. Received: {shorten_repr(address)}")


def open_port_warning(cluster: Cluster) -> str:
    """Describe the risk of the port that TensorFlow opens for this process; no option binds it to one address."""
    _, port = parse_address("--workers", cluster.addresses[cluster.index])
    return (
        f"TensorFlow listens on port {port} of all network interfaces, without encryption or authentication; a program "
        "that can connect can run operations that read and write files as this user. Use a private network"
    )


def connect(cluster: Cluster, patience: float = PATIENCE):
    """Wait until all processes of a cluster are connected and return their `tf.distribute` strategy.

    Args:
        patience: Seconds to wait. The process then ends with code 1, since TensorFlow would wait for an hour.

    Raises:
        InputError: The port is in use.
        WorkerLost: Some workers did not connect in time.
    """
    import tensorflow as tf

    experimental = tf.distribute.experimental
    implementations = experimental.CommunicationImplementation
    implementation = implementations.AUTO if hardware.device_type() == "gpu" else implementations.RING
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(cluster.addresses)}),
        task_type="worker",
        task_id=cluster.index,
        rpc_layer="grpc",
    )
    with open(os.devnull, "w") as null:
        # No Python code runs while TensorFlow waits, so neither a signal nor another thread could end it.
        faulthandler.dump_traceback_later(patience, exit=True, file=null)
        try:
            return tf.distribute.MultiWorkerMirroredStrategy(
                resolver, communication_options=experimental.CommunicationOptions(implementation=implementation)
            )
        except tf.errors.UnknownError as error:
            raise InputError(
                f"worker {cluster.index} cannot listen at {cluster.addresses[cluster.index]}; is the port in use? "
                f"({shorten_repr(error)})"
            ) from error
        except tf.errors.OpError as error:
            raise WorkerLost(
                f"not all of the {len(cluster.addresses)} workers connected within {patience:g} s; start the same "
                "command on all"
            ) from error
        finally:
            faulthandler.cancel_dump_traceback_later()


def mirrored(devices: int):
    """Return the strategy of several devices of this process: GPUs if there are any, else logical CPU devices.

    Raises:
        InputError: The machine has fewer GPUs.
    """
    import tensorflow as tf

    gpus = tf.config.list_logical_devices("GPU") if hardware.device_type() == "gpu" else []
    if gpus and len(gpus) < devices:
        raise InputError(
            f"at most {len(gpus)} devices can share a round, since this machine has {len(gpus)} GPUs; "
            f"CUDA_VISIBLE_DEVICES=-1 divides the processor instead. Received: {devices}"
        )
    if not gpus:
        parts = [tf.config.LogicalDeviceConfiguration()] * devices
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)
    return tf.distribute.MirroredStrategy([f"{'GPU' if gpus else 'CPU'}:{number}" for number in range(devices)])
