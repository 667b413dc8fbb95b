"""Builds equal training models, and counts their operations, once for all tests of a process.

A learning process has a model for every sub-model and block, which took a sixth of the time of the tests. Nothing
assigns to the variables of these models: rounds pass their values. Tests of the build itself call `build_model`, and
those of the count `counting.forward`, which stay as they are.
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
    """Share models and counts from now on, if the module of families is imported; repeated calls change nothing."""
    module = sys.modules.get("hetero_tf.models.family")
    forward = getattr(module, "forward", None)
    if forward is None or hasattr(forward, "shared"):
        return
    module.forward = share_counts(forward)
    module.ModelFamily.batched_model = share_models(module.ModelFamily.batched_model)


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
    text += repr(family.adapter_merge.trained)
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
            is_shared = key in models and not _is_apart
            of_family[key] = models[key] if is_shared else batched_model(family, route, classes, clients)
            if of_family[key].count_params() <= LARGEST and not _is_apart:
                models[key] = of_family[key]
        return of_family[key]

    return shared
