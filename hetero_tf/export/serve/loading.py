"""Loads the versions of an export folder as they appear, and unloads removed and old ones.

Policies are those of TensorFlow Serving. A level falls back to an older version if its newest one is removed or cannot
be loaded; a new version replaces an old one without interruption.
"""

import contextlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from hetero_tf.base import files, typed_json
from hetero_tf.base.errors import DiskProblem, InputError, UserError, shorten_repr
from hetero_tf.data.codecs import Field, build_fields, is_column
from hetero_tf.export.saved_model import blank_requests
from hetero_tf.runs.versions import EXPORTED, numbers

# Bytes; an export.json of a data set with many class names is large.
LARGEST_MANIFEST = 2**26
LONGEST_MESSAGE = 300
MODEL = "saved_model.pb"
# A version that cannot be loaded is tried again after this time; it may be a copy in progress.
RETRY_SECONDS = 5.0
_LEVEL = re.compile(r"[\w.-]+", re.ASCII)
_POLICY = re.compile(r"(all)|latest(?::([1-9][0-9]{0,2}))?|([1-9][0-9]{0,17}(?:,[1-9][0-9]{0,17})*)")


@dataclass(frozen=True)
class Manifest:
    """The keys of `export.json` that servers read; `files` has the SHA-256 of every file."""

    recipe: str
    level: str
    parameters: int
    measured: dict[str, Any]
    input: dict[str, Any]
    signatures: dict[str, Any]
    files: dict[str, str]


class Version(NamedTuple):
    """A loaded version of a level: its `export.json`, SavedModel, and columns if it is of a table."""

    level: str
    number: int
    manifest: dict
    model: Any
    columns: tuple[Field, ...] = ()


class VersionPolicy(NamedTuple):
    """Selection of the versions of a level: the `size` newest ones of `numbers`; None for no limit."""

    size: int | None
    numbers: frozenset[int] | None = None

    @classmethod
    def parse(cls, text: str) -> "VersionPolicy":
        """Parse the value of --versions: `latest`, `latest:COUNT`, `all`, or numbers such as `3,5`."""
        match = _POLICY.fullmatch(text)
        if match is None:
            raise InputError(
                "--versions must be latest, latest:COUNT, all, or numbers such as 3,5. "
                f"Received: --versions={shorten_repr(text)}"
            )
        if match[3]:
            return cls(None, frozenset(map(int, match[3].split(","))))
        return cls(None if match[1] else int(match[2] or 1))


class Serving:
    """Loaded versions of all levels of a folder, FOLDER/<level>/<version>/."""

    def __init__(self, folder: Path, policy: VersionPolicy):
        self.folder, self.policy = folder, policy
        self._loaded: dict[str, dict[int, Version]] = {}
        # Of each version that could not be loaded, the error and the time of the next try.
        self._failures: dict[str, dict[int, tuple[str, float]]] = {}
        self._warnings: set[str] = set()

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the served levels."""
        return tuple(sorted(self._loaded))

    def versions(self, level: str) -> dict[int, Version]:
        """Return the loaded versions of a level by number; empty if it is not served."""
        return self._loaded.get(level, {})

    def newest(self) -> dict[str, Version]:
        """Return the newest version of each level."""
        return {level: versions[max(versions)] for level, versions in sorted(self._loaded.copy().items())}

    def errors(self, level: str) -> dict[int, str]:
        """Return the errors of a level's versions that cannot be loaded, by number."""
        return {number: message for number, (message, _) in self._failures.get(level, {}).copy().items()}

    def refresh(self) -> list[str]:
        """Load new versions, and unload those that were removed or exceed the policy.

        Returns:
            A message for each version that was loaded, unloaded, or cannot be loaded.
        """
        sentences: list[str] = []
        warnings: set[str] = set()
        names = set()
        try:
            names = _level_names(self.folder)
            if self._loaded and not names:
                # TensorFlow Serving keeps versions whose folder is missing. A file system that was unmounted
                # leaves an empty folder.
                raise DiskProblem(f"{self.folder}: is missing, or has no folder of a level")
            names |= self._loaded.keys()
        except DiskProblem as error:
            warnings.add(str(error))
        for level in sorted(names):
            try:
                self._refresh_level(level, set(numbers(self.folder / level)), sentences.append)
            except DiskProblem as error:
                # On a network file system the folder may be back in a moment.
                warnings.add(str(error))
        sentences += [f"{warning}; served versions stay loaded" for warning in sorted(warnings - self._warnings)]
        self._warnings = warnings
        return sentences

    def _refresh_level(self, level, available, say):
        loaded, selected = self.versions(level), dict[int, Version]()
        for number in sorted(available & (self.policy.numbers or available), reverse=True):
            if len(selected) == self.policy.size:
                break
            # Versions never change, as for TensorFlow Serving.
            version = loaded.get(number) or self._load(level, number, say)
            if version is not None:
                selected[number] = version
        # A single assignment, so that a request sees either the old or the new versions.
        if selected:
            self._loaded[level] = selected
        else:
            self._loaded.pop(level, None)
        for number in loaded.keys() - selected.keys():
            say(f"level {level}, version {number} is unloaded")
        failures = self._failures.get(level, {})
        self._failures[level] = {number: failures[number] for number in failures.keys() & available}

    def _load(self, level, number, say):
        """Return a new version, or None if it cannot be loaded or is not due."""
        path, failures = self.folder / level / str(number), self._failures.setdefault(level, {})
        earlier, retry = failures.get(number, (None, 0.0))
        if earlier is not None and time.monotonic() < retry:
            return None
        try:
            version = load_version(level, number, path)
        except UserError as error:
            if earlier != str(error):
                say(f"{error}; retrying")
            failures[number] = str(error), time.monotonic() + RETRY_SECONDS
            return None
        failures.pop(number, None)
        say(f"serving level {level}, version {number}: {path}")
        return version


