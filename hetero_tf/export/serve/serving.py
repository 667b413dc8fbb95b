"""Loads, replaces and unloads served versions as the export folder changes.

States and policies are those of TensorFlow Serving. A level falls back to an older version if its newest one is removed
or cannot be loaded; a new version replaces an old one without interruption.
"""

import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from hetero_tf.base.errors import DiskProblem, InputError, UserError, shorten_repr
from hetero_tf.export.serve.loading import Version, file_stamps, load_version
from hetero_tf.runs.versions import EXPORTED, numbers

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 1.0, 30.0
# Number of unloaded and failed versions of a level whose state is still reported.
REMEMBERED_STATES = 16
# TensorFlow Serving stores version numbers in 64 bits.
LARGEST_VERSION = 2**63 - 1
_POLICY = re.compile(
    r"(?P<all>all)|latest(:(?P<count>[1-9][0-9]{0,2}))?|(?P<numbers>[1-9][0-9]{0,17}(,[1-9][0-9]{0,17})*)"
)


@dataclass(frozen=True)
class VersionPolicy:
    """Selection of the versions of a level to serve.

    Attributes:
        count: Largest number of versions, the newest ones; None for no limit.
        numbers: Allowed version numbers; None for all.
    """

    count: int | None
    numbers: frozenset[int] | None = None

    @classmethod
    def parse(cls, text: str) -> "VersionPolicy":
        """Parse the value of --versions: `latest`, `latest:COUNT`, `all`, or numbers such as `3,5`.

        Raises:
            InputError: The value has another form.
        """
        match = _POLICY.fullmatch(text)
        if match is None:
            raise InputError(
                "--versions must be latest, latest:COUNT, all, or numbers such as 3,5. "
                f"Received: --versions={shorten_repr(text)}"
            )
        if match["numbers"]:
            return cls(None, frozenset(map(int, match["numbers"].split(","))))
        return cls(None if match["all"] else int(match["count"] or 1))

    def candidates(self, available: Iterable[int]) -> list[int]:
        """Return the versions that may be served, the newest first."""
        return sorted((number for number in available if self.numbers is None or number in self.numbers), reverse=True)


@dataclass(frozen=True)
class VersionState:
    """State of a version, as TensorFlow Serving reports it.

    Attributes:
        state: "LOADING", "AVAILABLE", "UNLOADING" or "END".
        error: Message of the error while loading; empty if there was none.
    """

    state: str
    error: str = ""


@dataclass(frozen=True)
class _Failure:
    """A version that could not be loaded: stamps of its files, and the time of the next try."""

    stamps: tuple
    message: str
    wait: float
    due: float


