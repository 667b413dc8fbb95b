"""Actions that run before a signal ends the process without running `finally` or `atexit`.

The signal handler calls `os._exit`, because another thread may be inside a compiled call that takes minutes. The list
of actions belongs to the process, like its signal handlers.
"""

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from hetero_tf.base.errors import DiskProblem

_ACTIONS: list[Callable[[], object]] = []
# Set if `atexit` handlers of a library might never end: the program then ends without them.
SKIPS_CLEANUP = threading.Event()


@contextlib.contextmanager
def before_exit(action: Callable[[], object]) -> Iterator[None]:
    """Run `action` if a signal ends the process inside the block; it must finish within seconds."""
    _ACTIONS.append(action)
    try:
        yield
    finally:
        _ACTIONS.remove(action)


def run_actions() -> None:
    """Run the actions of all open blocks, newest first; a failing action does not stop the others."""
    for action in reversed(_ACTIONS):
        with contextlib.suppress(Exception):
            action()


def make_temporary_folder(prefix: str) -> Path:
    """Create a temporary folder whose name starts with `prefix`.

    Raises:
        DiskProblem: The folder cannot be created.
    """
    try:
        return Path(tempfile.mkdtemp(prefix=prefix))
    except OSError as error:
        raise DiskProblem(
            f"could not create a temporary folder: {error.strerror or error}; set TMPDIR to a writable folder"
        ) from error


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Create a folder; remove it at the end of the block, or before a signal ends the process.

    Raises:
        DiskProblem: The folder cannot be created.
    """
    folder = make_temporary_folder("hetero_tf-")

    def remove():
        shutil.rmtree(folder, ignore_errors=True)

    with before_exit(remove):
        try:
            yield folder
        finally:
            remove()
