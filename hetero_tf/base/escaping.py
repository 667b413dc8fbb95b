"""Escapes names of users and files for a terminal line, a shell and Markdown: one function for each.

A name of a file, class, column or run may contain any character. Inserted as it is, it could end a line of output,
move the cursor of a terminal, run a command that a reader pastes, or add an element to a page.
"""

import re
import shlex
from collections.abc import Iterable

# Underscores inside of words have no meaning in Markdown.
_MARKDOWN = re.compile(r"([\\|<>*`\[\]&~$]|(?<![^\W_])_|_(?![^\W_]))")


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
