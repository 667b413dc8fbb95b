"""Kinds of variables of a Keras model: those that a client receives, trains, and returns.

A non-trainable variable is one of five kinds: the state of a random generator; a table of whole numbers, which every
program builds itself; a running statistic, which the layer names in `TRACKS` and every step passes on; a statistic of
the query, named in `QUERIED`, which a step discards; or else a constant, which accompanies the client's weights and
never changes. All weights of frozen units are constants.
"""

import json
import re
from collections.abc import Hashable, Iterator

import keras
import tensorflow as tf

from hetero_tf.base.errors import InputError


def shrink_to_part(model: keras.Model, width: float) -> None:
    """Scale the initial values of a network to those of a part of the network of width 1.

    In that network a layer has 1/width as many inputs. Values drawn by fan-in, kernels and biases, shrink by
    sqrt(width). The first layer keeps its values, since the input is the same at every width; norms and embeddings draw
    no values by fan-in.

    Args:
        model: A network of an ensemble, with its initial values.
        width: Its share of the channels, in (0, 1].

    Reference: the public code of SplitMix (Hong et al. 2022, arXiv 2203.09747), its `rescale_init`.
    """
    # A norm before the first layer has vectors only.
    first = next(v.path.split("/")[0] for v in model.trainable_variables if len(v.shape) > 1)
    for variable in model.trainable_variables:
        layer, *_, name = variable.path.split("/")
        if layer != first and name.endswith(("kernel", "bias")):
            variable.assign(variable * width**0.5)


def level_path(path: str, level: str) -> str:
    """Return the path of a level's copy of a value: `norm/@c/gamma` of `norm/gamma`."""
    layer, _, weight = path.rpartition("/")
    return f"{layer}/@{level}/{weight}"


def shared_path(path: str) -> str:
    """Return the path of the value whose copy at a level this is; of other values the path itself."""
    return re.sub("/@[^/]+(?=/[^/]+$)", "", path)


def is_seed(variable: keras.Variable) -> bool:
    """Return whether a non-trainable variable is the state of a random generator, such as a Dropout's."""
    return variable.path.endswith("seed_generator_state")


def is_table(variable: keras.Variable) -> bool:
    """Return whether a non-trainable variable holds whole numbers, such as positions, and not the state of a seed."""
    return not is_seed(variable) and not keras.backend.is_float_dtype(variable.dtype)


def tracked(model: keras.Model) -> list[keras.Variable]:
    """Return the running statistics among the non-trainable variables, in model order."""
    return _declared(model, "TRACKS")


def queried(model: keras.Model) -> list[keras.Variable]:
    """Return the statistics that the query gathers after training, in model order."""
    return _declared(model, "QUERIED")


def constants(model: keras.Model) -> list[keras.Variable]:
    """Return the variables that keep their initial values, in model order."""
    others = {variable.path for variable in (*tracked(model), *queried(model))}
    return [v for v in _of_floats(model) if v.path not in others]


def carried(model: keras.Model) -> list[keras.Variable]:
    """Return the constants and running statistics, in model order: non-trainable variables that a client receives."""
    others = {variable.path for variable in queried(model)}
    return [v for v in _of_floats(model) if v.path not in others]


def _of_floats(model):
    return [v for v in model.non_trainable_variables if not is_seed(v) and not is_table(v)]


def values(model: keras.Model) -> list[keras.Variable]:
    """Return the variables that a client receives: the trainable ones, then the carried ones."""
    return [*model.trainable_variables, *carried(model)]


def with_values(model: keras.Model, replacements: list) -> tuple[list, list]:
    """Return the arguments of `model.stateless_call` with `replacements` for `values(model)`.

    Returns:
        The trainable values, and the non-trainable ones; seeds, tables and statistics of the query keep the model's.
    """
    learned = len(model.trainable_variables)
    state = {variable.path: value for variable, value in zip(carried(model), replacements[learned:], strict=True)}
    return list(replacements[:learned]), [
        state[v.path] if v.path in state else tf.convert_to_tensor(v) for v in model.non_trainable_variables
    ]


def all_layers(model: keras.layers.Layer) -> Iterator[keras.layers.Layer]:
    """Yield every layer below a model or a layer, including sublayers of composite layers."""
    return model._flatten_layers(include_self=False)


def layer_signature(layer: keras.layers.Layer) -> Hashable:
    """Return a key that equal layers share: type, arguments, and shapes of variables.

    A layer whose `get_config` does not return plain values has a unique key.
    """
    try:
        config = json.dumps({**layer.get_config(), "name": ""}, sort_keys=True)
    except (NotImplementedError, TypeError):
        return layer
    variables = tuple((tuple(variable.shape), variable.dtype, variable.trainable) for variable in layer.variables)
    return type(layer), config, variables


def check_constants(model: keras.Model, dtype: str) -> None:
    """Refuse weights and constants that a client could not keep.

    Raises:
        InputError: Names the layer and the weight: one of another type, or a constant that training would change.
    """
    fixed = constants(model)
    for variable in [*model.trainable_variables, *fixed]:
        if variable.dtype != dtype:
            raise InputError(
                f"{_named(variable)} must be {dtype}, by `precision` of the recipe: clients get one vector of all. "
                f"Received: {variable.dtype}"
            )
    frozen = {v.path for layer in all_layers(model) if not layer.trainable for v in layer._trainable_variables}
    # Frozen weights were built for training: only the other constants may be assigned in a call.
    fixed += filter(is_table, model.non_trainable_variables)
    variables_to_check = [variable for variable in fixed if variable.path not in frozen]
    for variable in variables_to_check and _changed(model, variables_to_check):
        raise InputError(
            f"{_named(variable)} must not change in training, because it is neither trainable nor a declared "
            "statistic; name it in TRACKS of its layer (a running statistic, merged like weights) or in QUERIED (a "
            "statistic of the batch, gathered after training)"
        )


def _declared(model, name):
    """Return the non-trainable variables that layers name in a class attribute, in model order."""
    paths = {getattr(layer, field).path for layer in all_layers(model) for field in getattr(layer, name, ())}
    return [variable for variable in model.non_trainable_variables if variable.path in paths]


def _named(variable):
    layer, _, weight = variable.path.rpartition("/")
    return f"layer {layer}: its weight {weight}"


@tf.autograph.experimental.do_not_convert
def _changed(model, fixed):
    """Return the constants that a call in training mode assigns, detected in a trace of it."""
    watched = {variable.path for variable in fixed}
    changed: list[keras.Variable] = []

    @tf.function(autograph=False)
    def step(inputs):
        state = [tf.convert_to_tensor(variable) for variable in model.non_trainable_variables]
        learned = [tf.convert_to_tensor(variable) for variable in model.trainable_variables]
        _, after = model.stateless_call(learned, state, inputs, training=True)
        changed.extend(
            variable
            for variable, old, new in zip(model.non_trainable_variables, state, after)
            if new is not old and variable.path in watched
        )

    spec = model.inputs[0]
    # Tracing alone shows assignments: a value that is not passed through was assigned.
    step.get_concrete_function(tf.TensorSpec(spec.shape, spec.dtype))
    return changed
