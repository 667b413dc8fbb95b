"""The closed registry of plug-ins, options read from source, and user modules."""

import py_compile
from dataclasses import replace
from pathlib import Path

import pytest
import tiny
from refusals import refusal

import hetero_tf
from hetero_tf import recipe
from hetero_tf.base import registry
from hetero_tf.base.constraints import Constraint
from hetero_tf.base.errors import InputError
from hetero_tf.models.build_model import build_model, layer_class
from hetero_tf.recipe.model import Classes, LayerSpec, Model, Width

FOLDER = Path(hetero_tf.__file__).parent / "methods" / "submodels"
SUBMODELS = tuple(sorted(path.stem for path in FOLDER.glob("[a-z]*.py")))

PLUGIN = '''
"""A user module."""

import numpy as np

LOADED = True


def split(train_labels, test_labels, classes, rng, *, clients: int, share: float = 0.5, names: tuple = ("a",),
          spare=None):
    """Splits in its own way.

    Args:
        train_labels: int32 [n].
        clients: how many there are,
            over two lines
        share, names: used together

    Returns:
        Nothing.
    """


def helper(x):
    return x
'''


def test_plugins_are_modules_with_the_function_of_their_kind_and_are_imported_by_name():
    assert registry.names("submodels") == SUBMODELS and {"prefix", "random", "rolling"} <= set(SUBMODELS)
    assert "dataset" not in registry.names("data") and "digits" in registry.names("data")
    assert {"Scaler", "PaddedConv2D", "TransformerBlock"} <= set(registry.names("layers"))
    assert callable(registry.find("schedules", "steps").multiplier)
    assert refusal(registry.find, "schedules", "step") == "no 'step' in schedules; did you mean 'steps'?"
    assert refusal(registry.find, "submodels", "os.path") == f"no 'os.path' in submodels; known: {', '.join(SUBMODELS)}"


def test_options_are_read_from_source_without_level_parameters():
    at, factor = registry.options("schedules", "steps").values()
    assert (at.name, at.constraint.type, at.required) == ("at", "tuple", True)
    assert at.constraint.item == Constraint("int", low=1, high=10_000_000)
    assert (factor.constraint, factor.required, factor.default) == (Constraint("float", above=0.0), False, 0.1)
    assert factor.doc == "factor of the learning rate at each of them."
    assert list(registry.options("layers", "Scaler")) == ["enabled"]
    assert registry.level_arguments("Scaler") == {"scale"}
    assert registry.level_arguments("Dense") == set()
    assert list(registry.options("layers", "ClassTokenReadout")) == []


def test_layers_are_keras_classes():
    keras = pytest.importorskip("keras")
    assert layer_class("Dense") is keras.layers.Dense
    assert layer_class("Scaler").__module__ == "hetero_tf.layers.scaler"
    for name in ("Lambda", "TFSMLayer", "os.system", "keras.layers.Dense"):
        assert refusal(layer_class, name).startswith(f"no layer '{name}'")


def test_plugin_is_registered_by_its_function(plugin_module):
    name = plugin_module("own_split", PLUGIN)
    assert registry.register_plugin(name) == [("partitions", "own_split")]
    assert registry.register_plugin(name) == [("partitions", "own_split")], "a second time is no clash"
    assert "own_split" in registry.names("partitions")
    assert registry.find("partitions", "own_split").LOADED
    options = registry.options("partitions", "own_split")
    assert list(options) == ["clients", "share", "names"], "`spare` has no annotation"
    assert options["clients"].doc == "how many there are, over two lines"
    assert options["names"].doc == options["share"].doc == "used together"


def test_a_plugin_without_its_source_is_rejected(plugin_module, tmp_path):
    source = tmp_path / f"{plugin_module('compiled_split', PLUGIN)}.py"
    py_compile.compile(source, source.with_suffix(".pyc"))
    source.unlink()
    assert refusal(registry.register_plugin, "compiled_split") == (
        "--plugin compiled_split: must have a source file (.py), from which its options are read"
    )


def test_plugin_registers_only_layers_it_defines(plugin_module):
    pytest.importorskip("keras")
    name = plugin_module(
        "own_layers",
        "import keras\nfrom keras.layers import Dense\n\n\nclass Twice(keras.layers.Layer):\n    def __init__(self, "
        "units: int, scale: float = 1.0, **kwargs):\n        super().__init__(**kwargs)\n\n\n"
        "class _Hidden(keras.layers.Layer):\n    pass\n",
    )
    assert registry.register_plugin(name) == [("layers", "Twice")]
    assert list(registry.options("layers", "Twice")) == ["units"]
    assert registry.level_arguments("Twice") == {"scale"}
    assert layer_class("Twice").__name__ == "Twice"


SUBLAYERS = """
import keras


class Mixer(keras.layers.Layer):
    def __init__(self, units: int, **kwargs):
        super().__init__(**kwargs)
        self.first, self.units = keras.layers.Dense(units), units

    def build(self, input_shape):
        self.second = keras.layers.Dense(self.units)

    def call(self, inputs):
        return self.second(self.first(inputs))


class Bare(keras.layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)


class Inheriting(keras.layers.Dense):
    pass


def update(weights, start, steps, key, *, strength):
    return weights
"""


