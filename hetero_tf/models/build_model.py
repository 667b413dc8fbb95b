"""Builds the recipe's Keras model at any width, with the same variable paths at every width."""

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
from hetero_tf.recipe.layer_table import KERAS_LAYERS
from hetero_tf.recipe.model import Classes, Model, Width
from hetero_tf.recipe.nodes import InvalidValue
from hetero_tf.recipe.shapes import takes_words

INITIALIZERS = {
    # PyTorch's default for linear layers: uniform in +-1/sqrt(fan_in).
    "fan_in_uniform": lambda: keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
}

LONGEST_SENTENCE = 300


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
) -> keras.Model:
    """Builds the layers of a recipe as a Keras model.

    Args:
        model: `recipe.model.Model`.
        shape: Of one input without the batch axis; floats, or int32 words where the first layer takes them.
        width: Share of channels in (0, 1], for `!w`.
        scale: Width divided by the global model's width, for the Scalers.
        classes: Length of the label axis, for `!classes`.
        dtype: Float type of weights and computation, or "mixed_bfloat16": float32 but for the products, whose factors
            and results are bfloat16. The logits may be too.
        seed: Of the initial values.
        clients: More than one builds the model's twin, which computes so many clients at once: each layer that has
            an argument `clients` gets it (see `layers.stacked`), images have `clients * channels` channels, and
            tokens and logits lead with an axis for the clients. Its initial values are of no use.
        route: `stages.Route`; None: the trunk alone.
        name: Of the Keras model.

    Returns:
        A functional `keras.Model` that gives logits, or a list of them where the route has several exits. A layer's
        variables have the same paths on every route.

    Raises:
        ValueError: A layer cannot take what the twin's layer before it gives.
        InvalidValue: A layer cannot take the output of the layer before it, or a unit cannot be frozen.
    """
    with seeded(seed):
        weight_dtype = keras.DTypePolicy(dtype).variable_dtype
        inputs = _inputs(shape, weight_dtype, clients, takes_words(model.layers[0].kind))
        make = functools.partial(
            _layer, width=width, classes=classes, dtype=dtype, supplied={"scale": scale, "clients": clients}
        )
        layers: dict[str, keras.layers.Layer] = {}
        link = _link(model, make, inputs, clients) if route is not None and route.linked else None
        if route is not None and route.buffered:
            inputs = keras.Input(_output_shape(model, make, inputs.shape, route.before.units)[1:], dtype=weight_dtype)
        built = keras.Model(inputs, _walk(model, make, layers, inputs, route, link), name=name)
    _freeze(model, layers)
    if clients == 1 and (route is None or route.exits):
        _check_outputs(model, built, shape == (None,), classes)
        if not built.trainable_variables:
            raise InvalidValue(("model", "layers"), "nothing is left to train; leave a unit out of model.frozen")
    for spec in model.layers:
        if spec.name in layers and spec.starts_as in layers:
            originals = layers[spec.starts_as].weights
            for variable, original in zip(layers[spec.name].weights, originals):
                variable.assign(original)
    return built


def _freeze(model, layers):
    """Makes constants of the weights of the units that the recipe freezes, as far as their layers are on the route."""
    for index, unit in enumerate(model.frozen):
        own = [(spec, layers[spec.name]) for spec in model.layers if spec.unit == unit and spec.name in layers]
        for spec, layer in own:
            if any(getattr(part, "TRACKS", ()) for part in (layer, *all_layers(layer))):
                raise InvalidValue(
                    spec.path,
                    f"{spec.kind} has running averages, which move in every step, so its unit cannot be frozen; "
                    f"use another norm. Received: model.frozen {', '.join(model.frozen)}",
                )
        if own and not any(layer.trainable_variables for _, layer in own):
            raise InvalidValue(("model", "frozen", index), f"has no effect, since unit {unit} has no weights to train")
        for _, layer in own:
            layer.trainable = False


def _check_outputs(model, built, text, classes):
    """Refuses a model that does not end in logits: [batch, positions, classes] of text, else [batch, classes]."""
    expected = (None, None, classes) if text else (None, classes)
    for output in built.outputs:
        if len(output.shape) != len(expected) or output.shape[-1] != classes:
            raise InvalidValue(
                model.layers[-1].path,
                f"the model must end in logits of the shape {expected}, None for the batch and positions. "
                f"Received: {tuple(output.shape)}",
            )


def _is_on(spec, route):
    """Whether a layer lies on a route."""
    if route is None:
        return spec.exit is None
    return spec.unit in route.stepped if spec.exit is None else spec.exit in route.exits


