"""A `.keras` file, for further work with the model in Keras; its layers need this package."""

from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np

from hetero_tf.base import registry
from hetero_tf.export import saved_model
from hetero_tf.export.formats import ConversionSource
from hetero_tf.models.preprocessed import add_preprocessing, named_model

FILE, NEEDS, EXTRA, EXACT = "model.keras", (), "", True


def convert(source: ConversionSource, path: Path) -> dict:
    """Write a model with the inputs of the SavedModel (pixels, rows, samples, ids or arrays) that returns logits."""
    process = source.task.process
    model = add_preprocessing(source.task.model, process.input, process.dataset.train.x)
    with saved_model.writing(path.parent):
        functions = process.functions
        named_model(model, process.dataset.fields, functions.outputs, functions.strings).save(path)
    return {}


def load(path: str | Path) -> keras.Model:
    """Return the model of a file or folder, whose pixels are 0..1; the layers of this package are registered."""
    for name in registry.names("layers"):
        registry.find("layers", name)
    return keras.models.load_model(Path(path) / FILE if Path(path).is_dir() else path, compile=False)


def load_runtime(path: Path) -> Callable[..., dict[str, np.ndarray]]:
    """Return `(**inputs) -> outputs` of the file, {"logits": array} or several by name."""
    model = load(path)
    # The other formats have no strings either.
    model = next((layer for layer in model.layers if layer.name == "numbers"), model)

    def predict(**inputs):
        value = inputs if isinstance(model.input, dict) else next(iter(inputs.values()))
        outputs = model(value, training=False)
        outputs = outputs if isinstance(outputs, dict) else {"logits": outputs}
        return {name: np.asarray(each) for name, each in outputs.items()}

    return predict
