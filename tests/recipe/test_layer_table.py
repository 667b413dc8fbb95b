"""Layers that a recipe may use."""

import re

import pytest
from bad_recipes import BASE, TEXT, with_layers
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.recipe import layer_table
from hetero_tf.recipe.geometry import geometry_of

CLASSES = "Dense: {units: !classes}"


def layers(*items, base=BASE):
    """The LayerSpecs of a recipe with these items before the last two."""
    return recipe.loads(with_layers(*items, "GlobalAveragePooling2D", CLASSES, base=base)).model.layers


@pytest.mark.parametrize("kind", layer_table.known_layers())
def test_every_layer_loads_with_its_required_arguments(kind):
    arguments = layer_table.options(kind)
    form = geometry_of(kind).inputs
    values = {"activation": "relu", "rate": 0.5, "dropout": 0.5}
    args = ", ".join(f"{name}: {values.get(name, 8)}" for name, option in arguments.items() if option.required)
    if form == "words":
        text = TEXT.replace("masked_text", "next_word") if kind == "Embedding" else TEXT
        layer = f"{kind}: {{{'words' if kind == 'Embedding' else 'positions: 16, classes'}: !classes, width: !w 16}}"
        assert recipe.loads(with_layers(layer, CLASSES, base=text)).model.layers[0].kind == kind
    elif form == "tokens" or kind == "PatchEmbedding":
        before = ["PatchEmbedding: {patch: 8, width: 8}"] if form == "tokens" else []
        ends = kind == "ClassTokenReadout" or kind.startswith("Global") or "return_sequences" in arguments
        behind = [] if ends else ["ClassTokenReadout"]
        specs = recipe.loads(with_layers(*before, f"{kind}: {{{args}}}", *behind, CLASSES)).model.layers
        assert kind in [spec.kind for spec in specs]
    elif kind not in ("Flatten", "GlobalAveragePooling2D", "GlobalMaxPooling2D"):
        assert layers("PaddedConv2D: {filters: 32}", f"{kind}: {{{args}}}")[1].kind == kind


CODE = ("os.system", "builtins:eval", "__import__", "subprocess.Popen", "Lambda", "TFSMLayer", "1", "", "dense")
KERAS = ("keras.layers.Dense", "Layer", "Model", "Sequential", "Functional", "InputLayer", "Embedding")
WRAPPERS = ("RNN", "Bidirectional", "TimeDistributed", "TorchModuleWrapper", "JaxLayer")


@pytest.mark.parametrize("kind", [*CODE, *KERAS, *WRAPPERS, "hetero_tf.layers.scaler.Scaler"])
def test_hostile_layers_report_their_line(kind):
    for written in (f'"{kind}"', f'"{kind}": {{}}', f'"{kind}": {{function: "os.system(1)"}}'):
        text = BASE.replace("- GlobalAveragePooling2D", f"- {written}")
        assert re.match(r"(r.yaml: 2 errors\n)?r.yaml:11:", refusal(recipe.loads, text, "r.yaml"))
