"""Builds the Keras model of a recipe at any width, with the same variable paths at every width."""

import contextlib
import functools
import random
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import keras
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError, UserError, did_you_mean
from hetero_tf.layers.link import Link
from hetero_tf.layers.stacked import MIXED, keras_layer
from hetero_tf.methods.stages import Route
from hetero_tf.models.variables import all_layers
from hetero_tf.recipe.geometry import KERAS_LAYERS, geometry_of, size_at
from hetero_tf.recipe.model import Model
from hetero_tf.recipe.nodes import InvalidValue

INITIALIZERS = {
    # PyTorch's default for linear layers: uniform in +-1/sqrt(fan_in).
    "fan_in_uniform": lambda: keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
}

MAX_SENTENCE = 300


def build_model(
    model: Model,
    shape: tuple[int | None, ...],
    width: float,
    scale: float = 1.0,
    classes: int = 10,
    dtype: str = "float32",
    seed: int = 0,
    clients: int = 1,
    route: Route | None = None,
    name: str = "model",
    label_map: bool = False,
) -> keras.Model:
    """Build the layers of a recipe as a Keras model.

    Args:
        shape: Shape of one input without the batch axis; floats, or int32 words where the first layer takes them.
        width: Share of channels in (0, 1], for `!w`.
        scale: Width divided by the global model's width, for the Scalers.
        classes: Length of the label axis, for `!classes`.
        dtype: Float type of weights and computation, or "mixed_bfloat16": float32 except for products, whose factors
            and results are bfloat16. The logits may be bfloat16 too.
        seed: Seed of the initial values.
        clients: More than one builds the batched model, which computes this number of clients at once: each layer with
            an argument `clients` gets it (see `layers.stacked`), images have `clients * channels` channels, and
            tokens and logits lead with a client axis. Its initial values are unused.
        route: `stages.Route`, or None for the trunk without exits.
        label_map: True for a model that returns logits for every pixel.

    Returns:
        A functional `keras.Model` that returns logits, or a list of them if the route has several exits. A layer's
        variables have the same paths on every route.

    Raises:
        ValueError: A layer of the batched model does not accept the output of the layer before it.
        InvalidValue: A layer does not accept the output of the layer before it, or a unit cannot be frozen.
    """
    with seeded(seed):
        weight_dtype = keras.DTypePolicy(dtype).variable_dtype
        inputs = _inputs(shape, weight_dtype, clients, geometry_of(model.layers[0].kind).inputs == "words")
        make = functools.partial(
            _layer, width=width, classes=classes, dtype=dtype, supplied={"scale": scale, "clients": clients}
        )
        layers: dict[str, keras.layers.Layer] = {}
        link = _link(model, make, inputs, clients) if route is not None and route.linked else None
        built = keras.Model(inputs, _walk(model, make, layers, inputs, route, link), name=name)
    _freeze(model, layers)
    if clients == 1:
        _check_outputs(model, built, 3 if label_map else 2 if shape == (None,) else 1, classes)
        if not built.trainable_variables:
            raise InvalidValue(("model", "layers"), "no weights are left to train; leave a unit out of model.frozen")
    for spec in model.layers:
        if spec.name in layers and spec.starts_as in layers:
            originals = layers[spec.starts_as].weights
            for variable, original in zip(layers[spec.name].weights, originals):
                variable.assign(original)
    return built


def _freeze(model, layers):
    """Make the weights of frozen units constant, for the layers that are on the route."""
    for index, unit in enumerate(model.frozen):
        unit_layers = [(spec, layers[spec.name]) for spec in model.layers if spec.unit == unit and spec.name in layers]
        for spec, layer in unit_layers:
            if any(getattr(part, "TRACKS", ()) for part in (layer, *all_layers(layer))):
                raise InvalidValue(
                    spec.path,
                    f"{spec.kind} has running averages, which move in every step, so its unit cannot be frozen; "
                    f"use another norm. Received: model.frozen {', '.join(model.frozen)}",
                )
        if unit_layers and not any(layer.trainable_variables for _, layer in unit_layers):
            raise InvalidValue(("model", "frozen", index), f"has no effect, since unit {unit} has no weights to train")
        for _, layer in unit_layers:
            layer.trainable = False


def _check_outputs(model, built, rank, classes):
    """Refuse a model that does not end in logits; `rank`: 1 for a vector of each example, 2 for text, 3 for a map."""
    for output in built.outputs:
        # `recipe.geometry` knows neither the layers of plug-ins nor stages that skip units.
        if len(output.shape) != rank + 1 or output.shape[-1] != classes:
            is_map = rank == 1 and len(output.shape) == 4
            advice = "; put the pooling into the last unit: [GlobalAveragePooling2D, Dense: ...]" if is_map else ""
            raise InvalidValue(
                model.layers[-1].path,
                f"the model must end in logits of the shape {(*[None] * rank, classes)}, None for the batch and "
                f"positions{advice}. Received: {tuple(output.shape)}",
            )


