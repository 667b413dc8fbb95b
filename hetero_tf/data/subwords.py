"""Subwords: pieces of words from byte-pair encoding (Sennrich et al. 2016), applied by longest match."""

import heapq
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import pairwise

from hetero_tf.data.tokenizers import END, SPACE

# Characters of the longest learned piece.
_LONGEST_LEARNED = 16
_SIGNS = r"!-/:-@\[-`{-~\u00a1-\u00bf\u2010-\u205e\u3001-\u3020\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
# Learned pieces do not combine letters with punctuation marks. Short chunks limit the time in languages without spaces.
_CHUNKS = re.compile(f"{SPACE}?[^{SPACE}{_SIGNS}]{{1,16}}|{SPACE}?[{_SIGNS}]{{1,16}}|{SPACE}")


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
