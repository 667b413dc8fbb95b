"""Decodes picture files inside a graph, resized to the input size of a model."""

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
    describe_file_fault,
)

# ITU-R BT.601; the sum is 1, so grey pictures keep their values.
LUMA = (0.299, 0.587, 0.114)
# Bytes of a JPEG to search for the Exif directory.
EXIF_SEARCH_BYTES = 2**16
# Bytes of a header that picture_size reads.
HEADER = 72
# Maximum blocks of up to 255 bytes in a GIF before the end of its first frame.
GIF_BLOCKS = 2**15
# Zeros after a GIF, so that no position in its last header is past the end.
GIF_PADDING = 16


# No Python loop or branch depends on tensors, and conversion takes longer than tracing.
@tf.autograph.experimental.do_not_convert
def decode(data: tf.Tensor, shape: tuple[int, int, int], formats: Collection[bytes] = RARE) -> tf.Tensor:
    """Decode a picture to float32 pixels in 0..1 of a fixed shape, upright and resized by area means.

    A GIF gives its first frame. The result is NaN if `picture_size` is 0, the picture has more than
    `LARGEST_PICTURE` pixels, or it has translucent pixels, whose background is unknown. A PNG, JPEG or WebP with damage
    after its header raises an error. `describe_fault` names the cause.

    Args:
        data: Scalar string.
        shape: (height, width, channels), 1 or 3 channels.
        formats: Formats of `picture_files.RARE` to support in addition to PNG and JPEG; each adds graph operations.
    """
    head = _padded(data)
    size = picture_size(data, formats)

    def pixels():
        picture = _decode_pixels(data, head, formats)
        depth = tf.shape(picture)[-1]
        opaque = tf.reduce_all((picture[..., -1] == 255) | (depth % 2 == 1))
        orientation_tag = orientation(data)
        size_before_rotation = tf.where(orientation_tag > 4, shape[1::-1], shape[:2])
        # Resize first: as float32, a large picture takes four times the memory.
        # Area means reduce the accuracy of a model least of all methods (benchmarks/resizing.py).
        picture = rotate_upright(tf.image.resize(picture, size_before_rotation, "area") / 255, orientation_tag)
        picture = tf.cond(depth < 3, lambda: tf.repeat(picture[..., :1], 3, axis=-1), lambda: picture[..., :3])
        return tf.where(opaque, picture, np.nan)

    fits = (size[0] > 0) & (tf.reduce_prod(size) <= LARGEST_PICTURE)
    picture = tf.cond(fits, pixels, lambda: tf.fill([*shape[:2], 3], np.float32(np.nan)))
    if shape[-1] == 1:
        picture = tf.reduce_sum(picture * tf.constant(LUMA), -1, keepdims=True)
    return tf.ensure_shape(picture, shape)


def _decode_pixels(data, head, formats):
    """Return pixels uint8 [height, width, depth] of a picture, with the depth of the file."""
    decoders = {BMP: _decode_bmp, GIF: _decode_gif}
    cases = [(_starts_with(head, kind), lambda kind=kind: decoders[kind](data)) for kind in decoders if kind in formats]

    def decode_common():
        return tf.io.decode_image(data, channels=0, expand_animations=False)

    return tf.case(cases, default=decode_common) if cases else decode_common()


def describe_fault(data: bytes) -> str:
    """Return the reason why a picture file cannot be used, as the end of a sentence with advice.

    Args:
        data: Content of a file that `decode` rejected.
    """
    fault = describe_file_fault(data)
    if fault is None and data.startswith((PNG, JPEG, RIFF)):
        try:
            tf.io.decode_image(data, expand_animations=False)
        except tf.errors.OpError:
            fault = "is damaged; save or copy it again"
    if data.startswith(GIF):
        fault = fault or "has no complete first frame without transparency; save that frame as PNG"
    return fault or "has translucent pixels, whose background is unknown; save it without transparency"