def _walk(model, make, layers, inputs, route, link):
    """The logits at the end of the layers that lie on a route, or the list of them in the order of its exits.

    Each layer is made just before it is called, and added to `layers`: some initialisers draw their seeds when they are
    made and others when they are built, so the order decides the initial values.
    """
    value, branches = inputs, {}
    units = set(route.before.units) if route is not None and route.buffered else set()
    for spec in model.layers:
        if not _is_on(spec, route):
            continue
        with _naming(spec) as run:
            with _placed(spec):
                layers[spec.name] = run(make, spec)
            if spec.exit is not None:
                with _placed(spec):
                    branches[spec.exit] = run(layers[spec.name], branches.get(spec.exit, value))
                continue
            if spec.unit not in units:
                first = route is not None and len(units) == route.frozen > 0
                value = keras.ops.stop_gradient(value) if first else value
                value = link(value) if link is not None and spec.unit == model.trunk[-1] else value
                units.add(spec.unit)
            with _placed(spec):
                value = run(layers[spec.name], value)
    if not branches:
        return value
    logits = [branches.get(number, value) for number in route.exits]
    return logits[0] if len(logits) == 1 else logits


@contextlib.contextmanager
def _naming(spec):
    """Yields `(function, *args) -> result`, in which unnamed sublayers get the same names in every model.

    Keras numbers unnamed layers in each thread. A plug-in's layer gets a thread of its own, so the number depends on
    the position in the layer alone: paths of weights are alike at every level and in every process.
    """
    if not registry.is_plugged("layers", spec.kind):
        yield lambda function, *args: function(*args)
        return
    with ThreadPoolExecutor(1) as thread:
        yield lambda function, *args: thread.submit(function, *args).result()


@contextlib.contextmanager
def _placed(spec):
    """Turns what a layer raises into one sentence that names the layer's place in the recipe."""
    try:
        yield
    except (UserError, MemoryError, tf.errors.ResourceExhaustedError) as problem:
        if not isinstance(problem, InputError) or isinstance(problem, InvalidValue):
            raise
        raise InvalidValue(spec.path, str(problem)) from problem
    # A layer of a plug-in may fail in any way.
    except Exception as problem:
        raise InvalidValue(spec.path, f"{spec.kind} cannot be built here: {first_sentence(problem)}") from problem


def first_sentence(problem: Exception) -> str:
    """Returns the first sentence of what Keras or TensorFlow says, without terminal codes and its own preface."""
    text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(problem)).split())
    text = re.sub(r"^Exception encountered when calling \S+ ", "", text)
    sentence = re.split(r"(?<=[.!])\s+(?=[A-Z])", text, maxsplit=1)[0].removesuffix(".")
    return (sentence or type(problem).__name__)[:LONGEST_SENTENCE]


def _link(model, make, inputs, clients):
    """The layer that brings a map to the size that the head takes; None where a model has no maps to bring."""
    shape = _output_shape(model, make, inputs.shape, model.trunk[:-1])
    if len(shape) != 4:
        return None
    # Without a type Keras would cast float64 maps to float32.
    return Link(shape[1], shape[-1] // clients, clients, name="link", dtype=inputs.dtype)


def _output_shape(model, make, shape, units):
    """Returns the shape of what the given first units of the trunk hand on."""
    for spec in model.layers:
        if spec.exit is None and spec.unit in units:
            with _placed(spec):
                shape = make(spec).compute_output_shape(shape)
    return shape


def _inputs(shape, dtype, clients, words):
    if not words:
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
    # A policy goes in by its name: Keras records no other form of it in the config of a layer.
    # Only what computes products gains from a mixed policy, and sums in bfloat16 would lose digits.
    products = spec.kind in MIXED or getattr(layer_class(spec.kind), "HAS_PRODUCTS", False)
    return layer_class(spec.kind, supplied["clients"], mixed)(
        **args, name=spec.name, dtype=dtype if products else policy.variable_dtype
    )


def layer_class(name: str, clients: int = 1, mixed: bool = False) -> Callable[..., keras.layers.Layer]:
    """Returns the class of a layer: one of ours, one of a plug-in, or one of the table of ordinary Keras layers.

    What stands in for a Keras layer where it computes several clients at once knows how many they are; under a
    `mixed` policy others stand in for those with products.
    """
    ours = registry.names("layers")
    if name in ours:
        return getattr(registry.find("layers", name), name)
    if name not in KERAS_LAYERS:
        raise InputError(f"no layer {name!r}{did_you_mean(name, [*ours, *KERAS_LAYERS])}")
    return keras_layer(name, clients, mixed)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Fixes Python's generator, from which Keras draws the seeds of initialisers, and gives it back as it was."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
