"""What pulls local steps towards or away from where a client started.

`correct(weights, start, memory, *, options) -> [K, P]`, added to the gradient before it is clipped. `weights` and
`start` are the clients' trainable values now and at the beginning of the round, [K, P], one row a client.
A module with `REMEMBERS = True` keeps as much for every client between rounds, zeros at first: it gets that as
`memory`, [K, P], and its `remember(memory, weights, start, *, options) -> memory` is called after the last step with
the same options. Elsewhere `memory` is None.
"""
