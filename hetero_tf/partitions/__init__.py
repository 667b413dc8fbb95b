"""Ways to split examples over clients: each module with a `split` is one, by its name in a recipe.

`split(train_labels, test_labels, classes, rng, *, clients, options...) -> Partition` of each. A partition has the
example ids of all clients as `shares.ClientExamples`: of training, of tests, and of the training examples held out for
validation (`splitting.hold_out`). `ClientExamples.from_lists` makes them from one array for each client. A `split` that
also has the parameters `train_owners` and `test_owners`, without annotation, receives the owners, or None.
"""
