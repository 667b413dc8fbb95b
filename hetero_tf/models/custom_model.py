"""Custom models: a Python function that builds a Keras model at a width, instead of the layers of a recipe.

The cut of each level follows from the shapes of the variables, so a model only needs the same layers with the same
names at every width. Clients of such a model are computed one by one.
"""

import collections
import contextlib
import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.base.registry import snake_case
from hetero_tf.layers.static_batch_normalization import StaticBatchNormalization
from hetero_tf.models.build_model import seeded
from hetero_tf.models.requirements import check_structure, check_training, describe_failure, has_embedding
from hetero_tf.models.variables import all_layers
from hetero_tf.recipe.model import LayerSpec, Width
from hetero_tf.recipe.schema import Recipe

# `(width, classes) -> keras.Model`, or `(width, classes, scale)`; see `build_custom_model`.
ModelBuilder = Callable[..., keras.Model]


def build_custom_model(
    function: ModelBuilder,
    shape: tuple[int | None, ...],
    width: float,
    scale: float = 1.0,
    classes: int = 10,
    dtype: str = "float32",
    seed: int = 0,
    clients: int = 1,
    probabilities: str | None = None,
) -> keras.Model:
    """Build a custom model, like `build_model.build_model` for the layers of a recipe.

    Args:
        function: `(width, classes) -> keras.Model` that returns logits; the model may be subclassed. width: share of
            the channels in (0, 1];
            classes: length of the label axis. If it has a parameter `scale`, it gets the level's width divided by the
            global model's while a client trains and 1 otherwise, for layers such as `Scaler`.
        shape: Shape of one input without the batch axis.
        dtype: "float32" or "mixed_bfloat16", the policy of layers without an explicit one.
        seed: Seed of the initial values, unless the function's initialisers set seeds.
        clients: Must be 1.
        probabilities: "softmax" or "sigmoid", the function that the loss applies to logits, or None. A functional model
            may end in it; the result then gives the logits.

    Raises:
        ValueError: More than one client is requested.
        InputError: The function fails, or its result is not a model that can be trained here.
    """
    if clients > 1:
        raise ValueError("a custom model is computed for one client at a time")
    extra = {"scale": scale} if "scale" in inspect.signature(function).parameters else {}

    def build():
        keras.config.set_dtype_policy(dtype)
        model = function(width, classes, **extra)
        check_training(model)
        return _with_fixed_statistics(_without_probabilities(_with_inputs(model, shape), probabilities))

    model = _run(build, function, width, classes, seed)
    check_structure(model, shape, classes)
    return model


def user_model(model: keras.Model | ModelBuilder, width: float, classes: int) -> keras.Model | None:
    """Return a model as its user has built and compiled it; None if the function returns no model.

    Args:
        model: A model, or a function `(width, classes) -> keras.Model` or `width -> keras.Model`.
    """
    if isinstance(model, keras.Model):
        check_training(model)
        return model
    arguments = [width] if _is_of_width(model) else [width, classes]
    built = _run(lambda: model(*arguments), model, width, classes, seed=0)
    return built if isinstance(built, keras.Model) else None


def _run(build, function, width, classes, seed):
    """Return the result of `build`; an error names the user's function, which it calls."""
    # Keras counts layer names, and stores its policy, for each thread: a new thread starts at the first name.
    with seeded(seed), ThreadPoolExecutor(1) as thread:
        try:
            return thread.submit(build).result()
        except InputError:
            raise
        except Exception as error:
            name = getattr(function, "__name__", type(function).__name__)
            call = f"{name}(width={width:g}, classes={classes})"
            raise InputError(
                f"`model` must build a Keras model. Received: {describe_failure(error)} from {call}"
            ) from error


def _with_inputs(model, shape):
    """Return a functional model of a subclassed model, or of a Sequential model without an input."""
    if not isinstance(model, keras.Model) or getattr(model, "inputs", None):
        return model
    inputs = keras.Input(shape, dtype="int32" if has_embedding(model) else None)
    return keras.Model(inputs, model(inputs))


