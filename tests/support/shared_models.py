"""Builds equal training models, checks them and counts their operations once for all tests of a process.

A learning process has a model for every sub-model and block, which took a sixth of the time of the tests. Nothing
assigns to the variables of these models: rounds pass their values. Those of several clients are zeros, since nothing
reads them. Tests of the build itself call `build_model`, those of the count `counting.forward` and those of the check
other layers, which stay as they are.
"""

import contextlib
import functools
import json
import sys

# Models of more weights are not kept, since they would fill the memory.
LARGEST = 100_000


_is_apart = False


@contextlib.contextmanager
def apart():
    """Share no model with a family that is built in the block: it changes what the layers do."""
    global _is_apart
    _is_apart = True
    try:
        yield
    finally:
        _is_apart = False


def install():
    """Share models, counts and checks from now on, if their modules are imported; repeated calls change nothing."""
    _replace("hetero_tf.models.family", "forward", share_counts)
    _replace("hetero_tf.rounds.engine", "is_equivalent", share_checks)
    family = sys.modules.get("hetero_tf.models.family")
    if hasattr(family, "ModelFamily") and not hasattr(family.ModelFamily.batched_model, "__wrapped__"):
        family.ModelFamily.batched_model = share_models(family.ModelFamily.batched_model)


def _replace(module, name, share):
    function = getattr(sys.modules.get(module), name, None)
    if function is not None and not hasattr(function, "shared"):
        setattr(sys.modules[module], name, share(function))


def share_checks(is_equivalent):
    """Return a form of `engine.is_equivalent` that compares the same models once."""
    results = {}

    @functools.wraps(is_equivalent)
    def shared(block, single, stage):
        models = [row.model for part in (block, single) for row in part.stages[stage].joint.models]
        if any(model.count_params() > LARGEST for model in models):
            return is_equivalent(block, single, stage)
        key = (block.clients, *models)
        if key not in results:
            results[key] = is_equivalent(block, single, stage)
        return results[key]

    shared.shared = results
    return shared


@contextlib.contextmanager
def zeros():
    """Draw no initial values of float variables."""
    import keras
    import tensorflow as tf

    initialize = keras.Variable._initialize_with_initializer

    def to_zeros(variable, initializer):
        if "float" in variable._dtype and variable.trainable:
            variable._initialize(tf.zeros(variable._shape, variable._dtype))
        else:
            initialize(variable, initializer)

    keras.Variable._initialize_with_initializer = to_zeros
    try:
        yield
    finally:
        keras.Variable._initialize_with_initializer = initialize


def share_counts(forward):
    """Return a form of `counting.forward` that counts equal models once."""
    costs = forward.shared = {}

    @functools.wraps(forward)
    def shared(model, example):
        try:
            trained = str([variable.trainable for variable in model.variables])
            key = json.dumps(model.get_config(), default=str), str(model.inputs), example, trained
        except NotImplementedError:
            return forward(model, example)
        if key not in costs:
            costs[key] = forward(model, example)
        return costs[key]

    return shared


def _settings(family):
    """Return what the models of a family depend on, beside the route, the classes and the clients."""
    from hetero_tf.models.build_model import layer_class

    recipe, levels = family.recipe, family.recipe.levels
    # A plug-in of a test may have the name of another's.
    kinds = tuple(layer_class(spec.kind) for spec in recipe.model.layers)
    top = 1.0 if levels.ensemble else levels.widths[levels.global_level]
    text = repr((recipe.model, family.shape, recipe.targets, recipe.engine, recipe.client.batch_size))
    text += repr((family.adapter_merge.trained, recipe.round.by_level and (recipe.round.by_level, levels)))
    return text, kinds, top, recipe.precision, recipe.seed, family.device


def models_of(family):
    """Return the settings of a family and the models that it has got; computed once."""
    cached = vars(family)
    if "_shared_models" not in cached:
        cached["_shared_models"] = _settings(family), {}
    return cached["_shared_models"]


def share_models(batched_model):
    """Return a form of `ModelFamily.batched_model` that gives equal families the same models."""
    models = {}

    @functools.wraps(batched_model)
    def shared(family, route, classes, clients):
        if family.function is not None:
            return batched_model(family, route, classes, clients)
        settings, of_family = models_of(family)
        key = (*settings, route, classes, clients)
        # A family keeps its models, also those that are too large for the others.
        if key not in of_family:
            if _is_apart:
                of_family[key] = batched_model(family, route, classes, clients)
            elif key in models:
                of_family[key] = models[key]
            else:
                with zeros() if clients > 1 else contextlib.nullcontext():
                    of_family[key] = batched_model(family, route, classes, clients)
                if of_family[key].count_params() <= LARGEST:
                    models[key] = of_family[key]
        return of_family[key]

    return shared
