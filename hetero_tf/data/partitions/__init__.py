"""Partitioners: each module with a `split` function assigns examples to clients, selected in a recipe by its name.

Each one has the signature `split(train_labels, test_labels, classes, rng, *, clients, options...) -> Partition`. A
partition has the example ids of all clients as `shares.ClientExamples`: for training, testing and validation
(`splitting.hold_out`). `ClientExamples.from_lists` builds them from one array per client. A `split` that declares
`train_owners` and `test_owners` without annotation receives the owners of the data set, or None.
"""
