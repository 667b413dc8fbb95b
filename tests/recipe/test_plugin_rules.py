"""Rules of plug-ins as data: those of the package name existing keys and values, and a file of one's own can have some."""

import sys

import pytest
import tiny
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.base import registry
from hetero_tf.recipe import key_rules, layer_table
from hetero_tf.recipe.changes import PLUGINS
from hetero_tf.recipe.plugin_rules import ChosenPlugin, read_key

KIND_BY_KEY = {".".join(path): option.constraint.kind for path, option in PLUGINS.items()}
CHOSEN = [
    ChosenPlugin(path, option.constraint.kind, name)
    for path, option in PLUGINS.items()
    for name in registry.names(option.constraint.kind)
]
SERVER = '''"""A server of a user."""

REQUIRES = {"optimizer.name": "sgd", "optimizer.momentum": 0}
CONFLICTS = {"it counts clients": {"round.weighting": "samples"}}
UNUSED = {"rate 0 changes nothing": {"rate": 0, "client.epochs": True}}
SLOTS = ()


def apply(old, mean, coverage, slots, *, registered, rate: float = 1.0):
    """Replace.

    Args:
        rate: step size.
    """
    raise AssertionError("a recipe is checked without calling its plug-ins")
'''
SGD = ("optimizer={name: sgd, momentum: 0, learning_rate: 0.1}", "client.epochs=1")


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Register a server `nova` with the given source text; the registry is as before afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "_registered", {kind: {} for kind in registry.KINDS})

    def register(text):
        (tmp_path / "nova.py").write_text(text)
        monkeypatch.delitem(sys.modules, "nova", raising=False)
        assert registry.register_plugin("nova") == [("servers", "nova")]

    return register


def error_of(*overrides):
    return refusal(recipe.loads, tiny.DENSE, "r.yaml", ["round.server=nova", *SGD, *overrides]).split("\n")[0]


def is_allowed(key, value):
    """True if the value of a rule can occur at a key."""
    if (
        isinstance(value, bool)
        or isinstance(value, str)
        and "." in value
        and read_key(recipe.load("tiny/digits"), value)
    ):
        return True
    kind = KIND_BY_KEY.get(key.removesuffix(".name"))
    if kind is not None:
        return value in registry.names(kind)
    if key == "model.layers":
        return value in layer_table.known_layers()
    return True


@pytest.mark.parametrize("table_name", ["REQUIRES", "CONFLICTS", "UNUSED"])
def test_rules_of_shipped_plugins_name_existing_keys_and_values(table_name):
    plain, rules = recipe.load("tiny/digits"), [rule for plugin in CHOSEN for rule in plugin.rules(table_name)]
    rules += [*getattr(key_rules, table_name, {}).items()]
    for _, values in rules:
        for key, value in values.items():
            read_key(plain, key)
            assert is_allowed(key, value), f"{key}: {value}"
    assert len(rules) > 5


def test_server_in_one_file_has_requirements(server):
    server(SERVER)
    recipe.loads(tiny.DENSE, "r.yaml", ["round.server=nova", *SGD])
    assert error_of("optimizer.momentum=0.5") == (
        "--set optimizer.momentum=0.5: optimizer.momentum: must be 0 with round.server nova. Received: 0.5"
    )
    assert error_of("optimizer={name: adam, learning_rate: 0.1}") == (
        "--set optimizer={name: adam, learning_rate: 0.1}: optimizer.name: must be sgd with round.server nova. "
        "Received: 'adam'"
    )
    assert error_of("round.weighting=samples") == (
        "--set round.weighting=samples: round.weighting: cannot be combined with round.server nova: it counts clients. "
        "Received: 'samples'"
    )
    assert error_of("round.server={name: nova, rate: 0}", "client.epochs=3") == (
        "--set client.epochs=3: client.epochs: has no effect with round.server nova because rate 0 changes nothing; "
        "change round.server.rate or remove this key. Received: 3"
    )


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ('REQUIRES = ["sgd"]', "REQUIRES must have the form {key: value}. Received: ['sgd']"),
        ('CONFLICTS = {"a": "b"}', "CONFLICTS must have the form {reason: {key: value}}. Received: {'a': 'b'}"),
        ('REQUIRES = {"optimiser.name": "sgd"}', "unknown key 'optimiser.name'; did you mean 'optimizer.clip_norm'?"),
        ('REQUIRES = {"optimizer.momentun": 0}', "unknown key 'optimizer.momentun'; did you mean 'momentum'?"),
        ('UNUSED = {"x": {"client": True}}', "unknown key 'client'; did you mean 'client.loss'?"),
        (
            "REQUIRES = dict(a=1)",
            "nova.py:3: REQUIRES must be a plain value, since the module is not imported: numbers, texts, lists or "
            "dictionaries. Received: dict(a=1)",
        ),
    ],
)
def test_malformed_rules_are_explained(server, rules, message):
    table, body = (
        rules.partition(" = ")[0],
        SERVER.replace("CONFLICTS = ", "IGNORED = ").replace("UNUSED = ", "SPARE = "),
    )
    body = "\n".join(rules if line.startswith("REQUIRES") else line for line in body.split("\n"))
    assert table in body
    server(body)
    assert error_of() == f"--set round.server=nova: round.server: nova has an invalid rule: {message}"


@pytest.mark.parametrize(
    ("rule", "overrides", "message"),
    [
        (
            '"round.submodel": ["random", "rolling"]',
            (),
            "--set round.server=nova: round.server: nova needs round.submodel random or rolling; set round.submodel to "
            "random or rolling. Received: 'prefix'",
        ),
        (
            '"client.update": True',
            (),
            "--set round.server=nova: round.server: nova needs client.update; set it, see `hetero_tf explain "
            "client.update`. Received: null",
        ),
        (
            '"client.epochs": False',
            ("client.epochs=3",),
            "--set client.epochs=3: client.epochs: cannot be combined with round.server nova. Received: 3",
        ),
        (
            '"client.batch_size": "round.server.rate"',
            ("client.batch_size=2",),
            "--set client.batch_size=2: client.batch_size: must be 1.0 (the value of round.server.rate) with "
            "round.server nova. Received: 2",
        ),
    ],
)
def test_requirements_say_what_is_allowed(server, rule, overrides, message):
    server(SERVER.replace('"optimizer.name": "sgd"', rule))
    assert error_of(*overrides) == message