def _decode_bmp(data):
    """Return pixels uint8 [height, width, 3 or 4] of a BMP whose `picture_size` is not 0.

    TensorFlow's decoder would read a color index as a grey value.
    """
    header = _header(_padded(data))
    (width, height), bits = (
        tf.unstack(tf.cast(picture_size(data), tf.int32)),
        tf.cast(_little_endian(header, 28, 2), tf.int32),
    )
    row = _bmp_row(width, bits)
    first = tf.cast(_little_endian(header, 10, 4), tf.int32)
    rows = tf.reshape(tf.io.decode_raw(tf.strings.substr(data, first, row * height), tf.uint8), [height, row])

    def from_table():
        shifts = tf.range(8 - bits, -1, -bits)
        parts = tf.cast(rows, tf.int32)[..., None] // 2**shifts % 2**bits
        begin = 14 + tf.cast(_little_endian(header, 14, 4), tf.int32)
        table = tf.io.decode_raw(tf.strings.substr(data, begin, tf.minimum(first - begin, 1024) // 4 * 4), tf.uint8)
        colors = tf.reshape(table, [-1, 4])[:, 2::-1]
        colors = tf.pad(colors, [[0, 256 - tf.shape(colors)[0]], [0, 0]])
        return tf.gather(colors, tf.reshape(parts, [height, -1])[:, :width])

    def from_colors():
        depth = bits // 8
        values = tf.reshape(rows[:, : width * depth], [height, width, depth])
        # The fourth byte is not an alpha channel if it is 0 everywhere.
        has_alpha = (depth == 4) & tf.reduce_any(values[..., 3:] > 0)
        return tf.concat([values[..., 2::-1], values[..., 3 : tf.where(has_alpha, 4, 3)]], -1)

    pixels = tf.cond(bits <= 8, from_table, from_colors)
    return tf.cond(_signed(header, 22) < 0, lambda: pixels, lambda: pixels[::-1])


def _bmp_row(width, bits):
    """Return the bytes of a BMP row, a multiple of four."""
    return (width * bits + 31) // 32 * 4


def _decode_gif(data):
    """Return pixels uint8 [height, width, 4] of a GIF's first frame; alpha is 0 if it does not cover the picture.

    The frame is copied into a separate file with the indices as colors. TensorFlow's decoder would read all frames,
    which may take gigabytes for a few bytes, and ignore transparency.
    """
    stream = tf.io.decode_raw(tf.strings.join([data, tf.constant(bytes(GIF_PADDING))]), tf.uint8)
    frame, end, transparent = _find_gif_frame(stream)
    covers = tf.reduce_all(stream[frame + 1 : frame + 9] == tf.concat([tf.zeros([4], tf.uint8), stream[6:10]], 0))

    def read_frame():
        flags = _integer(stream, frame + 9)
        local, shared = _gif_table_bytes(flags), _gif_table_bytes(_integer(stream, 10))
        begin, count = tf.where(local > 0, frame + 10, 13), tf.where(local > 0, local, shared)
        table = tf.reshape(stream[begin : begin + count], [-1, 3])
        colors = tf.pad(table, [[0, 256 - tf.shape(table)[0]], [0, 0]])
        single_frame = tf.strings.join(
            [
                tf.strings.substr(data, 0, 10),
                # A table of all 256 indices, as shades of grey.
                tf.constant(b"\xf7\0\0" + bytes(index for index in range(256) for _ in range(3))),
                tf.strings.substr(data, frame, 9),
                # Keep only the interlace flag.
                tf.gather(tf.constant([b"\0", b"\x40"]), flags // 64 % 2),
                tf.strings.substr(data, frame + 10 + local, end - frame - 10 - local),
                tf.constant(b";"),
            ]
        )
        indices = tf.cast(tf.io.decode_image(single_frame, channels=3, expand_animations=False)[..., 0], tf.int32)
        alpha = tf.cast(tf.where(indices == transparent, 0, 255), tf.uint8)
        return tf.concat([tf.gather(colors, indices), alpha[..., None]], -1)

    width, height = _integer(stream, 6, 2), _integer(stream, 8, 2)
    return tf.cond(covers & (frame > 0), read_frame, lambda: tf.zeros([height, width, 4], tf.uint8))


def _find_gif_frame(stream):
    """Return the begin and end of a GIF's first frame, and its transparent index, or -1; the begin is -1 if it is cut.

    Args:
        stream: The file with `GIF_PADDING` zeros, uint8 [n].
    """
    last = tf.size(stream) - GIF_PADDING

    def step(position, in_blocks, frame, transparent):
        byte = _integer(stream, position)
        is_control = ~in_blocks & (byte == 0x21) & (_integer(stream, position + 1) == 0xF9)
        has_index = is_control & (_integer(stream, position + 3) % 2 == 1)
        # A frame, an extension, or an invalid byte.
        frame_header = 11 + _gif_table_bytes(_integer(stream, position + 9))
        size = tf.where(byte == 0x2C, frame_header, tf.where(byte == 0x21, 2, last))
        return (
            tf.minimum(position + tf.where(in_blocks, byte + 1, size), last),
            tf.where(in_blocks, byte > 0, True),
            tf.where(~in_blocks & (byte == 0x2C), position, frame),
            tf.where(has_index, _integer(stream, position + 6), tf.where(is_control, -1, transparent)),
        )

    start = tf.minimum(13 + _gif_table_bytes(_integer(stream, 10)), last)
    end, in_blocks, frame, transparent = tf.while_loop(
        lambda position, in_blocks, frame, _: (position < last) & (in_blocks | (frame < 0)),
        step,
        (start, tf.constant(False), tf.constant(-1), tf.constant(-1)),
        maximum_iterations=GIF_BLOCKS,
    )
    return tf.where(in_blocks, -1, frame), end, transparent


def _gif_table_bytes(flags):
    """Return the bytes of the color table that the flags of a screen or frame declare."""
    return tf.where(flags >= 128, 3 * 2 ** (flags % 8 + 1), 0)


def _integer(stream, position, count=1):
    """Return `count` little-endian bytes of uint8 [n] as an int32."""
    return tf.cast(_little_endian(stream, position, count), tf.int32)


def orientation(data: tf.Tensor) -> tf.Tensor:
    """Return the orientation of the camera: 1..8 from the Exif entry 0x0112 of a JPEG, 1 if it is missing.

    Args:
        data: Scalar string.

    Reference: Exif 2.32, section 4.6.4 (tag Orientation); TIFF 6.0 for the entries of a directory.
    """
    head, tag = tf.strings.substr(data, 0, EXIF_SEARCH_BYTES), tf.constant(1)
    for number in range(2, 9):
        # One 2-byte value in the byte order of the directory; \\C matches any byte.
        big = rf"MM\C*\x01\x12\x00\x03\x00\x00\x00\x01\x00\x0{number}"
        little = rf"II\C*\x12\x01\x03\x00\x01\x00\x00\x00\x0{number}\x00"
        for entry in (big, little):
            matches = tf.strings.regex_full_match(head, rf"\C*Exif\x00\x00{entry}\C*")
            tag = tf.where(matches, number, tag)
    return tf.where(_starts_with(_padded(data), JPEG), tag, 1)


def rotate_upright(picture: tf.Tensor, tag: tf.Tensor) -> tf.Tensor:
    """Rotate or mirror a picture [height, width, channels] upright; `tag` is the result of `orientation`."""
    return tf.switch_case(
        tag - 1,
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
    """Return width and height from the header of a picture, int64 [2].

    Both are 0 for other formats than PNG, JPEG, BMP, GIF and WebP, and for unsupported variants: an animated WebP,
    which corrupts TensorFlow's memory, and a BMP that is truncated, compressed, or has 1, 2 or 16 bits per pixel.

    Args:
        data: Scalar string; only its header is read.
        formats: See `decode`.
    """
    head = _padded(data)
    header = _header(head)

    def pair(first, second, count, read=_little_endian):
        return tf.stack([read(header, first, count), read(header, second, count)])

    sizes = {
        PNG: lambda: pair(16, 20, 4, _big_endian),
        JPEG: lambda: tf.image.extract_jpeg_shape(data, tf.int64)[1::-1],
        BMP: lambda: _bmp_size(data, header),
        GIF: lambda: pair(6, 8, 2),
        RIFF: lambda: _webp_size(head, header),
    }
    kinds = [(_starts_with(head, kind), sizes[kind]) for kind in (PNG, JPEG, *formats)]
    return tf.case(kinds, default=lambda: tf.zeros([2], tf.int64))


def _bmp_size(data, header):
    """Return the `picture_size` of a BMP."""
    size = tf.abs(tf.stack([_signed(header, 18), _signed(header, 22)]))
    bits, compression = _little_endian(header, 28, 2), _little_endian(header, 30, 4)
    # Color masks are present if the bytes of a pixel are not simply blue, green and red.
    standard = tf.reduce_all(header[54:66] == [0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 0])
    plain = (compression == 0) | ((compression == 3) & (bits == 32) & standard)
    table, first = 14 + _little_endian(header, 14, 4), _little_endian(header, 10, 4)
    known = tf.reduce_any(bits == INDEXED_BITS + COLOR_BITS) & plain & (table >= 54) & (table <= first)
    # Check before the next product, which must fit 64 bits.
    known &= tf.reduce_prod(size) <= LARGEST_PICTURE
    needed = first + _bmp_row(size[0], bits) * size[1]
    return tf.where(known & (needed <= tf.cast(tf.strings.length(data), tf.int64)), size, tf.zeros([2], tf.int64))


def _webp_size(head, header):
    """Return the `picture_size` of a WebP."""
    kind = tf.strings.substr(head, 12, 4)
    extended = 1 + tf.stack([_little_endian(header, 24, 3), _little_endian(header, 27, 3)])
    bits = _little_endian(header, 21, 4)
    lossless = 1 + tf.stack([bits % 2**14, bits // 2**14 % 2**14])
    lossy = tf.stack([_little_endian(header, 26, 2), _little_endian(header, 28, 2)]) % 2**14
    is_animated = header[20] // 2 % 2 == 1
    # Sound files start with RIFF too.
    is_other, no_size = tf.strings.substr(head, 8, 4) != WEBP, tf.zeros([2], tf.int64)
    size = tf.where(kind == b"VP8L", lossless, tf.where(kind == b"VP8 ", lossy, no_size))
    return tf.where(
        kind == b"VP8X", tf.where(is_animated | is_other, no_size, extended), tf.where(is_other, no_size, size)
    )


def _padded(data):
    """Return the first bytes of a file as a string, padded with zeros."""
    # An error for a slice past the end would quote bytes that clients may not be able to decode.
    return tf.strings.join([tf.strings.substr(data, 0, HEADER), tf.constant(bytes(HEADER))])


def _header(head):
    """Return the header as uint8 [`HEADER`]."""
    return tf.ensure_shape(tf.io.decode_raw(tf.strings.substr(head, 0, HEADER), tf.uint8), [HEADER])


def _little_endian(data, first, count):
    """Return `count` bytes of uint8 [n] as a little-endian int64."""
    return tf.reduce_sum(tf.cast(data[first : first + count], tf.int64) * [256**byte for byte in range(count)])


def _big_endian(data, first, count):
    return _little_endian(data[first : first + count][::-1], 0, count)


def _signed(data, first):
    """Return four little-endian bytes as a signed int64."""
    value = _little_endian(data, first, 4)
    return tf.where(value < 2**31, value, value - 2**32)


def _starts_with(head, magic):
    return tf.strings.substr(head, 0, len(magic)) == tf.constant(magic)
