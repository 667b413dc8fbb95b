"""Reading recipes: values, overrides, resolved text, differences, files."""

import dataclasses

import pytest
from bad_recipes import BASE
from each import for_each
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.base import registry
from hetero_tf.recipe import changes
from hetero_tf.recipe.model import Classes, Width
from hetero_tf.recipe.nodes import to_plain
from hetero_tf.recipe.reader import parse
from hetero_tf.recipe.recipe_files import LARGEST_FILE, shipped
from hetero_tf.recipe.schema import Plugin

SHIPPED = sorted(shipped())


def test_values_of_a_recipe():
    loaded = recipe.loads(BASE)
    assert loaded.name == "base" and loaded.path == "recipe"
    assert loaded.data.loader.name == "synthetic" and loaded.data.loader.options["examples"] == 200
    assert loaded.data.fallback is None
    assert loaded.input == Plugin("images", {"mean": (0.5,), "std": (0.5,), "augment": "none"})
    assert loaded.levels.mix == {"a": 1, "e": 9} and loaded.levels.global_level == "a"
    assert loaded.levels.widths == {"a": 1.0, "c": 0.25, "e": 0.0625}
    assert loaded.optimizer.method.options["weight_decay"] == 5.0e-4
    assert loaded.schedule == Plugin("steps", {"at": (1, 2), "factor": 0.1})
    assert loaded.model.layers[0].args == {"filters": Width(16)}
    assert loaded.model.layers[-1].args == {"units": Classes()}


@pytest.mark.parametrize(
    "text, value", [("5e-4", 0.0005), ("1e-3", 0.001), ("1.E+2", 100.0), (".5", 0.5), ("2", 2.0), ("+0.25", 0.25)]
)
def test_floats_as_people_write_them(text, value):
    loaded = recipe.loads(BASE.replace("learning_rate: 0.1", f"learning_rate: {text}")).optimizer.learning_rate
    assert loaded == value and isinstance(loaded, float)


@pytest.mark.parametrize(
    "mix, shares",
    [
        ("a1-e9", {"a": 1, "e": 9}),
        ("a", {"a": 1}),
        ("a-c-e", {"a": 1, "c": 1, "e": 1}),
        ("{c: 0.5, e: 2}", {"c": 0.5, "e": 2}),
        ("{c: 1.0}", {"c": 1}),
        ("e1", {"e": 1}),
        ("a10-e30", {"a": 10, "e": 30}),
    ],
)
def test_mixes(mix, shares):
    levels = recipe.loads(BASE.replace("a1-e9", mix)).levels
    assert repr(levels.mix) == repr(shares) and levels.global_level == next(iter(shares))


@pytest.mark.parametrize("word", ["yes", "on"])
def test_words_of_old_yaml_are_text(word):
    assert recipe.loads(BASE.replace("name: base", f"name: {word}")).name == word


