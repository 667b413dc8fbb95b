"""How evenly a model serves the clients: worst decile, spread beside its noise floor, and the mean of each level."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.partitions.partition import Partition


@dataclass(frozen=True)
class ClientTests:
    """The test examples of all clients, one client after the other; clients without any are left out.

    Attributes:
        examples: int32 [pairs], rows of the test split.
        present: bool [pairs, classes], labels that the client of each pair has.
        clients: int32 [tested], ascending.
        counts: int32 [tested], test examples of each of these clients.
        levels: `{level: int32 [n]}`, positions in `clients` of those that have the level for the whole run; levels
            without a tested client are left out, and all of them where levels are drawn anew each round.
    """

    examples: np.ndarray
    present: np.ndarray
    clients: np.ndarray
    counts: np.ndarray
    levels: dict[str, np.ndarray]

    @property
    def owners(self) -> np.ndarray:
        """Position in `clients` of the client of each test example: int32 [pairs]."""
        return np.repeat(np.arange(len(self.clients), dtype=np.int32), self.counts)


@dataclass(frozen=True)
class ClientResults:
    """How each client's own test examples were predicted; clients without any are left out.

    Attributes:
        clients: int [tested], their numbers, ascending.
        levels: The name of each one's level; empty where levels are drawn anew each round.
        examples: int [tested], its test examples.
        accuracy: float [tested], percent, with the labels that Local metrics of the run choose among.
    """

    clients: np.ndarray
    levels: tuple[str, ...]
    examples: np.ndarray
    accuracy: np.ndarray


def client_tests(partition: Partition, levels: np.ndarray | None = None, names: Sequence[str] = ()) -> ClientTests:
    """Returns the `ClientTests` of a partition.

    Args:
        partition: Which test examples and labels each client has.
        levels: int [clients], position in `names` of the level that a client has for the whole run; None: it has none.
        names: Names of the levels.
    """
    clients = np.flatnonzero(partition.test.sizes).astype(np.int32)
    members = {}
    for position, name in enumerate(names if levels is not None else ()):
        tested = np.flatnonzero(np.asarray(levels)[clients] == position).astype(np.int32)
        if tested.size:
            members[name] = tested
    return ClientTests(
        examples=partition.test.ids,
        present=partition.label_mask[partition.test.owners],
        clients=clients,
        counts=partition.test.sizes[clients].astype(np.int32),
        levels=members,
    )


def accuracies(hits: tf.Tensor, tests: ClientTests) -> tf.Tensor:
    """Accuracy of every tested client in percent: [tested].

    Args:
        hits: Float [pairs], 1 where the prediction is right, else 0, in the order of `tests`.
    """
    right = tf.math.unsorted_segment_sum(hits, tests.owners, len(tests.clients))
    return 100 * right / tf.constant(tests.counts, hits.dtype)


def fairness(hits: tf.Tensor, tests: ClientTests) -> dict[str, tf.Tensor]:
    """Says how evenly right predictions are spread over the clients, in percent.

    Returns:
        Scalars, NaN where nobody is tested: "local_mean", over clients (`local_accuracy` pools their examples);
        "local_worst_decile", mean of the worst tenth, rounded up to whole clients; "local_std", standard deviation over
        clients; "local_std_noise", what that would be on average if every client's examples were hit with the same
        chance; "clients_accuracy_LEVEL", mean over the clients of a level. With few test examples of each client, a
        spread near the noise floor says nothing.

    Reference: q-FFL (Li et al., ICLR 2020, arXiv 1905.10497) for worst decile and spread; a client's n hits are
    binomial, so their share has the variance p (1 - p) / n.
    """
    accuracy, counts = accuracies(hits, tests), tf.constant(tests.counts, hits.dtype)
    chance = tf.reduce_sum(hits) / tf.reduce_sum(counts)
    # The positions, not the values: minus zero would be written into the metrics.
    worst = tf.math.top_k(-accuracy, -(-len(tests.clients) // 10)).indices
    return {
        "local_mean": tf.reduce_mean(accuracy),
        "local_worst_decile": tf.reduce_mean(tf.gather(accuracy, worst)),
        "local_std": tf.math.reduce_std(accuracy),
        "local_std_noise": 100 * tf.sqrt(chance * (1 - chance) * tf.reduce_mean(1 / counts)),
        **{
            f"clients_accuracy_{name}": tf.reduce_mean(tf.gather(accuracy, members))
            for name, members in tests.levels.items()
        },
    }
