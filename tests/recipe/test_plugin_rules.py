"""Rules of plug-ins as data: those of the package name existing keys and values, and a file of one's own can have some."""

import re
from pathlib import Path

import bad_recipes
import cases
import pytest
import yaml
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.base import registry
from hetero_tf.base.constraints import walk_keys
from hetero_tf.recipe import geometry, key_rules
from hetero_tf.recipe.nodes import dotted
from hetero_tf.recipe.plugin_rules import ChosenPlugin
from hetero_tf.recipe.recipe_files import PLUGINS
from hetero_tf.recipe.schema import Recipe

KIND_BY_KEY = {dotted(path): option.constraint.kind for path, option in PLUGINS.items()}
KEYS = {dotted(path): option for path, option in walk_keys(Recipe)}
CHOSEN = [
    ChosenPlugin(path, option.constraint.kind, name)
    for path, option in PLUGINS.items()
    for name in registry.names(option.constraint.kind)
]
# The levels have one width, and each has a device.
IMAGES, TEXT = (
    base.replace("e: 0.0625", "e: 1.0") + "fleet: {devices: {a: {gflops: 1}, e: {gflops: 1}}}\n"
    for base in (bad_recipes.BASE, bad_recipes.TEXT)
)
# Values other than the defaults, and the overrides without which a recipe breaks other rules too, or not one rule.
CASES = yaml.safe_load(Path(__file__).with_name("rule_cases.yaml").read_text("utf-8"))
SERVER = '''"""A server of a user."""

REQUIRES = {"optimizer.name": "sgd", "optimizer.momentum": 0}
CONFLICTS = {"it counts clients": {"round.weighting": "samples"}}
UNUSED = {"rate 1 changes nothing": {"rate": 1, "client.epochs": True}}
SLOTS = ()


def apply(old, mean, coverage, slots, *, registered, rate: float = 1.0):
    """Replace.

    Args:
        rate: step size.
    """
    raise AssertionError("a recipe is checked without calling its plug-ins")
'''
SGD = ("optimizer={name: sgd, momentum: 0, learning_rate: 0.1}", "client.epochs=1")


def error_of(*overrides):
    return refusal(recipe.loads, IMAGES, "r.yaml", ["round.server=nova", *SGD, *overrides]).split("\n")[0]


def rules():
    """Yield `(plug-in or None, table, reason, {key: value})` of every rule that a recipe can break."""
    for table in ("CONFLICTS", "UNUSED"):
        for reason, values in getattr(key_rules, table).items():
            # planning/test_privacy_account.py has those of privacy.
            if reason not in key_rules.NOT_PRIVATE:
                yield pytest.param(None, table, reason, values, id=reason)
        for plugin in CHOSEN:
            for reason, values in plugin.rules(table):
                # A rule of all plug-ins of a kind may name options that only some of them have.
                options = [key for key in values if key.startswith(f"{dotted(plugin.path)}.")]
                if all(map(plugin.has_option, options)):
                    yield pytest.param(plugin, table, reason, values, id=f"{plugin}: {reason}")


def choose(plugin, others=()):
    """Overrides that choose a plug-in and meet its requirements; those of `others` are met."""
    section, overrides = dotted(plugin.path), []
    options = registry.options(plugin.kind, plugin.name).values()
    overrides += [f"{section}.name={plugin.name}", *(f"{section}.{each.name}=5" for each in options if each.required)]
    for _, required in plugin.rules("REQUIRES") if plugin not in others else ():
        overrides += [each for item in required.items() for each in set_key(*item, (*others, plugin))]
    return overrides


