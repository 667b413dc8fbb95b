"""Decodes picture files inside a graph, and resizes pixels to the input size of a model."""

import tensorflow as tf

# Formats that exports decode. TensorFlow reads a color index of a BMP as a grey value, decodes all frames of a GIF, and
# its reader of animated WebP writes beyond its memory.
FORMATS = "PNG or JPEG"
PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
# Maximum pixels of a picture, such as 8,192 x 4,096; they take 96 MiB when decoded.
LARGEST_PICTURE = 2**25
# Bytes that end with the size of a PNG file.
HEADER = 24
# ITU-R BT.601; the sum is 1, so grey pictures keep their values.
LUMA = (0.299, 0.587, 0.114)


# No Python loop or branch depends on tensors, and conversion takes longer than tracing.
@tf.autograph.experimental.do_not_convert
def decode(data: tf.Tensor, shape: tuple[int, int, int]) -> tf.Tensor:
    """Decode a picture to float32 pixels in 0..1 of a fixed shape, resized by area means.

    The graph raises an error for a picture that is damaged, of another format, larger than `LARGEST_PICTURE`, or
    translucent, since the background is unknown.

    Args:
        data: Scalar string.
        shape: (height, width, channels), 1 or 3 channels.
    """
    with tf.control_dependencies([tf.debugging.Assert(_is_supported(data), ["not a supported picture"])]):
        pixels = tf.io.decode_image(data, expand_animations=False)
    is_opaque = tf.reduce_all((pixels[..., -1] == 255) | (tf.shape(pixels)[-1] % 2 == 1))
    with tf.control_dependencies([tf.debugging.Assert(is_opaque, ["a translucent picture"])]):
        return resize(pixels, shape)


def resize(pixels: tf.Tensor, shape: tuple[int, int, int]) -> tf.Tensor:
    """Resize pixels uint8 [height, width, 1 to 4] by area means to float32 pixels in 0..1 of a fixed shape."""
    depth = tf.shape(pixels)[-1]
    # Area means reduce the accuracy of a model least of all methods (benchmarks/resizing.py).
    pixels = tf.image.resize(pixels, shape[:2], "area") / 255
    pixels = tf.cond(depth < 3, lambda: tf.repeat(pixels[..., :1], 3, axis=-1), lambda: pixels[..., :3])
    if shape[-1] == 1:
        pixels = tf.reduce_sum(pixels * tf.constant(LUMA), -1, keepdims=True)
    return tf.ensure_shape(pixels, shape)


def _is_supported(data):
    """Return True if a file has a format of `FORMATS`, and its decoding takes a limited amount of memory."""
    padded = tf.strings.join([data, tf.constant(bytes(HEADER))])
    header = tf.cast(tf.io.decode_raw(tf.strings.substr(padded, 0, HEADER), tf.uint8), tf.int64)

    # Width and height of a PNG have four bytes each, the highest first.
    sizes = {
        PNG: lambda: tf.reduce_sum(tf.reshape(header[16:], [2, 4]) * (2**24, 2**16, 2**8, 1), 1),
        JPEG: lambda: tf.image.extract_jpeg_shape(data, tf.int64)[:2],
    }
    cases = [(tf.strings.substr(padded, 0, len(magic)) == magic, size) for magic, size in sizes.items()]
    size = tf.case(cases, default=lambda: tf.constant([LARGEST_PICTURE + 1, 1], tf.int64))
    return tf.reduce_prod(size) <= LARGEST_PICTURE
