"""Encodes running text as rows of word ids: text files, vocabulary, and rows of equal length."""

import gzip
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.files import open_file
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.subwords import build_splitter, learn_pieces
from hetero_tf.data.tokenizers import END, UNKNOWN, check_spaces, split_characters

LONGEST_LINE = 2**20
LARGEST_TEXT = 2**30
# Prose compresses to a third of its size; a file above 1 MiB that unpacks to 50 times its size is a gzip bomb.
UNPACKED, ALWAYS_UNPACKED = 50, 2**20
# Words of the training text that are compared with a vocabulary file.
_COVERAGE_SAMPLE = 100_000


def read_words(path: Path) -> list[str]:
    """Returns the words of a UTF-8 text file, `.gz` or plain: split at white space, `<eos>` after every line.

    A blank line gives a single `<eos>`; line ends may be LF or CRLF. The file is read line by line.

    Raises:
        InputError: Not a regular file, damaged gzip, invalid UTF-8, a line above 1 MiB, a text above 1 GiB or 50 times
            its compressed size, or no words.
        DiskProblem: The operating system failed to read.
    """
    with open_file(path) as file:
        if not str(path).endswith(".gz"):
            return _read_lines(path, file, LARGEST_TEXT)
        packed = os.fstat(file.fileno()).st_size
        return _read_lines(path, gzip.open(file), min(LARGEST_TEXT, max(UNPACKED * packed, ALWAYS_UNPACKED)))


def _read_lines(path, file, limit):
    """Reads the words of a file of at most `limit` bytes."""
    words: list[str] = []
    number = size = 0
    try:
        # Limit readline: a small gzip file may unpack to a line larger than memory.
        while line := file.readline(LONGEST_LINE + 1):
            number, size = number + 1, size + len(line)
            _check_line(path, number, line, size, limit)
            # Intern words: one object per word of the vocabulary, not per word of the text.
            words += map(sys.intern, line.decode("utf-8-sig" if number == 1 else "utf-8").split())
            words.append(END)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}:{number}: expected UTF-8 text. Received: byte 0x{error.object[error.start]:02x} "
            f"at byte {error.start + 1} of the line; convert the file with iconv"
        ) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: damaged gzip file after line {number}: {error}; download it again") from error
    if len(words) == number:
        raise InputError(f"{path}: expected text. Received: an empty file or blank lines only")
    return words


def split_lines(texts: Iterable[str]) -> list[str]:
    """Returns the words of texts, with `<eos>` after every line of each text, as `read_words` does."""
    words: list[str] = []
    for text in texts:
        for line in text.removesuffix("\n").split("\n"):
            words += map(sys.intern, line.split())
            words.append(END)
    return words


def _check_line(path, number, line, size, limit):
    if len(line) > LONGEST_LINE:
        raise InputError(
            f"{path}:{number}: a line may have at most {LONGEST_LINE} bytes; break it into lines (fold -s)"
        )
    if size > limit:
        subject = "a text" if limit == LARGEST_TEXT else "a file of this compressed size"
        raise InputError(
            f"{path}:{number}: {subject} may have at most {limit} bytes unpacked; use a part of it, uncompressed"
        )
    if b"\0" in line:
        raise InputError(f"{path}:{number}: expected UTF-8 text. Received: a null byte (UTF-16 or binary data)")


def build_vocabulary(words: Sequence[str], size: int | None = None) -> tuple[str, ...]:
    """Returns the vocabulary: `<ukn>`, `<eos>`, then the words in order of first appearance.

    Args:
        words: Words of the training text.
        size: Largest vocabulary size including both special words; the most frequent words stay, ties go to the earlier
            word. None: all words.

    Returns:
        Tuple of words; a word's index is its id.
    """
    counts = {UNKNOWN: 0, END: 0}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    known = list(counts)[2:]
    if size is not None:
        check_count("vocabulary", size, 3)
        if size < len(counts):
            # sorted() is stable, so a tie goes to the word that appeared first.
            frequent = set(sorted(known, key=counts.__getitem__, reverse=True)[: size - 2])
            known = [word for word in known if word in frequent]
    return (UNKNOWN, END, *known)


@dataclass(frozen=True)
class TokenOptions:
    """The options that turn texts into tokens.

    Attributes:
        tokenizer: "words", "characters" or "subwords".
        size: Largest vocabulary size, including two special tokens; None: all tokens.
        tokens: Tokens of a vocabulary file; None: those of the training texts.
        learned: Vocabulary that the run learned at its start, with special tokens; None before its start.
    """

    tokenizer: str
    size: int | None
    tokens: tuple[str, ...] | None = None
    learned: tuple[str, ...] | None = None


