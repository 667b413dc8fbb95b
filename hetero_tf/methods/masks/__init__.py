"""Which single entries of its sub-model a client trains.

A module has three functions of rows [K, P], the clients' trainable values. They share one set of options, which
`mask` documents:

- `prepare(start, key, maskable, number, *, options) -> state`, once a round. `start` are the values that clients begin
  with; `key`, int32 [K, 3], is (seed, round, client), from which `base.graph_random` draws, with client -1 where a
  level predicts with the global values; `maskable`, a bool tensor [P], is False for scales and offsets of norms, which
  are never masked; `number`, a Python int, is how many of the maskable entries the level keeps: its share of them
  (`levels.entries`), rounded down, and at least one.
- `mask(weights, state, *, options) -> [K, P]`, in every step: what the weights are multiplied by in the forward pass.
  Gradients flow through it. Where it is 0, weights and the optimizer's slots stand still, but come back as they were.
- `counts(weights, start, state, *, options) -> bool [K, P]`, after the last step: which of the entries are merged.
"""
