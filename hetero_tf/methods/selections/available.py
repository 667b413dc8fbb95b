"""Available: only clients whose devices are available when the round starts are chosen, with the same probability."""

import numpy as np

from hetero_tf.base.constraints import NotNegative
from hetero_tf.base.errors import InputError
from hetero_tf.methods.selections import Choice, ClientPool

READS_TIME = True
REQUIRES = {"fleet": True}
# Seconds between two looks at the clients.
INTERVAL = 600.0


def choose(pool: ClientPool, count: int, rng: np.random.Generator, *, max_wait: NotNegative = 86400.0) -> Choice:
    """Draw clients within their hours and while charging, see `fleet.devices`.

    If fewer than `count` are available, the server waits in steps of ten minutes until enough are; this time counts in
    `round_seconds`. After `max_wait` it starts with the most that were available at a time.

    Args:
        max_wait: largest device time that the server waits for enough clients, in seconds

    Raises:
        InputError: No client was available during this time.
    """
    ids = pool.ids
    best, waited = ids[:0], 0.0
    for seconds in np.arange(0.0, max_wait + INTERVAL / 2, INTERVAL):
        available = ids[pool.available_at(ids, pool.device_seconds + seconds)]
        if len(available) > len(best):
            best, waited = available, float(seconds)
        if len(best) >= count:
            break
    if not best.size:
        raise InputError(
            f"round {pool.round + 1}: no client is available within {max_wait:g} s; change hours or charging of "
            f"fleet.devices, or raise round.selection.max_wait. Received: max_wait={max_wait:g}"
        )
    return Choice(rng.choice(best, min(count, len(best)), replace=False), waited=waited)
