"""The exports that are served: the newest version of each level is loaded, and a new one takes over without a gap."""

import contextlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tensorflow as tf

from hetero_tf.base import files
from hetero_tf.base.errors import BadInput, Refusal
from hetero_tf.export.warmup import blank_requests
from hetero_tf.store.versions import EXPORTED, numbers

# export.json of a data set with very many class names.
LARGEST_ABOUT = 2**26


@dataclass(frozen=True, eq=False)
class Version:
    """One loaded version of a level.

    Attributes:
        level: Name of the level.
        number: Of the version.
        about: What `export.json` says.
        loaded: The SavedModel.
    """

    level: str
    number: int
    about: dict
    loaded: Any

    @property
    def signatures(self) -> Mapping:
        """`{name: function}`."""
        return self.loaded.signatures


@dataclass(eq=False)
class Serving:
    """The versions of all levels below a folder, FOLDER/<level>/<version>/.

    Attributes:
        folder: As `export` writes it.
        kept: How many versions of a level stay loaded, the newest ones, for requests that name one.
    """

    folder: Path
    kept: int = 2
    _versions: dict[str, dict[int, Version]] = field(default_factory=dict)
    _failed: set[Path] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the levels that are served."""
        return tuple(sorted(self._versions))

    def versions(self, level: str) -> dict[int, Version]:
        """Returns the loaded versions of a level by number; empty if it is not served."""
        return self._versions.get(level, {})

    def find(self, level: str, number: int | None) -> Version | None:
        """Returns a version of a level, the newest for None; None if it is not served."""
        found = self.versions(level)
        return found.get(max(found, default=0) if number is None else number)

    def refresh(self) -> list[str]:
        """Loads what is new and forgets what is older than the kept versions.

        Returns:
            A sentence for each version that was loaded, or that cannot be.
        """
        said = []
        with self._lock:
            for folder in _levels(self.folder):
                found = dict(self._versions.get(folder.name, {}))
                for number in sorted(numbers(folder))[-self.kept :]:
                    path = folder / str(number)
                    if number in found or path in self._failed:
                        continue
                    try:
                        found[number] = _load(folder.name, number, path)
                        said.append(f"serves level {folder.name}, version {number}: {path}")
                    except BadInput as problem:
                        self._failed.add(path)
                        said.append(str(problem))
                # One assignment: a request sees the old versions or the new ones.
                if found:
                    newest = sorted(found)[-self.kept :]
                    self._versions[folder.name] = {number: found[number] for number in newest}
        return said


def _levels(folder):
    """The folders of levels, by name."""
    with files.disk(folder, "list"), contextlib.suppress(FileNotFoundError):
        return sorted(path for path in folder.iterdir() if path.is_dir() and numbers(path))
    return []


def _load(level, number, path):
    """Loads a version; `BadInput` if it is not whole."""
    try:
        about = json.loads(files.decode(files.read_bytes(path / EXPORTED, LARGEST_ABOUT), path / EXPORTED))
        version = Version(level, number, about, tf.saved_model.load(str(path)))
        # Its first request would take half a second.
        for signature, inputs in blank_requests(about["signatures"]).items():
            version.signatures[signature](**{name: tf.constant(value) for name, value in inputs.items()})
        return version
    except (Refusal, OSError, ValueError, KeyError, tf.errors.OpError) as problem:
        raise BadInput(f"{path}: is not an export that can be served: {problem}") from problem
