"""How the merged weights change the global ones: `apply(old, mean, covered, *, options) -> new`, entry by entry.

Entries that no client covers (`covered` False, broadcastable) must come back bit-equal.
"""
