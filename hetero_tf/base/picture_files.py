"""Formats and limits of picture files, and the reason why a file cannot be used; without TensorFlow.

References: ISO/IEC 15948 (PNG), ITU-T T.81 annex B (JPEG), Microsoft's BITMAPINFOHEADER (BMP), the GIF89a
specification, and RFC 9649 (WebP).
"""

import struct

# Maximum pixels of a picture, such as 8,192 x 4,096; they take 96 MiB when decoded.
LARGEST_PICTURE = 2**25
FORMATS = "PNG, JPEG, BMP, GIF or WebP"
# Magic bytes; in a WebP file, the size follows RIFF and precedes WEBP.
PNG, JPEG, BMP, GIF, RIFF, WEBP = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"BM", b"GIF8", b"RIFF", b"WEBP"
# Formats that need additional graph operations.
RARE = (BMP, GIF, RIFF)
# Bits per pixel of the BMP files that are decoded; 4 and 8 bits are color indices.
INDEXED_BITS, COLOR_BITS = (4, 8), (24, 32)
_OTHERS = {
    b"II*\0": "a TIFF picture",
    b"MM\0*": "a TIFF picture",
    b"\0\0\0\x0cjP  ": "a JPEG 2000 picture",
    b"\0\0\x01\0": "an icon",
    b"8BPS": "a Photoshop file",
    b"%PDF": "a PDF document",
    b"<svg": "an SVG drawing",
    b"version https://git-lfs": "a pointer of Git LFS without the picture",
}
# Maximum JPEG segments to search for the frame header.
MOST_SEGMENTS = 2**14
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_WITHOUT_LENGTH = frozenset([0x00, 0x01, 0xFF, *range(0xD0, 0xD9)])


def describe_file_fault(data: bytes) -> str | None:
    """Return the reason why a picture file cannot be decoded, from its header and length.

    Returns:
        The end of a sentence, with advice; None if no fault is detected.
    """
    if not data:
        return "is empty; copy it again"
    size_of = next((size for magic, size in _SIZES.items() if data.startswith(magic)), None)
    if size_of is None or (size_of is _webp_size and data[8:12] != WEBP):
        return f"is {_other_format(data)}; convert it to {FORMATS}"
    try:
        width, height = size_of(data)
    except (struct.error, IndexError, ValueError):
        return "is cut off within its header; copy it again"
    if width * height > LARGEST_PICTURE:
        return f"has {width:,} x {height:,} pixels, but at most {LARGEST_PICTURE:,} are read; make it smaller"
    if size_of is _webp_size and data[12:16] == b"VP8X" and data[20] & 2:
        return "is an animated WebP picture; save one of its frames"
    if size_of is _bmp_size and (kind := _other_bmp(data)):
        return f"is a BMP picture {kind}; save it as PNG"
    if _is_cut_off(data):
        return "is cut off before its end; copy it again"
    return None if width * height else "has no size in its header; save or copy it again"


def picture_header(data: bytes) -> tuple[int, int, str] | None:
    """Return width, height and mode of a picture from the beginning of its file; None if they are not in there.

    The mode is "grey", "color", "palette" or "CMYK".
    """
    magic = next((magic for magic in _SIZES if data.startswith(magic)), None)
    try:
        width, height = _SIZES[magic](data) if magic else (0, 0)
        if magic == PNG:
            mode = {0: "grey", 3: "palette", 4: "grey"}.get(data[25], "color")
        elif magic == JPEG:
            mode = {1: "grey", 4: "CMYK"}.get(data[_jpeg_frame(data) + 9], "color")
        else:
            is_indexed = magic == GIF or (magic == BMP and data[28] in INDEXED_BITS)
            mode = "palette" if is_indexed else "color"
    except (struct.error, IndexError, ValueError):
        return None
    return (width, height, mode) if width * height else None


def _png_size(data):
    return struct.unpack_from(">II", data, 16)


def _bmp_size(data):
    width, height = struct.unpack_from("<ii", data, 18)
    return abs(width), abs(height)


def _gif_size(data):
    return struct.unpack_from("<HH", data, 6)


def _webp_size(data):
    kind = data[12:16]
    if kind == b"VP8X":
        return tuple(1 + int.from_bytes(_part(data, first, 3), "little") for first in (24, 27))
    if kind == b"VP8L":
        bits = int.from_bytes(_part(data, 21, 4), "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF


def _part(data, first, count):
    if len(data) < first + count:
        raise IndexError
    return data[first : first + count]


def _jpeg_size(data):
    """Return width and height of the first frame header of a JPEG; 0 and 0 if there is none."""
    position = _jpeg_frame(data)
    height, width = struct.unpack_from(">HH", data, position + 5) if position else (0, 0)
    return width, height


def _jpeg_frame(data):
    """Return the position of the first frame header of a JPEG; 0 if there is none."""
    position = 2
    for _ in range(MOST_SEGMENTS):
        position = data.index(b"\xff", position)
        marker = data[position + 1]
        if marker in _FRAMES:
            return position
        if marker == 0xDA:
            break
        position += 1 if marker in (0x00, 0xFF) else 2
        if marker not in _WITHOUT_LENGTH:
            position += struct.unpack_from(">H", data, position)[0]
    return 0


_SIZES = {PNG: _png_size, JPEG: _jpeg_size, BMP: _bmp_size, GIF: _gif_size, RIFF: _webp_size}


def _other_bmp(data):
    """Return the kind of an unsupported BMP file, or None."""
    header, _, _, _, bits, compression = struct.unpack_from("<IiiHHI", data + bytes(40), 14)
    if header < 40:
        return "of OS/2"
    if struct.unpack_from("<I", data, 10)[0] < 14 + header:
        return "whose pixels begin within its header"
    if bits not in INDEXED_BITS + COLOR_BITS:
        return f"of {bits} bit{'s' * (bits != 1)} per pixel"
    return None if compression in (0, 3) else "with compressed pixels"


def _is_cut_off(data):
    """Return True if the end of a picture is missing."""
    if data.startswith(PNG):
        return b"IEND" not in data[-64:] and b"IEND" not in data
    if data.startswith(JPEG):
        return b"\xff\xd9" not in data
    if data.startswith(BMP):
        (width, height), (bits,) = _bmp_size(data), struct.unpack_from("<H", data, 28)
        return len(data) < struct.unpack_from("<I", data, 10)[0] + -(-width * bits // 32) * 4 * height
    if data.startswith(RIFF):
        return len(data) < 8 + struct.unpack_from("<I", data, 4)[0]
    return not data.rstrip(b"\0").endswith(b";")


def _other_format(data):
    if data[4:8] == b"ftyp":
        return "an AVIF picture" if data[8:12] in (b"avif", b"avis") else "a HEIC picture or a film"
    begin = data.lstrip()[:64].lower()
    if b"<html" in begin or b"<!doctype" in begin:
        return "a web page (perhaps an error page saved as a picture)"
    other = next((name for magic, name in _OTHERS.items() if data.startswith(magic)), None)
    return other or f"not a picture: it begins with {data[:8]!r}"
