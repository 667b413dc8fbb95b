"""Reads WAV files, also damaged and hostile ones: sizes and rates in a header are only claims; without TensorFlow.

Reference: Multimedia Programming Interface and Data Specifications 1.0 (RIFF WAVE); Microsoft's WAVEFORMATEXTENSIBLE.
"""

import math
import struct
from dataclasses import dataclass

import numpy as np

from hetero_tf.base.errors import InputError

ENDINGS = (".wav", ".wave")
# Bytes that include the header of most files.
HEADER_BYTES = 2**12
# Samples per second of supported files.
LOWEST_RATE, HIGHEST_RATE = 1000, 384_000
# Chunks to search for the format and the samples.
MOST_CHUNKS = 1000
# Size in the header of a file that was written to a pipe.
UNKNOWN_SIZE = 2**32 - 1
# Seconds after a clip that resampling reads, since its filter treats a clip as periodic.
MARGIN = 0.1
FULL_SCALE = 2**15
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
# NumPy type of the samples by the code of the format and the bits of a sample; 24 bits are read as bytes.
ENCODINGS = {(PCM, 8): "u1", (PCM, 16): "<i2", (PCM, 24): "u1", (PCM, 32): "<i4", (FLOAT, 32): "<f4"}
_ADVICE = "save it as WAV of 8, 16, 24 or 32 bits, or 32-bit floats"


@dataclass(frozen=True)
class WavHeader:
    """Format and position of the samples of a WAV file.

    Attributes:
        rate: Samples per second.
        channels: Number of channels.
        encoding: (format code, bits of a sample).
        first: Position of the first sample in bytes.
        frames: Samples of each channel that are in the file.
    """

    rate: int
    channels: int
    encoding: tuple[int, int]
    first: int
    frames: int

    @property
    def frame_bytes(self) -> int:
        """Bytes of one sample of all channels."""
        return self.channels * self.encoding[1] // 8

    @property
    def seconds(self) -> float:
        """Duration."""
        return self.frames / self.rate


def read_header(content: bytes, file_bytes: int) -> WavHeader:
    """Read the header of a WAV file.

    Args:
        content: The file, or its first bytes.
        file_bytes: Size of the file.

    Raises:
        InputError: The file has another format, is damaged, or has no samples. The text is the end of a sentence.
    """
    if not content:
        raise InputError("is empty; copy it again")
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise InputError(f"is not a WAV file: it begins with {content[:8]!r}; {_ADVICE}")
    position, layout = 12, None
    for _ in range(MOST_CHUNKS):
        if len(content) < position + 8:
            break
        name, size = struct.unpack_from("<4sI", content, position)
        position += 8
        if name == b"fmt ":
            layout = _read_format(content[position : position + min(size, 40)])
        elif name == b"data" and layout is not None:
            return _locate_samples(layout, position, size, file_bytes)
        # Chunks begin at even positions.
        position += size + size % 2
    raise InputError("has no format or no samples in its header; copy it again")


def _read_format(chunk):
    """Return (rate, channels, encoding) of a format chunk."""
    if len(chunk) < 16:
        raise InputError("is cut off within its header; copy it again")
    code, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", chunk)
    if code == EXTENSIBLE and len(chunk) >= 26:
        (code,) = struct.unpack_from("<H", chunk, 24)
    if (code, bits) not in ENCODINGS:
        raise InputError(f"has an unsupported format (code {code}, {bits} bits); {_ADVICE}")
    if channels < 1 or not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise InputError(
            f"must have at least one channel and {LOWEST_RATE:,} to {HIGHEST_RATE:,} samples per second. "
            f"Received: {channels} channels, {rate:,} per second"
        )
    return rate, channels, (code, bits)


def _locate_samples(layout, position, size, file_bytes):
    rate, channels, encoding = layout
    available = max(file_bytes - position, 0)
    if size > available and size != UNKNOWN_SIZE:
        raise InputError("is cut off before its end; copy it again")
    frames = min(size, available) // (channels * encoding[1] // 8)
    if not frames:
        raise InputError("has no samples; remove it or copy it again")
    return WavHeader(rate, channels, encoding, position, frames)


def read_clip(content: bytes, rate: int, count: int) -> np.ndarray:
    """Return the beginning of a WAV file as one channel at another rate, int16 `[count]`; zeros follow its end.

    Channels are averaged. Only the bytes of the clip are converted.

    Args:
        content: The file.
        rate: Samples per second of the clip.
        count: Samples of the clip.

    Raises:
        InputError: See `read_header`; also for a sample that is not finite.
    """
    header = read_header(content, len(content))
    sizes = resampling_sizes(header.rate, rate, count)
    size = min(header.frames, count if sizes is None else sizes[0]) * header.frame_bytes
    samples = _to_floats(content[header.first : header.first + size], header.encoding)
    mono = samples.reshape(-1, header.channels).mean(1, dtype=np.float64)
    if not np.isfinite(mono).all():
        raise InputError(f"has a sample that is not finite; {_ADVICE}")
    clip = resample(mono, sizes)[:count] if sizes else mono
    clip = np.clip(np.rint(clip * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1).astype(np.int16)
    return np.pad(clip, (0, count - len(clip)))


def _to_floats(data, encoding):
    """Return samples as floats in -1..1."""
    values, (code, bits) = np.frombuffer(data, ENCODINGS[encoding]), encoding
    if code == FLOAT:
        return values
    if bits == 24:
        # The three bytes become the upper ones of 32 bits.
        padded = np.zeros((len(values) // 3, 4), np.uint8)
        padded[:, 1:] = values.reshape(-1, 3)
        return padded.view("<i4")[:, 0] / 2**31
    return (values - 128.0) / 128 if bits == 8 else values / 2 ** (bits - 1)


def resampling_sizes(source_rate: int, rate: int, count: int) -> tuple[int, int] | None:
    """Return the samples of equal duration before and after resampling a clip; None for equal rates.

    The duration is that of `count` samples with a margin.
    """
    if source_rate == rate:
        return None
    # A block of `source_rate / blocks` samples has the duration of `rate / blocks` samples.
    blocks = math.gcd(source_rate, rate)
    periods = math.ceil((count / rate + MARGIN) * blocks)
    return periods * source_rate // blocks, periods * rate // blocks


def resample(samples: np.ndarray, sizes: tuple[int, int]) -> np.ndarray:
    """Resample by the Fourier transform: frequencies above half the lower rate are removed.

    Args:
        samples: float `[n]`, of which at most `sizes[0]` are used; zeros follow.
        sizes: Samples before and after, see `resampling_sizes`.

    Returns:
        float64 `[sizes[1]]`.
    """
    before, after = sizes
    spectrum = np.fft.rfft(samples[:before], before)[: min(before, after) // 2 + 1]
    return np.fft.irfft(spectrum, after) * (after / before)
