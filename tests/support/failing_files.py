"""File operations that fail or kill the process; property tests install them in the program itself."""

import builtins
import contextlib
import errno
import functools
import io
import os
import signal

BY_PATH = ("open", "mkdir", "rename", "replace", "unlink", "remove", "rmdir", "link", "symlink", "truncate")
BY_DESCRIPTOR = ("fsync", "fdatasync", "ftruncate", "write")


class Faults:
    """Counter of file operations in a folder that replaces one of them by a fault.

    Args:
        root: The folder.
        at: Number of the faulty operation, from 1; 0: no fault.
        how: "before" or "after": kill the process before or after the operation; an error name such as "ENOSPC": raise
            that error.
        log: File with one byte for every operation.
    """

    def __init__(self, root, at, how, log):
        self.root, self.at, self.how = str(root), at, how
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.seen, self.write = 0, os.write

    def install(self):
        """Wrap the functions of `os`, `open`, and the writes of the files that it opens, until the process ends."""
        for name in (*BY_PATH, *BY_DESCRIPTOR):
            setattr(os, name, self._wrapped(getattr(os, name), name in BY_DESCRIPTOR))
        builtins.open = io.open = self._wrapped(builtins.open, False)

    def _wrapped(self, call, by_descriptor):
        @functools.wraps(call)
        def wrapped(first, *more, **options):
            if not self._inside(first, options.get("dir_fd"), by_descriptor):
                return call(first, *more, **options)
            result = self._operation(call, first, *more, **options)
            if isinstance(result, io.IOBase) and result.writable():
                result.write = functools.partial(self._operation, result.write)
            return result

        return wrapped

    def _operation(self, call, *arguments, **options):
        self.seen += 1
        self.write(self.log, b".")
        if self.seen != self.at:
            return call(*arguments, **options)
        if self.how == "after":
            with contextlib.suppress(OSError):
                call(*arguments, **options)
        if self.how in ("before", "after"):
            os.kill(os.getpid(), signal.SIGKILL)
        number = getattr(errno, self.how)
        raise OSError(number, os.strerror(number))

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
