"""Losses of the local steps: `loss(outputs, targets, present, outside, options...) -> loss of every example`.

`outputs` are [..., classes], whose last axis has a static length: the label axis of the client, or the targets of a
task without labels. `targets` are those of the task, in the leading axes of the outputs: int32 indices of the label
axis, or float32 [..., classes]. `present`, bool and broadcastable to the outputs, marks the labels of the client:
[classes] for one client, [clients, 1, classes] for clients on a leading axis, or None. `outside` is the number of
classes that were cut from the axis. The result has the leading axes of the outputs; the engine averages it per client.

A module with `MASKS_LABELS = True` gives absent labels no gradient. The label axis may then be cut to the labels of
the client without changing the result, if an example has one label. `TARGETS` lists the forms of targets that it
supports, see `data.targets`; absent: "label". A loss that declares the parameter `class_shares` without annotation
receives the share of each class among the training examples if its option `class_weights` is not "none". The label
axis is then complete.
"""
