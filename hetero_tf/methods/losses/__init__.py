"""Losses of the local steps: `loss(logits, targets, present, outside) -> loss of every example`.

`logits` are [..., classes] over the label axis of the client, whose length is static. `targets`, int32 [...], index
that axis. `present`, bool and broadcastable to the logits, marks the labels of the client: [classes] for one client,
[clients, 1, classes] for clients on a leading axis. `outside` is the number of classes that were cut from the axis.
The result has the shape of the targets; the engine averages it per client.

A module with `MASKS_LABELS = True` gives absent labels no gradient. The label axis may then be cut to the labels of
the client without changing the result.
"""
