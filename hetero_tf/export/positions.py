"""Export of models that predict a word at each position of a text: hidden words, or the next ones."""

from collections.abc import Callable, Collection
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import seeds
from hetero_tf.data.graph_tokenizer import NOUNS, GraphTokenizer, assert_in_graph, vocabulary_tables
from hetero_tf.data.inputs import all_labels
from hetero_tf.data.targets import MASK, TOP
from hetero_tf.data.tokenizers import END
from hetero_tf.export.task import ExportTask, max_words, pad_if_empty
from hetero_tf.methods.losses.cross_entropy import softmax_cross_entropy
from hetero_tf.run.learning_process import LearningProcess


class NextWordTask(ExportTask):
    """Export of a model whose logits at a position are those of the next word, given the words up to the position.

    A row with an unknown id and a text without a word get NaN.

    Attributes:
        KIND: Kind of the input in `export.json`.
        ID_SIGNATURES: Signatures for `token_ids` int32 [n, length]; the last one is portable.
        segment: Number of words that the model reads at a time.
        special: Tokens that a text may contain; `<eos>`, if the vocabulary has it, ends a line.
    """

    KIND = "next_word"
    ID_SIGNATURES: tuple[str, ...] = ("serving_default",)
    CHECKED_EXAMPLES = 4

    def __init__(self, process: LearningProcess, model: keras.Model):
        super().__init__(process, model)
        self.classes = self.num_ids = process.dataset.classes
        self.segment = self.segment_of(process.dataset.train.x)
        self.special: tuple[str, ...] = (END,) if END in (self.codec.vocabulary or ()) else ()

    @property
    def portable_signature(self) -> str:
        return self.ID_SIGNATURES[-1]

    def endpoints(self, scratch: Path) -> tuple[dict, tuple]:
        specs = [tf.TensorSpec((None, None), tf.int32, name="token_ids")]
        signatures: dict = {name: (getattr(self, name), specs) for name in self.ID_SIGNATURES}
        vocabulary = self.codec.vocabulary
        if vocabulary is None:
            return signatures, ()
        numbers, names = vocabulary_tables(vocabulary, scratch)
        tokenizer = GraphTokenizer(self.codec.tokenizer, numbers, vocabulary, 0, self.special)

        def serve_text(text):
            return self.serve_texts(tf.ensure_shape(text, (None,)), tokenizer, names)

        signatures["serve_text"] = (serve_text, [tf.TensorSpec((None,), tf.string, name="text")])
        return signatures, (numbers, names)

    @property
    def max_batch_size(self) -> None:
        """None: padding of texts to the longest one would change the outputs."""
        return None

    @property
    def limits(self) -> dict[str, int]:
        return {"words": max_words(self.classes)}

    def segment_of(self, x: np.ndarray) -> int:
        """Return the number of words of a row that the model reads at a time."""
        # A converter asks for it while it traces a graph.
        with tf.init_scope():
            return int(self.process.input.length(x, 0))

    def request(self, x: np.ndarray, signature: str = "serving_default") -> dict[str, np.ndarray]:
        return {"token_ids": self.model_inputs(x)}

    def model_inputs(self, x: np.ndarray) -> np.ndarray:
        """Return the first segment of stored rows."""
        return x[:, : self.segment_of(x)]

    def serving_default(self, token_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return {"logits": float32 [n, length, words]} for rows of any length."""
        return self._respond(token_ids, self.logits)

    def _respond(self, token_ids, logits):
        """Return the logits of rows of a request; a row with an unknown id gets NaN."""
        rows = tf.ensure_shape(token_ids, (None, None))
        rows = check_words(rows, tf.shape(rows)[0], tf.shape(rows)[1], self.classes)
        is_known = (rows >= 0) & (rows < self.num_ids)
        values = logits(pad_if_empty(tf.where(is_known, rows, 0)))[: tf.shape(rows)[0]]
        return {"logits": tf.where(tf.reduce_all(is_known, 1)[:, None, None], values, np.nan)}

    def logits(self, ids: tf.Tensor) -> tf.Tensor:
        """Return logits float32 [n, length, words] of at least one row of known ids."""
        return tf.cast(self.model(ids, training=False), tf.float32)

    def serve_texts(
        self, texts: tf.Tensor, tokenizer: GraphTokenizer, names: tf.lookup.StaticHashTable
    ) -> dict[str, tf.Tensor]:
        """Return "next_words" and "next_probabilities" [n, 5] of texts [n], most likely first, and "lengths" [n]."""
        words, longest = split_words(texts, tokenizer, self.classes)
        lengths = tf.cast(words.row_lengths(), tf.int32)
        ids = tokenizer.encode(words).to_tensor(0, shape=tf.stack([words.nrows(), longest]))
        # The model is causal, so padding after the last word has no effect on its logits.
        logits = self.logits(pad_if_empty(ids))[: tf.shape(ids)[0]]
        logits = tf.gather(logits, tf.maximum(lengths - 1, 0), axis=1, batch_dims=1)
        probabilities, best = tf.math.top_k(tf.nn.softmax(logits), min(TOP, self.classes))
        has_words = lengths[:, None] > 0
        return {
            "lengths": lengths,
            "next_words": tf.where(has_words, names.lookup(tf.cast(best, tf.int64)), ""),
            "next_probabilities": tf.where(has_words, probabilities, np.nan),
        }

    def measure(self, predict: Callable, signature: str) -> dict[str, float]:
        """Measure an exported model on the whole test set: "loss" and "perplexity".

        Masks are those of `global_metrics.build_text_metrics`, and perplexity is the mean over batches, as there.
        """
        process, test = self.process, self.process.dataset.test
        key, size = seeds.seed32(process.recipe.seed, "test masks"), process.recipe.evaluate.batch_size
        source, x = process.input, tf.constant(test.x)
        totals, count = np.zeros(2), 0
        for row in range(0, len(test.x), size):
            for start in source.starts(test.x):
                rows = tf.range(row, min(row + size, len(test.x)))
                noise = tf.constant([key, row, start])
                inputs, targets = source.batch(x, None, rows, start, noise, all_labels(self.classes), training=False)
                loss = _mean_loss(predict, inputs.numpy(), targets, self.classes)
                totals += len(rows) * np.array([loss, np.exp(loss)])
                count += len(rows)
        loss, perplexity = totals / count
        return {"loss": float(loss), "perplexity": float(perplexity)}

    @property
    def input_spec(self) -> dict:
        tokens = {"words": self.classes, "segment": self.segment, "tokenizer": self.codec.tokenizer}
        return {"kind": self.KIND, "fields": super().input_spec["fields"], **tokens}

    def notes(self, signatures: Collection[str]) -> list[str]:
        return [
            f"Token ids are 0..{self.classes - 1}. A row with another id gets NaN. The logits at a position are "
            "those of the next token.",
            f"Clients trained on {self.segment} tokens at a time; longer rows are accepted and processed in one pass.",
            *self.text_notes(signatures, "beginnings of sentences", ""),
        ]

    def text_notes(self, signatures: Collection[str], texts: str, special: str) -> list[str]:
        """Return the sentences on the signature for texts, if there is one."""
        nouns = f"{NOUNS[self.codec.tokenizer]}; those outside the vocabulary become `<ukn>`"
        sentence = f"`serve_text` takes {texts} and splits them into {nouns}.{special} A text without a word gets NaN."
        return [sentence] if "serve_text" in signatures else []


class MaskedTextTask(NextWordTask):
    """Export of a masked language model; the id of the mask token is the number of words.

    Rows longer than the model's segment are split into segments as in training, and each segment is computed
    independently.
    """

    KIND = "text"
    ID_SIGNATURES = ("serving_default", "serve_segment")

    def __init__(self, process: LearningProcess, model: keras.Model):
        super().__init__(process, model)
        self.num_ids, self.special = self.classes + 1, (*self.special, MASK)

    def serve_segment(self, token_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return logits for rows of at most one segment."""
        return self._respond(token_ids, super().logits)

    def logits(self, ids: tf.Tensor) -> tf.Tensor:
        shape = tf.shape(ids)
        full_length = shape[1] // self.segment * self.segment
        full_segments = self.model(tf.reshape(ids[:, :full_length], [-1, self.segment]), training=False)
        # The rest is a separate batch, possibly without columns: padding it would change the logits.
        rest = self.model(ids[:, full_length:], training=False)
        full_segments = tf.reshape(full_segments, [shape[0], full_length, self.classes])
        return tf.cast(tf.concat([full_segments, rest], 1), tf.float32)

    def serve_texts(
        self, texts: tf.Tensor, tokenizer: GraphTokenizer, names: tf.lookup.StaticHashTable
    ) -> dict[str, tf.Tensor]:
        """Return the most likely words of each position of texts [n].

        Returns:
            "token_ids", "is_mask", "topk_tokens" and "topk_probabilities" [n, longest(, 5)], most likely first, and
            "lengths" [n]. After the last word they are padded with -1, False, "" and 0. The probabilities of a text
            without a word are NaN.
        """
        ids, is_mask, lengths = encode_masked(texts, tokenizer, self.classes)
        longest, top_count = tf.shape(ids)[1], min(TOP, self.classes)

        def fill(row):
            # Attention has no mask and would see the padding, so each row is computed separately.
            words, length = row
            best = tf.math.top_k(tf.nn.softmax(self.logits(words[None, :length])[0]), top_count)
            padding = [[0, longest - length], [0, 0]]
            return tf.pad(best.indices, padding, constant_values=-1), tf.pad(best.values, padding)

        best, probabilities = tf.map_fn(
            fill,
            # tf.map_fn fails on an empty batch, so append a row without words.
            (tf.pad(ids, [[0, 1], [0, 0]]), tf.pad(lengths, [[0, 1]])),
            fn_output_signature=tuple(tf.TensorSpec((None, top_count), dtype) for dtype in (tf.int32, tf.float32)),
        )
        return {
            "token_ids": ids,
            "is_mask": is_mask,
            "lengths": lengths,
            "topk_tokens": names.lookup(tf.cast(best[:-1], tf.int64)),
            "topk_probabilities": tf.where(lengths[:, None, None] > 0, probabilities[:-1], np.nan),
        }

    @property
    def input_spec(self) -> dict:
        return {**super().input_spec, "mask_token_id": self.classes}

    def notes(self, signatures: Collection[str]) -> list[str]:
        return [
            f"Token ids are 0..{self.classes - 1}, and {self.classes} for a masked word. A row with another id gets "
            "NaN.",
            f"Rows longer than {self.segment} are split into segments as in training; `serve_segment` takes one "
            "segment per row.",
            *self.text_notes(signatures, "sentences", f" `{MASK}` is a masked token."),
        ]


def _mean_loss(predict, inputs, targets, classes):
    """Return the mean cross-entropy over all positions, in requests within the limit of the model."""
    rows = max(max_words(classes) // inputs.shape[1], 1)
    losses = [
        softmax_cross_entropy(
            tf.constant(predict(token_ids=inputs[first : first + rows])["logits"]), targets[first : first + rows]
        )
        for first in range(0, len(inputs), rows)
    ]
    return float(np.mean(np.concatenate(losses), dtype=np.float64))


def check_words(values: tf.Tensor, rows: tf.Tensor, longest: tf.Tensor, classes: int) -> tf.Tensor:
    """Return the values; the graph raises an error if their rows, padded to the longest, have too many words."""
    limit, received = max_words(classes), tf.stack([rows, longest])
    message = f"a request must have at most {limit} words, including the padding to its longest text."
    words = tf.reduce_prod(tf.cast(received, tf.int64))
    return assert_in_graph(values, words <= limit, message, ["texts and words of the longest", received])


def split_words(texts: tf.Tensor, tokenizer: GraphTokenizer, classes: int) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Return the words of texts [n], within the limit of a request, and the length of the longest text or 1."""
    words = tokenizer.split(texts)
    longest = tf.reduce_max(tf.concat([words.row_lengths(), [1]], 0))
    return words.with_flat_values(check_words(words.flat_values, words.nrows(), longest, classes)), longest


def encode_masked(texts: tf.Tensor, tokenizer: GraphTokenizer, mask: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return (ids int32 [n, longest], is_mask, lengths [n]) of texts [n], padded with -1 to at least one position.

    Args:
        tokenizer: Splits the texts as in training, but adds no `<eos>` to the end of a text.
        mask: Id of `<mask>`, which is the number of classes.
    """
    # `<mask>` without spaces around it, or in capitals, would silently become an unknown word.
    words, longest = split_words(tokenizer.isolate(texts, f"(?i){MASK}", MASK), tokenizer, mask)
    is_mask = tf.ragged.map_flat_values(tf.equal, words, MASK)
    ids = tf.ragged.map_flat_values(tf.where, is_mask, mask, tokenizer.encode(words))
    lengths = tf.cast(words.row_lengths(), tf.int32)
    shape = tf.stack([words.nrows(), longest])
    return ids.to_tensor(-1, shape=shape), is_mask.to_tensor(False, shape=shape), lengths
