"""Sound clips, stored as samples of one channel."""

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetero_tf.base.sound_files import FULL_SCALE, read_clip
from hetero_tf.data.audio import SOUNDS
from hetero_tf.data.codecs import Assets, BaseCodec, Form, decode_files


@dataclass(frozen=True)
class Codec(BaseCodec):
    """Clips of one length.

    Attributes:
        samples: Samples of a clip.
        rate: Samples per second.
    """

    samples: int
    rate: int

    NOUN, PORTABLE, ITEMS = "clips", "serving_default", "serve_bytes"
    PREDICT, UNNAMED = "serving_default", ("serving_default",)
    FILES = SOUNDS

    def forms(self, name: str, assets: Assets) -> dict[str, Form]:
        """Return the forms: samples in -1..1, and WAV files of any rate and number of channels."""
        import tensorflow as tf

        from hetero_tf.base.sound_decoding import decode

        def decode_clips(data):
            return decode_files(data, lambda file: decode(file, self.rate, self.samples), (self.samples,))

        return {
            "serving_default": Form("samples", "float32", (self.samples,), tf.identity),
            "serve_bytes": Form("audio_bytes", "string", (), decode_clips),
        }

    def send(self, name: str, stored: np.ndarray) -> dict[str, np.ndarray]:
        return {"samples": stored.astype(np.float32) / FULL_SCALE}

    @property
    def blank(self) -> np.ndarray:
        return np.zeros(self.samples, np.float32)

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

    def call(self, name: str) -> str:
        return 'audio_bytes=tf.constant([open("clip.wav", "rb").read()])'
