"""Losses of the local steps: `loss(logits, targets, present, outside) -> scalar`.

`logits` are [..., classes] over the client's own label axis, `targets` int32 [...] index that axis, `present`
bool[classes] marks the labels that the client has, and `outside` counts the classes that were cut away.
A module whose loss gives absent labels no gradient says so with `MASKS_LABELS = True`; then the label axis may be
cut to the client's labels without changing the result.
"""
