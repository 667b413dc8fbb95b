"""Layers of a recipe: units, repeats, settings, names, sizes."""

import math
import re
from fractions import Fraction

import cases
import pytest
from bad_recipes import BASE, LAYERS, with_layers
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.base import registry
from hetero_tf.base.constraints import Plugin
from hetero_tf.base.errors import InputError
from hetero_tf.recipe.model import Width
from hetero_tf.recipe.nodes import InvalidValue, dotted

CLASSES = "Dense: {units: !classes}"


def layers(*items, base=BASE):
    """The LayerSpecs of a recipe with these items before the last two."""
    return recipe.loads(with_layers(*items, "GlobalAveragePooling2D", CLASSES, base=base)).model.layers


def test_names_are_unit_position_class_and_units_are_nested_lists_and_copies():
    assert " ".join(spec.name for spec in recipe.loads(BASE).model.layers) == (
        "0_0_padded_conv2d 0_1_scaler 0_2_norm 0_3_re_lu 0_4_max_pooling2d 1_0_0_pre_activation_block "
        "1_1_0_pre_activation_block 2_0_global_average_pooling2d 3_0_dense"
    )
    assert [spec.unit for spec in recipe.loads(BASE).model.layers] == ["0"] * 5 + ["1_0", "1_1", "2", "3"]


def test_layer_path_gives_its_position_in_the_recipe():
    loaded = recipe.loads(BASE, "r.yaml")
    assert dotted(loaded.model.layers[0].path) == "model.layers[0][0].PaddedConv2D"
    for index, label in ((0, "r.yaml:9:22"), (3, "r.yaml:9:77")):
        with pytest.raises(InputError, match=f"^{label}: "), recipe.with_source_location(loaded):
            raise InvalidValue(loaded.model.layers[index].path, "wrong")


def test_first_overrides_the_first_copy_alone_and_may_set_its_required_arguments():
    copies = recipe.loads(BASE).model.layers[5:7]
    assert [copy.args for copy in copies] == [{"filters": Width(32), "stride": 2}, {"filters": Width(32)}]
    assert [copy.starts_as for copy in copies] == [None, None]
    (single,) = layers("Repeat: {times: 1, first: {filters: !w 8}, layer: PaddedConv2D}")[:1]
    assert single.args == {"filters": Width(8)}
    with pytest.raises(InputError, match="the argument 'filters' is missing; PaddedConv2D needs filters"):
        layers("Repeat: {times: 2, first: {filters: !w 8}, layer: PaddedConv2D}")


def test_copies_of_the_same_initial_values_name_the_first():
    specs = layers("Repeat: {times: 3, same_initial_values: true, layer: {PaddedConv2D: {filters: 3}}}")
    assert [spec.starts_as for spec in specs[:3]] == [None, "0_0_0_padded_conv2d", "0_0_0_padded_conv2d"]


@pytest.mark.parametrize("times", [0, 1, 2, 7])
def test_repeat_gives_as_many_copies(times):
    specs = layers(f"Repeat: {{times: {times}, layer: ReLU}}")
    assert len(specs) == times + 2
    assert len({spec.name for spec in specs}) == len(specs)


@pytest.mark.parametrize("size", [1, 3, 4, 10, 20, 64, 100, 512])
@pytest.mark.parametrize("width", [1.0, 0.5, 0.25, 0.125, 0.0625, 0.07, 0.3])
def test_width_is_the_ceiling_of_the_share_and_not_raised_by_rounding_noise(size, width):
    # In floats 100 * 0.07 is a little above 7.
    assert Width(size).at(width) == math.ceil(size * Fraction(str(width)))


def test_pairs_become_tuples_and_flatten_before_any_width_is_fine():
    assert layers("MaxPooling2D: {pool_size: [2, 1]}")[0].args == {"pool_size": (2, 1)}
    with pytest.raises(InputError, match=r"pool_size\[1\]: too small; must be a whole number from 1 to 1000"):
        layers("MaxPooling2D: {pool_size: [2, 0]}")
    text = with_layers("Flatten", "[Dense: {units: !w 32}, ReLU]", CLASSES)
    assert [spec.kind for spec in recipe.loads(text).model.layers] == ["Flatten", "Dense", "ReLU", "Dense"]


