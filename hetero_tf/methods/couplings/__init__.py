"""How the losses of several outputs of a model (exits, widths, peers) become one.

`couple(losses, logits, targets, round, *, options) -> loss of every example`. `losses` are tensors [K, batch], one per
output, as the objective gives them; `logits` [K, batch, classes]; `targets` int32 [K, batch]; `round` a scalar int32
counted from 0. More axes between batch and classes (positions of text) are fine: a loss has the shape of the targets,
and the engine takes the mean over each client's own. Outputs come shallowest or narrowest first, the main one last. A
single output has nobody to learn from: its own loss is the result.
A module whose `READS_LOGITS` is False gets by without logits; where it is True, no client's label axis is cut.
"""
