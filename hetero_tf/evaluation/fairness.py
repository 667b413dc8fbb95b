"""Fairness of a model over the clients: worst decile, spread with its noise floor, and the mean of each level."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.data.inputs import stored
from hetero_tf.data.partitions.partition import ClientExamples


@dataclass(frozen=True)
class ClientTests:
    """The test examples of all clients, one client after the other; clients without test examples are left out.

    Attributes:
        examples: int32 [pairs], rows of the split that they are in.
        label_mask: bool [clients, classes], labels of all clients, also of those that are left out.
        clients: int32 [tested], ascending.
        counts: int32 [tested], number of test examples of each of these clients.
        levels: `{level: int32 [n]}`, positions in `clients` of those with a fixed level; levels without a tested client
            are left out, and all levels with dynamic assignment.
    """

    examples: np.ndarray
    label_mask: np.ndarray
    clients: np.ndarray
    counts: np.ndarray
    levels: dict[str, np.ndarray]

    @property
    def owners(self) -> np.ndarray:
        """Index in `clients` of the client of each test example: int32 [pairs]."""
        return np.repeat(np.arange(len(self.clients), dtype=np.int32), self.counts)


@dataclass(frozen=True)
class ClientResults:
    """Accuracy of each client on its test examples; clients without test examples are left out.

    Attributes:
        clients: int [tested], their ids, ascending.
        levels: Name of each client's level; empty with dynamic assignment.
        examples: int [tested], number of its test examples.
        accuracy: float [tested], percent, among the labels of the run's Local metrics.
    """

    clients: np.ndarray
    levels: tuple[str, ...]
    examples: np.ndarray
    accuracy: np.ndarray


def client_tests(
    shares: ClientExamples, label_mask: np.ndarray, levels: np.ndarray | None = None, names: Sequence[str] = ()
) -> ClientTests:
    """Return the `ClientTests` of the examples that clients are tested on.

    Args:
        shares: Rows of the split that each client is tested on.
        label_mask: bool [clients, classes], labels of each client.
        levels: int [clients], index in `names` of each client's fixed level. If None, levels are dynamic.
    """
    clients = np.flatnonzero(shares.sizes).astype(np.int32)
    clients_of_level: dict[str, np.ndarray] = {}
    for position, name in enumerate(names if levels is not None else ()):
        tested = np.flatnonzero(np.asarray(levels)[clients] == position).astype(np.int32)
        clients_of_level |= {name: tested} if tested.size else {}
    return ClientTests(shares.ids, label_mask, clients, shares.sizes[clients].astype(np.int32), clients_of_level)


def accuracies(hits: tf.Tensor, tests: ClientTests) -> tf.Tensor:
    """Return the accuracy of every tested client in percent, [tested]; `hits` [pairs] are 1 or 0."""
    correct, counts = client_sums(hits, tests)
    return 100 * correct / counts


def client_sums(values: tf.Tensor, tests: ClientTests) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the sum and the number of the values [pairs] of every tested client: [tested] each."""
    total = tf.math.unsorted_segment_sum(values, stored(tests.owners), len(tests.clients))
    return total, tf.cast(stored(tests.counts), values.dtype)


def client_values(metric: Callable, scores: tf.Tensor, targets: tf.Tensor, tests: ClientTests) -> tf.Tensor:
    """Return the value of a metric on the test examples of every tested client: float64 [tested].

    Args:
        metric: `(scores, targets, client) -> value`; client: int32 [], its id.
        scores, targets: [pairs, ...], in the order of `tests`.
    """
    ends = np.cumsum(tests.counts)

    def value(row):
        client, first, end = tf.unstack(row)
        return tf.cast(metric(scores[first:end], targets[first:end], client), tf.float64)

    rows = np.stack([tests.clients, ends - tests.counts, ends], 1)
    return tf.map_fn(value, stored(rows.astype(np.int32)), fn_output_signature=tf.float64)


def spread(name: str, values: tf.Tensor, better: str) -> dict[str, tf.Tensor]:
    """Return the spread of a metric over the clients.

    Args:
        values: Float [tested], the value of each client; NaN for clients on whose examples it is undefined.
        better: "higher" or "lower".

    Returns:
        Scalars, NaN without a defined value: "local_NAME_worst_decile", mean of the worst tenth of the clients, rounded
        up to full clients; "local_NAME_std", standard deviation over clients.
    """
    direction = "ASCENDING" if better == "higher" else "DESCENDING"
    defined = tf.sort(tf.boolean_mask(values, tf.math.is_finite(values)), direction=direction)
    worst = defined[: -(-tf.size(defined) // 10)]
    return {f"local_{name}_worst_decile": tf.reduce_mean(worst), f"local_{name}_std": tf.math.reduce_std(defined)}


def fairness(hits: tf.Tensor, tests: ClientTests) -> dict[str, tf.Tensor]:
    """Return how evenly correct predictions are spread over the clients, in percent.

    Returns:
        Scalars, NaN without a tested client: "local_mean", over clients (`local_accuracy` pools their examples);
        "local_worst_decile", mean of the worst tenth, rounded up to full clients; "local_std", standard deviation over
        clients; "local_std_noise", its expected value if all examples had the same chance of a correct prediction;
        "clients_accuracy_LEVEL", mean over the clients of a level. With few test examples per client, a spread near
        the noise floor is not significant.

    Reference: q-FFL (Li et al., ICLR 2020, arXiv 1905.10497) for worst decile and spread; a client's n hits are
    binomial, so their share has the variance p (1 - p) / n.
    """
    accuracy, counts = accuracies(hits, tests), tf.cast(stored(tests.counts), hits.dtype)
    # Pooled accuracy: the chance of a correct prediction if all clients were equal.
    chance = tf.reduce_sum(hits) / tf.reduce_sum(counts)
    # Gather by positions: the negated values would write minus zero into the metrics.
    worst = tf.math.top_k(-accuracy, -(-len(tests.clients) // 10)).indices
    return {
        "local_mean": tf.reduce_mean(accuracy),
        "local_worst_decile": tf.reduce_mean(tf.gather(accuracy, worst)),
        "local_std": tf.math.reduce_std(accuracy),
        "local_std_noise": 100 * tf.sqrt(chance * (1 - chance) * tf.reduce_mean(1 / counts)),
        **{
            f"clients_accuracy_{name}": tf.reduce_mean(tf.gather(accuracy, stored(clients_of_level)))
            for name, clients_of_level in tests.levels.items()
        },
    }
