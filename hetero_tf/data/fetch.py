"""Fetches a published file: what broke off goes on where it stopped, and only the published bytes are kept."""

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
from hetero_tf.base.files import disk, open_in_place, read_bytes, remove, sync_folder, wait_for_lock

PART = ".part"
SECONDS = 10
# Bytes a second below which a connection counts as broken, averaged from `SECONDS` on: a server that trickles would
# otherwise hold the program for days.
MIN_RATE = 1000
# Connections to one address, as long as each brings something.
ATTEMPTS = 5
BLOCK = 2**16


@dataclass(frozen=True)
class Published:
    """A file as it was published.

    Attributes:
        name: Of the file.
        addresses: Where it can be had; they are tried in turn.
        sha256: Of its bytes.
        most: Bytes that it may have.
    """

    name: str
    addresses: tuple[str, ...]
    sha256: str
    most: int


class Unreachable(Exception):
    """No address gave the published bytes.

    Attributes:
        reasons: `{reason: servers}`.
    """

    def __init__(self, reasons: dict[str, list[str]]):
        super().__init__(", ".join(f"{', '.join(servers)}: {reason}" for reason, servers in reasons.items()))
        self.reasons = reasons


def fetch(file: Published, folder: Path) -> Path:
    """Returns the path of a published file in a folder, and fetches it if it is not there.

    What was fetched of it lies beside it under another name until it is whole; a second program waits for the first.

    Raises:
        Unreachable: It cannot be had.
        InputError, DiskProblem: The folder cannot be written.
    """
    path, part = folder / file.name, folder / f"{file.name}{PART}"
    descriptor = open_in_place(part, os.O_RDWR, "fetch into")
    try:
        wait_for_lock(descriptor, part, Console(sys.stderr).say)
        if not is_published(file, path):
            _fetch_any(file, descriptor)
            with disk(path, "write"):
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
    """Whether the published bytes lie at a path."""
    with contextlib.suppress(InputError):
        return hashlib.sha256(read_bytes(path, file.most, follow=True)).hexdigest() == file.sha256
    return False


def _fetch_any(file, part):
    """Fills the open file `part` from the first address that gives the published bytes."""
    reasons: dict[str, list[str]] = {}
    for address in file.addresses:
        server = address.split("/")[2]
        try:
            _fill(address, part, file.most)
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            reasons.setdefault(str(getattr(reason, "strerror", None) or reason), []).append(server)
            continue
        if _digest(part) == file.sha256:
            return
        reasons.setdefault("it sent another file than the published one", []).append(server)
        os.ftruncate(part, 0)
    raise Unreachable(reasons)


def _fill(address, part, most):
    """Asks a server until it has sent all of a file; `OSError` or `ValueError` where it does not."""
    for _ in range(ATTEMPTS):
        before = os.fstat(part).st_size
        if _go_on(address, part, most):
            return
        if os.fstat(part).st_size == before:
            break
    raise OSError("it broke off again and again")


def _go_on(address, part, most):
    """Fetches what is missing behind what is there; returns whether the server sent all of it."""
    size = os.fstat(part).st_size
    request = urllib.request.Request(address, headers={"Range": f"bytes={size}-"} if size else {})
    try:
        answer = urllib.request.urlopen(request, timeout=SECONDS)
    except urllib.error.HTTPError as error:
        # There is nothing behind the end of what is there.
        if error.code == 416:
            return True
        raise
    with answer:
        part_of = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
        # A server that knows no ranges sends the whole file.
        first = int(part_of[1]) if answer.status == 206 and part_of else 0
        if first not in (0, size):
            raise ValueError("it sent another part than was asked for")
        os.ftruncate(part, first)
        os.lseek(part, first, os.SEEK_SET)
        return _copy(answer, part, most - first) == int(answer.headers.get("Content-Length", 0))


def _copy(answer, part, most):
    """Writes what a server sends, at most `most` bytes; returns how many came before it broke off or ended."""
    copied, began = 0, time.monotonic()
    # What came before a connection breaks off is kept: the next one goes on there.
    with contextlib.suppress(OSError, HTTPException):
        while time.monotonic() - began < SECONDS + copied / MIN_RATE and (block := answer.read1(BLOCK)):
            copied += len(block)
            if copied > most:
                raise ValueError("it sent more than the published file has")
            with disk("the fetched file", "write"):
                os.write(part, block)
    return copied


def _digest(part):
    digest = hashlib.sha256()
    os.lseek(part, 0, os.SEEK_SET)
    while block := os.read(part, BLOCK):
        digest.update(block)
    return digest.hexdigest()
