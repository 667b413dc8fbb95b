"""Reads the tokens of a `tokenizer.json`, the format of Hugging Face `tokenizers`, without that package."""

import json
from pathlib import Path
from typing import Any

from hetero_tf.base.errors import InputError, shorten_repr
from hetero_tf.base.files import decode
from hetero_tf.data.tokenizers import SPACE

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