@pytest.mark.parametrize(
    "override, read, value",
    [
        ("levels.mix=a1-c9", lambda r: r.levels.mix, {"a": 1, "c": 9}),
        ("client.epochs=3", lambda r: r.client.epochs, 3),
        ("checkpoint.every=7", lambda r: r.checkpoint.every, 7),
        ("model.layers.0.0.PaddedConv2D.filters=!w 32", lambda r: r.model.layers[0].args["filters"], Width(32)),
        ("model.layers[0][0].PaddedConv2D.kernel_size=5", lambda r: r.model.layers[0].args.get("kernel_size"), 5),
        ("model.layers[0][1].Scaler.enabled=false", lambda r: r.model.layers[1].args, {"enabled": False}),
        ("model.layers[2]=GlobalMaxPooling2D", lambda r: r.model.layers[-2].kind, "GlobalMaxPooling2D"),
        ("model.settings.blocks=[1, 3]", lambda r: len(r.model.layers), 10),
        ("model.settings.blocks.1=0", lambda r: len(r.model.layers), 7),
        ("round.server.name=sgd", lambda r: r.round.server, Plugin("sgd", {"learning_rate": 1.0})),
        ("round.submodel={name: rolling}", lambda r: r.round.submodel, Plugin("rolling")),
        ("schedule=constant", lambda r: r.schedule, Plugin("constant")),
        ("schedule.name=constant", lambda r: r.schedule, Plugin("constant")),
        ("optimizer.clip_norm=null", lambda r: r.optimizer.clip_norm, None),
        ("optimizer.momentum=0.5", lambda r: r.optimizer.method.options["momentum"], 0.5),
        ("optimizer.name=adamw", lambda r: r.optimizer.method.name, "adamw"),
        ("client.update={name: clip, norm: 2}", lambda r: r.client.update, Plugin("clip", {"norm": 2.0})),
        ("client.correction={name: proximal, mu: 1}", lambda r: r.client.correction, Plugin("proximal", {"mu": 1.0})),
        ("data.examples=300", lambda r: r.data.loader.options["examples"], 300),
        ("levels.widths.b=0.5", lambda r: r.levels.widths.get("b"), 0.5),
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
    for path, option in changes.PLUGINS.items()
}


@pytest.mark.parametrize("path", [path for path, options in WITH_OPTIONS.items() if options], ids=".".join)
def test_options_can_be_set_after_a_plain_plugin_name(path):
    name, option = WITH_OPTIONS[path][0]
    root = parse("{name: x, round: {}, client: {}}", "r.yaml")
    for override in (f"{'.'.join(path)}={name}", f"{'.'.join(path)}.{option}=1"):
        root = changes.apply(root, override)
    for step in path:
        root = root.value[step]
    assert to_plain(root) == {"name": name, option: 1}


def test_plugins_of_the_client_are_changed_by_name_and_option():
    loaded = recipe.loads(BASE, overrides=["client.correction=proximal", "client.correction.mu=0.5"])
    assert (loaded.client.correction.name, loaded.client.correction.options) == ("proximal", {"mu": 0.5})
    loaded = recipe.load(
        "methods/fedepth", ["client.stages.exit=branch", "levels.budgets={}", "client.stages.name=joint"]
    )
    assert loaded.client.stages == recipe.load("methods/heterofl").client.stages


def test_another_optimizer_keeps_the_common_keys_and_drops_the_options_it_lacks():
    text = BASE.replace("learning_rate: 0.1", "learning_rate: 0.1, momentum: 0.5, weight_decay: 0.2, clip_norm: 3")
    loaded = recipe.loads(text, overrides=["optimizer.name=adamw", "optimizer.epsilon=0.01"]).optimizer
    options = {"beta1": 0.9, "beta2": 0.999, "epsilon": 0.01, "weight_decay": 0.2}
    assert (loaded.learning_rate, loaded.clip_norm, loaded.method) == (0.1, 3.0, Plugin("adamw", options))


def test_null_removes_an_optional_plugin():
    loaded = recipe.load("methods/fedprox", ["client.correction=null"])
    assert loaded.client.correction is loaded.client.update is loaded.round.mask is None


def test_a_new_partition_keeps_the_options_it_shares():
    loaded = recipe.loads(BASE, overrides=["partition.name=labels", "partition.per_client=2"])
    assert loaded.partition.name == "labels"
    assert loaded.partition.options["clients"] == 10 and loaded.partition.options["per_client"] == 2


def test_overridden_data_set_of_a_shipped_recipe():
    loaded = recipe.load("mnist", ["data.dataset=fashion_mnist"])
    assert loaded.data.loader.options["dataset"] == "fashion_mnist" and loaded.data.fallback == "digits"


@for_each(SHIPPED)
def test_resolved_text_reads_back(name):
    loaded = recipe.load(name)
    again = recipe.loads(loaded.source, "recipe.yaml")
    assert again == loaded
    assert again.source == loaded.source
    # Digests of recipes depend on the types of the values too.
    assert repr(recipe.keys_of(loaded)) == repr(recipe.keys_of(loaded.source))
    assert recipe.difference(loaded.source, again.source) == []


def test_resolved_text_holds_defaults_and_tags():
    source = recipe.loads(BASE).source
    for piece in ("keep: 2", "clip_norm: 1.0", "precision: float32", "!setting blocks.1", "!w 16", "!classes"):
        assert piece in source


@pytest.mark.parametrize("name", ["true", "12", "null", "1e5", "e1", "no", "a.b-c_d"])
def test_text_that_looks_like_something_else_reads_back_as_text(name):
    loaded = recipe.loads(BASE.replace("name: base", f'name: "{name}"'))
    assert loaded.name == name
    assert recipe.loads(loaded.source) == loaded


@pytest.mark.parametrize("path", ["a b, {c}: #d", "naïve — 数据/x.npz", "C:\\\\data", "it''s", "- x", "!w 3", "😀"])
def test_odd_text_reads_back(path):
    text = BASE.replace("data: {name: synthetic, kind: images}", f"data: {{name: npz, path: '{path}'}}")
    loaded = recipe.loads(text)
    assert loaded.data.loader.options["path"] == path.replace("''", "'")
    assert recipe.loads(loaded.source) == loaded


def test_difference_names_keys_and_both_values():
    changed = ("round.clients=6", "schedule=constant", "model.layers[3].Dense.use_bias=false")
    changed = [*changed, "optimizer.clip_norm=null"]
    old, new = (recipe.loads(BASE, overrides=overrides).source for overrides in ([], changed))
    assert recipe.difference(old, new) == [
        "round.clients: 5 -> 6",
        "optimizer.clip_norm: 1.0 -> null",
        "schedule.name: 'steps' -> 'constant'",
        "schedule.at: [1, 2] -> absent",
        "schedule.factor: 0.1 -> absent",
        "model.layers[3].Dense.use_bias: absent -> false",
    ]


def test_recipes_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe.loads(BASE).rounds = 5


@pytest.mark.parametrize("path", ["mnist", "mnist.yaml", "recipes/mnist.yaml", "tiny/mnist", "recipes/tiny/mnist.yaml"])
def test_shipped_recipes_load_from_any_folder(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    loaded = recipe.load(path)
    assert loaded.name == ("tiny_mnist" if "tiny" in path else "mnist")
    assert loaded.path.startswith("recipes/") and loaded.path.endswith("mnist.yaml")


def test_a_file_goes_before_a_shipped_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mnist").write_text(BASE)
    assert recipe.load("mnist").name == "base"


EMPTY = ":1:1: the recipe is empty; expected keys and values"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("utf16", BASE.encode("utf-16"), ": is UTF-16 text; save it as UTF-8"),
        ("latin", b"name: caf\xe9\n", ": is not UTF-8 text (byte 9); save it as UTF-8"),
        ("binary", bytes(range(256)), ": is not UTF-8 text (byte 128); save it as UTF-8"),
        ("large", b"#" * (LARGEST_FILE + 1), f": has {LARGEST_FILE + 1} bytes, at most {LARGEST_FILE} are allowed"),
        ("nul", b"name: a\0b\n", ":1:8: unreadable character U+0000; a recipe must be plain text"),
        ("empty", b"", EMPTY),
        ("comment", b"# x\n", EMPTY),
    ],
)
def test_invalid_recipe_files_are_rejected(name, content, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(content)
    assert refusal(recipe.load, name).split("\n")[0] == name + message


def test_names_of_no_recipe():
    assert refusal(recipe.load, "mnits") == "mnits: unknown recipe; did you mean 'mnist'?"
    for name in ("mnist/x", "a\0b", "x" * 5000):
        assert refusal(recipe.load, name).startswith(f"{name[:200]}: unknown recipe")


def test_a_byte_order_mark_is_fine(tmp_path):
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + BASE.replace("\n", "\r\n").encode())
    assert recipe.load(path) == recipe.loads(BASE)
