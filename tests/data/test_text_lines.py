"""Lines of a text file: limits, other encodings, and reading on after an invalid line."""

import io

import pytest

from hetero_tf.base.errors import InputError
from hetero_tf.data.csv import iterate_rows, read_declared_delimiter
from hetero_tf.data.text_lines import TextLines


def read(content, longest=20):
    """(number, line or message) of each line."""
    lines, results = TextLines(io.BytesIO(content), longest), []
    while True:
        try:
            line = next(lines, None)
        except InputError as error:
            line = str(error)
        if line is None:
            return results
        results.append((lines.number, line))


def test_invalid_lines_do_not_hide_those_after_them():
    assert read(b"\xef\xbb\xbfa\r\nb\xff\n" + b"c" * 50 + b"\nd\xc3\xa9") == [
        (1, "a\r\n"),
        (2, "is not UTF-8 text; save it as UTF-8"),
        (3, "a line may have at most 20 characters"),
        (4, "dé"),
    ]


@pytest.mark.parametrize("first", [b"", b"sep=,\n"])
def test_a_stray_quote_loses_one_row(first):
    lines = TextLines(io.BytesIO(first + b'1,"2\n"3,4\n' + b"x" * 99 + b'\n5,"6\n7"\n'), 20)
    assert read_declared_delimiter(lines) == ("," if first else None)
    shift = first.count(b"\n")
    rows = [(n - shift, row if isinstance(row, list) else str(row)) for n, row in iterate_rows(lines, ",")]
    assert rows == [
        (1, "cannot be parsed as CSV: ',' expected after '\"'"),
        (2, "cannot be parsed as CSV: a quote is not closed"),
        (3, "a line may have at most 20 characters"),
        (5, ["5", "6\n7"]),
    ]


def test_a_long_first_line_is_read_once():
    lines = TextLines(io.BytesIO(b"x" * 99 + b"\n1,2\n"), 20)
    read_declared_delimiter(lines)
    assert [number for number, _ in iterate_rows(lines, ",")] == [1, 2]
