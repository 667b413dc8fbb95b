"""Couplings: combine the losses of several outputs of a model (exits, widths, peers) into one.

`couple(losses, logits, targets, round, *, options) -> loss of every example`. `losses` are tensors [K, batch] of the
objective, one per output; `logits` are [K, batch, classes], one per output; `targets` are int32 [K, batch]; `round` is
a scalar int32 that starts at 0. Additional axes between batch and classes (positions of text) are allowed. A loss has
the shape of the targets; the engine averages it per client. Outputs are ordered from the shallowest or narrowest to
the main one. With a single output the result is its loss.

A module with `READS_LOGITS = False` does not read the logits. With True, the label axis of clients is not cut. A module
with `SEPARABLE = True` returns the sum of its results for each single output, so the outputs may take separate steps,
which levels with the same widths share.
"""
