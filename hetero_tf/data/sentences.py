"""Encodes sentences as padded rows of word ids: lower-case words and their vocabulary.

Exports repeat both steps in their graph (`graph_tokenizer`): convert to lower case, then split at `SIGNS`.
"""

import re
from collections.abc import Sequence

import numpy as np

from hetero_tf.data.tokenizers import PADDING, UNKNOWN
from hetero_tf.data.words import TokenOptions, encode, learn_vocabulary

# Punctuation marks that are separate words, in the common syntax of Python and RE2; apostrophes stay in their word.
SIGNS = r"([!-&(-/:-@\[-`{-~])"


def split_words(text: str) -> list[str]:
    """Split a text into lower-case words; each ASCII punctuation mark except the apostrophe is a separate word."""
    return re.sub(SIGNS, r" \1 ", text.lower()).split()


def split_text(text: str, tokenizer: str) -> list[str]:
    """Split a text into the lower-case words of a tokenizer: with "characters", punctuation marks stay in words."""
    return text.lower().split() if tokenizer == "characters" else split_words(text)


def build_sentence_vocabulary(sentences: Sequence[Sequence[str]], options: TokenOptions) -> tuple[str, ...]:
    """Return the vocabulary of training texts: `<pad>`, `<ukn>`, then tokens as in `words.learn_vocabulary`.

    Args:
        sentences: Words of the training texts.
        options: How the texts become tokens.
    """
    # Running text has two special tokens as well.
    return (PADDING, UNKNOWN, *learn_vocabulary([word for words in sentences for word in words], options)[2:])


def encode_sentences(sentences: Sequence[Sequence[str]], vocabulary: Sequence[str], length: int) -> np.ndarray:
    """Return word ids, int32 `[sentences, length]`: 1 for a word outside the vocabulary, 0 for padding.

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
