"""1,797 real handwritten digits that ship with the package, for a quick start and as a fallback for image sets.

Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak 1998, UCI, CC BY 4.0 (see embedded/LICENCES.md).
"""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from hetero_tf.base.constraints import Range
from hetero_tf.base.errors import InputError
from hetero_tf.base.npz_reader import read_arrays
from hetero_tf.data.codecs import picture
from hetero_tf.data.dataset import Dataset, Split

FILE = Path(__file__).parent / "embedded" / "digits.npz"
UNUSED = {"the data are always available": {"data.fallback": True}}
# The file is ordered by writer, so the test split has other writers.
TRAIN = 1500


def load(
    data_dir: Path | None, *, size: Annotated[int, Range(low=8, high=256)] = 8, channels: Literal[1, 3] = 1
) -> Dataset:
    """Load the digits, 1,500 for training and 297 for testing, 10 classes.

    Args:
        size: height and width; each pixel is repeated size // 8 times, and a black border fills the rest
        channels: 1, or 3 identical channels
    """
    # As a fallback, the loader receives these options from another loader.
    if not 8 <= size <= 256 or channels not in (1, 3):
        raise InputError(f"`size` must be in 8..256, and `channels` 1 or 3. Received: {size=}, {channels=}")
    data = read_arrays(FILE, ("images", "labels"))
    images = np.repeat(enlarge(data["images"], size)[..., None], channels, axis=-1)
    labels = data["labels"].astype(np.int32)
    splits = Split(images[:TRAIN], labels[:TRAIN]), Split(images[TRAIN:], labels[TRAIN:])
    fields, source = (picture.field(images),), f"UCI handwritten digits (embedded, {size} x {size} x {channels})"
    return Dataset(*splits, fields, 10, source, class_names=tuple("0123456789"))


def enlarge(images: np.ndarray, size: int) -> np.ndarray:
    """Enlarge images `[n, 8, 8]` to `[n, size, size]` by repeating pixels, centred on black."""
    times = size // images.shape[1]
    images = images.repeat(times, axis=1).repeat(times, axis=2)
    before = (size - images.shape[1]) // 2
    border = (before, size - images.shape[1] - before)
    return np.pad(images, ((0, 0), border, border))
