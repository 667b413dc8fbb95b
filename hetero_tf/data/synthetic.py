"""Small generated data sets with learnable structure, for tests and first experiments."""

import functools
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from hetero_tf.base.constraints import Count, Range
from hetero_tf.base.errors import InputError
from hetero_tf.base.seeds import rng
from hetero_tf.base.sound_files import FULL_SCALE
from hetero_tf.data.audio import SampleRate
from hetero_tf.data.codecs import Field, running_text, words
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.fields import array_fields
from hetero_tf.data.targets import LABEL, LABEL_SET, NUMBERS
from hetero_tf.data.tokenizers import END, PADDING, UNKNOWN

# Images per random draw.
PIECE = 2**14
# Pitches of clips in hertz, at most a share of the rate; their loudness and the deviation of their noise, of 1.
PITCHES, MAX_PITCH, LOUDNESS, NOISE = (240.0, 3200.0), 0.4, (0.05, 0.5), 0.1
# Codec of texts and special tokens, by kind.
CODECS = {"sequences": (words.Codec, (PADDING, UNKNOWN)), "text": (running_text.Codec, (UNKNOWN, END))}
UNUSED = {"the data are always available": {"data.fallback": True}}


def load(
    data_dir: Path | None,
    *,
    kind: Literal["audio", "images", "sequences", "series", "table", "text"] = "images",
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
    rate: SampleRate = 8000,
    seed: Annotated[int, Range(low=0)] = 0,
    targets=LABEL,
) -> Dataset:
    """Generate images, clips, sequences, a table or text; equal options give equal data.

    For other tasks than classification, the targets are functions of the images, series or rows: for regression their
    means over parts, one for each of `classes`; for multi_label whether these exceed their median. `data: shapes` has
    maps for segmentation.

    Args:
        kind: images: each class is a noisy pattern; audio: each class is a glide between two pitches; sequences: half
            of the words are typical of the class; series and table: each class is a series or point with noise around
            it; text: each word has few likely successors
        examples: training images, clips, sequences, series or rows of a table
        test_examples: test images, clips, sequences, series or rows of a table
        size: height and width of the images, or number of features of the table
        channels: channels of the images or series
        classes: number of balanced classes of the images, sequences or rows, or of targets
        rows: rows of training text
        test_rows: rows of test text
        length: words per row of text, largest number of words of a sequence, positions of a series, or samples of a
            clip
        vocabulary: vocabulary size, including `<ukn>` and `<eos>`, or `<pad>` and `<ukn>`
        owners: number of natural clients, assigned to the examples in turn; null: no owners
        rate: samples per second of clips
        seed: seed of the patterns and examples
    """
    if kind != "text" and max(classes, owners or 1) > examples:
        raise InputError(f"`classes` and `owners` must be in 1..{examples}. Received: {classes=}, {owners=}")
    shape = {"images": (size, size, channels), "series": (length, channels), "table": (size,)}.get(kind)
    draws = {
        "audio": functools.partial(_draw_clips, length=length, classes=classes, rate=rate),
        "sequences": functools.partial(_draw_sequences, length=length, vocabulary=vocabulary, classes=classes),
        "text": functools.partial(_draw_text, length=length, vocabulary=vocabulary),
    }
    draw = draws.get(kind) or functools.partial(_draw_noisy, shape=shape, classes=classes, is_image=kind == "images")
    if kind == "text":
        examples, test_examples, classes = rows, test_rows, vocabulary
    settings = kind == "text", classes, owners
    train = _draw_split(draw, seed, "synthetic train", examples, *settings)
    test = _draw_split(draw, seed, "synthetic test", test_examples, *settings)
    if kind in CODECS:
        codec, special = CODECS[kind]
        known = (*special, *(f"word{number}" for number in range(2, vocabulary)))
        fields: tuple[Field, ...] = (Field("text", codec(length, known)),)
    else:
        fields = array_fields(kind, train.x, rate=rate if kind == "audio" else None)
    dataset = Dataset(train, test, fields, classes, f"synthetic {kind} (seed {seed})")
    return _with_targets(dataset, targets) if shape else dataset


