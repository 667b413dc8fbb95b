"""Tokenizers in a graph: the tokens that `data.words.build_tokenizer` gives, for the texts of a request."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from hetero_tf.base import files
from hetero_tf.base.errors import InputError
from hetero_tf.data.tokenizers import END, SIGNS, SPACE

# The white space of Python's `str.split`, which training used; `tf.strings.split` knows ASCII only.
SPACES = r"[\p{Z}\t\n\x{b}\f\r\x{1c}-\x{1f}\x{85}]+"
# The tokens of a text, by tokenizer, for MODEL_CARD.md.
NOUNS = {
    "words": "words at white space",
    "characters": f"characters, with `{SPACE}` for white space",
    "subwords": f"subwords, the longest ones from the left; `{SPACE}` begins a word",
}
# Characters of all texts of a request whose subwords are searched.
MAX_CHARACTERS = 2**20


@dataclass(frozen=True)
class GraphTokenizer:
    """Splits texts of a request into the tokens of a vocabulary.

    Attributes:
        name: "words", "characters" or "subwords".
        table: Lookup table token -> id.
        vocabulary: Tokens in the order of their ids.
        unknown: Id of every other token.
        special: Tokens such as `<eos>` that a text may contain, which are not split.
    """

    name: str
    table: tf.lookup.StaticHashTable
    vocabulary: Sequence[str]
    unknown: int
    special: tuple[str, ...] = ()

    def isolate(self, texts: tf.Tensor, pattern: str, token: str) -> tf.Tensor:
        """Return texts in which a special token replaces each match of a pattern."""
        # A subword after it continues a word, unless there is white space.
        spaced = {"words": f" {token} ", "characters": token, "subwords": f" {token}"}
        return tf.strings.regex_replace(texts, pattern, spaced[self.name])

    def split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Return the tokens of texts [n]; a line break is `<eos>` if that is a special token."""
        if END in self.special:
            texts = tf.strings.regex_replace(texts, r"\n", f" {END} ")
        texts = tf.strings.regex_replace(texts, SPACES, " ")
        if self.name == "words":
            return tf.strings.split(texts)
        texts = tf.strings.regex_replace(tf.strings.strip(texts), " ", SPACE)
        return (self._split_characters if self.name == "characters" else self._split_subwords)(texts)

    def encode(self, tokens: tf.RaggedTensor) -> tf.RaggedTensor:
        """Return the ids of tokens, int32."""
        return tf.ragged.map_flat_values(lambda token: tf.cast(self.table.lookup(token), tf.int32), tokens)

    def _split_characters(self, texts):
        if END in self.special:
            texts = tf.strings.regex_replace(texts, f"{SPACE}?{END}{SPACE}?", END)
        return tf.strings.split(tf.strings.regex_replace(texts, f"({'|'.join((*self.special, '.'))})", r"\1 "))

    def _split_subwords(self, texts):
        count = tf.reduce_sum(tf.strings.length(texts, "UTF8_CHAR"))
        message = f"a request must have at most {MAX_CHARACTERS} characters."
        texts = assert_in_graph(texts, count <= MAX_CHARACTERS, message, [count])
        texts = tf.where(tf.strings.length(texts) > 0, SPACE + texts, texts)
        characters = tf.strings.unicode_split(texts, "UTF-8")
        rows = characters.value_rowids()
        tokens, lengths = self._longest_tokens(characters.flat_values, rows)
        is_start = _is_reached(lengths)
        tokens, rows = tf.boolean_mask(tokens, is_start), tf.boolean_mask(rows, is_start)
        for token in self.special:
            tokens = tf.where(tokens == SPACE + token, token, tokens)
        return tf.RaggedTensor.from_value_rowids(tokens, rows, characters.nrows())

    def _longest_tokens(self, characters, rows):
        """Return the longest token that begins at each character, else the character, and its length."""
        marked = [SPACE + token for token in self.special]
        tokens, candidates, lengths = characters, characters, tf.ones_like(rows, tf.int32)
        for length in range(2, max(map(len, (*marked, *self.vocabulary))) + 1):
            shift = tf.minimum(length - 1, tf.size(characters))
            is_in_text = rows == tf.concat([rows[shift:], tf.fill([shift], tf.constant(-1, rows.dtype))], 0)
            following = tf.concat([characters[shift:], tf.fill([shift], "")], 0)
            # Beyond the end of its text, a candidate stays empty, and no token is.
            candidates = tf.where(is_in_text, candidates + following, "")
            is_token = self.table.lookup(candidates) != self.unknown
            for token in marked:
                is_token |= candidates == token
            tokens, lengths = tf.where(is_token, candidates, tokens), tf.where(is_token, length, lengths)
        return tokens, lengths


def _is_reached(lengths):
    """Return which positions [n] jumps reach that begin at 0 and go `lengths` ahead."""
    count = tf.size(lengths)
    jumps = tf.concat([tf.range(count) + lengths, [count]], 0)
    reached = tf.concat([[1], tf.zeros([count], tf.int32)], 0)

    # Each step doubles the number of jumps: one text has too many for a loop over them.
    def double(steps, reached, jumps):
        landed = tf.math.unsorted_segment_max(reached, jumps, count + 1)
        return 2 * steps, tf.maximum(reached, landed), tf.gather(jumps, jumps)

    _, reached, _ = tf.while_loop(lambda steps, *_: steps <= count, double, (1, reached, jumps))
    return reached[:count] > 0


def encode_sentences(sentences: tf.Tensor, tokenizer: GraphTokenizer, length: int) -> tf.Tensor:
    """Return the token ids int32 [n, length] of sentences [n], the same as `data.words` makes."""
    lower = tf.strings.lower(sentences, "utf-8")
    if tokenizer.name != "characters":
        # `<pad>` in a sentence is split at its signs, so it does not become padding.
        lower = tf.strings.regex_replace(lower, SIGNS, r" \1 ")
    return tokenizer.encode(tokenizer.split(lower)).to_tensor(0, shape=(None, length))


def vocabulary_tables(
    words: Sequence[str], scratch: Path, unknown: int = 0
) -> tuple[tf.lookup.StaticHashTable, tf.lookup.StaticHashTable]:
    """Return lookup tables word -> id and id -> word over a file that becomes an asset of the SavedModel.

    Args:
        words: In the order of their ids.
        scratch: Folder for the file.
        unknown: Id of every other word.

    Raises:
        InputError: A word is empty, contains white space, or occurs twice.
    """
    invalid = [word for word in words if word.split() != [word]]
    if invalid or len(set(words)) != len(words):
        raise InputError(
            "the words of a vocabulary must be different and without white space. "
            f"Received: {invalid[0] if invalid else 'a word twice'!r}"
        )
    path = str(scratch / "vocabulary.txt")
    files.write_new(path, "".join(f"{word}\n" for word in words).encode())
    index = tf.lookup.TextFileIndex
    line, number = (tf.string, index.WHOLE_LINE), (tf.int64, index.LINE_NUMBER)
    return (
        tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(path, *line, *number), unknown),
        tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(path, *number, *line), ""),
    )


def assert_in_graph(tensor: tf.Tensor, condition: tf.Tensor, message: str, received: Iterable[tf.Tensor]) -> tf.Tensor:
    """Return the tensor; the graph raises an error before it is used if the condition is false.

    Args:
        message: States the allowed values; the error consists of it and of the values of `received`.
        received: Tensors that the condition was computed from.
    """
    with tf.control_dependencies([tf.debugging.Assert(condition, [f"{message} Received:", *received])]):
        return tf.identity(tensor)
