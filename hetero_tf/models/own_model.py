"""Models of a person's own: a Python function that builds a Keras model at a width, in place of the layers of a recipe.

The cut of each level follows from the shapes of the variables, so a model needs nothing but the same layers with the
same names at every width. Clients of such a model are computed one by one.
"""

import inspect
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import keras

from hetero_tf.base.errors import BadInput
from hetero_tf.layers.static_batch_normalization import StaticBatchNormalization
from hetero_tf.models.build import seeded
from hetero_tf.recipe.model import LayerSpec

# `(width, classes) -> keras.Model`, or `(width, classes, scale)`; see `build_own_model`.
ModelFunction = Callable[..., keras.Model]


def build_own_model(
    function: ModelFunction,
    shape: tuple[int | None, ...],
    width: float,
    scale: float = 1.0,
    classes: int = 10,
    dtype: str = "float32",
    seed: int = 0,
    clients: int = 1,
) -> keras.Model:
    """Builds a person's own model, as `build.build_model` builds that of a recipe.

    Args:
        function: `(width, classes) -> keras.Model` that gives logits. width: share of the channels in (0, 1]; classes:
            length of the label axis. Where it has a parameter `scale` too, it gets the level's width divided by the
            global model's while a client trains and 1 otherwise, for layers such as `Scaler`.
        shape: Of one input without the batch axis.
        width, scale, classes: What the function is called with.
        dtype: "float32" or "mixed_bfloat16", the policy of layers that name none.
        seed: Of the initial values, as far as the function's initialisers name no seed of their own.
        clients: Must be 1.

    Raises:
        ValueError: Several clients are asked for.
        BadInput: The function fails, or what it returns is no model that can be trained here.
    """
    if clients > 1:
        raise ValueError("a model of one's own is computed for one client at a time")
    extra = {"scale": scale} if "scale" in inspect.signature(function).parameters else {}

    def build():
        keras.config.set_dtype_policy(dtype)
        return function(width, classes, **extra)

    # Keras counts the names of layers, and keeps its policy, for each thread: a new one begins at the first name.
    with seeded(seed), ThreadPoolExecutor(1) as thread:
        try:
            model = thread.submit(build).result()
        except Exception as problem:
            raise BadInput(
                f"`model` must build a Keras model. Received: {type(problem).__name__}: {problem} from "
                f"{_name(function)}(width={width:g}, classes={classes})"
            ) from problem
    _check(model, shape, classes)
    return model


def layers_of(model: keras.Model) -> tuple[LayerSpec, ...]:
    """Returns the layers of a built Keras model as a recipe names them, by the beginnings of paths; one unit."""
    names = dict.fromkeys([layer.name for layer in model.layers] + [v.path.split("/")[0] for v in model.weights])
    return tuple(LayerSpec(kind="Model", args={}, name=name, unit="0") for name in names)


def static_norms(model: keras.Model) -> keras.Model:
    """Returns the same model with static batch normalisation wherever it has Keras' BatchNormalization.

    Running averages would carry a client's activations to the server and mix badly over widths; static ones are
    gathered once, after training (HeteroFL, arXiv 2010.01264, section 3.2). Weights and statistics keep their values;
    a norm without gamma or beta gets them, as 1 and 0.

    Args:
        model: Functional or Sequential Keras model, such as one of `keras.applications`.
    """

    def replaced(layer):
        if isinstance(layer, keras.layers.BatchNormalization):
            return StaticBatchNormalization(layer.epsilon, name=layer.name)
        return layer.__class__.from_config(layer.get_config())

    def called(layer, *args, **options):
        # A BatchNormalization was called with a mask, which a static one does not know.
        return layer(*args, **{name: value for name, value in options.items() if value is not None})

    calls = {} if isinstance(model, keras.Sequential) else {"call_function": called}
    cloned = keras.models.clone_model(model, clone_function=replaced, **calls)
    for layer, copy in zip(model.layers, cloned.layers, strict=True):
        if isinstance(layer, keras.layers.BatchNormalization):
            for name, value in (("mean", layer.moving_mean), ("variance", layer.moving_variance)):
                getattr(copy, name).assign(value)
            for name in ("gamma", "beta"):
                if getattr(layer, name) is not None:
                    getattr(copy, name).assign(getattr(layer, name))
        else:
            copy.set_weights(layer.get_weights())
    return cloned


def check_nested(models: Mapping[str, keras.Model], top: str) -> None:
    """Refuses models that are no parts of the global one.

    Args:
        models: The model of each level.
        top: The level of the global model.

    Raises:
        BadInput: Names the level and the weight.
    """
    whole = {variable.path: tuple(variable.shape) for variable in models[top].weights}
    for level, model in models.items():
        for variable in model.weights:
            shape, full = tuple(variable.shape), whole.get(variable.path)
            if full is None or len(shape) != len(full) or any(size > most for size, most in zip(shape, full)):
                raise BadInput(
                    f"`model` must build the same layers at every width, none of them larger than in the model of "
                    f"level {top}, where {variable.path} has the shape {full}. Received: {shape} at level {level}"
                )


def _name(function):
    return getattr(function, "__name__", type(function).__name__)


def _check(model, shape, classes):
    """Refuses what cannot be cut, trained or exported."""
    if not isinstance(model, keras.Model) or not model.built or len(getattr(model, "inputs", None) or ()) != 1:
        raise BadInput(
            "`model` must return a functional or Sequential Keras model with one input, such as "
            f"keras.Model(inputs, logits). Received: {type(model).__name__}"
        )
    given, expected = tuple(model.inputs[0].shape[1:]), tuple(shape)
    if given != expected:
        raise BadInput(f"`model` must take inputs of the shape {expected} of the data. Received: {given}")
    output = tuple(model.outputs[0].shape)
    wanted = (None, classes) if shape != (None,) else (None, None, classes)
    if len(model.outputs) != 1 or len(output) != len(wanted) or output[-1] != classes:
        raise BadInput(f"`model` must give one tensor of logits of the shape {wanted}. Received: {output}")
    if getattr(model.layers[-1], "activation", None) is keras.activations.softmax:
        raise BadInput("`model` must give logits; leave the softmax of its last layer out")
    for layer in model._flatten_layers(include_self=False):
        if isinstance(layer, keras.layers.BatchNormalization):
            raise BadInput(
                f"`model` must have no running averages of a client's data: give hetero_tf.static_norms(model), which "
                f"puts static batch normalisation in their place. Received: {layer.name}, a BatchNormalization"
            )
    if not model.trainable_variables:
        raise BadInput("`model` must have something to train. Received: a model without trainable weights")
    paths = [variable.path for variable in model.weights]
    twice = sorted({path for path in paths if paths.count(path) > 1})
    if twice:
        raise BadInput(f"`model` must give its layers different names. Received: two weights named {twice[0]}")
