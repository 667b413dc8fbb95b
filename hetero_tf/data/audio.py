"""Loads sound clips of the user from one folder of WAV files per class."""

import contextlib
import functools
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from hetero_tf.base.constraints import Range, TestShare
from hetero_tf.base.errors import InputError
from hetero_tf.base.files import open_file, read_bytes
from hetero_tf.base.formatting import join_items
from hetero_tf.base.hardware import check_memory
from hetero_tf.base.sound_files import HEADER_BYTES, read_header
from hetero_tf.data.codecs import Field, sound
from hetero_tf.data.codecs.sound import SOUNDS, read_clip
from hetero_tf.data.data_files import find
from hetero_tf.data.dataset import Dataset, Split, hold_out
from hetero_tf.data.decoded import decode_blocks, load_cached
from hetero_tf.data.folder import ClassFolder, list_class_folders
from hetero_tf.data.inspection import sample

# Bytes of the largest file, and files whose headers are examined.
LARGEST_FILE, EXAMINED = 2**28, 1000
SampleRate = Annotated[int, Range(low=1000, high=192_000)]
Seconds = Annotated[float, Range(low=0.01, high=60.0)]


def load(
    data_dir: Path | None, *, path: str, rate: SampleRate = 16_000, seconds: Seconds = 1.0, test_share: TestShare = 0.2
) -> Dataset:
    """Load WAV files; the names of their folders are the class names.

    The layout is FOLDER/train/CLASS/*.wav and FOLDER/test/CLASS/*.wav, or FOLDER/CLASS/*.wav, where a share of each
    class becomes the test split. Files have 8, 16, 24 or 32 bits, any rate and any number of channels, which are
    averaged. The first seconds of a file are read; zeros follow the end of a shorter one. Another rate is
    converted by the Fourier transform. Clips are stored with 16 bits.

    Args:
        path: the folder
        rate: samples per second of the clips
        seconds: duration of a clip
        test_share: share of each class for the test split; no effect if the folder has train and one of test, val,
            validation or valid
    """
    folder, count = find(data_dir, path, "path", is_folder=True), round(rate * seconds)
    names, train, test = list_class_folders(folder, SOUNDS)
    read = functools.partial(_read_split, rate=rate, count=count)
    splits = (read(train), read(test)) if test else hold_out(read(train), test_share, str(folder))
    sounds, fields, summary = inspect_sounds(train.files), (Field("audio", sound.Codec(count, rate)),), None
    if sounds is not None:
        low, *_, high = sounds.seconds
        summary = join_items(f"  files: {low:.3g} to {high:.3g} s, ", [f"{each:,} Hz" for each in sounds.rates])
    return Dataset(*splits, fields, len(names), f"audio ({folder})", class_names=names, summary=summary)


def _read_split(part: ClassFolder, rate: int, count: int) -> Split:
    # A split and a copy of it are in memory at once.
    check_memory(str(part.folder), 2 * len(part.files) * count * np.dtype(np.int16).itemsize)
    files = ((path, functools.partial(read_bytes, path, LARGEST_FILE, follow=True)) for path in part.files)
    decode = functools.partial(read_clip, rate=rate, count=count)
    name, source = f"audio-{rate}-{count}", part.folder
    clips = load_cached(name, [], source, ("x",), lambda: {"x": decode_blocks(files, decode)}, part.files)["x"]
    return Split(clips, np.array(part.labels, np.int32))


@dataclass(frozen=True)
class SoundSummary:
    """Durations and rates of sound files.

    Attributes:
        seconds: The shortest duration, the median, the 0.9 quantile and the longest one.
        rates: Samples per second, the most frequent first.
    """

    seconds: tuple[float, float, float, float]
    rates: tuple[int, ...]


def inspect_sounds(paths: Sequence[str]) -> SoundSummary | None:
    """Summarize the headers of WAV files; None if no header is readable."""
    headers = []
    for path in sample(paths, EXAMINED):
        with open_file(path) as file, contextlib.suppress(InputError):
            headers.append(read_header(file.read(HEADER_BYTES), os.fstat(file.fileno()).st_size))
    if not headers:
        return None
    durations = np.array([header.seconds for header in headers])
    shortest, median, long, longest = map(float, np.quantile(durations, (0, 0.5, 0.9, 1)))
    rates = Counter(header.rate for header in headers).most_common()
    return SoundSummary((shortest, median, long, longest), tuple(rate for rate, _ in rates))
