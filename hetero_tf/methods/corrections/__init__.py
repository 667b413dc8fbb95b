"""Corrections: terms that are added to the gradient of local steps.

`correct(weights, start, memory, slots, *, options) -> [K, P]`, added to the gradient before clipping. `weights` and
`start` are the clients' trainable values now and at the beginning of the round, [K, P], one row per client. The
rows are some of the clients of a round, and padding: each row of the result must depend on the same row of the
arguments alone.

`slots` are the server slots listed in the module's `READS`, [K, P] each, cut like the weights. The recipe must choose
a server that has these slots.

A module with `REMEMBERS = True` keeps one value per entry and client between rounds, zero at first. It receives them
as `memory`, [K, P]; for other modules `memory` is None. Its
`remember(memory, weights, start, slots, steps, rate, *, options) -> memory` is called after the last local step with
the same options. `steps`, int32 [K], is the number of steps of each client; `rate`, a scalar, is the learning rate.
"""
