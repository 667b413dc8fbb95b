"""Numbers with three digits and a prefix, from one parameter to a billion operations; units of durations."""

# Bytes of a megabyte, the unit of weights and traffic, and of a mebibyte, the unit of memory.
MB, MIB = 10**6, 2**20
# Units of durations, in seconds.
TIME_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
# A longer duration has the next unit.
LONGEST = {"s": 180.0, "min": 180 * 60.0}


def format_count(value: float, unit: str = "", base: int = 1000) -> str:
    """Format a count: 450 as "450", 19,658 as "19.7 K", 1,234,567 as "1.23 M".

    Args:
        unit: Appended to the prefix, such as "B".
        base: Ratio of two prefixes.
    """
    for prefix in ("", "K", "M", "G"):
        number = f"{value:.0f}" if abs(value) >= 100 or not prefix and value == round(value) else f"{value:.3g}"
        if abs(float(number)) < base:
            return f"{number} {prefix}{unit}".rstrip()
        value /= base
    return f"{value:,.0f} T{unit}" if value >= 100 else f"{value:.3g} T{unit}"


def format_bytes(count: float) -> str:
    """Format bytes of weights or traffic in units of 1,000: 700 as "700 B", 79,000 as "79 KB"."""
    return format_count(count, "B")


def format_memory(count: float) -> str:
    """Format bytes of memory in units of 1,024: 700 as "700 B", 79,000 as "77.1 KiB"."""
    return f"{count:.0f} B" if round(count) < 1024 else format_count(count, "iB", 1024)


def time_unit(seconds: float) -> str:
    """Return the unit of `TIME_UNITS` in which a duration has few digits: "s" up to 3 min, "min" up to 3 h, or "h"."""
    return next((unit for unit, longest in LONGEST.items() if seconds <= longest), "h")


def format_number(value: float) -> str:
    """Format a number with up to three digits, and large ones as whole numbers: 0.012, 1.23, 1,234."""
    return f"{value:.3f}" if value < 1 else f"{value:.3g}" if value < 100 else f"{value:,.0f}"
