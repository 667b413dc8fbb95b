"""A recipe has the name of the most similar method, with the parts that differ from it."""

from each import for_each

from hetero_tf.recipe import load
from hetero_tf.runs.history import keys_of_recipe, method_name

NAMES = {
    ("client.loss=cross_entropy",): "HeteroFL",
    ("levels.mix=a", "round.submodel=random"): "FedAvg with submodel random",
    ("levels.mix=c", "round.personal=[norms]"): "FedBN",
    ("round.submodel=rolling", "round.merge=median"): "FedRolex with merge median",
    ("client.correction={name: proximal, mu: 0.1}",): "FedProx with unequal widths",
}


@for_each(NAMES)
def test_a_recipe_is_named_after_the_most_similar_method(overrides):
    assert method_name(keys_of_recipe(load("digits", overrides))) == NAMES[overrides]
