"""Encodes running text as rows of word ids: text files, vocabulary, and rows of equal length."""

import itertools
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hetero_tf.base.constraints import Tokenizer
from hetero_tf.base.errors import InputError
from hetero_tf.data.codecs import Field, running_text
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.table_files import read_text
from hetero_tf.data.tokenizers import END, SIGNS, UNKNOWN, build_splitter, check_spaces, learn_pieces, split_characters


def read_words(path: Path, encoding: str | None = None) -> list[str]:
    """Return the words of a text file, perhaps compressed: split at white space, `<eos>` after every line.

    A blank line gives a single `<eos>`; line ends may be LF or CRLF. For the encoding see `read_text`.

    Raises:
        InputError: See `table_files.read_text`; or the file has no words.
    """
    words = split_lines([read_text(path, encoding)])
    if set(words) == {END}:
        raise InputError(f"{path}: expected text. Received: an empty file or blank lines only")
    return words


def split_lines(texts: Iterable[str]) -> list[str]:
    """Return the words of texts in the Unicode form NFC, with `<eos>` after every line of each text."""
    words: list[str] = []
    for text in texts:
        for line in unicodedata.normalize("NFC", text).removesuffix("\n").split("\n"):
            # Intern words: one object for each word of the vocabulary, not of the text.
            words += map(sys.intern, line.split())
            words.append(END)
    return words


@dataclass(frozen=True)
class TokenOptions:
    """The options that turn texts into tokens.

    Attributes:
        tokenizer: "words", "characters" or "subwords".
        size: Largest vocabulary size, including two special tokens; None: all tokens.
        tokens: Tokens of a vocabulary file; None: those of the training texts.
        learned: Vocabulary that the run learned at its start, with special tokens; None before its start.
        validation: Ids of training examples whose tokens are not learned; None: none.
    """

    tokenizer: Tokenizer
    size: int | None
    tokens: tuple[str, ...] | None = None
    learned: tuple[str, ...] | None = None
    validation: np.ndarray | None = None


def learn_vocabulary(words: Sequence[str], options: TokenOptions, rows: int | None = None) -> tuple[str, ...]:
    """Return the vocabulary of a training text: `<ukn>`, `<eos>`, then the tokens of the run, the file or the words.

    Words and characters are in the order of first appearance. If there are too many, the most frequent ones stay; of
    equally frequent ones, the earlier one.

    Args:
        words: The words of the text.
        options: How the text becomes tokens.
        rows: Equal parts of the text, of which those for validation are left out; None: nothing is left out.

    Raises:
        InputError: The size is missing, or smaller than the file's.
    """
    if options.learned is not None:
        return (UNKNOWN, END, *options.learned[2:])
    if options.tokens is not None:
        size = len(options.tokens) + 2
        if options.size is not None and options.size < size:
            raise InputError(
                f"`vocabulary` must be at least {size}, the size of `vocabulary_file` with two special tokens. "
                f"Received: vocabulary={options.size}"
            )
        return (UNKNOWN, END, *options.tokens)
    if options.tokenizer == "subwords":
        if options.size is None:
            raise InputError("`tokenizer: subwords` needs a size, such as `vocabulary: 8000`, or a `vocabulary_file`")
        # Subwords depend on the vocabulary, so their rows are taken as equal parts of the words.
        return (UNKNOWN, END, *learn_pieces(_leave_out(words, options, rows), options.size - 2))
    tokens = split_characters(words, (END,)) if options.tokenizer == "characters" else words
    counts = {UNKNOWN: 0, END: 0}
    for token in _leave_out(tokens, options, rows):
        counts[token] = counts.get(token, 0) + 1
    known = list(counts)[2:]
    if options.size is not None:
        # sorted() is stable, so a tie goes to the word that appeared first.
        frequent = set(sorted(known, key=counts.__getitem__, reverse=True)[: options.size - 2])
        known = [token for token in known if token in frequent]
    return (UNKNOWN, END, *known)


