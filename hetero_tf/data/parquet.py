"""The loader `csv` under the name of its files with types, see there."""

from hetero_tf.data.csv import load

__all__ = ["load"]
