"""Input pipeline for labelled sound clips: log-mel spectrograms, computed in the graph."""

from typing import Annotated

import tensorflow as tf

from hetero_tf.base.constraints import Range
from hetero_tf.base.sound_files import FULL_SCALE
from hetero_tf.data.inputs import Input
from hetero_tf.data.inputs.spectrogram import Spectrogram

DATA = "audio"
FORM = "map"
TARGETS = "label"

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
