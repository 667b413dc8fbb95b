"""Builds the recipe's Keras model at any width, with the same variable paths at every width."""

import contextlib
import random

import keras

from hetero_tf import registry
from hetero_tf.errors import BadInput, did_you_mean
from hetero_tf.layers.stacked import MIXED, keras_layer
from hetero_tf.recipe.layer_table import KERAS_LAYERS
from hetero_tf.recipe.schema import Classes, Width

INITIALIZERS = {
    # PyTorch's default for linear layers: uniform in +-1/sqrt(fan_in).
    "fan_in_uniform": lambda: keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform"),
}


def build_model(model, shape, width, scale=1.0, classes=10, dtype="float32", seed=0, clients=1):
    """The layers of a recipe as a Keras model.

    Args:
        model: `recipe.schema.Model`.
        shape: Of one input without the batch axis; float pixels, or int32 tokens where it is `(None,)`.
        width: Share of channels in (0, 1], for `!w`.
        scale: Width divided by the global model's width, for the Scalers.
        classes: Length of the label axis, for `!classes`.
        dtype: Float type of weights and computation, or "mixed_bfloat16": float32 but for the products, whose factors
            and results are bfloat16. The logits may be too.
        seed: Of the initial values.
        clients: More than one builds the model's twin, which computes so many clients at once: each layer that has
            an argument `clients` gets it (see `layers.stacked`), images have `clients * channels` channels, and
            tokens and logits lead with an axis for the clients. Its initial values are of no use.

    Returns:
        A functional `keras.Model` that gives logits.

    Raises:
        ValueError: A layer cannot take what the twin's layer before it gives.
    """
    with _seeded(seed):
        inputs = _inputs(shape, keras.DTypePolicy(dtype).variable_dtype, clients)
        outputs, layers = inputs, {}
        for spec in model.layers:
            layers[spec.name] = _layer(spec, width, classes, dtype, {"scale": scale, "clients": clients})
            outputs = layers[spec.name](outputs)
        built = keras.Model(inputs, outputs, name="model")
    for spec in model.layers:
        if spec.alike is not None:
            for own, first in zip(layers[spec.name].trainable_variables, layers[spec.alike].trainable_variables):
                own.assign(first)
    return built


def _inputs(shape, dtype, clients):
    if shape != (None,):
        return keras.Input((*shape[:-1], clients * shape[-1]), dtype=dtype, name="inputs")
    if clients == 1:
        return keras.Input(shape, dtype="int32", name="inputs")
    return keras.Input(batch_shape=(clients, None, *shape), dtype="int32", name="inputs")


def _layer(spec, width, classes, dtype, supplied):
    """One Keras layer from its spec, with `!w`, `!classes` and those of the `supplied` arguments that it takes."""
    sizes = {Width: lambda value: value.at(width), Classes: lambda value: classes}
    args = {}
    for name, value in spec.args.items():
        value = sizes.get(type(value), lambda same: same)(value)
        args[name] = INITIALIZERS[value]() if isinstance(value, str) and value in INITIALIZERS else value
    args.update({name: supplied[name] for name in registry.level_arguments(spec.kind)})
    policy = keras.DTypePolicy(dtype)
    mixed = policy.compute_dtype != policy.variable_dtype
    # Only what computes products gains from a mixed policy, and sums in bfloat16 would lose digits.
    products = spec.kind in MIXED or getattr(layer_class(spec.kind), "HAS_PRODUCTS", False)
    return layer_class(spec.kind, supplied["clients"], mixed)(
        **args, name=spec.name, dtype=policy if products else policy.variable_dtype)


def layer_class(name, clients=1, mixed=False):
    """The class of a layer: one of ours, one of a plug-in, or one of the table of ordinary Keras layers.

    What stands in for a Keras layer where it computes several clients at once knows how many they are; under a
    `mixed` policy others stand in for those with products.
    """
    ours = registry.names("layers")
    if name in ours:
        return getattr(registry.find("layers", name), name)
    if name not in KERAS_LAYERS:
        raise BadInput(f"no layer {name!r}{did_you_mean(name, [*ours, *KERAS_LAYERS])}")
    return keras_layer(name, clients, mixed)


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
