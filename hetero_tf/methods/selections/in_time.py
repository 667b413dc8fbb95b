"""In time: only clients that are expected to finish early enough are chosen, each with the same probability."""

import numpy as np

from hetero_tf.base.constraints import Epsilon, Positive
from hetero_tf.methods.selections import ClientPool

REQUIRES = {"fleet": True}


def choose(
    pool: ClientPool, count: int, rng: np.random.Generator, *, seconds: Positive | None = None, fastest: Epsilon = 1.0
) -> np.ndarray:
    """Draw clients whose expected time meets both limits; fewer than `count` if fewer clients meet them.

    The fastest client is always included.

    Args:
        seconds: largest expected device time of a client, such as the deadline of the policy; null: no limit
        fastest: share of the able clients, fastest first, that may be chosen

    Reference: the client selection of FedCS (Nishio and Yonetani 2019, arXiv 1804.08333), with independent clients.
    """
    ids = pool.ids
    expected = pool.seconds_of(ids)
    order = np.argsort(expected, kind="stable")[: max(int(np.ceil(fastest * len(ids))), 1)]
    fitting = 1 if seconds is None else max(np.count_nonzero(expected[order] <= seconds), 1)
    in_time = np.sort(ids[order if seconds is None else order[:fitting]])
    return rng.choice(in_time, min(count, len(in_time)), replace=False)
