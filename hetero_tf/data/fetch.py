"""Downloads a published file: resumes interrupted downloads and verifies the SHA-256."""

import contextlib
import hashlib
import os
import re
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError
from hetero_tf.base.files import disk_errors, open_for_update, read_bytes, remove, sync_folder, wait_for_lock

PART = ".part"
SECONDS = 10
# Average bytes per second, measured after `SECONDS`, below which a connection counts as broken. Without it a very slow
# server would block the program for days.
MIN_RATE = 1000
# Connections per address, as long as each delivers data.
ATTEMPTS = 5
BLOCK = 2**16


@dataclass(frozen=True)
class Published:
    """A published file.

    Attributes:
        name: File name.
        addresses: URLs, tried in order.
        sha256: Hex digest of its bytes.
        max_bytes: Largest allowed size.
    """

    name: str
    addresses: tuple[str, ...]
    sha256: str
    max_bytes: int


class Unreachable(Exception):
    """No address delivered the published bytes.

    Attributes:
        reasons: `{reason: servers}`.
    """

    def __init__(self, reasons: dict[str, list[str]]):
        super().__init__(", ".join(f"{', '.join(servers)}: {reason}" for reason, servers in reasons.items()))
        self.reasons = reasons


def fetch(file: Published, folder: Path) -> Path:
    """Returns the path of a published file in a folder, and downloads it if it is missing.

    A partial download has the suffix `PART` until it is complete. Concurrent processes wait for each other.

    Raises:
        Unreachable: No address delivered the file.
        InputError, DiskProblem: The folder cannot be written.
    """
    path, part = folder / file.name, folder / f"{file.name}{PART}"
    descriptor = open_for_update(part, os.O_RDWR, "fetch into")
    try:
        wait_for_lock(descriptor, part, Console(sys.stderr).say)
        if not is_published(file, path):
            _fetch_any(file, descriptor)
            with disk_errors(path, "write"):
                os.fsync(descriptor)
                os.rename(part, path)
            sync_folder(folder)
        else:
            remove(part)
    except Unreachable:
        if os.fstat(descriptor).st_size == 0:
            remove(part)
        raise
    finally:
        os.close(descriptor)
    return path


def is_published(file: Published, path: Path) -> bool:
    """Return True if the file at a path has the published bytes."""
    with contextlib.suppress(InputError):
        return hashlib.sha256(read_bytes(path, file.max_bytes, follow=True)).hexdigest() == file.sha256
    return False


def _fetch_any(file, part):
    """Fills the open file `part` from the first address that delivers the published bytes."""
    reasons: dict[str, list[str]] = {}
    for address in file.addresses:
        server = address.split("/")[2]
        try:
            _download(address, part, file.max_bytes)
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            reasons.setdefault(str(getattr(reason, "strerror", None) or reason), []).append(server)
            continue
        if _sha256(part) == file.sha256:
            return
        reasons.setdefault("it sent a file that differs from the published one", []).append(server)
        os.ftruncate(part, 0)
    raise Unreachable(reasons)


def _download(address, part, max_bytes):
    """Sends requests until the file is complete; raises `OSError` or `ValueError` if the server fails."""
    for _ in range(ATTEMPTS):
        before = os.fstat(part).st_size
        if _resume(address, part, max_bytes):
            return
        if os.fstat(part).st_size == before:
            break
    raise OSError("the connection broke repeatedly")


def _resume(address, part, max_bytes):
    """Requests the missing part of a file; returns True if the server sent all of it."""
    size = os.fstat(part).st_size
    request = urllib.request.Request(address, headers={"Range": f"bytes={size}-"} if size else {})
    try:
        response = urllib.request.urlopen(request, timeout=SECONDS)
    except urllib.error.HTTPError as error:
        # HTTP 416: the file is already complete.
        if error.code == 416:
            return True
        raise
    with response:
        part_of = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
        # A server without support for ranges sends the whole file.
        first = int(part_of[1]) if response.status == 206 and part_of else 0
        if first not in (0, size):
            raise ValueError("it sent another range than requested")
        os.ftruncate(part, first)
        os.lseek(part, first, os.SEEK_SET)
        return _copy(response, part, max_bytes - first) == int(response.headers.get("Content-Length", 0))


def _copy(response, part, max_bytes):
    """Writes at most `max_bytes` of a response; returns the number of bytes received until its end or an error."""
    copied, began = 0, time.monotonic()
    # Keep the bytes received before an error: the next connection resumes after them.
    with contextlib.suppress(OSError, HTTPException):
        while time.monotonic() - began < SECONDS + copied / MIN_RATE and (block := response.read1(BLOCK)):
            copied += len(block)
            if copied > max_bytes:
                raise ValueError("it sent more bytes than the published file has")
            with disk_errors("the fetched file", "write"):
                os.write(part, block)
    return copied


def _sha256(part):
    digest = hashlib.sha256()
    os.lseek(part, 0, os.SEEK_SET)
    while block := os.read(part, BLOCK):
        digest.update(block)
    return digest.hexdigest()
