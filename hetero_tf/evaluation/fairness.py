"""How evenly a model serves the clients: worst decile, spread beside its noise floor, and the mean of each level."""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf


@dataclass(frozen=True)
class Tested:
    """The clients that have test examples.

    Attributes:
        ids: int32 [tested], ascending.
        counts: int32 [tested], test examples of each.
        levels: `{level: int32 [n]}`, positions in `ids` of the clients that have the level for the whole run; levels
            without a tested client are left out, and all of them where levels are drawn anew each round.
    """

    ids: np.ndarray
    counts: np.ndarray
    levels: dict

    @property
    def owners(self):
        """Position in `ids` of the client of each test example, one client after the other: int32 [pairs]."""
        return np.repeat(np.arange(len(self.ids), dtype=np.int32), self.counts)


def tested(sizes, levels=None, names=()):
    """The `Tested` clients of a split.

    Args:
        sizes: int [clients], test examples of every client.
        levels: int [clients], position in `names` of the level that a client has for the whole run; None: it has none.
        names: Names of the levels.
    """
    ids = np.flatnonzero(sizes).astype(np.int32)
    places = (
        {}
        if levels is None
        else {
            name: np.flatnonzero(np.asarray(levels)[ids] == place).astype(np.int32) for place, name in enumerate(names)
        }
    )
    return Tested(
        ids, np.asarray(sizes)[ids].astype(np.int32), {name: found for name, found in places.items() if found.size}
    )


def measure(hits, clients):
    """Accuracy of every client, and what it says about all of them; everything in percent.

    Args:
        hits: Float [pairs], 1 where the prediction is right, else 0, one client after the other.
        clients: `Tested`.

    Returns:
        {"client_accuracy": [tested], "local_mean": mean over clients (`local_accuracy` pools their examples),
        "local_worst_decile": mean of the worst tenth, rounded up to whole clients, "local_std": standard deviation
        over clients, "local_std_noise": what it would be on average if every client's examples were hit with the same
        chance, "local_accuracy_LEVEL": mean over the clients of a level}. All but the first are scalars, and NaN where
        nobody is tested. With few test examples of each client, a spread near the noise floor says nothing.

    Reference: q-FFL (Li et al., ICLR 2020, arXiv 1905.10497) for worst decile and spread; a client's n hits are
    binomial, so their share has the variance p (1 - p) / n.
    """
    counts = tf.constant(clients.counts, hits.dtype)
    own = tf.math.unsorted_segment_sum(hits, clients.owners, len(clients.ids))
    accuracy, chance = 100 * own / counts, tf.reduce_sum(own) / tf.reduce_sum(counts)
    # The places, not the values: minus zero would be written into the metrics.
    worst = tf.math.top_k(-accuracy, -(-len(clients.ids) // 10)).indices
    return {
        "client_accuracy": accuracy,
        "local_mean": tf.reduce_mean(accuracy),
        "local_worst_decile": tf.reduce_mean(tf.gather(accuracy, worst)),
        "local_std": tf.math.reduce_std(accuracy),
        "local_std_noise": 100 * tf.sqrt(chance * (1 - chance) * tf.reduce_mean(1 / counts)),
        **{
            f"local_accuracy_{name}": tf.reduce_mean(tf.gather(accuracy, places))
            for name, places in clients.levels.items()
        },
    }
