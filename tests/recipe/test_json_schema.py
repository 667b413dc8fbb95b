"""The JSON Schema of recipes: every shipped recipe is valid, wrong ones are not, and any YAML parser reads them."""

import json

import jsonschema
import pytest
import yaml
from each import for_each

from hetero_tf.recipe.json_schema import recipe_schema
from hetero_tf.recipe.recipe_files import shipped, sweeps

RECIPES = sorted(shipped())
# Read here as an editor reads it: through JSON.
VALIDATOR = jsonschema.Draft7Validator(json.loads(json.dumps(recipe_schema())))


class EditorLoader(yaml.SafeLoader):
    """Resolves the tags of recipes as an editor does with `yaml.customTags`."""


EditorLoader.add_constructor("!w", lambda loader, node: int(node.value))
EditorLoader.add_constructor("!classes", lambda loader, node: None)
EditorLoader.add_constructor("!setting", lambda loader, node: node.value)


def errors(text):
    return list(VALIDATOR.iter_errors(yaml.load(text, Loader=EditorLoader)))


def test_the_schema_is_one_and_a_model_may_be_the_name_of_a_function():
    jsonschema.Draft7Validator.check_schema(VALIDATOR.schema)
    text = shipped()["digits"].read_text()
    assert errors(text[: text.index("model:")] + "model: own_models:cnn\n" + text[text.index("levels:") :]) == []


@for_each(RECIPES)
def test_shipped_recipes_are_valid(name):
    assert errors(shipped()[name].read_text()) == []


@pytest.mark.parametrize(
    ("correct", "wrong"),
    [
        ("rounds: 60", "rounds: many"),
        ("rounds: 60", "round_count: 60"),
        ("name: digits", "name: 'no name'"),
        ("widths: {a: 1.0", "widths: {a1: 1.0"),
        ("widths: {a: 1.0", "widths: {a: 1.5"),
        ("mix: a-b-c", "mix: a,b"),
        ("rounds: 60", ""),
        ("round: {clients: 10, ", "round: {"),
        ("- GlobalAveragePooling2D", "- GlobalPooling"),
        ("submodel: prefix", "submodel: suffix"),
    ],
    ids=str,
)
def test_wrong_recipes_are_invalid(correct, wrong):
    text = shipped()["digits"].read_text()
    assert correct in text
    assert errors(text.replace(correct, wrong, 1))


def test_a_recipe_with_a_base_may_give_single_keys():
    assert errors("base: digits\nname: mine\nrounds: 3\nclient.epochs: 2") == []
    assert errors("base: digits\nrounds: no")


@pytest.mark.parametrize(
    "section",
    [
        "levels: {widths: {a: 1/2}, mix: {a: 1, b: 9}, budgets: {a: 20 MiB, b: 1/6}, depths: {a: 2}}",
        "levels: {budgets: fair}",
        "client: {epochs: {a: 1, b: 2}}",
        'round: {personal: [1, "2"]}',
    ],
)
def test_values_by_level_and_numbers_of_units_are_valid(section):
    assert errors(f"base: digits\n{section}") == []


@for_each(sorted({*shipped().values(), *sweeps().values()}))
def test_plain_yaml_parsers_read_shipped_files(path):
    """Only this program reads `{units: !classes, ...}`: others take the comma for a part of the tag."""
    assert yaml.compose(path.read_text(), Loader=yaml.SafeLoader) is not None
