"""What holds for every test: no GPU, quiet TensorFlow, and thread counts that do not depend on the machine.

All of it goes through environment variables, set before any test imports TensorFlow: a test that does not need
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


def pytest_collection_modifyitems(items):
    """Leaves out the tests marked `gpu` where no GPU is to be seen."""
    if os.environ["CUDA_VISIBLE_DEVICES"] in ("", "-1"):
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="CUDA_VISIBLE_DEVICES hides the GPU"))


@pytest.fixture
def train(monkeypatch):
    """Runs in the process of the test, see `runs.trainer`."""
    import runs  # here, as it imports TensorFlow

    return runs.trainer(monkeypatch)