def _walk(model, make, layers, inputs, route, link):
    """Return the logits at the end of a route's layers, or the list of them in the order of its exits.

    Each layer is created just before it is called, and added to `layers`: some initialisers draw their seeds when they
    are created and others when they are built, so the order decides the initial values.
    """
    value = inputs
    branches: dict[int, keras.KerasTensor] = {}
    units: set[str] = set()
    for spec in model.layers:
        if route is None:
            is_on_route = spec.exit is None
        else:
            is_on_route = spec.unit in route.units if spec.exit is None else spec.exit in route.exits
        if not is_on_route:
            continue
        with _naming(spec) as run:
            with _with_recipe_path(spec):
                layers[spec.name] = run(make, spec)
            if spec.exit is not None:
                with _with_recipe_path(spec):
                    branches[spec.exit] = run(layers[spec.name], branches.get(spec.exit, value))
                continue
            if spec.unit not in units:
                is_first_trained = route is not None and len(units) == route.frozen > 0
                value = keras.ops.stop_gradient(value) if is_first_trained else value
                value = link(value) if link is not None and spec.unit == model.trunk[-1] else value
                units.add(spec.unit)
            with _with_recipe_path(spec):
                value = run(layers[spec.name], value)
    if not branches:
        return value
    logits = [branches.get(number, value) for number in route.exits]
    return logits[0] if len(logits) == 1 else logits


@contextlib.contextmanager
def _naming(spec):
    """Yield `(function, *args) -> result`, which gives unnamed sublayers the same names in every model.

    Keras numbers unnamed layers in each thread. A plug-in's layer is created in a new thread, so the number depends on
    the position in the layer alone: weight paths are equal at every level and in every process.
    """
    if not registry.is_registered("layers", spec.kind):
        yield lambda function, *args: function(*args)
        return
    with ThreadPoolExecutor(1) as thread:
        yield lambda function, *args: thread.submit(function, *args).result()


@contextlib.contextmanager
def _with_recipe_path(spec):
    """Turn an error of a layer into one sentence with the layer's path in the recipe."""
    try:
        yield
    except (UserError, MemoryError, tf.errors.ResourceExhaustedError) as error:
        if not isinstance(error, InputError) or isinstance(error, InvalidValue):
            raise
        raise InvalidValue(spec.path, str(error)) from error
    # A plug-in's layer may raise anything.
    except Exception as error:
        raise InvalidValue(spec.path, f"{spec.kind} cannot be built here: {first_sentence(error)}") from error


def first_sentence(error: Exception) -> str:
    """Return the first sentence of a Keras or TensorFlow error, without terminal codes and Keras' preface."""
    text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split())
    text = re.sub(r"^Exception encountered when calling \S+ ", "", text)
    sentence = re.split(r"(?<=[.!])\s+(?=[A-Z])", text, maxsplit=1)[0].removesuffix(".")
    return (sentence or type(error).__name__)[:MAX_SENTENCE]


def _link(model, make, inputs, clients):
    """Return the layer that resizes a map to the head's input; None if the model has no maps."""
    shape = _output_shape(model, make, inputs.shape, model.trunk[:-1])
    if len(shape) != 4:
        return None
    # Without a dtype Keras would cast float64 maps to float32.
    return Link(shape[1], shape[-1] // clients, clients, name="link", dtype=inputs.dtype)


def _output_shape(model, make, shape, units):
    """Return the output shape of the given first units of the trunk."""
    for spec in model.layers:
        if spec.exit is None and spec.unit in units:
            with _with_recipe_path(spec):
                shape = make(spec).compute_output_shape(shape)
    return shape


def _inputs(shape, dtype, clients, words):
    if not words:
        return keras.Input((*shape[:-1], clients * shape[-1]), dtype=dtype, name="inputs")
    if clients == 1:
        return keras.Input(shape, dtype="int32", name="inputs")
    return keras.Input(batch_shape=(clients, None, *shape), dtype="int32", name="inputs")


def _layer(spec, width, classes, dtype, supplied):
    """Build a Keras layer from its spec, with `!w`, `!classes` and those of the `supplied` arguments that it takes."""
    args = {name: size_at(value, width, classes) for name, value in spec.args.items()}
    args = {name: INITIALIZERS[value]() if value in INITIALIZERS else value for name, value in args.items()}
    args.update({name: supplied[name] for name in registry.level_arguments(spec.kind)})
    policy = keras.DTypePolicy(dtype)
    mixed = policy.compute_dtype != policy.variable_dtype
    # Pass the policy by name: Keras records no other form of it in a layer's config.
    # Only layers with products gain from a mixed policy; sums in bfloat16 would lose digits.
    products = spec.kind in MIXED or getattr(layer_class(spec.kind), "HAS_PRODUCTS", False)
    return layer_class(spec.kind, supplied["clients"], mixed)(
        **args, name=spec.name, dtype=dtype if products else policy.variable_dtype
    )


def layer_class(name: str, clients: int = 1, mixed: bool = False) -> Callable[..., keras.layers.Layer]:
    """Return the class of a layer: one of this package, of a plug-in, or of the table of ordinary Keras layers.

    Batched forms of a Keras layer know the number of clients; a `mixed` policy selects other forms of the layers with
    products.
    """
    layer_names = registry.names("layers")
    if name in layer_names:
        return getattr(registry.find("layers", name), name)
    if name not in KERAS_LAYERS:
        raise InputError(f"no layer {name!r}{did_you_mean(name, [*layer_names, *KERAS_LAYERS])}")
    return keras_layer(name, clients, mixed)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed Python's random generator, from which Keras draws the seeds of initialisers; restore its state on exit."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
