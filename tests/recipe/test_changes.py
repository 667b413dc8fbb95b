"""Changes of a recipe by path."""

import pytest
from bad_recipes import BASE

from hetero_tf import recipe
from hetero_tf.base import registry
from hetero_tf.recipe import recipe_files
from hetero_tf.recipe.model import Width
from hetero_tf.recipe.nodes import to_plain
from hetero_tf.recipe.reader import parse
from hetero_tf.recipe.schema import Plugin


@pytest.mark.parametrize(
    "override, read, value",
    [
        ("levels.mix=a1-c9", lambda r: r.levels.mix, {"a": 1, "c": 9}),
        ("model.layers.0.0.PaddedConv2D.filters=!w 32", lambda r: r.model.layers[0].args["filters"], Width(32)),
        ("model.layers[0][0].PaddedConv2D.kernel_size=5", lambda r: r.model.layers[0].args.get("kernel_size"), 5),
        ("model.layers[2]=GlobalMaxPooling2D", lambda r: r.model.layers[-2].kind, "GlobalMaxPooling2D"),
        ("model.settings.blocks=[1, 3]", lambda r: len(r.model.layers), 10),
        ("round.server.name=sgd", lambda r: r.round.server, Plugin("sgd", {"learning_rate": 1.0})),
        ("round.submodel={name: rolling}", lambda r: r.round.submodel, Plugin("rolling")),
        ("schedule.name=constant", lambda r: r.schedule, Plugin("constant")),
        ("optimizer.clip_norm=null", lambda r: r.optimizer.clip_norm, None),
        ("optimizer.name=adamw", lambda r: r.optimizer.method.name, "adamw"),
        ("client.update={name: clip, norm: 2}", lambda r: r.client.update, Plugin("clip", {"norm": 2.0})),
        ("data.examples=300", lambda r: r.data.loader.options["examples"], 300),
        ("input.mean=[0.1, 0.2, 0.3]", lambda r: r.input.options["mean"], (0.1, 0.2, 0.3)),
    ],
)
def test_overrides(override, read, value):
    loaded = recipe.loads(BASE, overrides=[override])
    assert read(loaded) == value
    assert read(recipe.loads(BASE)) != value
    assert recipe.loads(loaded.source) == loaded


def test_overrides_apply_in_order_and_reach_into_plain_names():
    text = BASE.replace("submodel: prefix", "server: sgd")
    loaded = recipe.loads(text, overrides=["round.server.learning_rate=0.5", "rounds=3", "rounds=4"])
    assert loaded.round.server.options == {"learning_rate": 0.5} and loaded.rounds == 4


WITH_OPTIONS = {
    path: [
        (name, next(iter(registry.options(option.constraint.kind, name))))
        for name in registry.names(option.constraint.kind)
        if registry.options(option.constraint.kind, name)
    ]
    for path, option in recipe_files.PLUGINS.items()
}


@pytest.mark.parametrize("path", [path for path, options in WITH_OPTIONS.items() if options], ids=".".join)
def test_options_can_be_set_after_a_plain_plugin_name(path):
    name, option = WITH_OPTIONS[path][0]
    root = parse("{name: x, round: {}, client: {}}", "r.yaml")
    for override in (f"{'.'.join(path)}={name}", f"{'.'.join(path)}.{option}=1"):
        root = recipe_files.apply(root, override)
    for step in path:
        root = root.value[step]
    assert to_plain(root) == {"name": name, option: 1}


def test_plugins_of_the_client_are_changed_by_name_and_option_and_removed_by_null():
    loaded = recipe.loads(BASE, overrides=["client.correction=proximal", "client.correction.mu=0.5"])
    assert (loaded.client.correction.name, loaded.client.correction.options) == ("proximal", {"mu": 0.5})
    loaded = recipe.load(
        "methods/fedepth", ["client.stages.exit=branch", "levels.budgets={}", "client.stages.name=joint"]
    )
    assert loaded.client.stages == recipe.load("methods/heterofl").client.stages
    loaded = recipe.load("methods/fedprox", ["client.correction=null"])
    assert loaded.client.correction is loaded.client.update is loaded.round.mask is None


def test_another_optimizer_keeps_the_common_keys_and_drops_the_options_it_lacks():
    text = BASE.replace("learning_rate: 0.1", "learning_rate: 0.1, momentum: 0.5, weight_decay: 0.2, clip_norm: 3")
    loaded = recipe.loads(text, overrides=["optimizer.name=adamw", "optimizer.epsilon=0.01"]).optimizer
    options = {"beta1": 0.9, "beta2": 0.999, "epsilon": 0.01, "weight_decay": 0.2}
    assert (loaded.learning_rate, loaded.clip_norm, loaded.method) == (0.1, 3.0, Plugin("adamw", options))
