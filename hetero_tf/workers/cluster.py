"""The processes that share a run: read from flags or TF_CONFIG, and connected by TensorFlow's collectives."""

import contextlib
import faulthandler
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hetero_tf.base import hardware
from hetero_tf.base.errors import InputError, WorkerLost, shorten_repr

# Container names may have underscores.
ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|\w([\w.-]*\w)?):(\d{1,5})", re.ASCII)
MAX_WORKERS = 1024
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
    """Return the cluster of TF_CONFIG; None without addresses. Other tasks than these jobs must not lead a run."""
    with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
        config = json.loads(text)
        jobs, task = config.get("cluster") or {}, config.get("task") or {}
        if not jobs and not task:
            return None
        job, index = task["type"], int(str(task["index"]))
        addresses = {name: of_job for name, of_job in jobs.items() if of_job}
        lists = [addresses.get(name, []) for name in JOBS]
        tasks = [(name, number) for name, of_job in zip(JOBS, lists) for number in range(len(of_job))]
        is_valid = addresses.keys() <= set(JOBS) and all(isinstance(of_job, list) for of_job in lists)
        if is_valid and not tasks and job in JOBS:
            return None
        if is_valid and len(lists[0]) <= 1 and (job, index) in tasks:
            return _check_cluster("TF_CONFIG", (*lists[0], *lists[1]), tasks.index((job, index)))
    raise InputError(
        'TF_CONFIG must be JSON such as {"cluster": {"chief": ["host:port"], "worker": ["host:port", ...]}, "task": '
        '{"type": "worker", "index": 0}}, with one chief at most, and the task must be one of the cluster. '
        f"Received: {shorten_repr(text)}"
    )


def _check_cluster(source, addresses, index):
    # Host names are case-insensitive.
    known = {(host.lower(), port) for host, port in (parse_address(source, address) for address in addresses)}
    if len(known) != len(addresses) or len(addresses) > MAX_WORKERS:
        raise InputError(
            f"{source}: there may be {MAX_WORKERS} different addresses. Received: {len(addresses)}, or one twice"
        )
    if not 0 <= index < len(addresses):
        raise InputError(f"{source}: worker must be 0 to {len(addresses) - 1}. Received: {index}")
    return Cluster(addresses, index) if len(addresses) > 1 else None


def parse_address(source: str, address: str) -> tuple[str, int]:
    """Return the host and the port of `host:port`.

    Args:
        source: The flag or variable, for error messages.
    """
    match = ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if match is None or not 0 < int(match[3]) < 2**16:
        raise InputError(f"{source}: an address must be host:port. Received: {shorten_repr(address)}")
    return address.rpartition(":")[0].strip("[]"), int(match[3])


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
        patience: Seconds to wait. The first worker then ends with code 1, since TensorFlow would wait for an hour.

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
    _wait_at_most(patience, len(cluster.addresses))
    with open(os.devnull, "w") as null:
        # No Python code runs while TensorFlow waits, so neither a signal nor another thread could end it.
        faulthandler.dump_traceback_later(patience + 10, exit=True, file=null)
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


def _wait_at_most(seconds, processes):
    """Set TensorFlow's timeout for the other processes, by default one hour."""
    # TensorFlow has no public function for this; without the private one the wait is only longer.
    with contextlib.suppress(ImportError, AttributeError, TypeError):
        from tensorflow.python.eager import context

        job = context.coordination_config_pb2.CoordinatedJob(name="worker", num_tasks=processes)
        context.context().configure_coordination_service(
            service_type="standalone",
            service_leader="/job:worker/replica:0/task:0",
            cluster_register_timeout_in_ms=int(1000 * seconds),
            coordinated_jobs=[job],
        )


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
