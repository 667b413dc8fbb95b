"""Updates: transform the trained values of clients before the merge.

`update(weights, start, steps, key, *, options) -> weights`. `weights` and `start` are the clients' trainable values
after and before local training, [K, P], one row per client. The rows are some of the clients of a round, and padding:
each row of the result must depend on the same row of the arguments alone. `steps`, int32 [K], is the number of steps of
each client. `key`, int32 [K, 3], is (seed, round, client), for `base.graph_random`. Values that stay with a client, its
personal units and the memory of its correction, are computed from the untransformed values.
"""
