"""Reads WAV files without TensorFlow.

Reference for the codes of formats: Microsoft's WAVEFORMATEX and WAVEFORMATEXTENSIBLE.
"""

import io
import math
import wave
from dataclasses import dataclass

import numpy as np

from hetero_tf.base.errors import InputError

ENDINGS = (".wav", ".wave")
# Bytes that include the header of most files.
HEADER_BYTES = 2**12
# Samples per second of supported files.
LOWEST_RATE, HIGHEST_RATE = 1000, 384_000
# Size in the header of a file that was written to a pipe.
UNKNOWN_SIZE = 2**32 - 1
# Seconds after a clip that resampling reads, since its filter treats a clip as periodic.
MARGIN = 0.1
FULL_SCALE = 2**15
PCM, FLOAT, EXTENSIBLE = 1, 3, b"\xfe\xff"
# NumPy type of the samples by the code of the format and the bits of a sample; 24 bits are read as bytes.
ENCODINGS = {(PCM, 8): "u1", (PCM, 16): "<i2", (PCM, 24): "u1", (PCM, 32): "<i4", (FLOAT, 32): "<f4"}
_ADVICE = "save it as WAV of 8, 16, 24 or 32 bits, or 32-bit floats"


@dataclass(frozen=True)
class WavHeader:
    """Format and position of the samples of a WAV file.

    Attributes:
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

    Raises:
        InputError: The file has another format, is damaged, or has no samples. The text is the end of a sentence.
    """
    if not content:
        raise InputError("is empty; copy it again")
    code, pcm = _declare_pcm(content)
    file = io.BytesIO(pcm)
    try:
        with wave.open(file) as reader:
            first, encoding = file.tell(), (code, 8 * reader.getsampwidth())
            channels, _, rate, declared, *_ = reader.getparams()
    except (wave.Error, EOFError) as error:
        raise InputError(f"is not a readable WAV file: {error or 'it is cut off'}; {_ADVICE}") from error
    if encoding not in ENCODINGS:
        raise InputError(f"has an unsupported format (code {code}, {encoding[1]} bits); {_ADVICE}")
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        limits = f"{LOWEST_RATE:,} to {HIGHEST_RATE:,} samples per second"
        raise InputError(f"must have {limits}. Received: {rate:,}")
    frame_bytes = channels * encoding[1] // 8
    available = max(file_bytes - first, 0) // frame_bytes
    if declared > available and declared != UNKNOWN_SIZE // frame_bytes:
        raise InputError("is cut off before its end; copy it again")
    if not min(declared, available):
        raise InputError("has no samples; remove it or copy it again")
    return WavHeader(rate, channels, encoding, first, min(declared, available))


def _declare_pcm(content):
    """Return the format code of a file, and its content with the code of PCM if `wave` does not read it."""
    position = content.find(b"fmt ") + 8
    codes = content[position : position + 2], content[position + 24 : position + 26]
    code = int.from_bytes(codes[codes[0] == EXTENSIBLE], "little")
    pcm = (PCM if code == FLOAT or codes[0] == EXTENSIBLE else code).to_bytes(2, "little")
    # A program that writes to a pipe may leave the size after RIFF empty.
    return code, b"".join([content[:4], b"\xff" * 4, content[8:position], pcm, content[position + 2 :]])


def read_clip(content: bytes, rate: int, count: int) -> np.ndarray:
    """Return the beginning of a WAV file as one channel at another rate, int16 `[count]`; zeros follow its end.

    Channels are averaged. Only the bytes of the clip are converted.

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