def _level_names(folder):
    """Return the names of the folders of levels; none if the parent folder is missing."""
    with files.disk_errors(folder, "list"):
        names = [path.name for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    # A name is a part of a URL of the REST API.
    return {name for name in names if _LEVEL.fullmatch(name)}


def load_version(level: str, number: int, path: Path) -> Version:
    """Verify and load the version in the folder `path`, and call each signature once."""
    try:
        manifest = read_manifest(path)
        verify_files(path, manifest)
        version = Version(level, number, manifest, tf.saved_model.load(str(path)), table_columns(manifest))
        # The first call of a signature takes half a second.
        specs = {name: function.structured_input_signature[1] for name, function in version.model.signatures.items()}
        for name, inputs in blank_requests(specs).items():
            version.model.signatures[name](**{key: tf.constant(value) for key, value in inputs.items()})
    # TensorFlow raises many types of errors for a damaged graph, and other versions must stay available.
    except Exception as error:
        text = str(error) or type(error).__name__
        message = text if isinstance(error, UserError) else " ".join(text.split())[:LONGEST_MESSAGE]
        raise InputError(f"{path}: cannot be served: {message}") from error
    return version


def table_columns(manifest: Mapping) -> tuple[Field, ...]:
    """Return the columns of a table; empty for other data, or if they are unknown."""
    # A version may come from another program, so any part of its description may be missing.
    with contextlib.suppress(InputError, KeyError, TypeError, ValueError, IndexError):
        fields = build_fields(manifest["input"]["fields"])
        return fields if is_column(fields[0]) else ()
    return ()


def read_manifest(path: Path) -> dict:
    """Read and check the `export.json` of a version."""
    file = path / EXPORTED
    manifest: Any = typed_json.parse(files.read_bytes(file, LARGEST_MANIFEST, follow=True), file, LARGEST_MANIFEST)
    checked = typed_json.from_json(Manifest, manifest if isinstance(manifest, dict) else None, EXPORTED)
    if MODEL not in checked.files:
        raise InputError(f"{EXPORTED}: files must list the SHA-256 of every file, including {MODEL}")
    return manifest


def verify_files(path: Path, manifest: Mapping) -> None:
    """Compare the files of a version with their digests."""
    for name, digest in manifest["files"].items():
        if not (path / name).is_file():
            raise InputError(f"{name} is missing")
        with files.open_file(path / name) as stream:
            if files.sha256_of(stream) != digest:
                raise InputError(f"the SHA-256 of {name} differs from {EXPORTED}")
