"""Values of a recipe, from its text to the schema."""

import pytest
from bad_recipes import BASE
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.recipe.model import Classes, Width
from hetero_tf.recipe.schema import Plugin


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


@pytest.mark.parametrize("value", ["", "x" * 300, "a\\nb", "\u202eabc", "😀", "../x", "/etc/passwd", "a/b", ".", "-x"])
def test_names_of_runs_stay_inside_the_run_folder(value):
    text = BASE.replace("name: base", f'name: "{value}"')
    assert "name: not allowed; must be text like" in refusal(recipe.loads, text)
