"""Splits the words of texts into tokens: characters, subwords by byte-pair encoding, and those of a vocabulary file.

Exports repeat it in their graph (`graph_tokenizer`).
"""

import heapq
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from hetero_tf.base.errors import InputError, shorten_repr
from hetero_tf.base.files import decode, read_bytes
from hetero_tf.data.data_files import find

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
_LARGEST_FILE, _LONGEST_TOKEN = 2**26, 32
# Characters of the longest learned piece.
_LONGEST_LEARNED = 16
_SIGNS = r"!-/:-@\[-`{-~\u00a1-\u00bf\u2010-\u205e\u3001-\u3020\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
# Learned pieces do not combine letters with punctuation marks. Short chunks limit the time in languages without spaces.
_CHUNKS = re.compile(f"{SPACE}?[^{SPACE}{_SIGNS}]{{1,16}}|{SPACE}?[{_SIGNS}]{{1,16}}|{SPACE}")
# Special tokens of common files; the program adds its special tokens.
_SPECIAL = re.compile(r"\[(?:PAD|UNK|CLS|SEP|MASK|unused\d+)\]|<(?:pad|ukn|eos|unk|s|/s|mask|0x[0-9A-F]{2})>")


def split_characters(words: Iterable[str], special: Collection[str]) -> list[str]:
    """Return the characters of words, with `▁` between two words; a special token such as `<eos>` is not split."""
    tokens: list[str] = []
    for word in words:
        if tokens and tokens[-1] not in special and word not in special:
            tokens.append(SPACE)
        # Intern characters: one object for each character of the vocabulary, not for each one of the text.
        tokens += [word] if word in special else map(sys.intern, word)
    return tokens


