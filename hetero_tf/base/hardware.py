"""Prepares TensorFlow for this machine: start-up noise, threads, devices."""

import contextlib
import gc
import importlib.util
import os
import sys
from pathlib import Path

from hetero_tf.base.errors import InputError, MemoryProblem

# With batches of 10, kernels are too small to split.
KERNEL_THREADS = 1
# Passes of TensorFlow's graph optimizer that take a fifth of a first call on a CPU. The layout of images and the choice
# of cuDNN functions only change graphs on a GPU, and fusions found at most four products of a round (2026-11-26).
SKIPPED_PASSES = ("layout_optimizer", "remapping", "implementation_selector")


def import_quietly(list_devices: bool = True) -> None:
    """Import TensorFlow without its start-up messages, which no setting silences completely.

    Args:
        list_devices: Also silence the first query for devices. It initializes CUDA, after which a process must not
            fork.

    Raises:
        InputError: It is not installed, such as on a device with the distribution hetero_tf_device, or Keras has
            another backend.
    """
    check_keras()
    if "tensorflow" not in sys.modules and importlib.util.find_spec("tensorflow") is None:
        raise InputError("this command needs TensorFlow, which is not installed; pip install hetero_tf")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    terminal, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        with _no_collection(), _without_matplotlib():
            import tensorflow as tf

        if list_devices:
            tf.config.list_physical_devices()
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(nowhere)


def check_keras() -> None:
    """Refuse a setting of Keras with which its layers do not compute what TensorFlow's do.

    Raises:
        InputError: The backend is not TensorFlow, or images have their channels first.
    """
    keras = sys.modules.get("keras")
    backend = os.environ.get("KERAS_BACKEND", "tensorflow") if keras is None else keras.config.backend()
    if backend != "tensorflow":
        raise InputError(
            "hetero_tf needs the backend `tensorflow` of Keras; set the environment variable KERAS_BACKEND to it, or "
            f"remove the variable. Received: KERAS_BACKEND={backend}"
        )
    if keras is not None and keras.config.image_data_format() != "channels_last":
        raise InputError(
            "hetero_tf needs images with the channels last; call "
            'keras.config.set_image_data_format("channels_last"), or set `image_data_format` in keras.json. '
            f"Received: {keras.config.image_data_format()}"
        )


@contextlib.contextmanager
def _without_matplotlib():
    """Hide matplotlib: Keras would import its pyplot for galleries that no command draws, which takes 0.7 s."""
    if "matplotlib" in sys.modules:
        yield
        return
    sys.modules["matplotlib"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["matplotlib"]


@contextlib.contextmanager
def _no_collection():
    """Disable the garbage collector during the first import of TensorFlow, then freeze the new objects.

    None of these objects is garbage. Scanning them costs half a second at start-up, and as much at exit.
    """
    if "tensorflow" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


def check_memory(path: Path | str, size: int) -> None:
    """Refuse `size` bytes from `path` that exceed half of this machine's memory.

    Raises:
        MemoryProblem: The bytes do not fit.
    """
    limit = memory_limit() // 2
    if size > limit:
        raise MemoryProblem(
            f"{path}: needs {size / 2**30:.1f} GiB, but half of this machine's memory is "
            f"{limit / 2**30:.1f} GiB; use fewer or smaller examples"
        )


def memory_limit(root: Path = Path("/")) -> int:
    """Return the bytes of memory that this process may use: the machine's, or the limit of its control groups.

    Args:
        root: The folder with `proc` and `sys`.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                limits += _cgroup_limits(root / "sys/fs/cgroup", path, "memory.max")
            elif "memory" in controllers.split(","):
                limits += _cgroup_limits(root / "sys/fs/cgroup/memory", path, "memory.limit_in_bytes")
    return min(limits)


def _cgroup_limits(top, path, name):
    """Yield the limits of a control group and its parents; "max" means no limit."""
    inside = Path(path.lstrip("/"))
    for folder in (inside, *inside.parents):
        with contextlib.suppress(OSError, ValueError):
            yield int((top / folder / name).read_text())


def core_count() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def configure_threads(threads: int) -> None:
    """Configure TensorFlow to run `threads` operations in parallel, with one kernel thread each.

    This is up to three times as fast as the default. GPU memory grows on demand. The call has no effect after
    TensorFlow has run its first operation.
    """
    import tensorflow as tf

    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_intra_op_parallelism_threads(KERNEL_THREADS)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)


def skip_graph_passes() -> None:
    """Turn off the `SKIPPED_PASSES` of TensorFlow's graph optimizer in this process, unless it has a GPU."""
    import tensorflow as tf

    if device_type() == "cpu":
        tf.config.optimizer.set_experimental_options(dict.fromkeys(SKIPPED_PASSES, False))


def device_type() -> str:
    """Return "gpu" if TensorFlow detects one, else "cpu"."""
    import tensorflow as tf

    return "gpu" if tf.config.list_physical_devices("GPU") else "cpu"
