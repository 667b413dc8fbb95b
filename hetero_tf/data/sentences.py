"""Encodes sentences as padded rows of word ids: lower-case words and their vocabulary.

Exports repeat both steps in their graph (`export/sequences.py`): convert to lower case, then split at `SIGNS`.
"""

import re
from collections.abc import Sequence

import numpy as np

from hetero_tf.data.tokenizers import PADDING, SPACE, UNKNOWN
from hetero_tf.data.words import build_vocabulary, encode

# Punctuation marks that are separate words, in the common syntax of Python and RE2; apostrophes stay in their word.
SIGNS = r"([!-&(-/:-@\[-`{-~])"


def split_words(text: str) -> list[str]:
    """Splits a text into lower-case words; each ASCII punctuation mark except the apostrophe is a separate word."""
    return re.sub(SIGNS, r" \1 ", text.lower()).split()


def split_text(text: str, tokenizer: str) -> Sequence[str]:
    """Splits a text into lower-case tokens: words and punctuation marks, or characters."""
    if tokenizer == "words":
        return split_words(text)
    return tuple(SPACE.join(text.lower().split()))


def build_sentence_vocabulary(sentences: Sequence[Sequence[str]], size: int | None = None) -> tuple[str, ...]:
    """Returns the vocabulary: `<pad>`, `<ukn>`, then the words in order of first appearance.

    Args:
        sentences: Words of the training texts.
        size: Largest vocabulary size including both special words; the most frequent words stay. None: all words.
    """
    # Running text has two special words as well.
    return (PADDING, UNKNOWN, *build_vocabulary([word for words in sentences for word in words], size)[2:])


def encode_sentences(sentences: Sequence[Sequence[str]], vocabulary: Sequence[str], length: int) -> np.ndarray:
    """Returns word ids, int32 `[sentences, length]`: 1 for a word outside the vocabulary, 0 for padding.

    Args:
        sentences: Words of each sentence.
        vocabulary: Result of `build_sentence_vocabulary`.
        length: Row length; longer sentences are truncated.
    """
    truncated = [words[:length] for words in sentences]
    numbers = encode([word for words in truncated for word in words], vocabulary)
    encoded = np.zeros((len(truncated), length), np.int32)
    encoded[np.arange(length) < np.array([len(words) for words in truncated])[:, None]] = np.where(
        numbers == 0, 1, numbers
    )
    return encoded
