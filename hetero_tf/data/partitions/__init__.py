"""Partitioners: each module with a `split` function assigns examples to clients, selected in a recipe by its name.

Each one has the signature `split(train_labels, test_labels, classes, rng, *, clients, options...) -> Partition`. Labels
are int `[n]` of images, or int `[rows, length]` of text, whose test rows belong to no client. `classes` is their
number, and `rng` a NumPy random generator. The labels of a client are those of its training examples, unless a
partitioner says otherwise. `InputError` states which option is impossible for the data.

A partition has the example ids of all clients as `partition.ClientExamples`: for training, testing and validation
(`partition.build_partition`). `ClientExamples.from_lists` builds them from one array per client. A `split` that
declares `train_owners` and `test_owners` without annotation receives the owners of the data set, int32 `[n]`, or None.
"""
