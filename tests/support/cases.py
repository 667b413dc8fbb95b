"""Cases of a test in a table of text, a line each."""

import shlex


def of_text(table):
    """[(text, sentence)] of lines such as `seeds: 3-1 => seeds: must be whole numbers`."""
    return [row.split(" => ") for row in table.split("\n")[1:-1]]


def of_words(table):
    """[(words, sentence)] of lines such as `train --level=a => --level has no effect`."""
    return [(shlex.split(words), sentence) for words, sentence in of_text(table)]
