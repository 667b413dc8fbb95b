"""How the clients' weights become one: `merge(old, total, coverage) -> mean`, entry by entry.

`total` is the sum of weight * value over the clients that cover an entry, `coverage` the sum of their weights;
both have the shape of `old` (coverage may broadcast). Where coverage is 0 the old value must come back bit-equal.
"""
