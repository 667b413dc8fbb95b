"""The bytes of picture files as pixels of a model's own size, inside a graph."""

import numpy as np
import tensorflow as tf

# Pixels of a picture, such as 8,192 x 4,096; they take 96 MiB once decoded.
LARGEST_PICTURE = 2**25
# ITU-R BT.601; adds up to 1, so that a grey picture keeps its values.
LUMA = (0.299, 0.587, 0.114)
# How the files begin.
PNG, JPEG, BMP = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"BM"
# Bytes of a JPEG among which its Exif directory is looked for.
EXIF_WITHIN = 2**16


def decode(data: tf.Tensor, shape: tuple[int, int, int]) -> tf.Tensor:
    """The bytes of a picture as float32 pixels in 0..1 of a fixed shape, upright and resized by area means.

    NaN where it is no PNG, JPEG or BMP, has more than `LARGEST_PICTURE` pixels, or is translucent somewhere: what is
    behind it is not known. A file that is damaged behind its header is an error.

    Args:
        data: Scalar string. A GIF is not decoded: a few bytes may make gigabytes of frames.
        shape: (height, width, channels), 1 or 3 channels.
    """
    size = picture_size(data)

    def pixels():
        # Zero asks for the file's own channels: BMP files refuse to be converted while they are decoded.
        found = tf.io.decode_image(data, channels=0, expand_animations=False)
        depth = tf.shape(found)[-1]
        opaque = tf.reduce_all((found[..., -1] == 255) | (depth % 2 == 1))
        turn = orientation(data)
        lies = tf.where(turn > 4, shape[1::-1], shape[:2])
        # Resized before anything else, since the float32 of a large picture take four times the memory.
        # The mean over the area of each pixel: of all methods it costs a model the least (benchmarks/resizing.py).
        found = upright(tf.image.resize(found, lies, "area") / 255, turn)
        found = tf.cond(depth < 3, lambda: tf.repeat(found[..., :1], 3, axis=-1), lambda: found[..., :3])
        return tf.where(opaque, found, np.nan)

    fits = (size[0] > 0) & (tf.reduce_prod(size) <= LARGEST_PICTURE)
    found = tf.cond(fits, pixels, lambda: tf.fill([*shape[:2], 3], np.float32(np.nan)))
    if shape[-1] == 1:
        found = tf.reduce_sum(found * tf.constant(LUMA), -1, keepdims=True)
    return tf.ensure_shape(found, shape)


def orientation(data: tf.Tensor) -> tf.Tensor:
    """How the camera was held: the number 1..8 of a JPEG's Exif entry 0x0112, 1 where there is none.

    Args:
        data: Scalar string.

    Reference: Exif 2.32, section 4.6.4 (tag Orientation); TIFF 6.0 for the entries of a directory.
    """
    head, found = tf.strings.substr(data, 0, EXIF_WITHIN), tf.constant(1)
    for number in range(2, 9):
        # One value of two bytes, in the order of the bytes that the directory begins with; \\C is any byte.
        big = rf"MM\C*\x01\x12\x00\x03\x00\x00\x00\x01\x00\x0{number}"
        little = rf"II\C*\x12\x01\x03\x00\x01\x00\x00\x00\x0{number}\x00"
        for entry in (big, little):
            matches = tf.strings.regex_full_match(head, rf"\C*Exif\x00\x00{entry}\C*")
            found = tf.where(matches, number, found)
    return tf.where(_starts_with(data, JPEG), found, 1)


def upright(picture: tf.Tensor, turn: tf.Tensor) -> tf.Tensor:
    """Returns a picture [height, width, channels] as it was seen; `turn`: as `orientation` gives it."""
    return tf.switch_case(
        turn - 1,
        [
            lambda: picture,
            lambda: picture[:, ::-1],
            lambda: picture[::-1, ::-1],
            lambda: picture[::-1],
            lambda: tf.transpose(picture, (1, 0, 2)),
            lambda: tf.transpose(picture[::-1], (1, 0, 2)),
            lambda: tf.transpose(picture[::-1, ::-1], (1, 0, 2)),
            lambda: tf.transpose(picture[:, ::-1], (1, 0, 2)),
        ],
    )


def picture_size(data: tf.Tensor) -> tf.Tensor:
    """Width and height of a picture as its header tells them, int64 [2]; 0 and 0 where it is no PNG, JPEG or BMP.

    Args:
        data: Scalar string; nothing is decoded for it.
    """
    # Filled up, since the error of a part beyond the end quotes bytes that clients may not be able to decode.
    head = tf.strings.join([tf.strings.substr(data, 0, 32), tf.constant(bytes(32))])

    def pair(place, little_endian):
        read = tf.io.decode_raw(tf.strings.substr(head, place, 8), tf.int32, little_endian=little_endian)
        return tf.abs(tf.cast(tf.ensure_shape(read, [2]), tf.int64))

    kinds = [
        (_starts_with(head, PNG), lambda: pair(16, False)),
        (_starts_with(head, JPEG), lambda: tf.image.extract_jpeg_shape(data, tf.int64)[1::-1]),
        (_starts_with(head, BMP), lambda: pair(18, True)),
    ]
    return tf.case(kinds, default=lambda: tf.zeros([2], tf.int64))


def _starts_with(data, magic):
    longer = tf.strings.join([data, tf.constant(bytes(len(magic)))])
    return tf.strings.substr(longer, 0, len(magic)) == tf.constant(magic)
