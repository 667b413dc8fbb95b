"""hetero_tf: federated learning of one model on unequal devices, from a YAML recipe."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Only for type checkers: the package itself imports at once, TensorFlow when it is first needed.

    pass


__version__ = "0.2.0"
