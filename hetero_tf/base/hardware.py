"""Prepares TensorFlow for this machine: start-up noise, threads, devices."""

import contextlib
import gc
import os
import sys
from pathlib import Path

from hetero_tf.base.errors import MemoryProblem

# At a batch of 10 a kernel is too small to split.
KERNEL_THREADS = 1


def import_quietly() -> None:
    """Imports TensorFlow without its start-up messages, which none of its settings silences completely."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    terminal, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        with _no_collection():
            import tensorflow as tf

        # The first look at the devices prints too.
        tf.config.list_physical_devices()
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(nowhere)


@contextlib.contextmanager
def _no_collection():
    """Switches the garbage collector off during the first import of TensorFlow, then freezes what the import created.

    None of these objects is garbage; scanning them again and again costs half a second of a start, and as much at the
    end.
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


CPUINFO = Path("/proc/cpuinfo")


def precision_hint(precision: str, device: str) -> str | None:
    """Returns a sentence where this processor would train faster in another precision; None: it would not.

    Args:
        precision: Of the recipe.
        device: On which clients are trained, "cpu" or "gpu".
    """
    try:
        tiles = "amx_bf16" in CPUINFO.read_text(errors="replace").split()
    except OSError:
        return None
    if not tiles or precision != "float32" or device != "cpu":
        return None
    return (
        "note: this processor has AMX units for bfloat16; --set precision=mixed_bfloat16 trains wide levels faster "
        "(MNIST's level a in 0.7 of the time), with products rounded to bfloat16"
    )


def check_memory(path: Path | str, size: int) -> None:
    """Refuses `size` bytes, read from `path`, that do not fit into half of this machine's memory.

    Raises:
        MemoryProblem: They do not fit.
    """
    limit = memory() // 2
    if size > limit:
        raise MemoryProblem(
            f"{path}: needs {size / 2**30:.1f} GiB, but half of this machine's memory is "
            f"{limit / 2**30:.1f} GiB; use fewer or smaller examples"
        )


def memory(root: Path = Path("/")) -> int:
    """Returns the bytes of memory that this process may use: the machine's, or fewer where its control groups say so.

    Args:
        root: The folder that holds `proc` and `sys`.
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
    """The limits of a control group and of those above it; "max" is none."""
    inside = Path(path.lstrip("/"))
    for folder in (inside, *inside.parents):
        with contextlib.suppress(OSError, ValueError):
            yield int((top / folder / name).read_text())


def cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def prepare(threads: int) -> None:
    """Gives each client one kernel thread, and TensorFlow `threads` clients to run at the same time.

    This is up to three times as fast as the default. Memory of GPUs is taken as it is needed. Once TensorFlow has run
    an operation, nothing changes any more.

    Args:
        threads: How many clients run at the same time.
    """
    import tensorflow as tf

    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_intra_op_parallelism_threads(KERNEL_THREADS)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)


def devices() -> str:
    """Returns "gpu" if TensorFlow sees one, else "cpu"."""
    import tensorflow as tf

    return "gpu" if tf.config.list_physical_devices("GPU") else "cpu"
