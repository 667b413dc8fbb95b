"""What holds for every test: no GPU, quiet TensorFlow, thread counts that do not depend on the machine; and shares.

All settings go through environment variables, set before any test imports TensorFlow: a test that does not need
TensorFlow does not pay for it, and programs that a test starts inherit the same.
"""

import os
import signal

import pytest

SETTINGS = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "2",
}
for name, value in SETTINGS.items():
    os.environ.setdefault(name, value)
# A shell starts background jobs with SIGINT ignored, and the programs that tests start and stop would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    """`--share 1/2`: one of two parts of the test files, for a process beside another."""
    parser.addoption("--share", default="1/1", metavar="I/N", help="only the I-th of N parts of the test files")


def pytest_collection_modifyitems(config, items):
    """Leaves out the files of other shares, and the tests marked `gpu` where no GPU is to be seen."""
    part, parts = map(int, config.getoption("--share").split("/"))
    # Whole files, since the tests of a file share what takes them long to build.
    owner = {path: 1 + number % parts for number, path in enumerate(dict.fromkeys(item.path for item in items))}
    config.hook.pytest_deselected(items=[item for item in items if owner[item.path] != part])
    items[:] = [item for item in items if owner[item.path] == part]
    if os.environ["CUDA_VISIBLE_DEVICES"] in ("", "-1"):
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="CUDA_VISIBLE_DEVICES hides the GPU"))


@pytest.fixture
def train(monkeypatch):
    """Runs in the process of the test, see `runs.trainer`."""
    import runs  # here, as it imports TensorFlow

    return runs.trainer(monkeypatch)