def _with_fixed_statistics(model):
    """Return a model whose adapted `Normalization` layers have their statistics as arguments; a weight is a count."""

    def is_adapted(layer):
        return isinstance(layer, keras.layers.Normalization) and bool(layer.weights)

    def fix_statistics(layer):
        if not is_adapted(layer):
            return layer.__class__.from_config(layer.get_config())
        mean, variance = map(np.asarray, layer.weights[:2])
        return keras.layers.Normalization(layer.axis, mean, variance, layer.invert, name=layer.name, dtype=layer.dtype)

    has_adapted = isinstance(model, keras.Model) and any(map(is_adapted, all_layers(model)))
    return _replace_layers(model, fix_statistics) if has_adapted else model


# By name, the functions that a layer may have as its activation.
_PROBABILITIES = {
    "softmax": (keras.activations.softmax, keras.ops.softmax, tf.nn.softmax),
    "sigmoid": (keras.activations.sigmoid, keras.ops.sigmoid, tf.nn.sigmoid),
}


def probabilities_of(recipe: Recipe) -> str | None:
    """Return the function by which the losses of a task make probabilities of logits; None for numbers."""
    return {"label_set": "sigmoid", "numbers": None}.get(recipe.loss_targets, "softmax")


def last_activation(model: Any) -> tuple[Any, str | None]:
    """Return the layer or operation that gives the outputs of a model, and "softmax" or "sigmoid" if it is one of them.

    Both are None if the model has no single output, or is not functional.
    """
    outputs = list(getattr(model, "outputs", None) or ())
    if len(outputs) != 1:
        return None, None
    last = outputs[0]._keras_history.operation
    if isinstance(last, keras.Model):
        return last_activation(last)
    activation, kind = getattr(last, "activation", None), type(last)
    named = kind.__name__.lower() if kind.__module__.startswith("keras.") else None
    is_last_axis = getattr(last, "axis", -1) in (-1, len(outputs[0].shape) - 1)
    # A layer that is called twice also makes probabilities inside the model.
    if not is_last_axis or len(last._inbound_nodes) != 1:
        return None, None
    names = (name for name, functions in _PROBABILITIES.items() if named == name or activation in functions)
    return last, next(names, None)


def _without_probabilities(model, function):
    """Return a model that gives logits if it ends in the function "softmax" or "sigmoid", else the model."""
    last, name = last_activation(model) if isinstance(model, keras.Model) else (None, None)
    if function is None or last is None or name != function:
        return model
    if not isinstance(last, keras.layers.Layer):
        # An operation such as keras.ops.softmax; inside of another model it cannot be left out.
        is_outer = model.outputs[0]._keras_history.operation is last
        return keras.Model(model.input, last.input, name=model.name) if is_outer else model

    def replace(layer):
        config = layer.get_config()
        if layer is last and "activation" not in config:
            return keras.layers.Activation("linear", name=layer.name, dtype=layer.dtype_policy.name)
        return layer.__class__.from_config(config | ({"activation": "linear"} if layer is last else {}))

    return _replace_layers(model, replace)


# Arguments of layers that count channels.
CHANNELS = ("units", "filters", "key_dim", "value_dim", "output_dim")


def as_builder(model: keras.Model | ModelBuilder, outputs: int | None) -> ModelBuilder:
    """Return a function `(width, classes) -> keras.Model` of a ready model, or of a function of the width alone.

    Args:
        model: A model, which `resize` makes narrower, or a function of the width; other functions are returned.
        outputs: Number of logits that the data need; None for a model with several outputs, which keep their sizes.

    Raises:
        InputError: The model cannot be copied, or has other outputs.
    """
    if isinstance(model, keras.Model):
        if not getattr(model, "inputs", None) or outputs not in (None, model.outputs[0].shape[-1]):
            shapes = [tuple(output.shape) for output in getattr(model, "outputs", None) or ()]
            raise InputError(
                f"a ready `model` must be functional, or Sequential with an input, and give {outputs} logits; or give "
                f"a function (width, classes) -> keras.Model. Received: {type(model).__name__} of the outputs {shapes}"
            )
        ready = as_functional(model) if isinstance(model, keras.Sequential) else model
        return lambda width, classes: resize(ready, width, classes if outputs else None)
    if _is_of_width(model):
        return lambda width, classes: resize(model(width), 1.0, classes if outputs else None)
    return model


def _is_of_width(function):
    return list(inspect.signature(function).parameters) == ["width"]


