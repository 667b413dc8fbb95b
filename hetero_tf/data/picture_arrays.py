"""Decodes picture files of mixed sizes into arrays of one size, with the preprocessing of exports."""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.hardware import check_memory, core_count
from hetero_tf.base.picture_files import RARE, describe_file_fault

# Supported file extensions.
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
LARGEST_FILE = 2**27
# Pictures per call of the decoder.
AT_ONCE = 64


def decode_pictures(
    source: str, pictures: Iterable[tuple[str, Callable[[], bytes]]], count: int, size: int, channels: int
) -> np.ndarray:
    """Decodes pictures to uint8 `[count, size, size, channels]`, rotated by Exif and resized by area averaging.

    Args:
        source: Description of the pictures, for the memory check.
        pictures: `(name, () -> bytes of a PNG, JPEG, BMP, GIF or WebP file)` for each picture.
        count: Number of pictures.
        size: Height and width.
        channels: 1 (grey) or 3.

    Raises:
        InputError: A picture is damaged, translucent, too large or has another format.
        MemoryProblem: The pictures do not fit into memory.
    """
    check_memory(source, 2 * count * size**2 * channels)
    pixels, first = np.empty((count, size, size, channels), np.uint8), 0
    for block in decode_blocks(pictures, size, channels):
        pixels[first : first + len(block)] = block
        first += len(block)
    return pixels


def decode_blocks(
    pictures: Iterable[tuple[str, Callable[[], bytes]]], size: int, channels: int
) -> Iterator[np.ndarray]:
    """Yields the rows of `decode_pictures` in blocks of `AT_ONCE` pictures."""
    decode, pictures = _decoder((size, size, channels)), iter(pictures)
    while batch := list(itertools.islice(pictures, AT_ONCE)):
        yield _decode_block([name for name, _ in batch], [_check_content(name, read()) for name, read in batch], decode)


def _check_content(name, content):
    """Checks the bytes of a picture first, because TensorFlow's decoders print warnings about truncated files."""
    fault = describe_file_fault(content)
    if fault is not None:
        raise InputError(f"{name}: {fault}")
    return content


def _decoder(shape):
    """Returns `contents -> float32 [n, *shape]` as one graph: one call per picture would take three times as long."""
    import tensorflow as tf

    from hetero_tf.base.picture_decoding import decode

    @functools.cache
    def graph(formats):
        def decode_batch(contents):
            spec = tf.TensorSpec(shape, tf.float32)
            return tf.map_fn(
                lambda data: decode(data, shape, formats),
                contents,
                parallel_iterations=core_count(),
                fn_output_signature=spec,
            )

        return tf.function(decode_batch, input_signature=[tf.TensorSpec((None,), tf.string)])

    def decode_all(contents):
        formats = tuple(magic for magic in RARE if any(content.startswith(magic) for content in contents))
        return graph(formats)(tf.constant(contents)).numpy()

    return decode_all


def _decode_block(names, contents, decode):
    """Decodes pictures to uint8 `[n, *shape]`; the error names the first picture that cannot be decoded."""
    import tensorflow as tf

    from hetero_tf.base.picture_decoding import describe_fault

    try:
        pixels = decode(contents)
    except tf.errors.InvalidArgumentError as error:
        if len(names) > 1:
            return np.concatenate([_decode_block([name], [content], decode) for name, content in zip(names, contents)])
        raise InputError(f"{names[0]}: {describe_fault(contents[0])}") from error
    for name, content, values in zip(names, contents, pixels):
        if np.isnan(values).any():
            raise InputError(f"{name}: {describe_fault(content)}")
    return np.round(pixels * 255).astype(np.uint8)
