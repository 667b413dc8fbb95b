"""Which variables of a Keras model a client gets, which of them it trains, and which it returns.

A non-trainable variable is one of four kinds: the state of a random generator; a running statistic, which the layer
names in `TRACKS` and every step hands on; a statistic of the query, named in `QUERIED`, which a step throws away; or
else a constant, which lies beside the client's weights and nobody ever changes. Units that a recipe freezes have
constants alone.
"""

import json
from collections.abc import Hashable, Iterator

import keras
import tensorflow as tf

from hetero_tf.base.errors import InputError


def shrink_to_part(model: keras.Model, width: float) -> None:
    """Makes the initial values of a network those of a part of the network of width 1.

    There a layer has 1/width as many inputs. What is drawn by fan-in, kernels and biases, is smaller by sqrt(width).
    The first layer keeps its values, since the input is the same at every width; norms and embeddings draw nothing by
    fan-in.

    Args:
        model: A network of an ensemble, with its initial values.
        width: Its share of the channels, in (0, 1].

    Reference: the public code of SplitMix (Hong et al. 2022, arXiv 2203.09747), its `rescale_init`.
    """
    # A norm in front of the first layer has vectors only.
    first = next(v.path.split("/")[0] for v in model.trainable_variables if len(v.shape) > 1)
    for variable in model.trainable_variables:
        layer, *_, name = variable.path.split("/")
        if layer != first and name.endswith(("kernel", "bias")):
            variable.assign(variable * width**0.5)


def is_seed(variable: keras.Variable) -> bool:
    """Whether a non-trainable variable is the state of a random generator, such as a Dropout's."""
    return variable.path.endswith("seed_generator_state")


def tracked(model: keras.Model) -> list[keras.Variable]:
    """Returns the running statistics among the non-trainable variables, in model order."""
    return _declared(model, "TRACKS")


def queried(model: keras.Model) -> list[keras.Variable]:
    """Returns the statistics that the query gathers after training, in model order."""
    return _declared(model, "QUERIED")


def constants(model: keras.Model) -> list[keras.Variable]:
    """Returns the variables that keep their initial values, in model order."""
    others = {id(variable) for variable in (*tracked(model), *queried(model))}
    return [v for v in model.non_trainable_variables if not is_seed(v) and id(v) not in others]


def carried(model: keras.Model) -> list[keras.Variable]:
    """Returns the constants and the running statistics, in model order: what a client gets besides its weights."""
    others = {id(variable) for variable in queried(model)}
    return [v for v in model.non_trainable_variables if not is_seed(v) and id(v) not in others]


def values(model: keras.Model) -> list[keras.Variable]:
    """Returns the variables that a client gets: the trainable ones, then the carried ones."""
    return [*model.trainable_variables, *carried(model)]


def with_values(model: keras.Model, replacements: list) -> tuple[list, list]:
    """Returns the arguments of `model.stateless_call` in which `replacements` stand for `values(model)`.

    Returns:
        The trainable values, and the non-trainable ones; seeds and statistics of the query are as the model has them.
    """
    learned = len(model.trainable_variables)
    state = {id(variable): value for variable, value in zip(carried(model), replacements[learned:], strict=True)}
    return list(replacements[:learned]), [
        state[id(v)] if id(v) in state else tf.convert_to_tensor(v) for v in model.non_trainable_variables
    ]


def all_layers(model: keras.layers.Layer) -> Iterator[keras.layers.Layer]:
    """Yields every layer below a model or a layer, those inside composite layers too."""
    return model._flatten_layers(include_self=False)


def kind_of(layer: keras.layers.Layer) -> Hashable:
    """Returns what two layers have in common that compute the same from their variables: type, arguments and shapes.

    A layer whose arguments are not told as plain values by its `get_config` is of a kind of its own.
    """
    try:
        config = json.dumps({**layer.get_config(), "name": ""}, sort_keys=True)
    except (NotImplementedError, TypeError):
        return id(layer)
    variables = tuple((tuple(variable.shape), variable.dtype, variable.trainable) for variable in layer.variables)
    return type(layer), config, variables


def check_constants(model: keras.Model, dtype: str) -> None:
    """Refuses constants that a client could not keep.

    Args:
        model: Built functional Keras model.
        dtype: Float type of its weights.

    Raises:
        InputError: Names the layer and the weight: a constant of another type, or one that training would change.
    """
    fixed = constants(model)
    for variable in fixed:
        if variable.dtype != dtype:
            raise InputError(
                f"{_named(variable)} must be {dtype} like the weights, since clients get both as one vector; keep "
                f"a table of whole numbers as a NumPy array in the layer. Received: {variable.dtype}"
            )
    frozen = {id(v) for layer in all_layers(model) if not layer.trainable for v in layer._trainable_variables}
    # Weights that somebody froze were made to be trained: only the others may be assigned to in a call.
    held = [variable for variable in fixed if id(variable) not in frozen]
    for variable in held and _changed(model, held):
        raise InputError(
            f"{_named(variable)} must not change in training, because it is neither trainable nor a declared "
            "statistic; name it in TRACKS of its layer (a running statistic, merged like weights) or in QUERIED (a "
            "statistic of the batch, gathered after training)"
        )


def _declared(model, name):
    """The non-trainable variables that layers name in a class attribute, in model order."""
    chosen = {id(getattr(layer, field)) for layer in all_layers(model) for field in getattr(layer, name, ())}
    return [variable for variable in model.non_trainable_variables if id(variable) in chosen]


def _named(variable):
    layer, _, weight = variable.path.rpartition("/")
    return f"layer {layer}: its weight {weight}"


@tf.autograph.experimental.do_not_convert
def _changed(model, fixed):
    """The constants that a call in training mode assigns to, seen in a trace of it."""
    watched, changed = {id(variable) for variable in fixed}, []

    @tf.function(autograph=False)
    def step(inputs):
        state = [tf.convert_to_tensor(variable) for variable in model.non_trainable_variables]
        learned = [tf.convert_to_tensor(variable) for variable in model.trainable_variables]
        _, after = model.stateless_call(learned, state, inputs, training=True)
        changed.extend(
            variable
            for variable, old, new in zip(model.non_trainable_variables, state, after)
            if new is not old and id(variable) in watched
        )

    spec = model.inputs[0]
    step.get_concrete_function(tf.TensorSpec(spec.shape, spec.dtype))
    return changed
