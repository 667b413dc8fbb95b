"""SGD with momentum, plain or Nesterov."""

import tensorflow as tf

from hetero_tf.base.constraints import NotNegative, Share

SLOTS = ("momentum",)
UNUSED = {"momentum is 0": {"momentum": 0, "nesterov": True}}


def step(
    weights: tf.Tensor,
    gradients: tf.Tensor,
    slots: tuple[tf.Tensor, ...],
    rate: tf.Tensor,
    count: tf.Tensor,
    *,
    momentum: Share = 0.9,
    weight_decay: NotNegative = 5.0e-4,
    nesterov: bool = False,
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """`g = gradient + weight_decay * w`, `v = momentum * v + g`, then `w - rate * v`, as PyTorch's SGD does it.

    With Nesterov's momentum the step is `w - rate * (g + momentum * v)`. Weight decay is neither clipped nor decoupled.

    Args:
        momentum: decay rate of the velocity.
        weight_decay: L2 factor, added to the clipped gradient.
        nesterov: whether to use Nesterov's momentum.

    Reference: Sutskever et al. 2013 for Nesterov's form, as PyTorch implements it.
    """
    # TensorFlow's graph optimizer adds in the order of these products, so swapping the lines changes the last bits.
    carried = momentum * slots[0]
    gradients = gradients + weight_decay * weights
    velocity = carried + gradients
    change = gradients + momentum * velocity if nesterov else velocity
    return weights - rate * change, (velocity,)
