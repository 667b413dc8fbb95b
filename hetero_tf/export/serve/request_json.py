"""Parses the JSON of a request in pieces, so that a large request blocks other threads briefly and takes little memory.

Python's parser holds the interpreter lock until a text is parsed, and each number of a list takes 32 bytes. This module
parses large lists one piece at a time, and converts pieces of numbers to NumPy arrays.
"""

import json
import re
from collections.abc import Callable
from itertools import chain

import numpy as np

# Characters of a piece; 64 Ki take about 2 ms.
PIECE = 2**16
# Largest nesting depth of lists and objects; a tensor has few axes.
MAX_DEPTH = 32
# Largest number of strings and objects of a large body; each takes about 100 bytes.
MAX_OBJECTS = 2**18
_SPACE = re.compile(r"[ \t\n\r]*")


class BadRequest(Exception):
    """An invalid request; the message is for the client."""


class Cancelled(Exception):
    """The client no longer waits for the response."""


def parse(body: bytes, is_cancelled: Callable[[], bool]) -> object:
    """Parse a JSON document.

    Args:
        body: UTF-8 text.
        is_cancelled: Returns True if parsing should stop.

    Returns:
        The parsed value; in documents above `PIECE` characters, rectangular lists of numbers are NumPy arrays.

    Raises:
        BadRequest: The body is not JSON, is nested too deeply, or contains a duplicate key, a number that is not
            finite, a number of thousands of digits, or too many strings and objects.
        Cancelled: `is_cancelled` returned True.
    """
    try:
        text = body.decode()
        if len(text) <= PIECE:
            return _loads(text)
        return _Parser(text, is_cancelled).document()
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is not JSON: it is not UTF-8 text (byte {error.start})") from error
    except RecursionError as error:
        raise BadRequest("the body is not JSON: it is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    except _Invalid as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    except ValueError as error:
        # Python limits the digits of an integer.
        raise BadRequest("the body contains an integer with too many digits") from error


class _Invalid(ValueError):
    """Invalid JSON that Python's parser accepts."""


def _unique(pairs):
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Invalid("a key appears twice in an object")
    return members


def _constant(name):
    raise _Invalid(f"{name} is not a number")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_constant)
_loads = _DECODER.decode


def to_numbers(values: object) -> np.ndarray | None:
    """Return nested lists of numbers as an array of float64, int64 or bool; None if they contain other values.

    Raises:
        ValueError: Lists on the same level differ in length.
        OverflowError: An integer needs more than 64 bits.
    """
    if isinstance(values, np.ndarray):
        return values
    if isinstance(values, list) and any(isinstance(value, np.ndarray) for value in values):
        arrays = [array for value in values if (array := to_numbers(value)) is not None]
        return np.stack(arrays) if len(arrays) == len(values) else None
    # Without `object`, NumPy would convert numbers to strings of the length of the longest one.
    array = np.array(values, object)
    types = set(map(type, array.ravel()))
    if list in types:
        raise ValueError("lists on the same level must have the same length")
    for allowed, dtype in (({bool}, bool), ({bool, int}, np.int64), ({bool, int, float}, np.float64)):
        if types <= allowed:
            return array.astype(dtype)
    return None


