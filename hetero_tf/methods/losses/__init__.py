"""Losses of the local steps: `loss(logits, targets, present, outside) -> loss of every example`.

`logits` are [..., classes] over the client's own label axis, whose length is static; `targets` int32 [...] index that
axis. `present`, bool and broadcastable to the logits, marks the labels that the client has: [classes] for one client,
[clients, 1, classes] for the leading axis of a stack. `outside` counts the classes that were cut away. The result has
the shape of the targets: the engine takes the mean over each client's own.
A module whose loss gives absent labels no gradient says so with `MASKS_LABELS = True`; then the label axis may be
cut to the client's labels without changing the result.
"""
