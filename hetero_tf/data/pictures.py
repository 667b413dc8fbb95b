"""Picture files of mixed sizes as arrays of one size, decoded as an export decodes what it is asked about."""

import itertools
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from hetero_tf.base.errors import BadInput, short
from hetero_tf.base.hardware import check_memory, cores

# How the files that are read may end.
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp")
LARGEST_FILE = 2**27
# Pictures that are decoded by one call.
AT_ONCE = 64


def decode_pictures(
    source: str, pictures: Iterable[tuple[str, Callable[[], bytes]]], count: int, size: int, channels: int
) -> np.ndarray:
    """Returns pictures as uint8 `[count, size, size, channels]`: upright by their Exif entry, resized by area means.

    Args:
        source: What the pictures are, for the refusal of too many.
        pictures: `(name, () -> bytes of a PNG, JPEG or BMP file)` of each.
        count: How many there are.
        size: Height and width.
        channels: 1 (grey) or 3.

    Raises:
        BadInput: A picture is damaged, translucent, too large or of another format.
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
        yield _several([name for name, _ in chosen], [read() for _, read in chosen], decode)


def _decoder(shape):
    """`contents -> float32 [n, *shape]`, as one graph: a call for each picture takes three times as long."""
    import tensorflow as tf

    from hetero_tf.base.pictures import decode

    def several(contents):
        spec = tf.TensorSpec(shape, tf.float32)
        return tf.map_fn(
            lambda data: decode(data, shape), contents, parallel_iterations=cores(), fn_output_signature=spec
        )

    traced = tf.function(several, input_signature=[tf.TensorSpec((None,), tf.string)])
    return lambda contents: traced(tf.constant(contents)).numpy()


def _several(names, contents, decode):
    """uint8 `[n, *shape]`; the first picture that cannot be decoded is named."""
    import tensorflow as tf

    from hetero_tf.base.pictures import LARGEST_PICTURE

    try:
        pixels = decode(contents)
    except tf.errors.InvalidArgumentError as error:
        if len(names) > 1:
            return np.concatenate([_several([name], [content], decode) for name, content in zip(names, contents)])
        raise BadInput(f"{names[0]}: is a damaged picture: {short(error.message)}") from error
    for name, values in zip(names, pixels):
        if np.isnan(values).any():
            raise BadInput(
                f"{name}: must be a PNG, JPEG or BMP picture without translucent parts, of at most "
                f"{LARGEST_PICTURE:,} pixels"
            )
    return np.round(pixels * 255).astype(np.uint8)
