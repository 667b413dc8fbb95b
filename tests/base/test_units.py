"""Units: three digits, no scientific notation, prefixes of 1,000, or of 1,024 for memory."""

import pytest

from hetero_tf.base.units import format_bytes, format_count, format_memory

COUNTS = {0: "0", 7: "7", 450: "450", 65.25: "65.2", 999.7: "1 K", 1234: "1.23 K", 19_658: "19.7 K", 646_400: "646 K"}
COUNTS |= {999_999: "1 M", 1_234_567: "1.23 M", 2.5e9: "2.5 G", 1.5e12: "1.5 T", 7e15: "7,000 T"}
BYTES = {0: "0 B", 700: "700 B", 999: "999 B", 1000: "1 KB", 79_000: "79 KB", 2**20: "1.05 MB", 3e9: "3 GB"}
MEMORY = {
    0: "0 B",
    717: "717 B",
    1023: "1023 B",
    1023.9: "1 KiB",
    79_000: "77.1 KiB",
    2**20: "1 MiB",
    3 * 2**30: "3 GiB",
}


@pytest.mark.parametrize(("form", "texts"), [(format_count, COUNTS), (format_bytes, BYTES), (format_memory, MEMORY)])
def test_values_have_three_digits_and_a_prefix(form, texts):
    assert {value: form(value) for value in texts} == texts
