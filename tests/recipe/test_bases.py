"""`base:` in recipe files: inherited and replaced keys, search paths, and positions in errors."""

import os

import pytest
from bad_recipes import BASE
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.recipe.recipe_files import LARGEST_FILE, MOST_BASES
from hetero_tf.recipe.schema import Plugin


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Load a text as `own.yaml` in the folder of `below.yaml`, which contains BASE."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "below.yaml").write_text(BASE)

    def load(*lines, overrides=()):
        (tmp_path / "own.yaml").write_text("\n".join(("base: below.yaml", "name: own", *lines)) + "\n")
        return recipe.load("own.yaml", overrides)

    return load


BELOW = recipe.loads(BASE)


@pytest.mark.parametrize(
    "line, read, value",
    [
        ("rounds: 7", lambda r: (r.rounds, r.seed), (7, 0)),
        ("round.clients: 3", lambda r: (r.round.clients, r.round.submodel), (3, Plugin("prefix"))),
        ("levels: {widths: {a: 0.5, e: 0.1}}", lambda r: (r.levels.widths, r.levels.mix), ({"a": 0.5, "e": 0.1}, BELOW.levels.mix)),
        ("levels.widths: {a: 0.5, e: 0.1}", lambda r: r.levels.widths, {"a": 0.5, "e": 0.1}),
        ("levels.mix: {a: 1}", lambda r: r.levels.mix, {"a": 1}),
        ("schedule: {at: [1]}", lambda r: r.schedule.options, {"at": (1,), "factor": 0.1}),
        ("schedule: {name: cosine, rounds: 9}", lambda r: r.schedule, Plugin("cosine", {"rounds": 9})),
        ("partition: {name: labels, clients: 5, per_client: 2}", lambda r: r.partition.options["clients"], 5),
        ("partition.name: labels\npartition.per_client: 2", lambda r: r.partition.options["clients"], 10),
        ("round.submodel: {name: rolling}", lambda r: (r.round.submodel, r.round.clients), (Plugin("rolling"), 5)),
        ("model.settings: {norm: in}", lambda r: r.model.settings, {"norm": "in", "blocks": (1, 2)}),
        ("model: {settings: {norm: in}}", lambda r: r.model.settings, {"norm": "in", "blocks": (1, 2)}),
        ("model: {layers: [Flatten, Dense: {units: !classes}]}", lambda r: (r.model.settings, len(r.model.layers)), ({}, 2)),
        ("round: {clients: 3}\nround.clients: 4", lambda r: r.round.clients, 4),
    ],
)  # fmt: skip
def test_keys_of_a_file_override_its_base(load, line, read, value):
    loaded = load(*line.split("\n"))
    assert read(loaded) == value
    assert recipe.loads(loaded.source) == loaded and "base" not in recipe.keys_of(loaded)


def test_missing_keys_come_from_the_base_and_overrides_come_last(load):
    assert load("rounds: 7", "round.clients: 3", overrides=["rounds=9"]).rounds == 9
    loaded = load()
    assert loaded.name == "own" and loaded.path == "own.yaml"
    assert loaded.source == BELOW.source.replace("name: base", "name: own")


def test_base_paths_are_relative_to_the_file_that_contains_them(tmp_path, monkeypatch):
    os.makedirs(tmp_path / "deep" / "er")
    (tmp_path / "one.yaml").write_text(BASE)
    (tmp_path / "deep" / "two.yaml").write_text("base: ../one.yaml\nrounds: 5\nseed: 1\n")
    (tmp_path / "deep" / "er" / "three.yml").write_text("base: ../two.yaml\nseed: 2\n")
    monkeypatch.chdir(tmp_path / "deep")
    loaded = recipe.load("er/three.yml")
    assert (loaded.name, loaded.rounds, loaded.seed) == ("base", 5, 2)
    assert recipe.loads("base: two.yaml", "x").seed == 1


