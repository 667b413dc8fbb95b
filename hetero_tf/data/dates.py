"""Dates in tables: their notation, and the calendar features of a date."""

import datetime
import math
import re
from collections.abc import Iterable
from typing import Literal

DateOrder = Literal["ymd", "dmy", "mdy"]
DATE_EXAMPLES: dict[DateOrder, str] = {"ymd": "2024-12-31", "dmy": "31.12.2024", "mdy": "12/31/2024"}
# Names of the features. Sine and cosine make December a neighbour of January, and Sunday one of Monday.
PARTS = ("year", "month", "day", "weekday", "month_sin", "month_cos", "weekday_sin", "weekday_cos")
_TIME = r"(?:[T ]+(\d\d?):(\d\d)(?::(\d\d)(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
_YEAR_FIRST = re.compile(rf"(\d{{4}})([-/.])(\d\d?)\2(\d\d?){_TIME}", re.ASCII)
_YEAR_LAST = re.compile(rf"(\d\d?)([-/.])(\d\d?)\2(\d{{4}}){_TIME}", re.ASCII)


def parse_time(text: str, order: DateOrder) -> datetime.datetime | None:
    """Parse a date such as 2024-01-31 or 31.01.2024 and the time of day after it, to the second; None: not a date."""
    match = (_YEAR_FIRST if order == "ymd" else _YEAR_LAST).fullmatch(text.strip())
    if match is None:
        return None
    first, second, third = int(match[1]), int(match[3]), int(match[4])
    year, month, day = {"ymd": (first, second, third), "dmy": (third, second, first), "mdy": (third, first, second)}[
        order
    ]
    try:
        hour, minute, seconds = (int(match[group] or 0) for group in (5, 6, 7))
        return datetime.datetime(year, month, day, hour, minute, seconds)
    except ValueError:
        return None


def parse_date(text: str, order: DateOrder) -> datetime.date | None:
    """Parse a date; a time of day after it is dropped. None: not a date."""
    time = parse_time(text, order)
    return None if time is None else time.date()


def date_orders(texts: Iterable[str]) -> tuple[DateOrder, ...]:
    """Return the orders of year, month and day in which all texts are dates.

    Returns:
        Empty if a text is not a date; two orders if no day above 12 distinguishes days from months.
    """
    texts = list(texts)
    return tuple(order for order in DATE_EXAMPLES if texts and all(parse_date(text, order) for text in texts))


def date_features(date: datetime.date) -> list[float]:
    """Return the features of a date in the order of `PARTS`; Monday is weekday 0."""
    month, weekday = 2 * math.pi * (date.month - 1) / 12, 2 * math.pi * date.weekday() / 7
    cyclic = (math.sin(month), math.cos(month), math.sin(weekday), math.cos(weekday))
    return [float(date.year), float(date.month), float(date.day), float(date.weekday()), *cyclic]
