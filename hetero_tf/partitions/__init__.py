"""How examples are split over clients: each module with a `split` is a way, and its name is the name in a recipe.

`split(train_labels, test_labels, classes, rng, *, clients, options...) -> Partition` of each. A partition holds the
example ids of all clients as `shares.Shares`: of training, of tests, and those of the training split that are held out
for validation (`dealing.hold_out`). `Shares.from_lists` makes them from one array for each client. A way that
also takes `train_owners` and `test_owners`, without annotation, is given the owners of the examples, or None.
"""
