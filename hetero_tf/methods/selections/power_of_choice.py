"""Power of choice: of some random candidates, those with the highest loss of the current model train."""

import numpy as np

from hetero_tf.base.constraints import Count
from hetero_tf.methods.selections import Choice, ClientPool

READS_LOSSES = True


def choose(pool: ClientPool, count: int, rng: np.random.Generator, *, candidates: Count) -> Choice:
    """Draw candidates by their numbers of examples, without replacement, and return those with the highest losses.

    All candidates download the model and evaluate it on their training examples, at their own level. The downloads of
    those that do not train count in `bytes_down`; with a fleet, the evaluation takes device time and energy. Of equal
    losses the lower id is chosen.

    Args:
        candidates: clients that report their loss in each round; at least round.clients

    Reference: Cho, Wang and Joshi 2020 (arXiv 2010.01243), pow-d.
    """
    ids, examples = pool.ids, pool.examples_of(pool.ids)
    shares = examples / examples.sum()
    drawn = min(max(candidates, count), int(np.count_nonzero(shares)))
    candidate_ids = np.sort(rng.choice(ids, drawn, replace=False, p=shares))
    order = np.argsort(-pool.losses_of(candidate_ids), kind="stable")
    return Choice(np.sort(candidate_ids[order[:count]]), evaluated=candidate_ids)