@dataclass(eq=False)
class Serving:
    """Loaded versions of all levels of a folder, FOLDER/<level>/<version>/.

    Attributes:
        folder: Folder that `export` writes.
        policy: Selection of the versions of each level.
        clock: Returns the seconds of a monotonic clock.
    """

    folder: Path
    policy: VersionPolicy = VersionPolicy(2)
    clock: Callable[[], float] = time.monotonic
    _loaded: dict[str, dict[int, Version]] = field(default_factory=dict)
    _states: dict[str, dict[int, VersionState]] = field(default_factory=dict)
    _stamps: dict[Path, tuple] = field(default_factory=dict)
    _failures: dict[Path, _Failure] = field(default_factory=dict)
    _warnings: dict[Path, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the served levels."""
        return tuple(sorted(self._loaded))

    def versions(self, level: str) -> dict[int, Version]:
        """Return the loaded versions of a level by number; empty if it is not served."""
        return self._loaded.get(level, {})

    def find(self, level: str, number: int | None) -> Version | None:
        """Return a version of a level, the newest for None; None if it is not served."""
        versions = self.versions(level)
        return versions.get(max(versions, default=0) if number is None else number)

    def states(self, level: str) -> dict[int, VersionState]:
        """Return the states of a level's versions by number, the newest first; empty for an unknown level."""
        return dict(sorted(self._states.get(level, {}).copy().items(), reverse=True))

    def refresh(self) -> list[str]:
        """Load new and changed versions, and unload those that were removed or exceed the policy.

        Returns:
            A message for each version that was loaded, unloaded, or cannot be loaded.
        """
        with self._lock:
            sentences: list[str] = []
            try:
                names = _level_names(self.folder)
            except OSError as error:
                self._warn(self.folder, f"could not be listed: {error}", sentences.append)
                return sentences
            if self._loaded and not names:
                # TensorFlow Serving keeps versions whose folder is missing. A file system that is no longer mounted
                # leaves an empty folder.
                self._warn(self.folder, "is missing, or has no folder of a level", sentences.append)
                return sentences
            for level in sorted(names | self._loaded.keys()):
                try:
                    available = [number for number in numbers(self.folder / level) if number <= LARGEST_VERSION]
                except DiskProblem as error:
                    self._warn(self.folder / level, f"could not be listed: {error}", sentences.append)
                    continue
                self._warnings.pop(self.folder / level, None)
                self._refresh_level(level, available, sentences.append)
            self._warnings.pop(self.folder, None)
            return sentences

    def _warn(self, path, problem, say):
        """Report once that a folder cannot be read: on a network file system it may be back in a moment."""
        message = f"{path}: {problem}; served versions stay loaded"
        if self._warnings.get(path) != message:
            say(message)
        self._warnings[path] = message

    def _refresh_level(self, level, available, say):
        loaded = self._loaded.get(level, {})
        selected: dict[int, Version] = {}
        for number in self.policy.candidates(available):
            if len(selected) == self.policy.count:
                break
            version = self._load_if_changed(level, number, loaded.get(number), say)
            if version is not None:
                selected[number] = version
        # A single assignment, so that a request sees either the old or the new versions.
        if selected:
            self._loaded[level] = selected
        else:
            self._loaded.pop(level, None)
        for number in loaded.keys() - selected.keys():
            del self._stamps[self.folder / level / str(number)]
            say(f"level {level}, version {number} is unloaded")
            if self._states[level][number].state != "END":
                self._set_state(level, number, VersionState("UNLOADING"))
                # The last request that uses the version has the last reference to it.
                weakref.finalize(loaded[number], self._end, level, number)
        for path in [path for path in self._failures if path.parent.name == level]:
            if int(path.name) not in available:
                del self._failures[path]

    def _load_if_changed(self, level, number, loaded, say):
        """Return the version to serve: the loaded one if its files are unchanged, a new one, or None."""
        path = self.folder / level / str(number)
        try:
            stamps = file_stamps(path)
        except FileNotFoundError:
            return None
        except (OSError, RecursionError) as error:
            # Python has a limit for nested folders.
            reason = getattr(error, "strerror", None) or error
            return self._fail(path, (), f"{path}: could not be read: {reason}", loaded, say)
        if loaded is not None and stamps == self._stamps.get(path):
            return loaded
        failure = self._failures.get(path)
        if failure is not None and stamps != failure.stamps:
            # A changed file means that the version is being copied, so retry soon.
            due = min(failure.due, self.clock() + FIRST_RETRY_SECONDS)
            failure = self._failures[path] = replace(failure, stamps=stamps, due=due)
        if failure is not None and self.clock() < failure.due:
            return loaded
        if loaded is None:
            self._set_state(level, number, VersionState("LOADING"))
        try:
            version = load_version(level, number, path, loaded)
            if file_stamps(path) != stamps:
                raise InputError(f"{path}: changed while it was loaded")
        except (UserError, OSError) as error:
            # A version without its manifest was removed; any other difference may be a copy in progress.
            removed = not (path / EXPORTED).exists()
            return self._fail(path, stamps, str(error), None if removed else loaded, say)
        self._failures.pop(path, None)
        self._stamps[path] = stamps
        self._set_state(level, number, VersionState("AVAILABLE"))
        if version is not loaded:
            say(f"serving level {level}, version {number}: {path}")
        return version

    def _fail(self, path, stamps, message, loaded, say):
        """Schedule the next try of a version, and return the version to serve until then."""
        failure = self._failures.get(path)
        if failure is None or failure.message != message:
            say(f"{message}; retrying" + ("" if loaded is None else "; the loaded version stays available"))
        wait = min(2 * failure.wait, LONGEST_RETRY_SECONDS) if failure else FIRST_RETRY_SECONDS
        self._failures[path] = _Failure(stamps, message, wait, self.clock() + wait)
        if loaded is None:
            self._set_state(path.parent.name, int(path.name), VersionState("END", message))
        return loaded

    def _end(self, level, number):
        """Set the state of an unloaded version that no request uses, unless it was loaded again."""
        if number not in self.versions(level):
            self._set_state(level, number, VersionState("END"))

    def _set_state(self, level, number, state):
        states = self._states.setdefault(level, {})
        states[number] = state
        ended = sorted(number for number, value in states.copy().items() if value.state == "END")
        for old in ended[:-REMEMBERED_STATES]:
            states.pop(old, None)


def _level_names(folder):
    """Return the names of the folders of levels; none if the parent folder is missing.

    Raises:
        OSError: The folder cannot be listed.
    """
    try:
        names = {path.name for path in folder.iterdir() if path.is_dir()}
    except (FileNotFoundError, NotADirectoryError):
        return set()
    # A name is a part of a URL of the REST API.
    return {name for name in names if name.isprintable() and not set(name) & set(":/?#%")}
