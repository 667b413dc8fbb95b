"""Input pipeline for labelled sound clips: log-mel spectrograms as matrix products, for every export format."""

import functools
import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import tensorflow as tf

from hetero_tf.base.constraints import Range
from hetero_tf.base.errors import InputError
from hetero_tf.base.sound_files import FULL_SCALE
from hetero_tf.data.inputs import Input

DATA = "audio"
FORM = "map"
TARGETS = "label"

# Added to the energy of a band, so that silence has a logarithm.
OFFSET = 1e-6
# Lower end of the lowest band in hertz.
LOWEST_FREQUENCY = 20.0

Duration = Annotated[float, Range(above=0.0, high=10.0)]
# Logarithms of energies are far inside these bounds.
Level = Annotated[float, Range(low=-100.0, high=100.0)]


def build(
    dtype: tf.DType,
    *,
    window: Duration = 0.025,
    hop: Duration = 0.01,
    bands: Annotated[int, Range(low=1, high=512)] = 40,
    mean: Level = 0.0,
    std: Annotated[float, Range(low=1e-6, high=100.0)] = 1.0,
    rate=16_000,
) -> Input:
    """Make batches of log-mel spectrograms, maps of frames, mel bands and one channel.

    Args:
        window: seconds of a frame
        hop: seconds between the starts of two frames
        bands: number of mel bands
        mean: mean of the spectrograms, subtracted from them
        std: standard deviation of the spectrograms; divides the result
        rate: Samples per second, from the codec.

    Raises:
        InputError: See `Spectrogram.of_seconds`.
    """
    spectrogram = Spectrogram.of_seconds(rate, window, hop, bands)

    def batch(x, y, rows, start, key, labels, training, length=None):
        clips = tf.gather(x, rows)
        samples = tf.cast(clips, dtype) / (1 if clips.dtype.is_floating else FULL_SCALE)
        return (spectrogram(samples) - mean) / std, labels.local(tf.gather(y, rows))

    return Input(
        batch,
        shape=lambda x: (spectrogram.frames(x.shape[1]), bands, 1),
        normalised_by={"mean": [mean], "std": [std]},
        spectrogram=spectrogram,
    )


@dataclass(frozen=True)
class Spectrogram:
    """The logarithm of the energy in mel bands over time, a map of one channel.

    The discrete Fourier transform is a product with a constant matrix of sines and cosines under a periodic Hann
    window. Its length is the next power of two. Bands are triangles on the mel scale of HTK, from 20 Hz to half of the
    rate. The values equal `log(abs(tf.signal.stft(x, window, hop))**2 @ tf.signal.linear_to_mel_weight_matrix(...) +
    1e-6)`.

    Attributes:
        rate: Samples per second.
        window: Samples of a frame.
        hop: Samples between the starts of two frames.
        bands: Number of mel bands.
    """

    rate: int
    window: int
    hop: int
    bands: int

    @classmethod
    def of_seconds(cls, rate: int, window: float, hop: float, bands: int) -> "Spectrogram":
        """Return the spectrogram for durations in seconds.

        Raises:
            InputError: A duration is too short for the rate, or a band has no frequency.
        """
        spectrogram = cls(rate, round(window * rate), round(hop * rate), bands)
        if min(spectrogram.window - 1, spectrogram.hop) < 1:
            raise InputError(
                f"`window` and `hop` must have at least 2 and 1 samples at {rate} Hz. Received: {window=}, {hop=}"
            )
        if not spectrogram.mel_weights.any(0).all():
            raise InputError(
                f"`bands` is too large for `window`: a mel band has no frequency at {rate} Hz; use fewer bands or a "
                f"longer window. Received: {bands=}, {window=}"
            )
        return spectrogram

    def frames(self, samples: int) -> int:
        """Return the number of frames of a clip; `InputError` if it is shorter than one."""
        if samples < self.window:
            raise InputError(
                f"input.window is longer than a clip; use a shorter `window` or longer clips. Received: {self.window} "
                f"samples, clips of {samples}"
            )
        return 1 + (samples - self.window) // self.hop

    @property
    def _length(self):
        """Length of the Fourier transform."""
        return 2 ** math.ceil(math.log2(self.window))

    @property
    def width(self) -> int:
        """Number of values of a frame before the bands."""
        return 2 * (self._length // 2 + 1)

    @functools.cached_property
    def mel_weights(self) -> np.ndarray:
        """Weight of each frequency in each band, float64 `[frequencies, bands]`."""

        def mel(hertz):
            return 1127.0 * np.log1p(np.asarray(hertz) / 700.0)

        edges = np.linspace(mel(LOWEST_FREQUENCY), mel(self.rate / 2), self.bands + 2)
        frequencies = mel(np.arange(self._length // 2 + 1) * self.rate / self._length)[:, None]
        low, center, high = edges[:-2], edges[1:-1], edges[2:]
        weights = np.minimum((frequencies - low) / (center - low), (high - frequencies) / (high - center))
        return np.maximum(weights, 0) * (frequencies > 0)

    @functools.cached_property
    def _basis(self):
        """Windowed cosines, then sines, float64 `[whole hops, 2 * frequencies]`; zeros follow the window."""
        position = np.arange(self.window)
        hann = 0.5 - 0.5 * np.cos(2 * np.pi * position / self.window)
        angles = 2 * np.pi / self._length * np.outer(position, np.arange(self._length // 2 + 1))
        basis = hann[:, None] * np.concatenate([np.cos(angles), np.sin(angles)], 1)
        return np.pad(basis, ((0, -self.window % self.hop), (0, 0)))

    def __call__(self, samples: tf.Tensor) -> tf.Tensor:
        """Return the spectrograms [..., frames, bands, 1] of clips [..., samples]."""
        count, dtype = samples.shape[-1], samples.dtype
        frames, steps = self.frames(count), len(self._basis) // self.hop
        length = (frames - 1 + steps) * self.hop
        flat = tf.reshape(samples, [-1, count])[:, :length]
        hops = tf.reshape(tf.pad(flat, [[0, 0], [0, length - min(count, length)]]), [-1, frames - 1 + steps, self.hop])
        # A frame consists of consecutive hops.
        rows = tf.concat([hops[:, step : step + frames] for step in range(steps)], -1)
        waves = tf.matmul(tf.reshape(rows, [-1, steps * self.hop]), tf.constant(self._basis, dtype))
        cosines, sines = tf.split(tf.square(waves), 2, -1)
        energies = tf.matmul(cosines + sines, tf.constant(self.mel_weights, dtype))
        maps = tf.reshape(tf.math.log(energies + OFFSET), [-1, frames, self.bands, 1])
        if samples.shape.rank == 2:
            return maps
        shape = tf.concat([tf.shape(samples)[:-1], tf.shape(maps)[1:]], 0)
        return tf.ensure_shape(tf.reshape(maps, shape), [*samples.shape[:-1], *maps.shape[1:]])
