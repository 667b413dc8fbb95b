"""Verifies the files of an exported version and loads it."""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tensorflow as tf

from hetero_tf.base import files
from hetero_tf.base.errors import InputError, UserError, shorten_repr
from hetero_tf.data.columns import Column
from hetero_tf.data.described import build_columns
from hetero_tf.export.warmup import blank_requests
from hetero_tf.runs import plain_json
from hetero_tf.runs.versions import EXPORTED

# Bytes; an export.json of a data set with many class names is large.
LARGEST_MANIFEST = 2**26
LONGEST_MESSAGE = 300
MODEL = "saved_model.pb"
# Keys of export.json that serving reads, with their types.
MANIFEST_TYPES = {
    "recipe": str,
    "level": str,
    "parameters": int,
    "measured": dict,
    "input": dict,
    "signatures": dict,
    "bytes": int,
    "files": dict,
}


@dataclass(frozen=True, eq=False)
class Version:
    """A loaded version of a level.

    Attributes:
        level: Name of the level.
        number: Number of the version.
        manifest: Contents of `export.json`.
        model: The SavedModel.
    """

    level: str
    number: int
    manifest: dict
    model: Any

    @cached_property
    def row_columns(self) -> tuple[Column, ...]:
        """Columns of the signature "serve_rows"; empty if they are unknown."""
        # A version may come from another program, so any part of its description may be missing.
        with contextlib.suppress(InputError, KeyError, TypeError, ValueError):
            return build_columns(self.manifest["items"]["columns"]) or ()
        return ()

    @property
    def signatures(self) -> Mapping:
        """`{name: function}`."""
        return self.model.signatures


def file_stamps(path: Path) -> tuple:
    """Return name, inode, size and times of every file of a version: equal stamps mean unchanged files.

    Raises:
        OSError: The folder is missing or cannot be read.
    """
    stamps: list[tuple] = []
    with os.scandir(path) as entries:
        for entry in entries:
            try:
                if entry.is_dir():
                    stamps += file_stamps(Path(entry.path))
                    continue
                status = entry.stat()
            except FileNotFoundError:
                # A copying program may rename files in the meantime.
                continue
            stamps.append((entry.path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return tuple(sorted(stamps))


def load_version(level: str, number: int, path: Path, loaded: Version | None = None) -> Version:
    """Verify and load a version, and call each signature once.

    Args:
        level: Name of the level.
        number: Number of the version.
        path: Folder of the version.
        loaded: The loaded version, which is returned if the verified files are the same.

    Raises:
        InputError: The version is incomplete, its files differ from `export.json`, or it cannot be loaded.
    """
    try:
        manifest = read_manifest(path)
        verify_files(path, manifest)
        if loaded is not None and loaded.manifest == manifest:
            return loaded
        version = Version(level, number, manifest, tf.saved_model.load(str(path)))
        _warm_up(version)
    # TensorFlow raises many types of errors for a damaged graph, and other versions must stay available.
    except Exception as error:
        message = str(error) if isinstance(error, UserError) else _one_line(error)
        raise InputError(f"{path}: cannot be served: {message}") from error
    return version


def _one_line(error):
    return " ".join((str(error) or type(error).__name__).split())[:LONGEST_MESSAGE]


def read_manifest(path: Path) -> dict:
    """Read and check the `export.json` of a version.

    Raises:
        InputError: The file is missing, is not JSON, or lacks a key.
    """
    file = path / EXPORTED
    manifest = plain_json.parse(files.read_bytes(file, LARGEST_MANIFEST, follow=True), file, LARGEST_MANIFEST)
    if not isinstance(manifest, dict):
        raise InputError(f"{EXPORTED} must be a JSON object. Received: {shorten_repr(manifest)}")
    for key, kind in MANIFEST_TYPES.items():
        if type(manifest.get(key)) is not kind:
            raise InputError(
                f"{EXPORTED}: {key} must be of type {kind.__name__}. Received: {shorten_repr(manifest.get(key))}"
            )
    digests = manifest["files"]
    if MODEL not in digests or not all(isinstance(digest, str) for digest in digests.values()):
        raise InputError(f"{EXPORTED}: files must list the SHA-256 of every file, including {MODEL}")
    return manifest


def verify_files(path: Path, manifest: Mapping) -> None:
    """Compare the files of a version with their digests, after a quick check of their total size.

    Raises:
        InputError: A file is missing or differs from `export.json`.
    """
    paths = {name: path / name for name in manifest["files"]}
    for name, file in paths.items():
        if os.path.isabs(name) or ".." in Path(name).parts:
            raise InputError(
                f"{EXPORTED}: files must be inside the folder of the version. Received: {shorten_repr(name)}"
            )
        if not file.is_file():
            raise InputError(f"{name} is missing")
    if sum(file.stat().st_size for file in paths.values()) != manifest["bytes"]:
        raise InputError(f"the total size of the files differs from {EXPORTED}")
    for name, file in paths.items():
        with files.open_file(file) as stream:
            digest = files.sha256_of(stream)
        if digest != manifest["files"][name]:
            raise InputError(f"the SHA-256 of {name} differs from {EXPORTED}")


def _warm_up(version):
    """Call each signature once, since its first call takes half a second."""
    specs = {name: function.structured_input_signature[1] for name, function in version.signatures.items()}
    for name, inputs in blank_requests(specs).items():
        version.signatures[name](**{key: tf.constant(value) for key, value in inputs.items()})
