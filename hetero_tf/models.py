"""Builds the recipe's Keras model at any width, with the same variable paths at every width."""

import contextlib
import random

import keras

from hetero_tf import registry
from hetero_tf.errors import BadInput, did_you_mean
from hetero_tf.recipe.layer_table import KERAS_LAYERS
from hetero_tf.recipe.schema import Classes, Width

INITIALIZERS = {
    # PyTorch's default for linear layers: uniform in +-1/sqrt(fan_in).
    "fan_in_uniform": lambda: keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform"),
}


def build_model(model, shape, width, scale=1.0, classes=10, dtype="float32", seed=0):
    """The layers of a recipe as a Keras model.

    Args:
        model: `recipe.schema.Model`.
        shape: Of one input without the batch axis; float pixels, or int32 tokens where it is `(None,)`.
        width: Share of channels in (0, 1], for `!w`.
        scale: Width divided by the global model's width, for the Scalers.
        classes: Length of the label axis, for `!classes`.
        dtype: Float type of weights and computation.
        seed: Of the initial values.

    Returns:
        A functional `keras.Model` that gives logits.
    """
    with _seeded(seed):
        inputs = keras.Input(shape, dtype="int32" if shape == (None,) else dtype, name="inputs")
        outputs, layers = inputs, {}
        for spec in model.layers:
            layers[spec.name] = _layer(spec, width, scale, classes, dtype)
            outputs = layers[spec.name](outputs)
        built = keras.Model(inputs, outputs, name="model")
    for spec in model.layers:
        if spec.alike is not None:
            layers[spec.name].set_weights(layers[spec.alike].get_weights())
    return built


def _layer(spec, width, scale, classes, dtype):
    """One Keras layer from its spec, with `!w`, `!classes` and the level's scale filled in."""
    sizes = {Width: lambda value: value.at(width), Classes: lambda value: classes}
    args = {}
    for name, value in spec.args.items():
        value = sizes.get(type(value), lambda same: same)(value)
        args[name] = INITIALIZERS[value]() if isinstance(value, str) and value in INITIALIZERS else value
    if "scale" in registry.level_arguments(spec.kind):
        args["scale"] = scale
    return layer_class(spec.kind)(**args, name=spec.name, dtype=dtype)


def layer_class(name):
    """The class of a layer: one of ours, one of a plug-in, or one of the table of ordinary Keras layers."""
    ours = registry.names("layers")
    if name in ours:
        return getattr(registry.find("layers", name), name)
    if name not in KERAS_LAYERS:
        raise BadInput(f"no layer {name!r}{did_you_mean(name, [*ours, *KERAS_LAYERS])}")
    return getattr(keras.layers, name)


@contextlib.contextmanager
def _seeded(seed):
    """Keras draws the seeds of initialisers from Python's generator: fix it here and give it back as it was."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


def is_seed(variable):
    """Whether a non-trainable variable is the state of a random generator, such as a Dropout's."""
    return variable.path.endswith("seed_generator_state")


def all_layers(model):
    """Every layer below `model`, those inside composite layers too."""
    return model._flatten_layers(include_self=False)
