"""Settings of all tests: no GPU, quiet TensorFlow, fixed threads; `suite` selects them.

All settings are environment variables, set before any test imports TensorFlow. Tests without TensorFlow stay fast, and
programs that a test starts inherit the settings.
"""

import ctypes
import functools
import gc
import os
import resource
import signal
import sys
from pathlib import Path

import pytest

from hetero_tf.base import hardware, registry

SETTINGS = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "2",
}
for name, value in SETTINGS.items():
    os.environ.setdefault(name, value)
# Graphs are many small objects with a long life: with the default thresholds, collections take a tenth of the time.
gc.set_threshold(1_000_000, 50, 100)
# Linux: the pages of a process, and the function that returns freed memory to the system.
PAGES = Path("/proc/self/statm")
_trim_heap = getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: 0)
RESIDENT = pytest.StashKey[int]()
# A shell starts background jobs with SIGINT ignored, and nohup with SIGHUP ignored. The programs that tests start and
# stop would inherit that.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)

pytest_plugins = ["suite"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """One process per core; one more for long tests, which also wait for clocks and other programs."""
    return hardware.core_count() + bool(config.getoption("--all") or config.getoption("--part"))


@pytest.fixture(scope="session", autouse=True)
def exports_folder(tmp_path_factory):
    """The folder of the exports that all processes of a session share, see `exports.stored`."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    os.environ["HETERO_TF_EXPORTS"] = str(folder / "exports")


@pytest.fixture
def train(monkeypatch):
    """Function that trains in the process of the test, see `runs.trainer`."""
    import runs  # here, as it imports TensorFlow

    return runs.trainer(monkeypatch)


@pytest.fixture
def write_run(tmp_path):
    """`(name, accuracies, *overrides, ...) -> path` of a run folder in `tmp_path`; see `written_runs.write`."""
    import written_runs

    return functools.partial(written_runs.write, tmp_path)


@pytest.fixture
def command(monkeypatch, capsys):
    """`(*words) -> (exit code, standard output, standard error)` of the program in the process of the test."""
    from hetero_tf.base import processes
    from hetero_tf.cli import main

    monkeypatch.setattr(processes, "install_handlers", lambda *sentences: None)
    return lambda *words: (main.main(["hetero_tf", *map(str, words)]), *capsys.readouterr())


@pytest.fixture
def plugin_module(tmp_path, monkeypatch):
    """`(name, source) -> name` of a new module on the path; the registry of plug-ins is as before afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "_registered", {kind: {} for kind in registry.KINDS})

    def write(name, source):
        (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return name

    return write


@pytest.fixture
def eager():
    """Run functions eagerly: without compiled rounds to test, tracing would take most of the time."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def resident_bytes():
    """Resident memory of this process; 0 on systems without /proc."""
    return int(PAGES.read_text().split()[1]) * resource.getpagesize() if PAGES.exists() else 0


def release_memory(config, growth):
    """Free unreachable graphs and return their memory to the system, if the process has grown by so many bytes."""
    if resident_bytes() < config.stash.get(RESIDENT, 0) + growth:
        return False
    gc.collect()
    _trim_heap(0)
    config.stash[RESIDENT] = resident_bytes()
    return True


# After the fixtures: some tests replace the functions that read files.
@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item):
    """Free the graphs of a file's earlier tests."""
    release_memory(item.config, 2**29)


@pytest.fixture(scope="module", autouse=True)
def graph_optimizer(request):
    """Turn TensorFlow's graph optimizer off: in a tiny round it takes half of the first call and repays nothing.

    A module with `OPTIMIZE_GRAPHS = True` and the programs that tests start use it, as users' runs do.
    """
    if "tensorflow" in sys.modules:
        is_off = not getattr(request.module, "OPTIMIZE_GRAPHS", False)
        sys.modules["tensorflow"].config.optimizer.set_experimental_options({"disable_meta_optimizer": is_off})


@pytest.fixture(scope="module", autouse=True)
def clear_caches(request):
    """Clear the caches of a test file after its tests; otherwise every process keeps all graphs."""
    yield
    modules = [
        request.module,
        *(sys.modules[name] for name in ("methods", "pinned", "runs", "tiny") if name in sys.modules),
    ]
    for module in modules:
        for value in list(vars(module).values()):
            if hasattr(value, "cache_clear") and value.__module__ == module.__name__:
                value.cache_clear()
    if "runs" in sys.modules:
        sys.modules["runs"].clear()
    # Objects that remain belong to libraries; freeze them to keep later collections fast.
    if "keras" in sys.modules and release_memory(request.config, 2**28):
        gc.freeze()
