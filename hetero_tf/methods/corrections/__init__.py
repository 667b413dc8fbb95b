"""What pulls local steps towards or away from where a client started.

`correct(weights, start, memory, slots, *, options) -> [K, P]`, added to the gradient before it is clipped. `weights`
and `start` are the clients' trainable values now and at the beginning of the round, [K, P], one row a client.

`slots` holds, as [K, P] too, what the server keeps under the names in the module's `READS`, cut like the weights; a
server that keeps these must be chosen beside the correction. A module with `REMEMBERS = True` keeps a value for every
entry and client between rounds, zeros at first: it gets them as `memory`, [K, P], elsewhere None. Its
`remember(memory, weights, start, slots, steps, rate, *, options) -> memory` is called after the last step with the
same options, `steps`, int32 [K], being the steps that each client has done, and `rate` their learning rate, a scalar.
"""
