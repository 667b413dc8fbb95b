"""What becomes of a client's trained values before they are merged.

`update(weights, start, steps, key, *, options) -> weights`. `weights` and `start` are the clients' trainable values
after and before local training, [K, P], one row a client; `steps`, int32 [K], is how many steps each has done; `key`,
int32 [K, 3], is (seed, round, client), from which `base.graph_random` draws. What stays with a client, its personal
units and the memory of its correction, comes from the values before the update.
"""
