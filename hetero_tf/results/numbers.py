"""Which values of a run folder count as numbers: anybody can write a folder, and sums of these must stay finite."""

from typing import TypeGuard

LARGEST = 1e100
# Above it, floats no longer tell rounds apart.
LAST_ROUND = 2**53


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value of a JSON file is a number that can be computed with."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LARGEST
