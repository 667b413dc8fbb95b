"""Lines of a UTF-8 text file, read one at a time; an invalid line does not hide those after it."""

import io
from collections import deque
from collections.abc import Iterator
from typing import BinaryIO

from hetero_tf.base.errors import InputError


class TextLines(Iterator[str]):
    """Iterates over the lines of a file with their line ends, without a byte order mark.

    A line that is too long or not UTF-8 raises `InputError`; the next call returns the line after it.

    Args:
        file: Open file.
        longest: Maximum characters of a line.

    Attributes:
        number: Number of the last line, from 1.
    """

    def __init__(self, file: BinaryIO, longest: int):
        # Invalid bytes become surrogates, which valid UTF-8 does not contain.
        self._text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="")
        self._longest, self.number = longest, 0
        self._record: list[str] = []
        self._pending: deque[str] = deque()

    def __next__(self) -> str:
        line = self._pending.popleft() if self._pending else self._text.readline(self._longest)
        if not line:
            raise StopIteration
        self.number += 1
        self._record.append(line)
        if len(line) >= self._longest:
            self._skip_rest(line)
            # So that a rewind does not skip the line after it.
            self._record[-1] += "\n"
            raise InputError(f"a line may have at most {self._longest:,} characters")
        if not line.isascii():
            try:
                line.encode()
            except UnicodeEncodeError:
                raise InputError("is not UTF-8 text; save it as UTF-8") from None
        return line

    def _skip_rest(self, line):
        while line and not line.endswith(("\n", "\r")):
            line = self._text.readline(self._longest)

    def begin_record(self) -> None:
        """Start a record of one or more lines at the next line."""
        self._record.clear()

    def rewind(self, lines: int = 1) -> int:
        """Continue after the first `lines` lines of the current record; return the number of the other lines."""
        later = self._record[lines:]
        self._pending.extendleft(reversed(later))
        self.number -= len(later)
        return len(later)
