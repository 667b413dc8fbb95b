"""How a client's local steps move its weights.

`step(weights, gradients, slots, rate, count, *, options) -> (weights, slots)`. `weights` and `gradients` are the
clients' trainable values and their clipped gradients, [K, P], one row a client. `slots` are tensors of the same shape,
one for each name in the module's `SLOTS`, zeros at the first step of every round; `rate` is the learning rate, a
scalar; `count`, int32 [K], is how many steps each client has finished in this round. A step looks at every entry
alone. Entries that a stage freezes keep their weights and slots, whatever the function returns for them.
"""
