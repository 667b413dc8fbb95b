"""How examples are split over clients: each module with a `split` is a way, and its name is the name in a recipe.

`split(train_labels, test_labels, classes, rng, *, clients, options...) -> Partition` of each.
"""