CODE = ("os.system", "builtins:eval", "__import__", "subprocess.Popen", "Lambda", "TFSMLayer", "1", "", "dense")
KERAS = ("keras.layers.Dense", "Layer", "Model", "Sequential", "Functional", "InputLayer", "Embedding")
WRAPPERS = ("RNN", "Bidirectional", "TimeDistributed", "TorchModuleWrapper", "JaxLayer")


@pytest.mark.parametrize("kind", [*CODE, *KERAS, *WRAPPERS, "hetero_tf.layers.scaler.Scaler"])
def test_hostile_layers_report_their_line(kind):
    for written in (f'"{kind}"', f'"{kind}": {{}}', f'"{kind}": {{function: "os.system(1)"}}'):
        text = BASE.replace("- GlobalAveragePooling2D", f"- {written}")
        assert re.match(r"(r.yaml: 2 errors\n)?r.yaml:11:", refusal(recipe.loads, text, "r.yaml"))


@pytest.mark.parametrize("channels, allowed", [(64, True), (128, True), (60, True), (32, False)])
def test_four_groups_divide_the_channels_of_every_level(channels, allowed):
    items = f"[PaddedConv2D: {{filters: !w {channels}}}, Norm: {{kind: gn}}]"
    if allowed:
        assert layers(items)
        return
    assert re.search("4 groups do not divide the [0-9]+ channels of level '[ae]'", refusal(layers, items))
    # Levels outside the mix do not count.
    assert layers(items, base=BASE.replace("mix: a1-e9", "mix: a1-c9"))


def test_four_groups_divide_the_channels_of_a_u_net():
    message = refusal(recipe.load, "tiny/shapes_unet", ["model.settings.norm=gn"])
    assert "layers[0].UNet: 4 groups do not divide the 2 channels of level 'b'" in message
    assert recipe.load("shapes_unet", ["model.settings.norm=gn"])


@pytest.mark.parametrize("name, overrides, message", LAYERS)
def test_layers_that_cannot_process_text_are_rejected(name, overrides, message):
    assert refusal(recipe.load, name, overrides.split("\n")).split("\n")[0].endswith(f": {message}")


FUNCTIONS = "def cnn(width, classes, *, hidden: int = 8):\n    return hidden\n\n\ndef build(size, *, step: int = 1):\n    pass\n"


@pytest.fixture
def model_plugin(plugin_module):
    """The module name of a plug-in with a model function and an input, which has the same name as a shipped model."""
    name = plugin_module("own_models", FUNCTIONS)
    assert registry.register_plugin(name) == [("inputs", "own_models"), ("models", "own_models:cnn")]
    return name


def test_a_function_replaces_the_layers_and_layers_a_function(model_plugin):
    short = recipe.loads(BASE, overrides=["model=own_models:cnn"])
    assert short.model.layers == () and short.model.function == Plugin("own_models:cnn", {"hidden": 8})
    changed = recipe.loads(short.source, overrides=["model.function.hidden=3", "model.initial_weights=runs/x"])
    assert changed.model.function.options == {"hidden": 3} and changed.model.initial_weights == "runs/x"
    assert recipe.loads(changed.source) == changed
    assert recipe.changed_keys(short.source, changed.source) == [
        "model.function.hidden: 8 -> 3",
        "model.initial_weights: null -> 'runs/x'",
    ]
    assert recipe.loads(
        BASE, overrides=["model=own_models:cnn", f"model={{layers: [GlobalAveragePooling2D, {CLASSES}]}}"]
    ).model.layers


@pytest.mark.parametrize(("overrides", "expected"), cases.of_words(__file__, "FUNCTIONS"))
def test_models_of_functions_have_no_keys_of_layers(model_plugin, overrides, expected):
    assert expected in refusal(recipe.loads, BASE, overrides=overrides)