def width_function(model: keras.Model | ModelBuilder, widths: Mapping[str, float]) -> keras.Model | ModelBuilder:
    """Return a function of the width for a function of the level's name; other models are returned.

    Args:
        widths: The width of each level.

    Raises:
        InputError: Two levels have the same width.
    """
    if not callable(model):
        raise InputError(f"`model` must be a Keras model, or a function that builds one. Received: {model!r}")
    if isinstance(model, keras.Model) or list(inspect.signature(model).parameters) != ["level"]:
        return model
    names = {width: level for level, width in widths.items()}
    if len(names) < len(widths):
        raise InputError(f"a `model` of the level needs levels of different widths. Received: levels.widths={widths}")
    return lambda width: model(names[width])


def resize(model: keras.Model, width: float, classes: int | None) -> keras.Model:
    """Return a copy of a functional model with fewer channels or outputs, and the first entries of its weights.

    The channels of a layer are its arguments of the names `CHANNELS`. The layers that give the outputs have `classes`;
    with None they keep their sizes.

    Raises:
        InputError: The model is not functional.
    """
    if not getattr(model, "inputs", None):
        raise InputError(
            "a `model` of the width alone must be functional; or give a function (width, classes) -> keras.Model. "
            f"Received: {type(model).__name__}, which is not functional"
        )
    last = {layer.name for output in model.outputs for layer in _last_layers(output)}
    names = _first_names(model)
    policies = {layer.dtype_policy.name for layer in all_layers(model) if layer.weights}

    def scale_layer(layer):
        config = layer.get_config() | {"name": names.get(layer.name, layer.name)}
        if policies in ({"float32"}, {"float64"}) and layer.dtype_policy.name in policies:
            # `precision` of the recipe replaces the type that each layer of a ready model names.
            config.pop("dtype", None)
        sizes = {name: config[name] for name in CHANNELS if isinstance(config.get(name), int)}
        is_last = layer.name in last
        config |= {name: classes or size if is_last else Width(size).at(width) for name, size in sizes.items()}
        return layer.__class__.from_config(config)

    return _replace_layers(model, scale_layer)


def _first_names(model):
    """Return `{layer: name}` with the names that Keras gives in a new process: `dense_7` may become `dense`."""
    counts: collections.Counter[str] = collections.Counter()
    names: dict[str, str] = {}
    for layer in [model, *all_layers(model)]:
        default = snake_case(type(layer).__name__)
        if re.fullmatch(rf"{default}(_\d+)?", layer.name):
            names[layer.name] = f"{default}_{counts[default]}" if counts[default] else default
            counts[default] += 1
    return names


def _last_layers(tensor):
    """Yield the last layers with weights before a tensor of a functional model."""
    operation = tensor._keras_history.operation
    if getattr(operation, "weights", None):
        yield operation
    else:
        for node in operation._inbound_nodes[:1]:
            for parent in node.input_tensors:
                yield from _last_layers(parent)


def layers_of(model: keras.Model) -> tuple[LayerSpec, ...]:
    """Return the layers of a built Keras model as a recipe names them, by the first part of their paths; one unit."""
    names = dict.fromkeys([layer.name for layer in model.layers] + [v.path.split("/")[0] for v in model.weights])
    return tuple(LayerSpec(kind="Model", args={}, name=name, unit="0") for name in names)


def model_digest(models: Iterable[keras.Model]) -> str:
    """Return the first 16 digits of the SHA-256 of the weights' shapes and, where Keras writes them, of the configs."""
    digest = hashlib.sha256()
    for model in models:
        digest.update(repr([(weight.path, tuple(weight.shape)) for weight in model.weights]).encode())
        # The names of models and inputs may have a number that depends on the models built before.
        for layer in (
            each for each in all_layers(model) if not isinstance(each, keras.Model | keras.layers.InputLayer)
        ):
            with contextlib.suppress(NotImplementedError, TypeError, ValueError):
                digest.update(json.dumps(keras.saving.serialize_keras_object(layer), sort_keys=True).encode())
    return digest.hexdigest()[:16]


