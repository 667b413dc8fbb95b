"""Tokenizers: split the words of a text into tokens. Exports repeat them in their graph (`graph_tokenizer`)."""

import re
import sys
from collections.abc import Collection, Iterable, Sequence

from hetero_tf.base.errors import InputError, shorten_repr

UNKNOWN, END, PADDING = "<ukn>", "<eos>", "<pad>"
# White space between words, as in SentencePiece: a token must not contain white space.
SPACE = "\u2581"
# Punctuation marks that are separate words, in the common syntax of Python and RE2; apostrophes stay in their word.
SIGNS = r"([!-&(-/:-@\[-`{-~])"
# Thai, Lao, Tibetan, Burmese, Khmer, kana and Han: scripts that are written without spaces between words.
_UNSPACED = re.compile("[\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
# Longest mean length of words, in characters: in text that was segmented into words, and in any text.
_LONGEST_SEGMENTED, _LONGEST_MEAN = 5, 20
_SAMPLE = 100_000


def split_characters(words: Iterable[str], special: Collection[str]) -> list[str]:
    """Return the characters of words, with `▁` between two words; a special token such as `<eos>` is not split."""
    tokens: list[str] = []
    for word in words:
        if tokens and tokens[-1] not in special and word not in special:
            tokens.append(SPACE)
        # Intern characters: one object for each character of the vocabulary, not for each one of the text.
        tokens += [word] if word in special else map(sys.intern, word)
    return tokens


def check_spaces(source: str, words: Sequence[str]) -> None:
    """Raise `InputError` for words of a text that was written without spaces, such as Chinese or Thai."""
    sample = [word for word in words[:: len(words) // _SAMPLE + 1] if word != END]
    characters = "".join(sample)
    mean = len(characters) / max(len(sample), 1)
    is_unspaced = 2 * len(_UNSPACED.findall(characters)) > len(characters)
    if mean > (_LONGEST_SEGMENTED if is_unspaced else _LONGEST_MEAN):
        raise InputError(
            f"{source}: the text has no spaces between words: its words have {mean:.0f} characters on average, "
            f"such as {shorten_repr(max(sample, key=len), 40)}. Set `tokenizer: characters` or `tokenizer: subwords`. "
            "Received: tokenizer='words'"
        )
