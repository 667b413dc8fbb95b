"""Check that a deadline does not exclude every client."""

import math
from collections.abc import Sequence

import numpy as np

from hetero_tf.methods.policies import SynchronousPolicy
from hetero_tf.planning.level_assignment import assign_levels
from hetero_tf.planning.plan import Division, expected_work
from hetero_tf.planning.selection import able_clients, pool_of
from hetero_tf.planning.timing import TOLERANCE, RoundClock, round_policy
from hetero_tf.recipe.nodes import InvalidValue


def check_deadline(clock: RoundClock, sizes: np.ndarray, division: Division, starts: Sequence[int]) -> None:
    """Raise `InvalidValue` if the deadline excludes every client in every round.

    Args:
        sizes: int [registered], training examples of each client.
        starts: First positions, from the `Input` of the recipe.

    Raises:
        InvalidValue: The path is `round.policy.seconds`.
    """
    policy, fleet, levels = round_policy(clock.recipe), clock.fleet, clock.recipe.levels
    if not isinstance(policy, SynchronousPolicy) or policy.deadline is None or fleet.jitter:
        return
    # A client alone has the whole shared link.
    clock = clock.without_shared_links()
    ids = pool_of(able_clients(levels, len(sizes), clock.recipe.seed, 0), 0).ids
    assigned = assign_levels(levels, len(sizes), clock.recipe.seed, 0, ids)
    seconds = math.inf
    for level in range(len(levels.names)):
        # With dynamic assignment any client may have the level.
        clients = ids[(sizes[ids] > 0) & ((assigned == level) | (levels.assignment == "dynamic"))]
        if clients.size:
            steps, examples = _least_work(clock, policy, int(sizes[clients].min()), division, starts, level)
            same_level, same_steps = (np.full(len(clients), value) for value in (level, steps))
            seconds = min(seconds, clock.times(None, clients, same_level, same_steps, examples).total.min())
    if seconds > policy.deadline * TOLERANCE:
        needed = f"{math.ceil(seconds / TOLERANCE * 1e6) / 1e6:.10g}"
        raise InvalidValue(
            ("round", "policy", "seconds"),
            f"the deadline excludes every client: the fastest needs {needed} s. Set at least {needed}. "
            f"Received: {policy.deadline:g}",
        )


def _least_work(clock, policy, size, division, starts, level):
    """Return the least steps that a client returns, and their examples in each stage, int [stages].

    A late client may return its first step alone, or its first stage if several run in sequence.
    """
    recipe, passes = clock.recipe, division.passes[level]
    (steps,), (examples,) = expected_work(recipe, np.array([size]), len(starts), division, np.array([level]))
    if policy.partial:
        first = min(size, recipe.client.batch_size) if passes == 1 else examples[0]
        steps, examples = 1 if passes == 1 else steps // passes, first * np.eye(len(examples))[0]
    if division.drawn:
        cheapest = clock.train_flops[level, : division.stages[level]].argmin()
        examples = examples.sum() * np.eye(len(examples))[cheapest]
    return steps, examples
