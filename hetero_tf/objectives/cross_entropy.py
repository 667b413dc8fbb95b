"""Ordinary cross-entropy over all classes, and the computation behind both losses."""

import tensorflow as tf

MASKS_LABELS = False


def loss(logits, targets, present, outside):
    """Softmax cross-entropy of every example; needs the whole label axis, so `outside` is 0 and `present` unused."""
    return softmax_cross_entropy(logits, targets)


def softmax_cross_entropy(logits, targets, mask=None, outside=0):
    """`log(sum over c of exp(z_c) + outside) - z_target` with z = logits * mask.

    Args:
        logits: [..., classes], the last axis static.
        targets: int32 [...], or int64.
        mask: 0 and 1 in the type of the logits, broadcastable to them; None is 1 everywhere.
        outside: Classes with logit 0 that have no place on the axis, a Python int.

    Returns:
        The loss of every example, in the shape of `targets`. NaN where a logit of the example is NaN. Its gradient is
        written out, for a third of the time of TensorFlow's kernel over long axes; it has no second derivative.
    """

    @tf.custom_gradient
    def computed(logits):
        kept = logits if mask is None else logits * mask
        highest = tf.reduce_max(kept, -1, keepdims=True)
        # The largest share is 1 / (sum of exp(z - highest)); softmax is the fastest kernel that has exponentials.
        share = tf.nn.softmax(kept)
        total = 1 / tf.reduce_max(share, -1, keepdims=True)
        factor = None
        if outside:
            inside, top = highest, tf.maximum(highest, 0)
            inner = total * tf.exp(inside - top)
            total, highest = inner + outside * tf.exp(-top), top
            factor = inner / total
        own = tf.gather(kept, targets[..., None], batch_dims=targets.shape.rank)

        def gradient(upstream):
            chosen = tf.one_hot(targets, logits.shape[-1], dtype=logits.dtype)
            slope = (share if factor is None else share * factor) - chosen
            upstream = upstream[..., None]
            return slope * (upstream if mask is None else upstream * mask)

        return tf.squeeze(tf.math.log(total) + (highest - own), -1), gradient

    return computed(logits)
