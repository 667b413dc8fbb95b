"""Export of a model for sound clips: signatures for samples and for bytes of WAV files."""

from collections.abc import Collection
from pathlib import Path

import numpy as np
import tensorflow as tf

from hetero_tf.base.sound_decoding import decode
from hetero_tf.base.sound_files import FULL_SCALE
from hetero_tf.export.labelled import LabelledTask
from hetero_tf.export.limits import LARGEST_TENSOR


class AudioTask(LabelledTask):
    """Export of a model for sound clips.

    A clip with a sample that is not finite, and a file that is damaged or not supported by `decode`, are invalid.
    """

    INPUT_NAME = "samples"
    PREDICT_SIGNATURE, PREDICT_DATA = "serving_default", "audio"
    PORTABLE_SIGNATURE = "serving_default"
    NOUN = "clips"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a clip: its number of samples."""
        return self.process.dataset.train.x.shape[1:]

    @property
    def rate(self) -> int:
        """Samples per second."""
        return self.process.input.spectrogram.rate

    def endpoints(self, scratch: Path) -> tuple[dict, tuple]:
        return {
            "serving_default": (self.serving_default, [tf.TensorSpec((None, *self.shape), tf.float32, "samples")]),
            "serve_bytes": (self.serve_bytes, [tf.TensorSpec((None,), tf.string, "audio_bytes")]),
        }, ()

    def serving_default(self, samples: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return outputs for samples float32 [n, samples] in -1..1."""
        return self.classify(self.check(samples, *self.shape))

    def serve_bytes(self, audio_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return outputs with class names for WAV files of any rate and number of channels, string [n]."""
        clips = self.decode_each(self.check(audio_bytes), lambda data, shape: decode(data, self.rate, *shape))
        return self.add_class_names(self.classify(clips))

    def request(self, x: np.ndarray) -> dict[str, np.ndarray]:
        return {self.INPUT_NAME: x.astype(np.float32) / FULL_SCALE}

    @property
    def max_batch_size(self) -> int:
        spectrogram, shape = self.process.input.spectrogram, self.process.input.shape(self.process.dataset.train.x)
        return max(min(super().max_batch_size, LARGEST_TENSOR // (shape[0] * spectrogram.width)), 1)

    @property
    def input_spec(self) -> dict:
        return {
            "kind": "audio",
            "shape": list(self.shape),
            "rate": self.rate,
            "samples": "-1..1 as float32",
            "normalised_by": self.process.input.normalised_by,
        }

    def notes(self, signatures: Collection[str]) -> list[str]:
        (samples,) = self.shape
        return [
            f"A clip has {samples:,} samples of one channel in -1..1, {samples / self.rate:g} seconds at {self.rate:,} "
            "samples per second; zeros follow the end of a shorter one. The model computes the spectrogram.",
            f"A clip with a sample that is not finite gets {self.invalid}.",
            "`serve_bytes` takes WAV files of 16 bits, any rate and any number of channels. It averages the channels, "
            f"converts the rate by the Fourier transform, and uses the first {samples / self.rate:g} seconds.",
            f"A file that is damaged or of another format gets {self.invalid}.",
            *self.target_notes,
        ]

    def example_call(self, signatures: Collection[str]) -> tuple[str, str, str]:
        call = 'audio_bytes=tf.constant([open("clip.wav", "rb").read()])'
        return "serve_bytes", call, self.targets.prediction_name
