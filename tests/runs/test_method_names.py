"""A recipe with the parts of a method has its name; others have their name."""

from each import for_each

from hetero_tf.recipe import load
from hetero_tf.runs.history import keys_of_recipe, method_name

NAMES = {
    ("client.loss=cross_entropy",): "HeteroFL",
    ("levels.mix=a",): "FedAvg",
    ("levels.mix=a", "round.submodel=random"): "digits",
    ("levels.mix=c", "round.personal=[norms]"): "FedBN",
    ("round.submodel=rolling", "round.merge=median"): "digits",
    ("client.correction={name: proximal, mu: 0.1}",): "digits",
}


@for_each(NAMES)
def test_a_recipe_is_named_after_the_method_whose_parts_it_has(overrides):
    assert method_name(keys_of_recipe(load("digits", overrides))) == NAMES[overrides]