def unspaced_length(words: Sequence[str]) -> float | None:
    """Return the mean length of words of a text written without spaces, such as Chinese; None for other texts."""
    sample = [word for word in words[:: len(words) // _SAMPLE + 1] if word != END]
    characters = "".join(sample)
    mean = len(characters) / max(len(sample), 1)
    is_unspaced = 2 * len(_UNSPACED.findall(characters)) > len(characters)
    return mean if mean > (_LONGEST_SEGMENTED if is_unspaced else _LONGEST_MEAN) else None


def check_spaces(source: str, words: Sequence[str]) -> None:
    """Raise `InputError` for words of a text that was written without spaces."""
    if (mean := unspaced_length(words)) is not None:
        raise InputError(
            f"{source}: the text has no spaces between words: its words have {mean:.0f} characters on average, "
            f"such as {shorten_repr(max(words, key=len), 40)}. Set `tokenizer: characters` or `tokenizer: subwords`. "
            "Received: tokenizer='words'"
        )


def learn_pieces(words: Iterable[str], count: int) -> tuple[str, ...]:
    """Return at most `count` pieces of words: the most frequent characters, then merged pairs in order of their merges.

    A piece at the beginning of a word begins with `▁`. Pairs that occur once are not merged; of equally frequent pairs
    the first one in the order of Unicode is merged.
    """
    chunks: Counter[str] = Counter()
    for word, frequency in Counter(word for word in words if word != END).items():
        for chunk in _CHUNKS.findall(SPACE + word):
            chunks[chunk] += frequency
    characters: Counter[str] = Counter()
    for chunk, frequency in chunks.items():
        for character in chunk:
            characters[character] += frequency
    pieces = dict.fromkeys(character for character, _ in characters.most_common(count))
    for piece in _merge_pairs(chunks):
        if len(pieces) >= count:
            break
        pieces[piece] = None
    return tuple(pieces)


def _merge_pairs(frequencies):
    """Yield the merged pairs of chunks `{chunk: frequency}`; some of them more than once."""
    chunks, weights = [list(chunk) for chunk in frequencies], list(frequencies.values())
    counts: Counter[tuple[str, str]] = Counter()
    indices: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for index, symbols in enumerate(chunks):
        for pair in pairwise(symbols):
            counts[pair] += weights[index]
            indices[pair].add(index)
    heap = [(-count, pair) for pair, count in counts.items()]
    heapq.heapify(heap)
    while heap:
        negative, pair = heapq.heappop(heap)
        if counts[pair] != -negative:
            # Merges of other pairs changed the count.
            if counts[pair] > 1:
                heapq.heappush(heap, (-counts[pair], pair))
            continue
        if counts[pair] < 2:
            return
        merged = "".join(pair)
        if len(merged) > _LONGEST_LEARNED:
            continue
        yield merged
        new_pairs = set()
        for index in indices.pop(pair):
            counts.subtract({each: weights[index] * n for each, n in Counter(pairwise(chunks[index])).items()})
            chunks[index] = _merge(chunks[index], pair, merged)
            for each in pairwise(chunks[index]):
                counts[each] += weights[index]
                indices[each].add(index)
                if merged in each:
                    new_pairs.add(each)
        for each in new_pairs:
            heapq.heappush(heap, (-counts[each], each))


def _merge(symbols, pair, merged):
    """Return the symbols with each occurrence of a pair merged, from the left."""
    result, position = [], 0
    while position < len(symbols):
        is_pair = tuple(symbols[position : position + 2]) == pair
        result.append(merged if is_pair else symbols[position])
        position += 2 if is_pair else 1
    return result


def build_splitter(pieces: Collection[str]) -> Callable[[Sequence[str]], list[str]]:
    """Return a function that splits words into their longest pieces from the left, or single characters."""
    known, longest = frozenset(pieces), max(map(len, pieces))
    tokens_by_word: dict[str, list[str]] = {END: [END]}

    def split_word(word):
        tokens, start = [], 0
        while start < len(word):
            ends = range(min(start + longest, len(word)), start + 1, -1)
            end = next((end for end in ends if word[start:end] in known), start + 1)
            tokens.append(sys.intern(word[start:end]))
            start = end
        return tokens

    def split(words):
        for word in set(words) - tokens_by_word.keys():
            tokens_by_word[word] = split_word(SPACE + word)
        return [token for word in words for token in tokens_by_word[word]]

    return split


def find_tokens(data_dir: Path | None, name: str | None, tokenizer: str) -> tuple[str, ...] | None:
    """Return the tokens of the option `vocabulary_file`; None if it is not set."""
    if name is None:
        return None
    return tuple(read_token_lines(find(data_dir, name, "vocabulary_file", is_folder=False), tokenizer)[0])


def read_token_lines(path: Path, tokenizer: str) -> tuple[dict[str, int], dict[str, int]]:
    """Return the tokens of a file and its special tokens, such as `<pad>` and `[CLS]`, with their lines, from 0.

    Text after a tab, such as SentencePiece's scores, is ignored. For subwords, `▁` begins a word; in a file with `##`
    (WordPiece), which marks the pieces that do not begin a word, the marks are converted.

    Raises:
        InputError: A token is not one of the tokenizer, or there is none.
    """
    text = decode(read_bytes(path, _LARGEST_FILE, follow=True), path)
    numbers: dict[str, int] = {}
    for number, line in enumerate(text.split("\n")):
        numbers.setdefault(line.partition("\t")[0].strip(), number)
    special = {line: number for line, number in numbers.items() if _SPECIAL.fullmatch(line)}
    tokens = {line: number for line, number in numbers.items() if line and line not in special}
    if tokenizer == "subwords" and any(token.startswith("##") for token in tokens):
        tokens = {
            token[2:] if token.startswith("##") and len(token) > 2 else SPACE + token: number
            for token, number in tokens.items()
        }
    longest = {"words": None, "characters": 1, "subwords": _LONGEST_TOKEN}[tokenizer]
    unusable = [
        token
        for token in tokens
        if token.split() != [token] or token[:longest] != token or tokenizer == "subwords" and SPACE in token[1:]
    ]
    if unusable or not tokens:
        limit = "" if longest is None else f" of at most {longest} characters"
        received = shorten_repr(unusable[0]) if unusable else "none"
        raise InputError(
            f"{path}: expected a token of `tokenizer: {tokenizer}`{limit} in each line. Received: {received}"
        )
    return tokens, special
