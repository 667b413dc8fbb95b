"""Tokenizers in a graph: the tokens that `data.tokenizers` gives, for the texts of a request."""

from dataclasses import dataclass

import tensorflow as tf

from hetero_tf.data.tokenizers import END, SPACE

# The white space of Python's `str.split`, which training used; `tf.strings.split` knows ASCII only.
SPACES = r"[\p{Z}\t\n\x{b}\f\r\x{1c}-\x{1f}\x{85}]+"
# The tokens of a text, by tokenizer, for MODEL_CARD.md.
NOUNS = {"words": "words at white space", "characters": f"characters, with `{SPACE}` for white space"}


@dataclass(frozen=True)
class GraphTokenizer:
    """Splits texts of a request into the tokens of a vocabulary.

    Attributes:
        name: See `tokenizers.tokenize`.
        table: Lookup table token -> id.
        special: Tokens such as `<eos>`, which are never split into characters.
    """

    name: str
    table: tf.lookup.StaticHashTable
    special: tuple[str, ...] = ()

    def isolate(self, texts: tf.Tensor, pattern: str, token: str) -> tf.Tensor:
        """Return texts in which a special token replaces each match of a pattern."""
        return tf.strings.regex_replace(texts, pattern, f" {token} " if self.name == "words" else token)

    def split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Return the tokens of texts [n]; a line break is `<eos>` if that is a special token."""
        if END in self.special:
            texts = tf.strings.regex_replace(texts, r"\n", f" {END} ")
        texts = tf.strings.regex_replace(texts, SPACES, " ")
        if self.name == "characters":
            texts = tf.strings.regex_replace(tf.strings.strip(texts), " ", SPACE)
            if END in self.special:
                texts = tf.strings.regex_replace(texts, f"{SPACE}?{END}{SPACE}?", END)
            texts = tf.strings.regex_replace(texts, f"({'|'.join((*self.special, '.'))})", r"\1 ")
        return tf.strings.split(texts)

    def encode(self, tokens: tf.RaggedTensor) -> tf.RaggedTensor:
        """Return the ids of tokens, int32."""
        return tf.ragged.map_flat_values(lambda token: tf.cast(self.table.lookup(token), tf.int32), tokens)
