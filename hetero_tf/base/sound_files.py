"""Reads the samples of WAV files of 8, 16, 24 and 32 bits.

Reference for the codes of formats: Microsoft's WAVEFORMATEX and WAVEFORMATEXTENSIBLE.
"""

import io
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
FULL_SCALE = 2**15
PCM, EXTENSIBLE = b"\1\0", b"\xfe\xff"
_ADVICE = "save it as WAV of 8, 16, 24 or 32 bits, for example with ffmpeg -i FILE -c:a pcm_s16le NEW.wav"


@dataclass(frozen=True)
class WavHeader:
    """Format and position of the samples of a WAV file.

    Attributes:
        sample_bytes: Bytes of a sample of one channel, 1 to 4.
        first: Position of the first sample in bytes.
        frames: Samples of each channel that are in the file.
    """

    rate: int
    channels: int
    sample_bytes: int
    first: int
    frames: int

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
    file = io.BytesIO(_as_pcm(content))
    try:
        with wave.open(file) as reader:
            first, (channels, sample_bytes, rate, declared, *_) = file.tell(), reader.getparams()
    except (wave.Error, EOFError) as error:
        raise InputError(f"is not a readable WAV file: {error or 'it is cut off'}; {_ADVICE}") from error
    if sample_bytes > 4:
        raise InputError(f"has an unsupported format ({8 * sample_bytes} bits); {_ADVICE}")
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        limits = f"{LOWEST_RATE:,} to {HIGHEST_RATE:,} samples per second"
        raise InputError(f"must have {limits}. Received: {rate:,}")
    frame_bytes = channels * sample_bytes
    available = max(file_bytes - first, 0) // frame_bytes
    if declared > available and declared != UNKNOWN_SIZE // frame_bytes:
        raise InputError("is cut off before its end; copy it again")
    if not min(declared, available):
        raise InputError("has no samples; remove it or copy it again")
    return WavHeader(rate, channels, sample_bytes, first, min(declared, available))


def _as_pcm(content):
    """Return a file whose extensible header of PCM is a plain one, which `wave` reads in every version of Python."""
    position = content.find(b"fmt ") + 8
    code = content[position : position + 2]
    if code == EXTENSIBLE and content[position + 24 : position + 26] == PCM:
        code = PCM
    # A program that writes to a pipe may leave the size after RIFF empty.
    return b"".join([content[:4], b"\xff" * 4, content[8:position], code, content[position + 2 :]])


def read_samples(content: bytes, header: WavHeader, frames: int) -> np.ndarray:
    """Return the beginning of a WAV file, float32 `[n, channels]` in -1..1, where `n` is at most `frames`."""
    count = min(header.frames, frames) * header.channels
    data = np.frombuffer(content, np.uint8, count * header.sample_bytes, header.first)
    # The bytes of a sample become the upper ones of 32 bits; samples of 8 bits are unsigned.
    padded = np.zeros((count, 4), np.uint8)
    padded[:, 4 - header.sample_bytes :] = data.reshape(count, -1) ^ (128 if header.sample_bytes == 1 else 0)
    return padded.view("<i4").reshape(-1, header.channels).astype(np.float32) / 2**31