class _Parser:
    """Parser of containers that are longer than a piece; `_DECODER` parses all others."""

    def __init__(self, text, is_cancelled):
        self.text, self.is_cancelled = text, is_cancelled
        self.objects = 0
        # Most elements of a list have the length of the previous one.
        self.length = 256

    def document(self):
        value, end = self.value(self.skip(0), 0)
        if end != len(self.text):
            raise json.JSONDecodeError("Extra data", self.text, end)
        return value

    def check_cancelled(self):
        if self.is_cancelled():
            raise Cancelled

    def value(self, start, depth):
        """Return a value, and the position after it and the spaces that follow."""
        self.check_cancelled()
        if depth > MAX_DEPTH:
            raise BadRequest(f"the body is nested deeper than {MAX_DEPTH}")
        opening = self.text[start : start + 1]
        if opening not in ("[", "{"):
            value, end = _DECODER.raw_decode(self.text, start)
            return value, self.skip(end)
        size = min(2 * self.length, PIECE)
        while True:
            try:
                value, end = _DECODER.raw_decode(self.text[start : start + size])
            except json.JSONDecodeError as error:
                if start + size >= len(self.text):
                    raise json.JSONDecodeError(error.msg, self.text, start + error.pos) from None
                if size == PIECE:
                    return (self.array if opening == "[" else self.object)(start + 1, depth + 1)
                size = min(4 * size, PIECE)
            else:
                self.length = max(256, end)
                return value, self.skip(start + end)

    def array(self, start, depth):
        """Parse a list after its opening bracket."""
        position, blocks, items, block_start, end_of_element = self.skip(start), [], [], start, None
        if self.text.startswith("]", position):
            return [], self.skip(position + 1)
        while True:
            run, position = self.run(position, end_of_element)
            if run:
                items += run
            else:
                first = position
                item, position = self.value(first, depth)
                items.append(item)
                if not self.text.startswith(",", position):
                    break
                element = self.text[max(first, position - MAX_DEPTH) : position].rstrip()
                end_of_element = element[len(element.rstrip("]}")) :] + ","
                position = self.skip(position + 1)
            if position - block_start > PIECE:
                blocks.append(self.pack(items))
                items, block_start = [], position
        blocks.append(self.pack(items))
        if not self.text.startswith("]", position):
            raise json.JSONDecodeError("Expecting ',' delimiter", self.text, position)
        if all(isinstance(block, np.ndarray) for block in blocks):
            return _concatenate(blocks), self.skip(position + 1)
        if any(isinstance(block, np.ndarray) for block in blocks):
            raise BadRequest("a list must not mix numbers with strings or objects")
        return list(chain.from_iterable(blocks)), self.skip(position + 1)

    def run(self, position, end_of_element):
        """Return the complete elements of a piece, possibly none, and the position after their last comma.

        A wrong guess of the end leaves brackets open, which the decoder rejects, so it has no effect.
        """
        if end_of_element is None:
            return [], position
        comma = self.text.rfind(end_of_element, position, position + PIECE) + len(end_of_element) - 1
        if comma <= position:
            return [], position
        try:
            return _loads(f"[{self.text[position:comma]}]"), self.skip(comma + 1)
        except json.JSONDecodeError:
            return [], position

    def pack(self, items):
        """Return elements as an array, or unchanged if they are not numbers."""
        self.check_cancelled()
        array = _to_numbers(items)
        if array is not None:
            return array
        self.objects += len(items)
        if self.objects > MAX_OBJECTS:
            raise BadRequest(f"the body must have at most {MAX_OBJECTS} strings and objects; send fewer at a time")
        return [
            {key: _pack_value(value) for key, value in item.items()} if isinstance(item, dict) else item
            for item in items
        ]

    def object(self, start, depth):
        """Parse an object after its opening brace."""
        pairs, position = [], self.skip(start)
        while True:
            if not self.text.startswith('"', position):
                raise json.JSONDecodeError("Expecting property name enclosed in double quotes", self.text, position)
            key, position = self.value(position, depth)
            if not self.text.startswith(":", position):
                raise json.JSONDecodeError("Expecting ':' delimiter", self.text, position)
            value, position = self.value(self.skip(position + 1), depth)
            pairs.append((key, value))
            if not self.text.startswith(",", position):
                break
            position = self.skip(position + 1)
        if not self.text.startswith("}", position):
            raise json.JSONDecodeError("Expecting ',' delimiter", self.text, position)
        return _unique(pairs), self.skip(position + 1)

    def skip(self, position):
        """Return the position after the spaces at a position."""
        spaces = _SPACE.match(self.text, position)
        assert spaces is not None  # the pattern also matches no space
        return spaces.end()


def _to_numbers(items):
    try:
        return to_numbers(items)
    except (ValueError, OverflowError) as error:
        raise BadRequest(f"a list cannot become a tensor: {error}") from error


def _pack_value(value):
    array = _to_numbers(value) if isinstance(value, list) else None
    return value if array is None else array


def _concatenate(blocks):
    if len({block.shape[1:] for block in blocks}) > 1:
        raise BadRequest("lists on the same level must have the same length")
    return np.concatenate(blocks)
