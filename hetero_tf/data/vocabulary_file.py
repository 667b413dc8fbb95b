"""Reads a vocabulary file: a token in each line, as SentencePiece, WordPiece (BERT) and exports write it, or JSON."""

import json
import re
from pathlib import Path
from typing import Any

from hetero_tf.base.errors import InputError, shorten_repr
from hetero_tf.base.files import decode, read_bytes
from hetero_tf.data.data_files import find_file
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


# Types of models by the tokenizer that applies their tokens.
_TYPES = {"words": ("WordLevel",), "characters": (), "subwords": ("BPE", "WordPiece", "Unigram")}


def parse_tokens(content: bytes, path: Path, tokenizer: str) -> list[str]:
    """Return the tokens in the order of their ids, without special ones; `▁` begins a word among subwords.

    Args:
        content: Content of the file.
        path: The file, for messages.
        tokenizer: "words", "characters" or "subwords".

    Raises:
        InputError: The file is damaged, or its model cannot be applied by longest match.
    """
    try:
        document = json.loads(decode(content, path))
        model, added = document["model"], document.get("added_tokens") or []
        kind, vocabulary = model["type"], model["vocab"]
        # The vocabulary of Unigram is a list of tokens with their scores.
        tokens = [pair[0] for pair in vocabulary] if kind == "Unigram" else sorted(vocabulary, key=vocabulary.get)
        special = {token["content"] for token in added if token["special"]}
        written = [str(token) for token in tokens if token not in special]
        is_bytes = "ByteLevel" in json.dumps([document.get("pre_tokenizer"), document.get("decoder")])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: is not a tokenizer.json of `tokenizers`: {shorten_repr(error)}") from error
    if kind not in _TYPES[tokenizer]:
        allowed = " or ".join(
            f"{' and '.join(kinds)} with `tokenizer: {name}`" for name, kinds in _TYPES.items() if kinds
        )
        raise InputError(f"{path}: supported models are {allowed}. Received: {kind}, tokenizer={tokenizer!r}")
    if kind == "WordLevel":
        return written
    return _mark_words(path, model, [text for text in map(_decode_bytes, written) if text] if is_bytes else written)


def _mark_words(path: Path, model: dict[str, Any], tokens: list[str]) -> list[str]:
    """Return subwords of which those that begin a word begin with `▁`."""
    prefix = model.get("continuing_subword_prefix")
    if prefix:
        return [token[len(prefix) :] if token.startswith(prefix) else SPACE + token for token in tokens]
    if not any(token.startswith(SPACE) for token in tokens):
        raise InputError(
            f"{path}: subwords must mark the beginning of a word by `{SPACE}` or `Ġ`, or its continuation by a prefix "
            f"such as `##`. Received: {model.get('type')} with tokens such as {shorten_repr(tokens[-3:], 80)}"
        )
    return tokens


def _decode_bytes(token):
    """Return the text of a token whose characters are bytes, as in GPT-2; None for a part of a character."""
    try:
        text = bytes(_BYTES[character] for character in token).decode()
    except (KeyError, UnicodeDecodeError):
        return None
    return SPACE + text[1:] if text.startswith(" ") else text


_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
# A printable byte is its character; the others are the characters from U+0100 on.
_BYTES = {chr(byte): byte for byte in _PRINTABLE} | {chr(256 + index): byte for index, byte in enumerate(_OTHERS)}
