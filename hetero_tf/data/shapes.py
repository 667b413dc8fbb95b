"""Generated pictures of discs, squares and triangles, with the class of each pixel."""

from pathlib import Path
from typing import Annotated

import numpy as np

from hetero_tf.base.constraints import Count, Range
from hetero_tf.base.seeds import rng
from hetero_tf.data.codecs import picture
from hetero_tf.data.dataset import Dataset, Split

CLASSES = ("background", "disc", "square", "triangle")
# Colours of the background and of shapes, and the noise of every pixel.
DARK, BRIGHT, NOISE = (0, 110), (140, 256), 20
UNUSED = {"the data are always available": {"data.fallback": True}}


def load(
    data_dir: Path | None,
    *,
    examples: Count = 1000,
    test_examples: Count = 200,
    size: Annotated[int, Range(low=8, high=512)] = 32,
    objects: Annotated[int, Range(low=1, high=100)] = 3,
    seed: Annotated[int, Range(low=0)] = 0,
) -> Dataset:
    """Generate colour pictures of shapes on noise for the task segmentation; equal options give equal data.

    The classes are background, disc, square and triangle. A later shape covers earlier ones.

    Args:
        examples: training pictures
        test_examples: test pictures
        size: height and width
        objects: largest number of shapes in a picture; the smallest is 1
        seed: seed of the pictures
    """
    train = _draw_split(rng(seed, "shapes train"), examples, size, objects)
    test = _draw_split(rng(seed, "shapes test"), test_examples, size, objects)
    fields = (picture.field(train.x),)
    return Dataset(train, test, fields, len(CLASSES), f"generated shapes (seed {seed})", class_names=CLASSES)


def _draw_split(generator, count, size, objects):
    x, y = np.empty((count, size, size, 3), np.uint8), np.zeros((count, size, size), np.int32)
    for image, label_map in zip(x, y):
        pixels = np.broadcast_to(generator.integers(*DARK, 3), image.shape).astype(np.float64)
        for _ in range(generator.integers(1, objects + 1)):
            label = generator.integers(1, len(CLASSES))
            area = _area(CLASSES[label], generator.uniform(0, size, 2), generator.uniform(0.1, 0.25) * size, size)
            label_map[area], pixels[area] = label, generator.integers(*BRIGHT, 3)
        image[:] = np.clip(np.round(pixels + generator.normal(0, NOISE, image.shape)), 0, 255)
    return Split(x, y)


def _area(shape, centre, radius, size):
    """Return the pixels of a shape, bool `[size, size]`; its height and width are about two radii."""
    down, right = np.ogrid[:size, :size]
    down, right = down + 0.5 - centre[0], right + 0.5 - centre[1]
    if shape == "disc":
        return down**2 + right**2 <= radius**2
    if shape == "square":
        return (abs(down) <= radius) & (abs(right) <= radius)
    # A triangle with its tip above: half as wide as the distance from the tip.
    return (down <= radius) & (2 * abs(right) <= down + radius)
