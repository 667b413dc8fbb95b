"""Formats numbers with three digits and a unit, and escapes names of users for a terminal line, a shell and Markdown.

A name of a file, class, column or run may contain any character. Inserted as it is, it could end a line of output,
move the cursor of a terminal, run a command that a reader pastes, or add an element to a page.
"""

import re
import shlex
from collections.abc import Iterable, Sequence

# Bytes of a megabyte, the unit of weights and traffic, and of a mebibyte, the unit of memory.
MB, MIB = 10**6, 2**20
# Units of durations, in seconds.
TIME_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
# Characters of a line and of a name.
LINE, MAX_NAME = 80, 24
# A longer duration has the next unit.
LONGEST = {"s": 180.0, "min": 180 * 60.0}
# Underscores inside of words have no meaning in Markdown.
_MARKDOWN = re.compile(r"([\\|<>*`\[\]&~$]|(?<![^\W_])_|_(?![^\W_]))")


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


def shorten(text: str, length: int = MAX_NAME) -> str:
    """Return a text, or its beginning and three points."""
    return text if len(text) <= length else text[: length - 3] + "..."


def join_items(start: str, items: Sequence[str], end: str = "") -> str:
    """Return a line with as many items as fit, and the number of the others."""
    for count in range(len(items), 0, -1):
        more = f", and {len(items) - count:,} more" if count < len(items) else ""
        line = f"{start}{', '.join(items[:count])}{more}{end}"
        if len(line) <= LINE:
            return line
    return shorten(f"{start}{len(items):,}{end}", LINE)


def escape_unprintable(text: str) -> str:
    """Escape control characters and invalid UTF-8 in a text of several lines; line ends stay."""
    return "\n".join(map(escape_line, text.split("\n")))


def escape_line(text: str) -> str:
    """Escape control characters, line ends and invalid UTF-8, so that a text is one line of a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def quote_shell(word: object) -> str:
    """Quote a word of a POSIX shell, in one printable line; control characters need bash, zsh or ksh."""
    text = str(word)
    if text.isprintable():
        return shlex.quote(text)
    # `$'...'` has escapes for bytes; other quotes would keep a line end as it is.
    return f"$'{''.join(map(_shell_char, text))}'"


def _shell_char(char):
    if char.isprintable():
        return f"\\{char}" if char in "\\'" else char
    errors = "surrogateescape" if "\udc80" <= char <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", errors))


def join_shell(words: Iterable[object]) -> str:
    """Return a command line of a POSIX shell for a program and its arguments, see `quote_shell`."""
    return " ".join(map(quote_shell, words))


def escape_markdown(text: str) -> str:
    """Escape a name for one line of Markdown, which also has the elements of HTML."""
    return _MARKDOWN.sub(r"\\\1", escape_line(text))


def quote_markdown(text: str) -> str:
    """Return a name as inline code of Markdown; backticks in it need a longer fence."""
    line = escape_line(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    pad = " " * (line[:1] in ("`", "", " ") or line[-1:] in ("`", " "))
    return f"{fence}{pad}{line}{pad}{fence}"
