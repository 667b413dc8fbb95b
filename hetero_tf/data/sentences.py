"""Sentences to numbers: words in lower case, the vocabulary, and rows of equal length with padding.

An export does the same in its graph (`export/sequences.py`), by the same two steps: lower case, then `SIGNS` apart.
"""

import re
from collections.abc import Sequence

import numpy as np

from hetero_tf.data.words import PADDING, UNKNOWN, encode, vocabulary_of

# Signs that are words of their own, in the syntax of Python and of RE2 alike; an apostrophe stays in its word.
SIGNS = r"([!-&(-/:-@\[-`{-~])"


def words_of(text: str) -> list[str]:
    """Returns the words of a text in lower case; each ASCII sign but the apostrophe is one too."""
    return re.sub(SIGNS, r" \1 ", text.lower()).split()


def vocabulary_of_sentences(sentences: Sequence[Sequence[str]], size: int | None = None) -> tuple[str, ...]:
    """Returns the vocabulary: `<pad>`, `<ukn>`, then the words in order of first appearance.

    Args:
        sentences: Words of the training texts.
        size: Largest vocabulary with both marks; the most frequent words stay. None: all.
    """
    # The marks of running text are as many.
    return (PADDING, UNKNOWN, *vocabulary_of([word for words in sentences for word in words], size)[2:])


def encode_sentences(sentences: Sequence[Sequence[str]], vocabulary: Sequence[str], length: int) -> np.ndarray:
    """Returns the numbers of words, int32 `[sentences, length]`: 1 for a word not in the vocabulary, 0 behind the last.

    Args:
        sentences: Words of each.
        vocabulary: As `vocabulary_of_sentences` gives it.
        length: Of a row; the rest of a longer sentence is left out.
    """
    kept = [words[:length] for words in sentences]
    numbers = encode([word for words in kept for word in words], vocabulary)
    found = np.zeros((len(kept), length), np.int32)
    found[np.arange(length) < np.array([len(words) for words in kept])[:, None]] = np.where(numbers == 0, 1, numbers)
    return found
