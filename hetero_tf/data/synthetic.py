"""Small generated data sets with learnable structure, for tests and first experiments."""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from hetero_tf.base.constraints import Count, Range
from hetero_tf.base.seeds import rng
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.tokenizers import END, PADDING, UNKNOWN
from hetero_tf.data.words import check_count

# Images per random draw.
PIECE = 2**14
UNUSED = {"the data are always available": {"data.fallback": True}}


def load(
    data_dir: Path | None,
    *,
    kind: Literal["images", "sequences", "text"] = "images",
    examples: Count = 200,
    test_examples: Count = 100,
    size: Annotated[int, Range(low=1, high=512)] = 8,
    channels: Annotated[int, Range(low=1, high=16)] = 1,
    classes: Count = 10,
    rows: Count = 10,
    test_rows: Count = 2,
    length: Count = 200,
    vocabulary: Annotated[int, Range(low=4, high=10_000_000)] = 50,
    owners: Count | None = None,
    seed: Annotated[int, Range(low=0)] = 0,
) -> Dataset:
    """Generates images, sequences or text; equal options give equal data.

    Args:
        kind: images: each class is a noisy pattern; sequences: half of the words are typical of the class; text: each
            word has few likely successors
        examples: training images or sequences
        test_examples: test images or sequences
        size: height and width of the images
        channels: channels of the images
        classes: number of balanced classes of the images or sequences
        rows: rows of training text
        test_rows: rows of test text
        length: words per row of text, or largest number of words of a sequence
        vocabulary: vocabulary size, including `<ukn>` and `<eos>`, or `<pad>` and `<ukn>`
        owners: number of natural clients, assigned to the examples in turn; null: no owners
        seed: seed of the patterns and examples
    """
    if kind != "text":
        check_count("classes", classes, 1, examples)
        if owners is not None:
            check_count("owners", owners, 1, examples)
    if kind == "images":
        return _images(examples, test_examples, (size, size, channels), classes, owners, seed)
    if kind == "sequences":
        return _sequences(examples, test_examples, length, vocabulary, classes, owners, seed)
    return _text(rows, test_rows, length, vocabulary, seed)


def _images(examples, test_examples, shape, classes, owners, seed):
    patterns = rng(seed, "synthetic patterns").uniform(40, 216, (classes, *shape))

    def make_split(purpose, count):
        generator = rng(seed, purpose)
        labels = generator.permutation(np.arange(count, dtype=np.int32) % classes)
        x = np.empty((count, *shape), np.uint8)
        # Drawing in pieces gives the same numbers as one draw, with less memory.
        for first in range(0, count, PIECE):
            piece_labels = labels[first : first + PIECE]
            noisy = patterns[piece_labels] + generator.normal(0, 30, (len(piece_labels), *shape))
            x[first : first + PIECE] = np.clip(np.round(noisy), 0, 255)
        example_owners = None if owners is None else np.arange(count, dtype=np.int32) % owners
        return Split(x, labels, owners=example_owners)

    return Dataset(
        make_split("synthetic train", examples),
        make_split("synthetic test", test_examples),
        classes,
        f"synthetic images (seed {seed})",
    )


def _sequences(examples, test_examples, length, vocabulary, classes, owners, seed):
    class_words = rng(seed, "synthetic patterns").integers(2, vocabulary, (classes, 3), dtype=np.int32)

    def make_split(purpose, count):
        generator = rng(seed, purpose)
        y = generator.permutation(np.arange(count, dtype=np.int32) % classes)
        typical = class_words[y[:, None], generator.integers(0, class_words.shape[1], (count, length))]
        others = generator.integers(1, vocabulary, (count, length), dtype=np.int32)
        words = np.where(generator.random((count, length)) < 0.5, typical, others)
        ends = generator.integers(1, length + 1, (count, 1))
        example_owners = None if owners is None else np.arange(count, dtype=np.int32) % owners
        return Split(np.where(np.arange(length) < ends, words, 0).astype(np.int32), y, owners=example_owners)

    return Dataset(
        make_split("synthetic train", examples),
        make_split("synthetic test", test_examples),
        classes,
        f"synthetic sequences (seed {seed})",
        vocabulary=(PADDING, UNKNOWN, *(f"word{number}" for number in range(2, vocabulary))),
    )


def _text(rows, test_rows, length, vocabulary, seed):
    successors = rng(seed, "synthetic patterns").integers(1, vocabulary, (vocabulary, 2), dtype=np.int32)

    def make_split(purpose, count):
        generator = rng(seed, purpose)
        x = generator.integers(1, vocabulary, (count, length), dtype=np.int32)
        for position in range(1, length):
            # One word in five is random: otherwise a row enters a short cycle with few words.
            likely = successors[x[:, position - 1], generator.integers(0, 2, count)]
            x[:, position] = np.where(generator.random(count) < 0.8, likely, x[:, position])
        return Split(x)

    words = (UNKNOWN, END, *(f"word{number}" for number in range(2, vocabulary)))
    return Dataset(
        make_split("synthetic train", rows),
        make_split("synthetic test", test_rows),
        vocabulary,
        f"synthetic text (seed {seed})",
        vocabulary=words,
    )
