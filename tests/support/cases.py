"""Cases of tests in the file `refusals.txt` of their folder: a line each in a section."""

import shlex
from pathlib import Path


def of_text(test, section):
    """[(text, sentence)] of lines such as `seeds: 3-1 => seeds: must be whole numbers`; `test`: the test file."""
    text = Path(test).with_name("refusals.txt").read_text("utf-8")
    return [line.split(" => ") for line in text.partition(f"# {section}\n\n")[2].partition("\n\n")[0].splitlines()]


def of_words(test, section):
    """[(words, sentence)] of lines such as `train --level=a => --level has no effect`."""
    return [(shlex.split(words), sentence) for words, sentence in of_text(test, section)]
