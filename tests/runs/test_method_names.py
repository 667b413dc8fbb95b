"""Cards, pages and reports call a recipe by the name of its method, and name the parts that differ from it."""

import pytest
from each import for_each

from hetero_tf.recipe import load
from hetero_tf.recipe.recipe_files import shipped
from hetero_tf.runs.history import keys_of_recipe, method_name


def name_of(recipe, *overrides):
    return method_name(keys_of_recipe(load(recipe, overrides)))


@for_each([name for name in shipped() if name.startswith("methods/")])
def test_a_method_has_the_name_of_its_recipe(name):
    title = name_of(name, "name=mine") if name != "methods/fedbabu" else name_of(name)
    assert f"# {title}" in shipped()[name].read_text("utf-8").splitlines()[0] and " with merge" not in title


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ([], "HeteroFL"),
        (["levels.mix=a"], "FedAvg"),
        (["client.loss=cross_entropy"], "HeteroFL"),
        (["round.submodel=rolling", "round.merge=median"], "FedRolex with merge median"),
        (["round.personal=[norms]", "levels.mix=c"], "FedBN"),
        (["client.correction={name: proximal, mu: 0.1}"], "FedProx with unequal widths"),
        (["levels.mix=a", "round.submodel=random"], "FedAvg with submodel random"),
    ],
)
def test_other_recipes_are_named_after_the_most_similar_method(overrides, name):
    assert name_of("digits", *overrides) == name
