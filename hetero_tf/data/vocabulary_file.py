"""Reads a vocabulary file: a token in each line, as SentencePiece, WordPiece (BERT) and exports write it, or JSON."""

import re
from pathlib import Path

from hetero_tf.base.errors import InputError
from hetero_tf.base.files import decode, read_bytes
from hetero_tf.data.data_files import find_file
from hetero_tf.data.tokenizer_json import parse_tokens
from hetero_tf.data.tokenizers import SPACE

_LARGEST_FILE, _LONGEST_TOKEN = 2**26, 32
# Special tokens of common files; the program adds its special tokens.
_SPECIAL = re.compile(r"\[(?:PAD|UNK|CLS|SEP|MASK|unused\d+)\]|<(?:pad|ukn|eos|unk|s|/s|mask|0x[0-9A-F]{2})>")


def find_tokens(data_dir: Path | None, name: str | None, tokenizer: str) -> tuple[str, ...] | None:
    """Return the tokens of the option `vocabulary_file`; None if it is not set."""
    return None if name is None else read_tokens(find_file(data_dir, name, "vocabulary_file"), tokenizer)


def read_tokens(path: Path, tokenizer: str) -> tuple[str, ...]:
    """Return the tokens of a file without special tokens such as `<pad>` and `[CLS]`.

    Text after a tab, such as SentencePiece's scores, is ignored. For subwords, `▁` begins a word; in a file with `##`
    (WordPiece), which marks the pieces that do not begin a word, the marks are converted. Of a `tokenizer.json`, the
    tokens that the tokenizer cannot use, such as white space and subwords of more than 32 characters, are left out.

    Raises:
        InputError: A token occurs twice, has white space, is too long, or is not one of the tokenizer.
    """
    content = read_bytes(path, _LARGEST_FILE, follow=True)
    if path.suffix.lower() == ".json":
        listed = parse_tokens(content, path, tokenizer)
        usable = [token for token in listed if not _problem(token, tokenizer, {})]
        return _not_empty(path, [token for token in usable if not _SPECIAL.fullmatch(token.removeprefix(SPACE))])
    lines = decode(content, path).split("\n")
    numbered = [(number, line.partition("\t")[0].strip()) for number, line in enumerate(lines, 1)]
    is_word_piece = tokenizer == "subwords" and any(token.startswith("##") for _, token in numbered)
    tokens: dict[str, int] = {}
    for number, written in numbered:
        if not written or _SPECIAL.fullmatch(written):
            continue
        token = _from_word_piece(written) if is_word_piece else written
        if problem := _problem(token, tokenizer, tokens):
            raise InputError(f"{path}:{number}: {problem}. Received: {written!r}")
        tokens[token] = number
    return _not_empty(path, tokens)


def _not_empty(path, tokens):
    if not tokens:
        raise InputError(f"{path}: expected a token in each line. Received: none")
    return tuple(dict.fromkeys(tokens))


def _from_word_piece(token):
    return token[2:] if token.startswith("##") and len(token) > 2 else SPACE + token


def _problem(token, tokenizer, tokens):
    """Return the reason to reject a token, or None."""
    if token in tokens:
        return f"a token must not occur twice, as in line {tokens[token]}"
    if token.split() != [token]:
        return "a token must not contain white space"
    if tokenizer == "characters" and len(token) > 1:
        return "a token must be one character with `tokenizer: characters`"
    if tokenizer == "subwords" and len(token) > _LONGEST_TOKEN:
        return f"a subword must have at most {_LONGEST_TOKEN} characters"
    if tokenizer == "subwords" and SPACE in token[1:]:
        return f"`{SPACE}` must be the first character of a subword"
    return None
