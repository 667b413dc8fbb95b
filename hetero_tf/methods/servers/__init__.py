"""How the merged weights change the global ones, entry by entry.

`apply(old, mean, coverage, slots, *, registered, options) -> (new, slots)`. `old` and `mean` are all trainable global
values, one behind the other, before the round and as merged (`mean` is `old` where nothing is covered); `coverage`, in
the same shape, is the sum of the client weights that cover an entry. `slots` are tensors of that shape that a server
keeps between rounds, one for each name in the module's `SLOTS`, zeros before the first round; `registered` is how many
clients there are, a Python int. A server with a keyword `memory_change` also gets, entry by entry, the sum of what the
memories of the covering clients' correction have changed by in this round. Where nothing is covered, `old` and the
slots must come back bit-equal: a moving average goes on moving without news, and an entry that nobody trained must not.
"""