def learn_vocabulary(words: Sequence[str], options: TokenOptions) -> tuple[str, ...]:
    """Returns the vocabulary of a training text: `<ukn>`, `<eos>`, then the tokens of the run, the file or the words.

    Raises:
        InputError: The size is missing, or smaller than the file's; or the file lacks most tokens.
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
        _check_coverage(words, options.tokenizer, options.tokens)
        return (UNKNOWN, END, *options.tokens)
    if options.tokenizer == "subwords":
        if options.size is None:
            raise InputError(
                "`tokenizer: subwords` needs a size of the vocabulary, such as `vocabulary: 8000`, or a "
                "`vocabulary_file`. Received: vocabulary=None"
            )
        return (UNKNOWN, END, *learn_pieces(words, options.size - 2))
    tokens = split_characters(words, (END,)) if options.tokenizer == "characters" else words
    return build_vocabulary(tokens, options.size)


def _check_coverage(words, tokenizer, tokens):
    """Raises `InputError` for a vocabulary file that lacks most tokens of a text, such as one of another language."""
    text_tokens = build_tokenizer(tokenizer, (END, *tokens))(words[:_COVERAGE_SAMPLE])
    known = {END, *tokens}
    share = sum(token in known for token in text_tokens) / max(len(text_tokens), 1)
    if share < 0.5:
        raise InputError(
            "`vocabulary_file` must have at least half of the tokens of the training text; choose one of its language "
            f"(in lower case for labelled_text) and for `tokenizer: {tokenizer}`. Received: a file with {share:.0%}"
        )


def build_tokenizer(tokenizer: str, vocabulary: Sequence[str]) -> Callable[[Sequence[str]], Sequence[str]]:
    """Returns a function that splits words into tokens; `<eos>` is one token if the vocabulary has it."""
    if tokenizer == "words":
        return lambda words: words
    if tokenizer == "characters":
        special = (END,) if END in vocabulary else ()
        return lambda words: split_characters(words, special)
    return build_splitter([token for token in vocabulary if token != UNKNOWN])


def encode(words: Sequence[str], vocabulary: Sequence[str]) -> np.ndarray:
    """Returns word ids, int32 `[words]`; words outside the vocabulary become 0, `<ukn>`."""
    number = {word: index for index, word in enumerate(vocabulary)}
    return np.fromiter((number.get(word, 0) for word in words), np.int32, len(words))


def reshape_to_rows(numbers: np.ndarray, rows: int, argument: str) -> np.ndarray:
    """Truncates ids `[n]` to a multiple of `rows` and reshapes them to `[rows, n // rows]`, contiguous text per row."""
    check_count(argument, rows, 1)
    if rows > len(numbers):
        raise InputError(
            f"`{argument}` must not exceed the {len(numbers)} words of the text. Received: {argument}={rows}"
        )
    length = len(numbers) // rows
    return numbers[: rows * length].reshape(rows, length)


def split_end(words: list[str], share: float) -> tuple[list[str], list[str]]:
    """Splits words into (first part, last `share`); a contiguous cut, because adjacent words are not independent."""
    if not 0 < share < 1:
        raise InputError(f"`test_share` must be above 0 and below 1. Received: test_share={share}")
    cut = len(words) - round(len(words) * share)
    return words[:cut], words[cut:]


def check_count(argument: str, value: int, low: int, high: int | None = None) -> None:
    """Raises `InputError` for a count outside `low..high`."""
    if value < low or (high is not None and value > high):
        allowed = f"at least {low}" if high is None else f"in {low}..{high}"
        raise InputError(f"`{argument}` must be {allowed}. Received: {argument}={value}")


def text_dataset(
    train_words: list[str], test_words: list[str], source: str, options: TokenOptions, *, rows: int, test_rows: int
) -> Dataset:
    """Builds the `Dataset` of two lists of words.

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
    known = learn_vocabulary(train_words, options)
    tokenize = build_tokenizer(options.tokenizer, known)
    train = reshape_to_rows(encode(tokenize(train_words), known), rows, "rows")
    test = reshape_to_rows(encode(tokenize(test_words), known), test_rows, "test_rows")
    return Dataset(Split(train), Split(test), len(known), source, vocabulary=known, tokenizer=options.tokenizer)
