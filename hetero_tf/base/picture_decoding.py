"""The bytes of picture files as pixels of a model's own size, inside a graph."""

from collections.abc import Collection

import numpy as np
import tensorflow as tf

from hetero_tf.base.picture_files import (
    BMP,
    COLOR_BITS,
    GIF,
    INDEXED_BITS,
    JPEG,
    LARGEST_PICTURE,
    PNG,
    RARE,
    RIFF,
    WEBP,
    fault_of_file,
)

# ITU-R BT.601; adds up to 1, so that a grey picture keeps its values.
LUMA = (0.299, 0.587, 0.114)
# Bytes of a JPEG among which its Exif directory is looked for.
EXIF_WITHIN = 2**16
# Bytes of a header that picture_size reads.
HEADER = 72
# Blocks of up to 255 bytes that a GIF may have until its first frame ends.
GIF_BLOCKS = 2**15


# It has no Python loop or branch over tensors, and converting it takes longer than tracing it.
@tf.autograph.experimental.do_not_convert
def decode(data: tf.Tensor, shape: tuple[int, int, int], formats: Collection[bytes] = RARE) -> tf.Tensor:
    """The bytes of a picture as float32 pixels in 0..1 of a fixed shape, upright and resized by area means.

    Of a GIF it is the first frame. NaN where `picture_size` is 0, the picture has more than `LARGEST_PICTURE` pixels,
    or it is translucent somewhere: its background is unknown. A PNG, JPEG or WebP that is damaged behind its header is
    an error. `fault_of` tells them apart.

    Args:
        data: Scalar string.
        shape: (height, width, channels), 1 or 3 channels.
        formats: Those of `picture_files.RARE` that are decoded beside PNG and JPEG; each adds operations to the graph.
    """
    head = _padded(data)
    size = picture_size(data, formats)

    def pixels():
        found = _decoded(data, head, formats)
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


def _decoded(data, head, formats):
    """Pixels uint8 [height, width, depth] of a picture, in the depth of the file."""
    decoders = {BMP: _decode_bmp, GIF: _decode_gif}
    known = [(_starts_with(head, kind), lambda kind=kind: decoders[kind](data)) for kind in decoders if kind in formats]

    def common():
        return tf.io.decode_image(data, channels=0, expand_animations=False)

    return tf.case(known, default=common) if known else common()


def fault_of(data: bytes) -> str:
    """Return why the bytes of a picture file cannot be used, as the end of a sentence with what to do.

    Args:
        data: Bytes of a file that `decode` rejected.
    """
    fault = fault_of_file(data)
    if fault is None and data.startswith((PNG, JPEG, RIFF)):
        try:
            tf.io.decode_image(data, expand_animations=False)
        except tf.errors.OpError:
            fault = "is damaged; save or copy it again"
    if data.startswith(GIF):
        fault = fault or "has no whole first frame without transparency; save that frame as PNG"
    return fault or "is translucent somewhere, and its background is unknown; save it without transparency"


