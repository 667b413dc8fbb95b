"""Every plug-in has the functions of its kind with the right parameters, and documents its options."""

import inspect

import pytest

from hetero_tf.base import registry

# {kind: {function: parameters that are always passed}}
FUNCTIONS = {
    "data": {"load": "data_dir"},
    "partitions": {"split": "train_labels test_labels classes rng"},
    "inputs": {"build": "dtype"},
    "submodels": {"keep": "size count round client seed"},
    "masks": {"prepare": "start key maskable number", "mask": "weights state", "counts": "weights start state"},
    "stages": {"divide": "outline level shares"},
    "tasks": {"task": ""},
    "losses": {"loss": "outputs targets present outside"},
    "couplings": {"couple": "losses logits targets round"},
    "corrections": {"correct": "weights start memory slots", "remember": "memory weights start slots steps rate"},
    "optimizers": {"step": "weights gradients slots rate count"},
    "updates": {"update": "weights start steps key"},
    "servers": {"apply": "old mean coverage slots registered"},
    "schedules": {"multiplier": "round"},
    "metrics": {"metric": "scores targets"},
}
# Keywords without annotation that are passed only to functions with such a parameter.
OPTIONAL = {
    "data": ("targets", "learned"),
    "tasks": ("statistics", "classes"),
    "losses": ("class_shares",),
    "inputs": ("uniform", "statistics", "rate"),
    "partitions": ("train_owners", "test_owners"),
    "servers": ("memory_change",),
}
# Keys that a recipe contains next to the options.
WORDS = {"data": {"fallback", "name"}, "optimizers": {"learning_rate", "clip_norm", "name"}}
FLAGS = {"stages": "DRAWN", "losses": "MASKS_LABELS", "couplings": "READS_LOGITS", "corrections": "REMEMBERS"}
PLUGINS = [(kind, name) for kind in registry.EXPORTS for name in registry.names(kind)]


def functions(kind, name):
    """`{function: parameters}` of a plug-in; a correction without memory needs no `remember`."""
    module = registry.find(kind, name)
    required = [one for one in FUNCTIONS[kind] if one != "remember" or module.REMEMBERS]
    return {one: inspect.signature(getattr(module, one)).parameters for one in required}


@pytest.mark.parametrize(("kind", "name"), PLUGINS)
def test_functions_have_the_parameters_of_their_kind_and_keyword_options(kind, name):
    options = registry.options(kind, name)
    for function, parameters in functions(kind, name).items():
        optional = [one for one in OPTIONAL.get(kind, ()) if one in parameters]
        # The outputs of a classification are logits.
        others = [
            "outputs" if one == "logits" and kind == "losses" else one for one in parameters if one not in options
        ]
        assert others == [*FUNCTIONS[kind][function].split(), *optional], function
        assert all(parameters[one].annotation is inspect.Parameter.empty for one in optional)
        for option in options.values():
            parameter = parameters[option.name]
            assert parameter.kind is parameter.KEYWORD_ONLY
            assert parameter.default == (inspect.Parameter.empty if option.required else option.default), function


@pytest.mark.parametrize(("kind", "name"), PLUGINS)
def test_every_option_is_documented_and_has_a_unique_name(kind, name):
    options = registry.options(kind, name)
    assert [option.name for option in options.values() if not option.doc] == []
    assert not WORDS.get(kind, {"name"}) & options.keys()


@pytest.mark.parametrize(("kind", "name"), PLUGINS)
def test_constants_have_their_types(kind, name):
    module = registry.find(kind, name)
    if kind in FLAGS:
        assert type(getattr(module, FLAGS[kind])) is bool
    if kind in ("optimizers", "servers"):
        assert isinstance(module.SLOTS, tuple) and len(set(module.SLOTS)) == len(module.SLOTS)
