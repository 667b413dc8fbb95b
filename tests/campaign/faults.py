"""Operations on files that fail or kill the process, as a campaign asks for them; installed in the program itself."""

import builtins
import errno
import functools
import io
import os
import signal
from pathlib import Path

BY_PATH = ("open", "mkdir", "rename", "replace", "unlink", "remove", "rmdir", "link", "symlink", "truncate")
BY_DESCRIPTOR = ("fsync", "fdatasync", "ftruncate", "write")


class Faults:
    """Counts the operations on files inside a folder; one of them does something else.

    Args:
        root: The folder.
        at: The how-manieth operation, from 1; 0: none.
        how: "before" and "after" kill the process then, the name of an error, such as "ENOSPC", is raised.
        log: File that holds a byte for every operation so far.
    """

    def __init__(self, root, at, how, log):
        self.root, self.at, self.how, self.log = (
            str(root),
            at,
            how,
            os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        )
        self.seen, self.write = 0, os.write

    def install(self):
        """Wraps the functions of `os`, and `open`, for the rest of the process."""
        for name in (*BY_PATH, *BY_DESCRIPTOR):
            setattr(os, name, self._wrapped(getattr(os, name), name in BY_DESCRIPTOR))
        builtins.open = io.open = self._wrapped(builtins.open, False)

    def _wrapped(self, call, by_descriptor):
        @functools.wraps(call)
        def wrapped(first, *more, **options):
            if not self._inside(first, options.get("dir_fd"), by_descriptor):
                return call(first, *more, **options)
            self.seen += 1
            self.write(self.log, b".")
            if self.seen != self.at:
                return call(first, *more, **options)
            if self.how == "after":
                call(first, *more, **options)
            if self.how in ("before", "after"):
                os.kill(os.getpid(), signal.SIGKILL)
            number = getattr(errno, self.how)
            raise OSError(number, os.strerror(number), None if by_descriptor else first)

        return wrapped

    def _inside(self, first, folder, by_descriptor):
        try:
            if by_descriptor or isinstance(first, int):
                path = os.readlink(f"/proc/self/fd/{int(first)}")
            else:
                start = os.readlink(f"/proc/self/fd/{folder}") if folder is not None else os.getcwd()
                path = os.path.join(start, os.fspath(first))
        except (OSError, TypeError, ValueError):
            return False
        return os.path.normpath(path).startswith(self.root)


def operations(log):
    """How many operations a log has counted."""
    return Path(log).stat().st_size
