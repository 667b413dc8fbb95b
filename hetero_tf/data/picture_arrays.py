"""Picture files of mixed sizes as arrays of one size, decoded as an export decodes what it is asked about."""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.hardware import check_memory, cores
from hetero_tf.base.picture_files import RARE, fault_of_file

# How the files that are read may end.
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
LARGEST_FILE = 2**27
# Pictures that are decoded by one call.
AT_ONCE = 64


def decode_pictures(
    source: str, pictures: Iterable[tuple[str, Callable[[], bytes]]], count: int, size: int, channels: int
) -> np.ndarray:
    """Returns pictures as uint8 `[count, size, size, channels]`: upright by their Exif entry, resized by area means.

    Args:
        source: What the pictures are, for the refusal of too many.
        pictures: `(name, () -> bytes of a PNG, JPEG, BMP, GIF or WebP file)` of each.
        count: How many there are.
        size: Height and width.
        channels: 1 (grey) or 3.

    Raises:
        InputError: A picture is damaged, translucent, too large or of another format.
        MemoryProblem: They do not fit into memory.
    """
    check_memory(source, 2 * count * size**2 * channels)
    found, first = np.empty((count, size, size, channels), np.uint8), 0
    for block in decoded_blocks(pictures, size, channels):
        found[first : first + len(block)] = block
        first += len(block)
    return found


def decoded_blocks(
    pictures: Iterable[tuple[str, Callable[[], bytes]]], size: int, channels: int
) -> Iterator[np.ndarray]:
    """Yields what `decode_pictures` returns, `AT_ONCE` pictures at a time."""
    decode, pictures = _decoder((size, size, channels)), iter(pictures)
    while chosen := list(itertools.islice(pictures, AT_ONCE)):
        yield _several([name for name, _ in chosen], [_whole(name, read()) for name, read in chosen], decode)


def _whole(name, content):
    """The bytes of a picture; TensorFlow's decoders print warnings of their own about files that are cut off."""
    fault = fault_of_file(content)
    if fault is not None:
        raise InputError(f"{name}: {fault}")
    return content


def _decoder(shape):
    """`contents -> float32 [n, *shape]`, as one graph: a call for each picture takes three times as long."""
    import tensorflow as tf

    from hetero_tf.base.picture_decoding import decode

    @functools.cache
    def graph(formats):
        def several(contents):
            spec = tf.TensorSpec(shape, tf.float32)
            return tf.map_fn(
                lambda data: decode(data, shape, formats),
                contents,
                parallel_iterations=cores(),
                fn_output_signature=spec,
            )

        return tf.function(several, input_signature=[tf.TensorSpec((None,), tf.string)])

    def decode_all(contents):
        formats = tuple(magic for magic in RARE if any(content.startswith(magic) for content in contents))
        return graph(formats)(tf.constant(contents)).numpy()

    return decode_all


def _several(names, contents, decode):
    """uint8 `[n, *shape]`; the first picture that cannot be decoded is named."""
    import tensorflow as tf

    from hetero_tf.base.picture_decoding import fault_of

    try:
        pixels = decode(contents)
    except tf.errors.InvalidArgumentError as error:
        if len(names) > 1:
            return np.concatenate([_several([name], [content], decode) for name, content in zip(names, contents)])
        raise InputError(f"{names[0]}: {fault_of(contents[0])}") from error
    for name, content, values in zip(names, contents, pixels):
        if np.isnan(values).any():
            raise InputError(f"{name}: {fault_of(content)}")
    return np.round(pixels * 255).astype(np.uint8)
