"""Actions that run before a signal ends the process, which runs neither `finally` nor `atexit`.

Such an end is `os._exit` in a handler: another thread may be inside a compiled call of minutes. The list belongs to the
process, like its handlers of signals.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from hetero_tf.base.errors import DiskProblem

_ACTIONS: list[Callable[[], object]] = []


@contextlib.contextmanager
def before_exit(action: Callable[[], object]) -> Iterator[None]:
    """Runs `action` if a signal ends the process inside the block; it must end within seconds."""
    _ACTIONS.append(action)
    try:
        yield
    finally:
        _ACTIONS.remove(action)


def run_actions() -> None:
    """Runs the actions of all open blocks, the newest first; a failed one does not stop the others."""
    for action in reversed(_ACTIONS):
        with contextlib.suppress(Exception):
            action()


def make_temporary_folder(prefix: str) -> Path:
    """Makes a folder among the temporary files of the system; its name begins with `prefix`.

    Raises:
        DiskProblem: The folder cannot be made.
    """
    try:
        return Path(tempfile.mkdtemp(prefix=prefix))
    except OSError as error:
        raise DiskProblem(
            f"a temporary folder could not be made: {error.strerror or error}; "
            "set TMPDIR to a folder that you may write"
        ) from error


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Makes a folder that is removed at the end of the block, and before a signal ends the process.

    Raises:
        DiskProblem: The folder cannot be made.
    """
    folder = make_temporary_folder("hetero_tf-")

    def remove():
        shutil.rmtree(folder, ignore_errors=True)

    with before_exit(remove):
        try:
            yield folder
        finally:
            remove()
