"""Summaries of columns: types, ranges, missing values and notations."""

import io

import numpy as np
import pytest
from PIL import Image

from hetero_tf.data.columns import RawTable, TextColumn
from hetero_tf.data.inspection import describe_pictures, inspect_column, inspect_table, sample


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["3", "1.5", "", "3"], ("number", 1, 2, "1.5", "3")),
        (["1,5", "2,25", "-"] * 2, ("number", 2, 2, "1.5", "2.25")),
        (["1", "2", "two"], ("number", 0, 2, "1", "2")),
        (["1,5", "2,25", "NA"], ("number", 1, 2, "1.5", "2.25")),
        (["12 %", "5 %"], ("number", 0, 2, "0.05", "0.12")),
        (["007", "012"], ("number", 0, 2, "7", "12")),
        ([str(n) for n in range(5, 30)], ("id", 0, 25, "5", "29")),
        (["red", "blue", "red"], ("category", 0, 2, "", "")),
        ([f"user{n}" for n in range(30)], ("id", 0, 30, "", "")),
        ([f"Anna {n}" for n in range(30)], ("text", 0, 30, "", "")),
        (["2024-02-29", "2023-12-31T10:00:00Z", ""], ("date", 1, 2, "2023-12-31", "2024-02-29")),
        (["", "NA"], ("category", 2, 0, "", "")),
    ],
)
def test_type_follows_from_the_values(values, expected):
    summary = inspect_column("c", TextColumn.from_values(values))
    assert (summary.type, summary.missing, summary.distinct, summary.low, summary.high) == expected
    assert (summary.name, summary.rows) == ("c", len(values))


def test_notation_of_numbers_and_orders_of_dates_are_stated():
    notations = {"1.234,5": "comma", "1,234.5": "point", "12": "plain", "007": "plain"}
    for text, notation in notations.items():
        assert inspect_column("c", TextColumn.from_values([text])).notation == notation
    assert inspect_column("c", TextColumn.from_values(["01/02/2024"])).date_orders == ("dmy", "mdy")
    assert inspect_column("c", TextColumn.from_values(["01/13/2024"])).date_orders == ("mdy",)


def test_numbers_of_files_with_types_are_summarized_alike():
    columns = {"a": np.array([1, 2, 2]), "b": np.array([0.5, np.nan, 2], np.float32), "c": [b"png"] * 3}
    first, second = inspect_table(RawTable("t", columns, str)).values()
    assert (first.type, first.low, first.high, first.frequent, first.is_whole) == (
        "number",
        "1",
        "2",
        (("2", 2), ("1", 1)),
        True,
    )
    assert (second.missing, second.distinct, second.low, second.high, second.is_whole) == (1, 2, "0.5", "2", False)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        (range(30), False),
        (range(1, 31), False),
        (range(20), False),
        (range(17, 90), True),
        (np.arange(30) / 2, True),
        ([*range(29), 40], True),
    ],
)
def test_many_numbers_are_continuous_unless_they_number_classes(numbers, expected):
    values = np.array([*numbers, *numbers])
    assert inspect_column("c", values).is_continuous == expected
    assert inspect_column("c", TextColumn.of(values)).is_continuous == expected


def test_sizes_and_modes_of_pictures_are_in_their_headers():
    contents = []
    for kind, mode, size in (
        *[("PNG", "L", (9, 7)), ("PNG", "RGB", (20, 8)), ("JPEG", "L", (9, 7)), ("JPEG", "RGB", (20, 8))],
        *[("GIF", "P", (30, 10)), ("BMP", "RGB", (9, 9)), ("JPEG", "CMYK", (9, 9))],
    ):
        file = io.BytesIO()
        Image.new(mode, size, 1).save(file, kind)
        contents.append(file.getvalue())
    text = describe_pictures([*contents, b"", b"GIF8", contents[0][:20], b"no picture"])
    assert text == "files 7 x 9 to 10 x 30 (3 color, 2 grey, 1 palette, 1 CMYK)"
    assert describe_pictures([b"no picture"]) is None


def test_sample_is_spread_over_all_items():
    assert (sample(range(5), 9), sample(range(11), 3), sample([7], 3)) == ([0, 1, 2, 3, 4], [0, 5, 10], [7])
