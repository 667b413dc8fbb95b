"""Optimizers of local steps.

`step(weights, gradients, slots, rate, count, *, options) -> (weights, slots)`. `weights` and `gradients` are the
clients' trainable values and their clipped gradients, [K, P], one row per client. `slots` are tensors of the same
shape, one per name in the module's `SLOTS`, zeros at the first step of every round. `rate` is the learning rate, a
scalar. `count`, int32 [K], is the number of steps that each client has finished in this round. A step must be
elementwise. Entries that a stage freezes keep their weights and slots; the engine ignores the result for them.
"""
