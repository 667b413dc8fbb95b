"""Updates: transform the trained values of clients before the merge, or the global values before the training.

`update(weights, start, steps, key, *, options) -> weights`. `weights` and `start` are the clients' trainable values
after and before local training, [K, P], one row per client. The rows are some of the clients of a round, and padding:
each row of the result must depend on the same row of the arguments alone. `steps`, int32 [K], is the number of steps of
each client. `key`, int32 [K, 3], is (seed, round, client), for `base.graph_random`. Values that stay with a client, its
personal units and the memory of its correction, are computed from the untransformed values.

A module with a flag `UNBIASED` is a compression: it changes `start` by what a decoder reads from a short message.
`message_bits(count, *, options)`, the number of bits that carry this number of values, replaces 32 for each value in
all traffic and transfer times. A compression sees only the entries that a client sends: the others are equal in
`weights` and `start`, and `update` receives their number as `entries`, int32 [K], if its signature has it. With an
option `error_feedback` that is true, each client stores what its messages have left out and adds it to its next update.

`UNBIASED = True`: the mean over all keys is `weights`. Only such a compression can be `round.update`, for which `start`
is 0 and the key is that of client -1, so that all clients of a level receive the same message.
"""