def test_a_base_without_an_ending_is_a_shipped_recipe_and_a_file_goes_before_a_shipped_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mnist").write_text(BASE)
    assert recipe.loads("base: mnist\nname: x").data == recipe.load("mnist.yaml").data
    assert recipe.load("mnist").name == "base"


def first_line(text, *overrides):
    return refusal(recipe.loads, text, "r.yaml", overrides).split("\n")[0]


def test_errors_show_the_file_that_contains_the_value(load):
    clients = "round.clients: more active clients than registered ones; must be at most"
    for line, position in (
        ("round.clients: 50", f"own.yaml:3:16: {clients} 10"),
        ("partition.clients: 3", f"below.yaml:16:18: {clients} 3"),
        ("roundz.x: 1", "own.yaml:3:11: roundz: unknown key 'roundz'; did you mean 'round'?"),
        ("client: {epoch: 1}", "own.yaml:3:10: client.epoch: unknown key 'epoch'; did you mean 'epochs'?"),
        ("model.settings.norm: batch", "own.yaml:3:22: model.layers[0][2].Norm.kind: unknown value; must be one of "),
        ("model.layers[9]: ReLU", "own.yaml:3:18: model.layers: is a list of 4 items; the next step must be a number"),
        ("schedule: {name: cosine}", "own.yaml:3:11: schedule: the option 'rounds' of cosine is missing"),
        ("a" + ".a" * 60 + ": 1", "own.yaml:3:1: the path is too long; at most 50 steps are allowed"),
    ):
        message = refusal(load, line).split("\n")
        assert message[0].startswith(position) and line.startswith(message[1]) == position.startswith("own")


def test_bases_that_cannot_be(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in range(MOST_BASES + 2):
        (tmp_path / f"{number}.yaml").write_text(f"base: {number + 1}.yaml\n")
    for name, base in (("self", "self"), ("there", "back"), ("back", "there"), ("wrong", "utf16")):
        (tmp_path / f"{name}.yaml").write_text(f"base: {base}.yaml\n")
    (tmp_path / "utf16.yaml").write_bytes(BASE.encode("utf-16"))
    for base, message in {
        "3": "must be a shipped recipe such as mnist, or a path such as mine.yaml. Received: 3",
        "mnits": "no shipped recipe is called 'mnits' (a path ends in .yaml); did you mean 'mnist'?",
        "gone.yaml": "the file 'gone.yaml' does not exist",
    }.items():
        assert first_line(f"base: {base}") == f"r.yaml:1:7: base: {message}"
    for odd in ("x" * 5000, "a\\0b", "gone/" * 100):
        assert first_line(f'base: "{odd}.yaml"').startswith("r.yaml:1:7: base: the file '")
    for name, message in {
        "self": "self.yaml:1:7: base: leads back to self.yaml; a recipe cannot be its own base",
        "there": "back.yaml:1:7: base: leads back to there.yaml; a recipe cannot be its own base",
        "wrong": "wrong.yaml:1:7: base: utf16.yaml: is UTF-16 text; save it as UTF-8",
        "0": f"{MOST_BASES - 1}.yaml:1:7: base: more than {MOST_BASES} bases in a row: r.yaml -> 0.yaml -> 1.yaml -> "
        "2.yaml -> 3.yaml -> 4.yaml",
    }.items():
        assert first_line(f"base: {name}.yaml") == message
    message = "r.yaml:21:1: the path 'round.server' needs a `base`; without one, nest its keys"
    assert first_line(BASE + "round.server: sgd") == message
    assert first_line(BASE, "base=mnist") == "--set base=mnist: base is allowed only in a recipe file, not with --set"


@pytest.mark.parametrize("path", ["mnist", "mnist.yaml", "recipes/mnist.yaml", "tiny/mnist", "recipes/tiny/mnist.yaml"])
def test_shipped_recipes_load_from_any_folder(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    loaded = recipe.load(path)
    assert loaded.name == ("tiny_mnist" if "tiny" in path else "mnist")
    assert loaded.path.startswith("recipes/") and loaded.path.endswith("mnist.yaml")


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
