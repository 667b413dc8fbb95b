"""Errors that the command line prints as one sentence, each with its exit code."""

import difflib
import importlib.util
import re
from collections.abc import Iterable


class UserError(Exception):
    """A problem that the command line prints as one sentence, without a traceback.

    `code` is the exit code: 2 bad input, 3 disk, 4 memory, 5 locked, 6 non-finite, 7 unfinished runs of a sweep,
    8 a lost worker, 9 a row that was not reproduced. An error from another process keeps its code.
    """

    code = 1

    def __init__(self, message: str, code: int | None = None):
        super().__init__(message)
        if code is not None:
            self.code = code


class InputError(UserError):
    """A recipe, override, flag or data file is invalid; the message names it and says what to do."""

    code = 2


class NotBuilt(InputError):
    """The learning process of a run folder cannot be rebuilt, usually because its data moved or changed."""


class DiskProblem(UserError):
    """The operating system failed to read or write: disk full, read-only or missing."""

    code = 3


class MemoryProblem(UserError):
    """The work does not fit into memory."""

    code = 4


class Locked(UserError):
    """Another process uses the same run folder."""

    code = 5


class NotFinite(UserError):
    """Too many clients returned NaN or infinity, or the values to merge or save are not finite."""

    code = 6


class PartialResult(UserError):
    """A command did a part of its work; `result` is ready for JSON."""

    def __init__(self, message: str, result: dict):
        super().__init__(message)
        self.result = result


class Unfinished(PartialResult):
    """Some runs of a sweep did not finish; `result` lists them."""

    code = 7


class NotReproduced(PartialResult):
    """`bench verify` got other results than a row of a benchmark; `result` has the differences."""

    code = 9


class InvalidItems(PartialResult):
    """Some items of `predict` cannot be read; `result` has the predictions for the others."""

    code = 2


class WorkerLost(UserError):
    """A worker process of the run stopped, hangs or cannot be reached."""

    code = 8


class TooFewDevices(UserError):
    """Fewer devices returned a result than a round needs."""

    code = 8


def error_from_graph(error: Exception) -> UserError | None:
    """Recover the `UserError` that Python code called from a graph raised; TensorFlow keeps only its text."""
    classes = {cls.__name__: cls for cls in _subclasses(UserError) if not issubclass(cls, PartialResult)}
    # Compare by name: TensorFlow may not be imported yet.
    if type(error).__name__ != "UnknownError":
        return None
    match = re.search(rf"(?:^|\}}\}} )({'|'.join(classes)}): (.+)$", str(error), re.MULTILINE)
    return classes[match[1]](match[2]) if match else None


def _subclasses(cls):
    return [cls, *(descendant for subclass in cls.__subclasses__() for descendant in _subclasses(subclass))]


def require_modules(feature: str, modules: Iterable[str], extra: str) -> None:
    """Raise `InputError` unless the modules that `feature` needs are installed; `extra` of this package has them."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(
            f"{feature} needs {' and '.join(missing)}, which is not installed; pip install 'hetero_tf[{extra}]'"
        )


def find_nearest(word: object, known: Iterable[object]) -> str | None:
    """Return the name in `known` that is closest to a word, or None if none is close."""
    matches = difflib.get_close_matches(str(word), [str(name) for name in known], n=1)
    return matches[0] if matches else None


def did_you_mean(word: object, known: Iterable[object]) -> str:
    """Return the closest name as "; did you mean 'x'?", or the list of all names if none is close."""
    match = find_nearest(word, known)
    if match:
        return f"; did you mean {match!r}?"
    return f"; known: {', '.join(sorted(str(name) for name in known))}"


def shorten_repr(value: object, limit: int = 200) -> str:
    """Return `repr(value)`, truncated to `limit` characters."""
    try:
        text = repr(value)
    except ValueError:
        # Python refuses to print integers of more than 4,300 digits.
        text = f"a {type(value).__name__} too large to print"
    return text if len(text) <= limit else f"{text[:limit]}..."
