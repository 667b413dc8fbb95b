"""A `.keras` file, for whoever goes on with the model in Keras; it needs this package for its layers."""

from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np

from hetero_tf.base import registry
from hetero_tf.export import saved_model
from hetero_tf.export.formats import Converted
from hetero_tf.export.kinds import kind_of

FILE, NEEDS, EXTRA, EXACT = "model.keras", (), "", True


def convert(model: Converted, path: Path) -> dict:
    """Writes a model that takes what the SavedModel takes, pixels in 0..1, rows or token ids, and gives logits."""
    with saved_model.writing(path.parent):
        normalised(model.model, kind_of(model.process.dataset).normalised_by(model.process)).save(path)
    return {}


def normalised(model: keras.Model, normalised_by: dict) -> keras.Model:
    """Returns a model behind the normalisation of its inputs; the model itself where there is none.

    Args:
        model: Takes normalised inputs.
        normalised_by: `{"mean", "std"}`, a value for each channel or feature; empty: no normalisation.
    """
    if not normalised_by:
        return model
    variance = np.square(normalised_by["std"])
    plain = keras.Input(model.inputs[0].shape[1:], dtype="float32", name="inputs")
    return keras.Model(plain, model(keras.layers.Normalization(mean=normalised_by["mean"], variance=variance)(plain)))


def load(path: str | Path) -> keras.Model:
    """Returns the model of a file; the layers of this package, and of plug-ins, are made known to Keras first."""
    for name in registry.names("layers"):
        registry.find("layers", name)
    return keras.models.load_model(path, compile=False)


def answering(path: Path) -> Callable[..., dict[str, np.ndarray]]:
    """Returns `(**inputs) -> {"logits": array}` of the file."""
    model = load(path)

    def answer(**inputs):
        (given,) = inputs.values()
        return {"logits": np.asarray(model(given, training=False))}

    return answer
