"""Servers: update the global weights from the merged ones, entry by entry.

`apply(old, mean, coverage, slots, *, registered, options) -> (new, slots)`. `old` and `mean` are all trainable global
values, concatenated: before the round, and merged (`mean` is `old` for uncovered entries). `coverage`, of the same
shape, is the sum of the weights of the clients that cover an entry. `slots` are tensors of that shape that the server
keeps between rounds, one per name in the module's `SLOTS`, zeros before the first round. `registered`, a Python int,
is the number of registered clients. A server with a keyword `memory_change` also receives, per entry, the sum of this
round's changes of the correction memories of the covering clients.

For uncovered entries `old` and the slots must be returned bit-equal. A moving average would otherwise change entries
that no client trained.
"""