def static_norms(model: keras.Model) -> keras.Model:
    """Return the same model with static batch normalisation instead of Keras' BatchNormalization.

    Running averages would carry a client's activations to the server and mix badly over widths; static ones are
    gathered once, after training (HeteroFL, arXiv 2010.01264, section 3.2). Weights, statistics and `trainable` of all
    layers stay; a norm without gamma or beta gets them, as 1 and 0. A frozen norm remains Keras' layer: it normalizes
    by its fixed statistics, which become constants of every client.

    Args:
        model: Functional or Sequential Keras model, such as one of `keras.applications`, also one that contains others.

    Raises:
        InputError: A norm has a regularizer or a constraint, or does not normalize the last axis.
    """

    if not getattr(model, "inputs", None):
        raise InputError(
            "static_norms: `model` must be functional, or Sequential with an input; in a subclassed model, use "
            f"hetero_tf.layers.static_batch_normalization.StaticBatchNormalization. Received: {type(model).__name__}"
        )

    def replace_norm(layer):
        if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable:
            _check_norm(layer)
            # A policy by its name can be saved in a `.keras` file.
            return StaticBatchNormalization(layer.epsilon, name=layer.name, dtype=layer.dtype_policy.name)
        return layer.__class__.from_config(layer.get_config())

    return _replace_layers(model, replace_norm)


def _replace_layers(model, replace):
    """Return a functional model with a new layer for each; its weights are the first entries of the old one's."""

    def call_layer(layer, *args, **options):
        # A BatchNormalization is called with a mask, which a static one does not accept.
        return layer(*args, **{name: value for name, value in options.items() if value is not None})

    # Keras cannot copy a loss that is a function.
    model = as_functional(model) if model.compiled else model
    calls = {} if isinstance(model, keras.Sequential) else {"call_function": call_layer}
    cloned = keras.models.clone_model(model, clone_function=replace, recursive=True, **calls)
    # A layer comes before its sublayers, which inherit its `trainable`.
    for layer, copy in zip([model, *all_layers(model)], [cloned, *all_layers(cloned)], strict=True):
        copy.trainable = layer.trainable
        if isinstance(copy, StaticBatchNormalization) and not isinstance(layer, StaticBatchNormalization):
            pairs = [(layer.moving_mean, copy.mean), (layer.moving_variance, copy.variance)]
            affine = [(getattr(layer, name), getattr(copy, name)) for name in ("gamma", "beta")]
            pairs += [(value, variable) for value, variable in affine if value is not None]
        else:
            kinds = ("_trainable_variables", "_non_trainable_variables") if copy.weights else ()
            pairs = [pair for kind in kinds for pair in zip(getattr(layer, kind), getattr(copy, kind), strict=True)]
        for value, variable in pairs:
            # Label axes are found with more outputs than the model has.
            common, resized = tuple(map(slice, map(min, variable.shape, value.shape))), np.array(variable)
            resized[common] = np.asarray(value)[common]
            variable.assign(resized)
            variable.trainable = value.trainable
    return cloned


def merge_adapters(model: keras.Model) -> None:
    """Add the adapters of Keras' own layers (`enable_lora`) to their kernels, and remove them; the outputs stay."""
    for layer in all_layers(model):
        if getattr(layer, "lora_enabled", False):
            name = "embeddings" if hasattr(layer, "lora_embeddings_a") else "kernel"
            getattr(layer, f"_{name}").assign(getattr(layer, name))
            layer.lora_enabled, layer.lora_rank = False, None
            for part in "ab":
                layer._untrack_variable(getattr(layer, f"lora_{name}_{part}"))


def as_functional(model: keras.Model) -> keras.Model:
    """Return the same layers as a functional model without compile(); one of Sequential shows its nodes and input."""
    is_sequential = isinstance(model, keras.Sequential)
    ends = (model.inputs[0], model.outputs[0]) if is_sequential else (model.input, model.output)
    return keras.Model(*ends, name=model.name)


def _check_norm(layer):
    """Refuse a norm that static batch normalisation cannot replace exactly."""
    for name in ("gamma_regularizer", "beta_regularizer", "gamma_constraint", "beta_constraint"):
        if getattr(layer, name) is not None:
            raise InputError(
                f"static_norms: {layer.name} must have no {name}, since static batch normalisation has none; leave it "
                f"out. Received: {name}={type(getattr(layer, name)).__name__}"
            )
    rank = layer.input_spec.ndim
    if layer.axis % rank != rank - 1:
        raise InputError(
            f"static_norms: {layer.name} must normalize the last axis, which has the channels; use channels_last. "
            f"Received: axis={layer.axis}"
        )