def test_unnamed_sublayers_have_the_same_paths_in_every_model(plugin_module):
    registry.register_plugin(plugin_module("sublayers", SUBLAYERS))
    layer = LayerSpec(kind="Mixer", args={"units": Width(4)}, name="mixer", unit="0")
    last = LayerSpec(kind="Dense", args={"units": Classes()}, name="head", unit="1")
    built = [
        build_model(Model(layers=(layer, layer_b, last)), (3,), width)
        for width in (1.0, 0.5, 0.5)
        for layer_b in [replace(layer, name="again")]
    ]
    paths = [[variable.path for variable in model.weights] for model in built]
    assert paths[0] == paths[1] == paths[2]
    assert paths[0][:4] == [f"mixer/dense{number}/{name}" for number in ("", "_1") for name in ("kernel", "bias")]
    assert "again/dense_1/kernel" in paths[0] and [v.shape[-1] for v in built[1].weights][:4] == [2, 2, 2, 2]


def test_parameters_without_annotation_cannot_be_set(plugin_module):
    registry.register_plugin(plugin_module("sublayers", SUBLAYERS))
    hint = ". Keys are the parameters that {} defines with an annotation, such as `{}: int` (BUILD.md, Add a part)"
    for layer in ("Bare", "Inheriting"):
        message = refusal(recipe.loads, tiny.DENSE.replace("Dense: {units: !w 8}", f"{layer}: {{units: 3}}"))
        assert "unknown key 'units'; no keys are allowed here" + hint.format(layer, "units") in message
    message = refusal(recipe.loads, tiny.DENSE, "r", ["client.update={name: sublayers, strength: 2}"])
    assert "unknown key 'strength'; " in message and hint.format("sublayers", "strength") in message


@pytest.mark.parametrize(
    "name, text, message",
    [
        (
            "nothing_here",
            "x = 1\n",
            "--plugin nothing_here: defines nothing to add; it must define a Keras layer, a function "
            "(width, classes) -> keras.Model, or one of the functions load, build, split, policy, choose, keep, mask, divide, "
            "task, loss, couple, correct, personalize, step, update, aggregate, merge, apply, multiplier, metric",
        ),
        ("borrowed", "from hetero_tf.methods.schedules.steps import multiplier\n", "--plugin borrowed: defines nothing to add"),
    ],
)  # fmt: skip
def test_module_without_plugins_is_refused(plugin_module, name, text, message):
    assert refusal(registry.register_plugin, plugin_module(name, text)).startswith(message)
    assert not any(registry._registered.values())


FORMS = """
from typing import Annotated, Literal
import typing
from hetero_tf.base.constraints import Range, Share as Part
from hetero_tf.layers.norm import NormKind

MOST = 7
Few = Annotated[int, Range(low=2, high=MOST)]


def multiplier(
    round, *, plain: int, low: int = -2, maybe: float | None = None, kind: Literal["a", "b"] = "a",
    one: typing.Literal[1, 3] = 1, few: Few = 2, part: Part = 0.5, parts: tuple[Part, ...] = (), norm: NormKind = "sbn",
    pair: Annotated[int | tuple[int, int], Range(low=-1)] = 0,
):
    return 1
"""


def test_user_modules_use_the_same_annotations(plugin_module):
    registry.register_plugin(plugin_module("forms", FORMS))
    assert {name: option.constraint for name, option in registry.options("schedules", "forms").items()} == {
        "plain": Constraint("int", low=1),
        "low": Constraint("int", low=-2),
        "maybe": Constraint("float", optional=True),
        "kind": Constraint("str", choices=("a", "b")),
        "one": Constraint("int", choices=(1, 3)),
        "few": Constraint("int", low=2, high=7),
        "part": Constraint("float", low=0.0, below=1.0),
        "parts": Constraint("tuple", item=Constraint("float", low=0.0, below=1.0)),
        "pair": Constraint("pair", low=-1),
        "norm": Constraint("str", choices=("sbn", "bn", "wbn", "in", "gn", "ln", "none")),
    }


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ("set", "typed.py: 'set' is not a type of an option; it must be int, float, str"),
        ("np.ndarray", "typed.py: the type of an option must be int, float, .* Received: np.ndarray"),
        ("Literal['a', 1]", r"typed.py: the type of an option must be .* Received: Literal\['a', 1\]"),
        ("Annotated[int, Range(lowest=1)]", r"typed.py: .* Received: Annotated\[int, Range\(lowest=1\)\]"),
        ("tuple[int, int]", r"typed.py: .* Received: tuple\[int, int\]"),
        ("int | float", r"typed.py: .* Received: int \| float"),
        ("int = len('abc')", "typed.py:2: rate must be a plain value, since the module is not imported"),
    ],
)
def test_unreadable_types_and_defaults_are_reported(plugin_module, annotation, message):
    imports = "from __future__ import annotations\n"
    registry.register_plugin(
        plugin_module("typed", f"{imports}def multiplier(round, *, rate: {annotation}):\n    return 1\n")
    )
    with pytest.raises(InputError, match=message):
        registry.options("schedules", "typed")