def _draw_split(draw, seed, purpose, count, is_text, classes, owners):
    patterns, generator = rng(seed, "synthetic patterns"), rng(seed, purpose)
    if is_text:
        return Split(draw(patterns, generator, np.zeros(count)))
    labels = generator.permutation(np.arange(count, dtype=np.int32) % classes)
    x = draw(patterns, generator, labels)
    return Split(x, labels, owners=None if owners is None else np.arange(count, dtype=np.int32) % owners)


def _draw_noisy(patterns, generator, labels, shape, classes, is_image):
    """Return examples `[n, *shape]`, each the pattern of its class with noise."""
    patterns = patterns.uniform(40, 216, (classes, *shape))
    x = np.empty((len(labels), *shape), np.uint8 if is_image else np.float32)
    # Drawing in pieces gives the same numbers as one draw, with less memory.
    for first in range(0, len(labels), PIECE):
        piece_labels = labels[first : first + PIECE]
        noisy = patterns[piece_labels] + generator.normal(0, 30, (len(piece_labels), *shape))
        x[first : first + PIECE] = np.clip(np.round(noisy), 0, 255) if is_image else noisy
    return x


def _with_targets(dataset, targets):
    """Replace the labels of images, series or rows by targets of another form."""
    if targets not in (NUMBERS, LABEL_SET):
        return dataset
    parts, splits = dataset.classes, (dataset.train, dataset.test)
    # The means of groups of the values of an example.
    means = [
        np.stack([x[:, part::parts].mean(1, np.float64) for part in range(parts)], 1).astype(np.float32)
        for x in (split.x.reshape(len(split.x), -1) for split in splits)
    ]
    y = means if targets == NUMBERS else [mean > np.median(means[0], 0) for mean in means]
    train, test = (replace(split, y=each) for split, each in zip(splits, y))
    return replace(dataset, train=train, test=test)


def _draw_clips(patterns, generator, labels, length, classes, rate):
    # First and last pitch of each class in hertz, at equal distances for the ear.
    low, high = np.log(np.minimum(PITCHES, MAX_PITCH * rate))
    pitches, times = np.exp(patterns.uniform(low, high, (classes, 2))), np.arange(length) / rate
    x = np.empty((len(labels), length), np.int16)
    for clip, (first, last) in zip(x, pitches[labels]):
        turns = times * first + times**2 * (last - first) / (2 * length / rate) + generator.uniform()
        wave = generator.uniform(*LOUDNESS) * np.sin(2 * np.pi * turns)
        clip[:] = np.clip(wave + generator.normal(0, NOISE, length), -1, 1) * (FULL_SCALE - 1)
    return x


def _draw_sequences(patterns, generator, labels, length, vocabulary, classes):
    class_words, shape = patterns.integers(2, vocabulary, (classes, 3), dtype=np.int32), (len(labels), length)
    typical = class_words[labels[:, None], generator.integers(0, class_words.shape[1], shape)]
    others = generator.integers(1, vocabulary, shape, dtype=np.int32)
    drawn = np.where(generator.random(shape) < 0.5, typical, others)
    ends = generator.integers(1, length + 1, (len(labels), 1))
    return np.where(np.arange(length) < ends, drawn, 0).astype(np.int32)


def _draw_text(patterns, generator, rows, length, vocabulary):
    successors = patterns.integers(1, vocabulary, (vocabulary, 2), dtype=np.int32)
    x = generator.integers(1, vocabulary, (len(rows), length), dtype=np.int32)
    for position in range(1, length):
        # One word in five is random: otherwise a row enters a short cycle with few words.
        likely = successors[x[:, position - 1], generator.integers(0, 2, len(rows))]
        x[:, position] = np.where(generator.random(len(rows)) < 0.8, likely, x[:, position])
    return x
