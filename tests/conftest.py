"""What holds for every test: no GPU, quiet TensorFlow, the same threads everywhere; and how processes share the files.

All settings go through environment variables, set before any test imports TensorFlow: a test that does not need
TensorFlow does not pay for it, and programs that a test starts inherit the same.
"""

import itertools
import os
import signal
from pathlib import Path

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
    """`--claims FOLDER`: for processes side by side, each of which takes the next file that no other has begun."""
    parser.addoption("--claims", type=Path, help="empty folder in which processes say which test files they have begun")


def pytest_runtestloop(session):
    """Runs the files that no other process has claimed; whole files, since their tests share what is long to build."""
    claims = session.config.getoption("--claims")
    if claims is None:
        return None
    for path, items in itertools.groupby(session.items, key=lambda item: item.path):
        if _claimed(claims, path):
            items = list(items)
            for item, following in zip(items, [*items[1:], None]):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if stop := session.shouldfail or session.shouldstop:
                    raise session.Interrupted(stop)
    return True


def _claimed(claims, path):
    """Whether this process is the first to ask for a file."""
    try:
        (claims / "-".join(path.relative_to(Path(__file__).parent).parts)).mkdir()
    except FileExistsError:
        return False
    return True


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
