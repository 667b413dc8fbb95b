"""Sound clips, stored as samples of one channel."""

import base64
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hetero_tf.base.sound_files import ENDINGS, FULL_SCALE, HIGHEST_RATE, LOWEST_RATE, read_header, read_samples
from hetero_tf.data.codecs import Assets, BaseCodec, Field, Form, Positive, decode_files
from hetero_tf.data.data_files import FileKind

if TYPE_CHECKING:
    import tensorflow as tf

SOUNDS = FileKind(
    "audio", "WAV files", "WAV", ENDINGS, (".mp3", ".flac", ".ogg", ".oga", ".opus", ".m4a", ".aac", ".aif", ".aiff")
)
# Seconds after a clip that resampling reads, since its filter treats a clip as periodic.
MARGIN = 0.1


@dataclass(frozen=True)
class Codec(BaseCodec):
    """Clips of one length.

    Attributes:
        samples: Samples of a clip.
        rate: Samples per second.
    """

    samples: Positive
    rate: Positive

    KIND, EXAMPLE, STORED = "audio", "clip", "audio int16 [n, samples]"
    DTYPES = (np.int16,)
    STEPS = ("adam", 0.002, 40)
    PIPELINES = {"classification": "audio-classification"}
    NOUN, PORTABLE, ITEMS = "clips", "serving_default", "serve_bytes"
    PREDICT, UNNAMED = "serving_default", ("serving_default",)
    FILES = SOUNDS

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.samples,)

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return rng.integers(-FULL_SCALE, FULL_SCALE, (count, self.samples)).astype(np.int16)

    def describe(self, fields: Sequence[Field], x: Any, summary: str | None) -> list[str]:
        seconds = self.samples / self.rate
        line = f"audio: {len(x):,} training clips of {seconds:.3g} s at {self.rate:,} Hz"
        return [line] if summary is None else [line, summary]

    def forms(self, name: str, assets: Assets) -> dict[str, Form]:
        """Return the forms: samples in -1..1, and WAV files of any rate and number of channels."""
        import tensorflow as tf

        def decode_clips(data):
            return decode_files(data, lambda file: decode_clip(file, self.rate, self.samples), (self.samples,))

        return {
            "serving_default": Form("samples", "float32", (self.samples,), tf.identity),
            "serve_bytes": Form("audio_bytes", "string", (), decode_clips),
        }

    def send(self, name: str, stored: np.ndarray) -> dict[str, np.ndarray]:
        return {"samples": stored.astype(np.float32) / FULL_SCALE}

    def notes(self, name: str, invalid: str) -> list[str]:
        seconds = self.samples / self.rate
        return [
            f"A clip has {self.samples:,} samples of one channel in -1..1, {seconds:g} seconds at {self.rate:,} "
            "samples per second; zeros follow the end of a shorter one. The model computes the spectrogram.",
            f"A clip with a sample that is not finite gets {invalid}.",
            "`serve_bytes` takes WAV files of 16 bits, any rate and any number of channels. It averages the channels, "
            f"converts the rate by the Fourier transform, and uses the first {seconds:g} seconds.",
            f"A file that is damaged or of another format gets {invalid}.",
        ]

    def read(self, content: bytes) -> np.ndarray:
        """Return the samples of a file in -1..1; `InputError` states the reason if it is not a clip."""
        return read_clip(content, self.rate, self.samples).astype(np.float32) / FULL_SCALE

    def example(self) -> Any:
        """Return a WAV file of a tone of 440 Hz."""
        import tensorflow as tf

        seconds = np.arange(self.samples, dtype=np.float32) / self.rate
        file = tf.audio.encode_wav(0.5 * np.sin(2 * np.pi * 440 * seconds)[:, None], self.rate)
        return {"b64": base64.b64encode(file.numpy()).decode()}


def read_clip(content: bytes, rate: int, count: int) -> np.ndarray:
    """Return the beginning of a WAV file as one channel at another rate, int16 `[count]`; zeros follow its end.

    Raises:
        InputError: The file has another format, is damaged, or has no samples. The text is the end of a sentence.
    """
    header = read_header(content, len(content))
    # A clip and its margin are a whole number of blocks, see `resample`.
    block = header.rate // math.gcd(header.rate, rate)
    samples = read_samples(content, header, math.ceil((count / rate + MARGIN) * header.rate) + block)
    clip = _build_resample(rate, count)(samples, header.rate).numpy()
    return np.minimum(np.rint(clip * FULL_SCALE), FULL_SCALE - 1).astype(np.int16)


def decode_clip(data: "tf.Tensor", rate: int, count: int) -> "tf.Tensor":
    """Return the beginning of a WAV file as one channel, float32 [count] in -1..1, like `read_clip` in Python.

    Zeros follow its end. The graph raises an error for a file that is damaged or has not 16 bits, the only ones that
    TensorFlow decodes.
    """
    import tensorflow as tf

    samples, source_rate = tf.audio.decode_wav(data)
    is_valid = (source_rate >= LOWEST_RATE) & (source_rate <= HIGHEST_RATE) & (tf.size(samples) > 0)
    with tf.control_dependencies([tf.debugging.Assert(is_valid, ["not a WAV file of a supported rate"])]):
        return resample(samples, source_rate, rate, count)


@functools.cache
def _build_resample(rate, count):
    import tensorflow as tf

    signature = [tf.TensorSpec((None, None), tf.float32), tf.TensorSpec((), tf.int32)]
    return tf.function(functools.partial(resample, rate=rate, count=count), input_signature=signature, autograph=False)


def resample(samples: "tf.Tensor", source_rate: "tf.Tensor", rate: int, count: int) -> "tf.Tensor":
    """Convert the beginning of a clip to one channel and another rate by the Fourier transform; zeros follow its end.

    Channels are averaged. Frequencies above half the lower rate are removed.

    Args:
        samples: float32 `[n, channels]`.
        source_rate: Samples per second of `samples`, a scalar int32.
        rate: Samples per second of the result.
        count: Length of the result.

    Returns:
        float32 `[count]` in -1..1.
    """
    import tensorflow as tf

    mono = tf.reduce_mean(samples, -1)

    def convert():
        # A block of `source_rate / blocks` samples has the duration of `rate / blocks` samples.
        divisors = tf.constant([number for number in range(1, rate + 1) if rate % number == 0])
        blocks = tf.reduce_max(tf.where(tf.equal(source_rate % divisors, 0), divisors, 1))
        periods = tf.cast(tf.math.ceil((count / rate + MARGIN) * tf.cast(blocks, tf.float64)), tf.int32)
        old, new = periods * (source_rate // blocks), periods * (rate // blocks)
        spectrum = tf.signal.rfft(mono, old[None])[: tf.minimum(old, new) // 2 + 1]
        return tf.signal.irfft(spectrum, new[None]) * tf.cast(new / old, tf.float32)

    clip = tf.cond(tf.equal(source_rate, rate), lambda: mono, convert)[:count]
    clip = tf.clip_by_value(clip, -1.0, 1.0)
    return tf.ensure_shape(tf.pad(clip, [[0, count - tf.size(clip)]]), [count])
