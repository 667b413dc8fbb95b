"""Units: three digits, no scientific notation, prefixes of 1,000 or 1,024."""

import pytest

from hetero_tf.base.units import format_bytes, format_count


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (7, "7"), (450, "450"), (65.25, "65.2"), (999.7, "1 K"), (1234, "1.23 K"), (19_658, "19.7 K"),
     (646_400, "646 K"), (999_999, "1 M"), (1_234_567, "1.23 M"), (2.5e9, "2.5 G"), (1.5e12, "1.5 T"), (7e15, "7,000 T")],
)  # fmt: skip
def test_counts(value, text):
    assert format_count(value) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (700, "700 B"), (1023, "1023 B"), (1024, "1 KB"), (717, "717 B"), (79_000, "77.1 KB"), (2**20, "1 MB"), (3 * 2**30, "3 GB")],
)  # fmt: skip
def test_bytes(count, text):
    assert format_bytes(count) == text
