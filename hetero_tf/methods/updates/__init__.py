"""Updates: transform the trained values of clients before the merge.

`update(weights, start, steps, key, *, options) -> weights`. `weights` and `start` are the clients' trainable values
after and before local training, [K, P], one row per client. `steps`, int32 [K], is the number of steps of each client.
`key`, int32 [K, 3], is (seed, round, client), for `base.graph_random`. Values that stay with a client, its personal
units and the memory of its correction, are computed from the untransformed values.
"""