def set_key(key, value, others=()):
    """Overrides that give a key the value of a rule; none if the base recipe has it."""
    section, _, name = key.rpartition(".")
    value = value[0] if isinstance(value, list) else value
    if name.isupper():
        same = [each for each in CHOSEN if dotted(each.path) == section]
        constants = {each: registry.constant(each.kind, each.name, name) for each in same}
        return choose(next(each for each in same if constants[each] and value in (constants[each], True)), others)
    if key == "model.function":
        return ["model=from_python"]
    if key == "model.layers":
        arguments = [f"{name}: 16" for name, option in geometry.layer_options(value).items() if option.required]
        return [f"{key}.0={{{value}: {{{', '.join(arguments)}}}}}"]
    if isinstance(value, str) and "." in value:
        return [f"{value}=1", f"{key}=1"]
    value = CASES["changed"].get(key) or other_value(key) if value is True else value
    if value is False or key not in KEYS and section not in KIND_BY_KEY:
        return []
    for plugin in CHOSEN:
        if (dotted(plugin.path), plugin.name) == (key.removesuffix(".name"), value):
            return choose(plugin, others)
    return [f"{key}=[{value}]" if value in ("all", "last") and key.startswith("round.") else f"{key}={value}"]


def other_value(key):
    """A value of a flag, a choice or a number that differs from its default."""
    section, _, name = key.rpartition(".")
    names = registry.names(KIND_BY_KEY[section]) if key not in KEYS else ()
    tables = [registry.options(KIND_BY_KEY[section], each) for each in names]
    option = KEYS.get(key) or next(table[name] for table in tables if name in table)
    values = option.constraint.choices or (("true", "false") if option.constraint.type == "bool" else (1, 2))
    return next(value for value in values if str(value) != str(option.default).lower())


RULES = list(rules())


def test_every_rule_has_a_case():
    # The cases are read from the rules, so a lost rule has none.
    assert len(RULES) == 117


@pytest.mark.parametrize(("plugin", "table", "reason", "values"), RULES)
def test_a_recipe_that_breaks_a_rule_is_rejected_for_its_reason_alone(plugin, table, reason, values):
    base = TEXT if "input.TARGETS" in values or plugin and plugin.kind == "inputs" else IMAGES
    overrides = [*CASES["further"].get(reason, ()), *(choose(plugin) if plugin else ())]
    overrides += [each for item in values.items() for each in set_key(*item)]
    message, key = refusal(recipe.loads, base, "r.yaml", overrides), re.sub(r"\.[A-Z_*]+$", "", list(values)[-1])
    cause = f"combined with .*: {re.escape(reason)}. R" if table == "CONFLICTS" else f"because {re.escape(reason)}; "
    assert re.match(rf"(r\.yaml:\d+:\d+|--set .*): {key}.*: (cannot be|has no effect) .*{cause}", message), message


@pytest.mark.parametrize("plugin", [each for each in CHOSEN if list(each.rules("REQUIRES"))], ids=str)
def test_requirements_of_a_shipped_plugin_can_be_met(plugin):
    recipe.loads(IMAGES.replace("e: 1.0", "e: 0.5"), "r.yaml", choose(plugin))


@pytest.mark.parametrize(("rule", "message"), cases.of_text(__file__, "SERVER"))
def test_rules_of_a_server_in_one_file(plugin_module, rule, message):
    required, override = rule.split(" | ")
    source = SERVER if required == "-" else SERVER.replace('"optimizer.name": "sgd"', required)
    assert registry.register_plugin(plugin_module("nova", source)) == [("servers", "nova")]
    if required == "-":
        recipe.loads(IMAGES, "r.yaml", ["round.server=nova", *SGD])
    assert error_of(override) == f"--set {override}: {message.format('round.server nova')}"


@pytest.mark.parametrize(("rules", "message"), cases.of_text(__file__, "RULES"))
def test_malformed_rules_are_explained(plugin_module, rules, message):
    registry.register_plugin(plugin_module("nova", re.sub("REQUIRES.*\\nCONFLICTS.*\\nUNUSED.*", rules, SERVER)))
    assert error_of() == f"--set round.server=nova: round.server: nova has an invalid rule: {message}"
