"""A `.keras` file, for whoever goes on with the model in Keras; it needs this package for its layers."""

from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np

from hetero_tf.base import registry
from hetero_tf.export import saved_model
from hetero_tf.export.formats import Converted
from hetero_tf.models.preprocessed import normalised

FILE, NEEDS, EXTRA, EXACT = "model.keras", (), "", True


def convert(model: Converted, path: Path) -> dict:
    """Writes a model that takes what the SavedModel takes, pixels in 0..1, rows or token ids, and gives logits."""
    with saved_model.writing(path.parent):
        normalised(model.model, model.process.input.normalised_by).save(path)
    return {}


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