def _leave_out(tokens, options, rows):
    """Return the tokens outside the rows for validation."""
    if options.validation is None or rows is None:
        return tokens
    row_of_token = np.arange(len(tokens)) // max(len(tokens) // rows, 1)
    return list(itertools.compress(tokens, ~np.isin(row_of_token, options.validation)))


def build_tokenizer(tokenizer: str, vocabulary: Sequence[str]) -> Callable[[Sequence[str]], Sequence[str]]:
    """Return a function that splits words into tokens; `<eos>` is one token if the vocabulary has it."""
    if tokenizer == "words":
        return lambda words: words
    if tokenizer == "characters":
        special = (END,) if END in vocabulary else ()
        return lambda words: split_characters(words, special)
    return build_splitter([token for token in vocabulary if token != UNKNOWN])


def encode(words: Sequence[str], vocabulary: Sequence[str]) -> np.ndarray:
    """Return word ids, int32 `[words]`; words outside the vocabulary become 0, `<ukn>`."""
    number = {word: index for index, word in enumerate(vocabulary)}
    return np.fromiter((number.get(word, 0) for word in words), np.int32, len(words))


def reshape_to_rows(numbers: np.ndarray, rows: int, argument: str) -> np.ndarray:
    """Truncate ids `[n]` to a multiple of `rows` and reshape them to `[rows, n // rows]`, contiguous text per row."""
    if rows > len(numbers):
        raise InputError(
            f"`{argument}` must not exceed the {len(numbers)} words of the text. Received: {argument}={rows}"
        )
    length = len(numbers) // rows
    return numbers[: rows * length].reshape(rows, length)


def split_end(words: list[str], share: float) -> tuple[list[str], list[str]]:
    """Split words into (first part, last `share`); a contiguous cut, because adjacent words are not independent."""
    cut = len(words) - round(len(words) * share)
    return words[:cut], words[cut:]


def text_dataset(
    train_words: list[str], test_words: list[str], source: str, options: TokenOptions, *, rows: int, test_rows: int
) -> Dataset:
    """Build the `Dataset` of two lists of words.

    Args:
        train_words, test_words: Words of the texts.
        source: Description of the texts.
        options: How the texts become tokens.
        rows, test_rows: See `reshape_to_rows`.

    Raises:
        InputError: A number is out of range, or the text has no spaces between words.
    """
    if options.tokenizer == "words":
        check_spaces(source, train_words)
    known = learn_vocabulary(train_words, options, rows)
    tokenize = build_tokenizer(options.tokenizer, known)
    train = reshape_to_rows(encode(tokenize(train_words), known), rows, "rows")
    test = reshape_to_rows(encode(tokenize(test_words), known), test_rows, "test_rows")
    fields = (Field("text", running_text.Codec(train.shape[1], known, options.tokenizer)),)
    return Dataset(Split(train), Split(test), fields, len(known), source)


def split_words(text: str) -> list[str]:
    """Split a text into lower-case words; each ASCII punctuation mark except the apostrophe is a separate word."""
    return re.sub(SIGNS, r" \1 ", text.lower()).split()


def split_text(text: str, tokenizer: str) -> list[str]:
    """Split a text into the lower-case words of a tokenizer: with "characters", punctuation marks stay in words."""
    return text.lower().split() if tokenizer == "characters" else split_words(text)


def encode_sentences(sentences: Sequence[Sequence[str]], vocabulary: Sequence[str], length: int) -> np.ndarray:
    """Return word ids, int32 `[sentences, length]`: 1 for a word outside the vocabulary, 0 for padding.

    Args:
        sentences: Words of each sentence.
        vocabulary: `<pad>`, `<ukn>`, and the other tokens.
        length: Row length; longer sentences are truncated.
    """
    truncated = [words[:length] for words in sentences]
    numbers = np.maximum(encode([word for words in truncated for word in words], vocabulary), 1)
    encoded = np.zeros((len(truncated), length), np.int32)
    encoded[np.arange(length) < np.array([len(words) for words in truncated])[:, None]] = numbers
    return encoded
