"""Contract of layers: arguments, config, shapes, types and gradients."""

import inspect
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.testing.subject import Subject

PIXELS = np.random.default_rng(0).normal(size=(4, 6, 6, 8))


def build_layer(subject: Subject, **arguments) -> keras.layers.Layer:
    """Return a new layer with the arguments of the subject and others."""
    return getattr(subject.module, subject.name)(**{**subject.options, **arguments})


def _inputs(subject):
    return PIXELS if subject.inputs is None else subject.inputs


def _symbol(inputs, **options):
    return keras.Input(dtype="int32" if inputs.dtype.kind == "i" else "float32", **options)


def _has_training(layer):
    return "training" in inspect.signature(layer.call).parameters


def call_layer(layer: keras.layers.Layer, inputs: np.ndarray, training: bool = False) -> np.ndarray:
    """Build a layer and return its outputs."""
    layer(inputs)
    return layer(inputs, training=training).numpy() if _has_training(layer) else layer(inputs).numpy()


def check_arguments(subject: Subject) -> None:
    """Constructor arguments are attributes, documented (except those of the model builder), and part of the config."""
    layer = build_layer(subject)
    cls = type(layer)
    subject.require("shape" in (cls.__doc__ or ""), "the docstring must describe shapes")
    if cls.__init__ is keras.layers.Layer.__init__:
        return
    names = [name for name in inspect.signature(cls.__init__).parameters if name not in ("self", "kwargs")]
    missing = [name for name in names if not hasattr(layer, name)]
    subject.require(not missing, "constructor arguments must be attributes", missing)
    documented = {*registry.LEVEL_PARAMETERS, *registry.argument_docs(inspect.getdoc(cls) or "")}
    undocumented = [name for name in names if name not in documented]
    subject.require(not undocumented, "`Args:` must describe every argument", undocumented)
    arguments = {name: getattr(layer, name) for name in names}
    config = build_layer(subject, **arguments).get_config()
    subject.require(arguments.items() <= config.items(), "`get_config` must have every argument", config)
    subject.require(cls.from_config(config).get_config() == config, "`from_config` must return an equal layer")


def check_copies(subject: Subject) -> None:
    """A layer from its config, and a saved model with the layer, give bit-equal outputs."""
    inputs, layer = _inputs(subject), build_layer(subject, name="one")
    outputs = call_layer(layer, inputs)
    copy = type(layer).from_config(layer.get_config())
    copy(inputs)
    copy.set_weights(layer.get_weights())
    subject.require(copy.name == "one" and copy.get_config() == layer.get_config(), "the config must have the name")
    subject.require_close(call_layer(copy, inputs), outputs, "a layer from its config must give equal outputs")
    paths = [[variable.path for variable in each.variables] for each in (copy, layer)]
    subject.require(paths[0] == paths[1], "a layer from its config must have equal paths of variables", paths)
    symbol = _symbol(inputs, shape=inputs.shape[1:])
    model = keras.Model(symbol, build_layer(subject)(symbol))
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "layer.keras")
        loaded = keras.models.load_model(Path(folder) / "layer.keras", {subject.name: type(layer)})
    subject.require_close(loaded(inputs), model(inputs), "a saved model must give equal outputs")


def check_shapes_and_types(subject: Subject) -> None:
    """Symbolic and eager shapes agree; a float64 layer computes in float64 everywhere."""
    inputs, layer = _inputs(subject), build_layer(subject)
    symbolic = tuple(layer(_symbol(inputs, batch_shape=inputs.shape)).shape)
    shapes = {symbolic, call_layer(layer, inputs).shape}
    if type(layer).compute_output_shape is not keras.layers.Layer.compute_output_shape:
        shapes.add(tuple(layer.compute_output_shape(inputs.shape)))
    subject.require(len(shapes) == 1, "symbolic, computed and eager shapes must agree", shapes)
    precise, rough = build_layer(subject, dtype="float64"), build_layer(subject, dtype="float32")
    for training in (False, True):
        dtype = call_layer(precise, inputs, training).dtype
        subject.require(dtype == np.float64, "a float64 layer must return float64", dtype.name)
    dtypes = {variable.dtype for variable in precise.trainable_variables}
    subject.require(dtypes <= {"float64"}, "a float64 layer must have float64 variables", dtypes)
    rough(inputs)
    precise.set_weights(rough.get_weights())
    difference = np.abs(call_layer(precise, inputs) - call_layer(rough, inputs)).max()
    subject.require(difference < 1e-4, "float32 and float64 outputs must agree to 1e-4", difference)


def check_gradients(subject: Subject) -> None:
    """Gradients reach every trainable value and are finite."""
    inputs, layer = _inputs(subject), build_layer(subject, dtype="float64")
    layer(inputs)
    with tf.GradientTape() as tape:
        outputs = layer(inputs, training=True) if _has_training(layer) else layer(inputs)
        loss = tf.reduce_sum(outputs**2 * np.random.default_rng(1).random(outputs.shape))
    gradients = tape.gradient(loss, [variable.value for variable in layer.trainable_variables])
    for variable, gradient in zip(layer.trainable_variables, gradients, strict=True):
        is_finite = gradient is not None and np.isfinite(tf.convert_to_tensor(gradient)).all()
        subject.require(is_finite, "every trainable value needs a finite gradient", variable.path)


CHECKS = {"layers": (check_arguments, check_copies, check_shapes_and_types, check_gradients)}
