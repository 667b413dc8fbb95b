"""The loader `npz` under the name of its files, see there."""

from hetero_tf.data.npz import load

__all__ = ["load"]
