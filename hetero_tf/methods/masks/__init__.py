"""Masks: select the single entries of its sub-model that a client trains.

A module has three functions of rows [K, P], the clients' trainable values. They share one set of options, which
`mask` documents:

- `prepare(start, key, maskable, number, *, options) -> state`, once per round. `start` are the values at the beginning
  of the round. `key`, int32 [K, 3], is (seed, round, client), for `base.graph_random`; client is -1 when a level
  predicts with the global values. `maskable`, a bool tensor [P], is False for scales and offsets of norms, which are
  never masked. `number`, a Python int, is the number of maskable entries that the level trains: its share of them
  (`levels.entries`), rounded down, at least one.
- `mask(weights, state, *, options) -> [K, P]`, in every step: the factor of the weights in the forward pass. Gradients
  flow through it. Where it is 0, weights and optimizer slots keep their values.
- `counts(weights, start, state, *, options) -> bool [K, P]`, after the last step: True for entries that are merged.
"""

REQUIRES = {"levels.entries": True}
CONFLICTS = {
    "a mask counts entries individually": {"round.uncovered": "zeros"},
    "a mask selects entries of a network that all clients share": {"round.personal": True},
    "a mask selects entries of a single network": {"levels.members": True},
}
