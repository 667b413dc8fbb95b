"""The errors that the program explains to a person: one sentence each, with the exit code that belongs to it."""

import difflib
import importlib.util
import re
from collections.abc import Iterable


class UserError(Exception):
    """A problem that the program explains in one sentence instead of a traceback.

    `code` is the exit code of the command line: 2 bad input, 3 disk, 4 memory, 5 locked, 6 non-finite, 7 runs of a
    sweep that did not finish, 8 a worker of the run is gone. A problem of another process keeps the code it had there.
    """

    code = 1

    def __init__(self, sentence: str, code: int | None = None):
        super().__init__(sentence)
        if code is not None:
            self.code = code


class InputError(UserError):
    """A recipe, override, flag or data file is wrong; the message says where and what to do."""

    code = 2


class NotBuilt(InputError):
    """The process of a run folder cannot be built again, as a rule because its data were moved or changed."""


class DiskProblem(UserError):
    """Reading or writing failed in the operating system: full, read-only, gone."""

    code = 3


class MemoryProblem(UserError):
    """The work does not fit into memory."""

    code = 4


class Locked(UserError):
    """Another process works on the same run folder."""

    code = 5


class NotFinite(UserError):
    """Too many clients returned NaN or infinite weights, or the values to merge or to save are not finite."""

    code = 6


class Unfinished(UserError):
    """Some runs of a sweep did not finish; `result` says which, ready for JSON."""

    code = 7

    def __init__(self, sentence: str, result: dict):
        super().__init__(sentence)
        self.result = result


class WorkerLost(UserError):
    """A process that shares the run stopped, hangs or cannot be reached."""

    code = 8


class TooFewDevices(UserError):
    """Fewer devices returned a result than a round needs."""

    code = 8


def error_from_graph(error: Exception) -> UserError | None:
    """Returns the refusal that a graph met when it called Python, of which TensorFlow's error has only the text.

    Args:
        error: Any error; None is returned for one that tells of no refusal.
    """
    kinds = {kind.__name__: kind for kind in _kinds(UserError) if kind is not Unfinished}
    # TensorFlow's own class is known by name: it may not be imported yet.
    if type(error).__name__ != "UnknownError":
        return None
    found = re.search(rf"(?:^|\}}\}} )({'|'.join(kinds)}): (.+)$", str(error), re.MULTILINE)
    return kinds[found[1]](found[2]) if found else None


def _kinds(kind):
    return [kind, *(below for each in kind.__subclasses__() for below in _kinds(each))]


def require(what: str, modules: Iterable[str], extra: str) -> None:
    """Raises `InputError` unless the modules are installed; `extra` of this package has them, `what` needs them."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(
            f"{what} needs {' and '.join(missing)}, which is not installed; pip install 'hetero_tf[{extra}]'"
        )


def nearest(word: object, known: Iterable[object]) -> str | None:
    """Returns the name among `known` that is most like a word, or None if none is like it."""
    near = difflib.get_close_matches(str(word), [str(name) for name in known], n=1)
    return near[0] if near else None


def did_you_mean(word: object, known: Iterable[object]) -> str:
    """Returns the nearest of `known` as "; did you mean 'x'?", or all of them if none is near."""
    near = nearest(word, known)
    if near:
        return f"; did you mean {near!r}?"
    return f"; known: {', '.join(sorted(str(name) for name in known))}"


def short(value: object, most: int = 200) -> str:
    """Returns a value as Python writes it, cut off after `most` characters."""
    try:
        text = repr(value)
    except ValueError:
        # Python does not write integers of more than 4,300 digits.
        text = f"a {type(value).__name__} too large to print"
    return text if len(text) <= most else f"{text[:most]}..."