def _decode_bmp(data):
    """Pixels uint8 [height, width, 3 or 4] of a BMP whose `picture_size` is not 0.

    TensorFlow's own decoder takes the index of a color for its brightness.
    """
    header = _header(_padded(data))
    (width, height), bits = tf.unstack(tf.cast(picture_size(data), tf.int32)), tf.cast(_little(header, 28, 2), tf.int32)
    row = _bmp_row(width, bits)
    first = tf.cast(_little(header, 10, 4), tf.int32)
    rows = tf.reshape(tf.io.decode_raw(tf.strings.substr(data, first, row * height), tf.uint8), [height, row])

    def from_table():
        shifts = tf.range(8 - bits, -1, -bits)
        parts = tf.cast(rows, tf.int32)[..., None] // 2**shifts % 2**bits
        begin = 14 + tf.cast(_little(header, 14, 4), tf.int32)
        table = tf.io.decode_raw(tf.strings.substr(data, begin, tf.minimum(first - begin, 1024) // 4 * 4), tf.uint8)
        colors = tf.reshape(table, [-1, 4])[:, 2::-1]
        colors = tf.pad(colors, [[0, 256 - tf.shape(colors)[0]], [0, 0]])
        return tf.gather(colors, tf.reshape(parts, [height, -1])[:, :width])

    def from_colors():
        depth = bits // 8
        values = tf.reshape(rows[:, : width * depth], [height, width, depth])
        # The fourth byte is no alpha where all of them are 0.
        has_alpha = (depth == 4) & tf.reduce_any(values[..., 3:] > 0)
        return tf.concat([values[..., 2::-1], values[..., 3 : tf.where(has_alpha, 4, 3)]], -1)

    pixels = tf.cond(bits <= 8, from_table, from_colors)
    return tf.cond(_signed(header, 22) < 0, lambda: pixels, lambda: pixels[::-1])


def _bmp_row(width, bits):
    """Bytes of a row of a BMP, a multiple of four."""
    return (width * bits + 31) // 32 * 4


def _decode_gif(data):
    """Pixels uint8 [height, width, 4] of a GIF's first frame, with alpha 0 everywhere if it does not cover the picture.

    The frame is decoded as a file of its own with the indices as colors: TensorFlow's decoder reads all frames, of
    which a few bytes make gigabytes, and ignores transparency.
    """
    stream = tf.io.decode_raw(tf.strings.join([data, tf.constant(bytes(16))]), tf.uint8)
    last = tf.size(stream) - 16

    def table_size(flags):
        return tf.where(flags >= 128, 3 * 2 ** (flags % 8 + 1), 0)

    def number(position, count=1):
        return tf.cast(_little(stream, position, count), tf.int32)

    def step(position, in_blocks, frame, transparent):
        byte = number(position)
        is_control = ~in_blocks & (byte == 0x21) & (number(position + 1) == 0xF9)
        has_index = is_control & (number(position + 3) % 2 == 1)
        # A frame, an extension, and anything else, which is an error.
        size = tf.where(byte == 0x2C, 11 + table_size(number(position + 9)), tf.where(byte == 0x21, 2, last))
        return (
            tf.minimum(position + tf.where(in_blocks, byte + 1, size), last),
            tf.where(in_blocks, byte > 0, True),
            tf.where(~in_blocks & (byte == 0x2C), position, frame),
            tf.where(has_index, number(position + 6), tf.where(is_control, -1, transparent)),
        )

    start = 13 + table_size(number(10))
    end, in_blocks, frame, transparent = tf.while_loop(
        lambda position, in_blocks, frame, _: (position < last) & (in_blocks | (frame < 0)),
        step,
        (tf.minimum(start, last), tf.constant(False), tf.constant(-1), tf.constant(-1)),
        maximum_iterations=GIF_BLOCKS,
    )
    width, height = number(6, 2), number(8, 2)
    covers = tf.reduce_all(stream[frame + 1 : frame + 9] == tf.concat([tf.zeros([4], tf.uint8), stream[6:10]], 0))

    def cover():
        flags = number(frame + 9)
        local = table_size(flags)
        begin, count = tf.where(local > 0, frame + 10, 13), tf.where(local > 0, local, start - 13)
        table = tf.reshape(stream[begin : begin + count], [-1, 3])
        colors = tf.pad(table, [[0, 256 - tf.shape(table)[0]], [0, 0]])
        alone = tf.strings.join(
            [
                tf.strings.substr(data, 0, 10),
                # A table of all 256 indices, as shades of grey.
                tf.constant(b"\xf7\0\0" + bytes(index for index in range(256) for _ in range(3))),
                tf.strings.substr(data, frame, 9),
                # Of the flags, only that of interlaced rows stays.
                tf.gather(tf.constant([b"\0", b"\x40"]), flags // 64 % 2),
                tf.strings.substr(data, frame + 10 + local, end - frame - 10 - local),
                tf.constant(b";"),
            ]
        )
        indices = tf.cast(tf.io.decode_image(alone, channels=3, expand_animations=False)[..., 0], tf.int32)
        alpha = tf.cast(tf.where(indices == transparent, 0, 255), tf.uint8)
        return tf.concat([tf.gather(colors, indices), alpha[..., None]], -1)

    return tf.cond(covers & ~in_blocks & (frame > 0), cover, lambda: tf.zeros([height, width, 4], tf.uint8))


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
    return tf.where(_starts_with(_padded(data), JPEG), found, 1)


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


def picture_size(data: tf.Tensor, formats: Collection[bytes] = RARE) -> tf.Tensor:
    """Width and height of a picture as its header tells them, int64 [2].

    0 and 0 where it is neither PNG, JPEG, BMP, GIF nor WebP, or a kind of these that is not decoded: an animated WebP,
    which corrupts TensorFlow's memory, and a BMP that is cut off, compressed, or of 1, 2 or 16 bits per pixel.

    Args:
        data: Scalar string; nothing is decoded for it.
        formats: As for `decode`.
    """
    head = _padded(data)
    header = _header(head)

    def pair(first, second, count, read=_little):
        return tf.stack([read(header, first, count), read(header, second, count)])

    sizes = {
        PNG: lambda: pair(16, 20, 4, _big),
        JPEG: lambda: tf.image.extract_jpeg_shape(data, tf.int64)[1::-1],
        BMP: lambda: _bmp_size(data, header),
        GIF: lambda: pair(6, 8, 2),
        RIFF: lambda: _webp_size(head, header),
    }
    kinds = [(_starts_with(head, kind), sizes[kind]) for kind in (PNG, JPEG, *formats)]
    return tf.case(kinds, default=lambda: tf.zeros([2], tf.int64))


def _bmp_size(data, header):
    """As `picture_size`, of a BMP."""
    size = tf.abs(tf.stack([_signed(header, 18), _signed(header, 22)]))
    bits, compression = _little(header, 28, 2), _little(header, 30, 4)
    # The colors of a pixel are described where its bytes are not simply blue, green and red.
    standard = tf.reduce_all(header[54:66] == [0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 0])
    plain = (compression == 0) | ((compression == 3) & (bits == 32) & standard)
    table, first = 14 + _little(header, 14, 4), _little(header, 10, 4)
    known = tf.reduce_any(bits == INDEXED_BITS + COLOR_BITS) & plain & (table >= 54) & (table <= first)
    # Checked before the product, which may not be more than 64 bits.
    known &= tf.reduce_prod(size) <= LARGEST_PICTURE
    needed = first + _bmp_row(size[0], bits) * size[1]
    return tf.where(known & (needed <= tf.cast(tf.strings.length(data), tf.int64)), size, tf.zeros([2], tf.int64))


def _webp_size(head, header):
    """As `picture_size`, of a WebP."""
    kind = tf.strings.substr(head, 12, 4)
    extended = 1 + tf.stack([_little(header, 24, 3), _little(header, 27, 3)])
    bits = _little(header, 21, 4)
    lossless = 1 + tf.stack([bits % 2**14, bits // 2**14 % 2**14])
    lossy = tf.stack([_little(header, 26, 2), _little(header, 28, 2)]) % 2**14
    is_animated = header[20] // 2 % 2 == 1
    # Sounds begin with RIFF too.
    is_none, none = tf.strings.substr(head, 8, 4) != WEBP, tf.zeros([2], tf.int64)
    size = tf.where(kind == b"VP8L", lossless, tf.where(kind == b"VP8 ", lossy, none))
    return tf.where(kind == b"VP8X", tf.where(is_animated | is_none, none, extended), tf.where(is_none, none, size))


def _padded(data):
    """The first bytes of a file, with zeros beyond its end; a string."""
    # The error of a part beyond the end quotes bytes that clients may not be able to decode.
    return tf.strings.join([tf.strings.substr(data, 0, HEADER), tf.constant(bytes(HEADER))])


def _header(head):
    """The same as uint8 [`HEADER`]."""
    return tf.ensure_shape(tf.io.decode_raw(tf.strings.substr(head, 0, HEADER), tf.uint8), [HEADER])


def _little(data, first, count):
    """The whole number of some bytes of uint8 [n], the lowest first, as int64."""
    return tf.reduce_sum(tf.cast(data[first : first + count], tf.int64) * [256**place for place in range(count)])


def _big(data, first, count):
    return _little(data[first : first + count][::-1], 0, count)


def _signed(data, first):
    """The signed whole number of four bytes."""
    value = _little(data, first, 4)
    return tf.where(value < 2**31, value, value - 2**32)


def _starts_with(head, magic):
    return tf.strings.substr(head, 0, len(magic)) == tf.constant(magic)
