"""Dates and times in tables: one parser of their notations, and the calendar features of a date."""

import datetime
import functools
import math
import re
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

DateOrder = Literal["ymd", "dmy", "mdy"]
DATE_EXAMPLES: dict[DateOrder, str] = {"ymd": "2024-12-31", "dmy": "31.12.2024", "mdy": "12/31/2024"}
# Names of the features. Sine and cosine make December a neighbour of January, and Sunday one of Monday.
PARTS = ("year", "month", "day", "weekday", "month_sin", "month_cos", "weekday_sin", "weekday_cos")
# Two digits of a year belong to 1970 to 2069.
FIRST_SHORT_YEAR = 70
# Names of months in English, German, French, Spanish and Italian; their first three or more letters are abbreviations.
_MONTHS = (
    "january januar janvier enero gennaio",
    "february februar février febrero febbraio",
    "march märz mars marzo",
    "april avril abril aprile",
    "may mai mayo maggio",
    "june juni juin junio giugno",
    "july juli juillet julio luglio",
    "august août agosto",
    "september septembre septiembre settembre",
    "october oktober octobre octubre ottobre",
    "november novembre noviembre",
    "december dezember décembre diciembre dicembre",
)
# Hours from UTC of abbreviations of zones that have one meaning or that of RFC 5322, section 4.3.
_ZONES = {"Z": 0, "UTC": 0, "GMT": 0, "WET": 0, "WEST": 1, "CET": 1, "CEST": 2, "MEZ": 1, "MESZ": 2, "EET": 2}
_ZONES |= {"EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7}
_ZONES |= {"EEST": 3, "MSK": 3, "JST": 9, "KST": 9, "AEST": 10, "AEDT": 11, "NZST": 12, "NZDT": 13}
_TIME = (
    r"(?:(?:[T:_]|-(?=\d\d:)|,?[ \u202f]+)(?P<hour>\d\d?)(?:[:.](?P<minute>\d\d)(?:[:.](?P<second>\d\d)"
    r"(?:[.,](?P<fraction>\d+))?)?)?(?:[ \u202f]*(?P<half>[AaPp])\.?[Mm]\.?| ?Uhr)?"
    r"[ ]?(?:(?:UTC|GMT)?(?P<zone>[A-Z]{1,4}|[+-]\d\d(?::?\d\d)?)(?: \(.+\))?)?)?"
)
_MONTH = r"(?P<name>[^\W\d_]{3,})\.?"
_DAY = r"(?P<day>\d\d?)(?:st|nd|rd|th|\.)?"
# Notations in which the order of year, month and day is certain.
_CERTAIN = [
    r"(?P<year>\d{4})(?P<sign>[-/.:])(?P<month>\d\d?)(?P=sign)(?P<day>\d\d?)",
    r"(?P<year>(?:19|20)\d\d)(?P<month>\d\d)(?P<day>\d\d)?",
    r"(?P<year>\d{4})[-/.](?P<month>\d\d?)",
    r"(?P<month>\d\d?)[-/.](?P<year>\d{4})",
    r"(?P<year>\d{4})[-/ ]?[Qq](?P<quarter>[1-4])",
    r"[Qq](?P<quarter>[1-4])(?:[-/ ]?(?=\d{4})|[-/ '])(?P<year>\d{4}|\d\d)",
    r"(?P<quarter>[1-4])\. ?Quartal (?P<year>\d{4})",
    r"(?P<year>\d{4})-?[Ww](?P<week>\d\d)(?:-?(?P<weekday>[1-7]))?",
    r"(?:KW|[Ww](?:eek)?) ?(?P<week>\d\d?)[-/ ]+(?P<year>\d{4})",
    rf"(?:[^\W\d_]+\.?,? )?{_DAY}[-/ ]?{_MONTH}[-/ ,]*(?P<year>\d{{4}}|\d\d)",
    rf"(?:[^\W\d_]+\.?,? )?{_MONTH}[- ]{_DAY},?[- ](?P<year>\d{{4}})",
    rf"{_MONTH}(?:[-/ ]*(?=\d{{4}})|[-'])(?P<year>\d{{4}}|\d\d)",
    rf"(?P<year>\d{{4}})[-/ ]{_MONTH}(?:[-/ ](?P<day>\d\d?))?",
]
# A time without signs between its parts, and one before the year.
_TIMES = (
    r"(?P<year>(?:19|20)\d\d)(?P<month>\d\d)(?P<day>\d\d)T?(?P<hour>\d\d)(?:(?P<minute>\d\d)(?P<second>\d\d)?)?"
    r"(?P<zone>Z|[+-]\d\d(?::?\d\d)?)?",
    rf"[^\W\d_]+ {_MONTH} +{_DAY}{_TIME} (?P<year>\d{{4}})",
)
_LAST = r"(?P<{}>\d\d?)(?P<sign>[-/.])(?P<{}>\d\d?)(?P=sign)(?P<year>\d{{4}}|\d\d)"
_OPEN = {"ymd": [], "dmy": [_LAST.format("day", "month")], "mdy": [_LAST.format("month", "day")]}


@functools.cache
def _patterns(order):
    """Return the patterns of times with this order of day and month, or with a certain one."""
    patterns = [*(pattern + _TIME for pattern in (*_OPEN[order], *_CERTAIN)), *_TIMES]
    return [re.compile(pattern, re.ASCII if "name" not in pattern else 0) for pattern in patterns]


def parse_time(text: str, order: DateOrder) -> datetime.datetime | None:
    """Parse a date and the time of day after it.

    Args:
        text: Such as 2024-01-31, 31.01.2024 14:30, 1/31/2024 2:30 PM, 31 Jan 2024, 31-Jan-24, Jan-24,
            2024-01, 202401, Q1 2024, 2024-W05, 20240131143000, 31/Jan/2024:14:30:00 +0100, 2024-01-31 14:30 CET, or
            2024-01-31T14:30:00.5+01:00.
        order: Order of day and month where the notation leaves it open; "ymd" for other notations alone.

    Returns:
        The time, with its time zone if the text has one; None if the text is not a date in this order.
    """
    for pattern in _patterns(order):
        if match := pattern.fullmatch(text.strip().strip("[]")):
            return _build_time(match.groupdict())
    return None


def _build_time(parts):
    year = int(parts["year"])
    if len(parts["year"]) == 2:
        year += 1900 if year >= FIRST_SHORT_YEAR else 2000
    # A word that is not the start of a month is month 0, which is no date.
    start, month = f" {(parts.get('name') or '-').lower()}", int(parts.get("month") or 0)
    month = next((number for number, names in enumerate(_MONTHS, 1) if start in f" {names}"), month)
    if parts.get("quarter"):
        month = 3 * int(parts["quarter"]) - 2
    hour, half = int(parts["hour"] or 0), (parts.get("half") or "").lower()
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + 12 * (half == "p")
    microseconds = int((parts.get("fraction") or "0").ljust(6, "0")[:6])
    minute, second, day = int(parts["minute"] or 0), int(parts["second"] or 0), int(parts.get("day") or 1)
    try:
        if parts.get("week"):
            date = datetime.date.fromisocalendar(year, int(parts["week"]), int(parts.get("weekday") or 1))
            year, month, day = date.year, date.month, date.day
        # 24:00 is the end of a day.
        end = datetime.timedelta(hour == 24 and minute + second == 0)
        hour, zone = 0 if end else hour, parts["zone"] and _zone(parts["zone"])
        return datetime.datetime(year, month, day, hour, minute, second, microseconds, zone) + end
    except (ValueError, OverflowError):
        return None


@functools.cache
def _zone(text):
    text = f"{_ZONES[text]:+03}" if text in _ZONES else text
    return datetime.datetime.strptime(text.ljust(5, "0"), "%z").tzinfo


def parse_date(text: str, order: DateOrder) -> datetime.date | None:
    """Parse a date, see `parse_time`; a time of day after it is dropped."""
    time = parse_time(text, order)
    return None if time is None else time.date()


def date_orders(texts: Iterable[str]) -> tuple[DateOrder, ...]:
    """Return the orders of year, month and day in which all texts are dates.

    Returns:
        Empty if a text is not a date; ("ymd",) if no text leaves the order open; two orders if no day above 12
        distinguishes days from months. With points, as in 1.2.2024, the day is first.
    """
    texts = list(texts)
    unclear = [text for text in texts if parse_time(text, "ymd") is None]
    if not unclear:
        return ("ymd",) if texts else ()
    orders = [order for order in DATE_EXAMPLES if order != "ymd" and all(parse_time(text, order) for text in unclear)]
    return ("dmy",) if len(orders) > 1 and all("." in text for text in unclear) else tuple(orders)


def to_seconds(texts: Sequence[str], order: DateOrder) -> np.ndarray | None:
    """Return the seconds of dates since 1970 in UTC, float64 `[n]`; None if only some have a time zone."""
    times = [time for text in texts if (time := parse_time(text, order)) is not None]
    if len({time.tzinfo is None for time in times}) > 1 or len(times) < len(texts):
        return None
    zone = datetime.timezone.utc
    return np.array([(time if time.tzinfo else time.replace(tzinfo=zone)).timestamp() for time in times])


def date_features(date: datetime.date) -> list[float]:
    """Return the features of a date in the order of `PARTS`; Monday is weekday 0."""
    month, weekday = 2 * math.pi * (date.month - 1) / 12, 2 * math.pi * date.weekday() / 7
    cyclic = (math.sin(month), math.cos(month), math.sin(weekday), math.cos(weekday))
    return [float(date.year), float(date.month), float(date.day), float(date.weekday()), *cyclic]
