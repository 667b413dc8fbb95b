"""Dropouts and stragglers in simulated time: the local steps that each active client returns.

The seconds of a client are those of its steps on a device of its level; no process waits for them. Everything is a
pure function of (seed, round, client).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hetero_tf.base import seeds
from hetero_tf.recipe.nodes import InvalidValue
from hetero_tf.recipe.schema import Availability, Recipe


@dataclass(frozen=True)
class Outcome:
    """Availability of the clients of one round.

    Attributes:
        steps: int32 [n], local steps that reach the server; clients without steps are not merged.
        seconds: float64 [n], simulated seconds of work of each client; 0 for dropped clients.
        dropped: Number of clients that dropped out.
        late: Number of clients that missed the deadline.
        partial: Number of late clients that returned their completed steps.
        round_seconds: Simulated seconds of the round: the slowest client, or the deadline if a client is missing.
    """

    steps: np.ndarray
    seconds: np.ndarray
    dropped: int
    late: int
    partial: int
    round_seconds: float

    def metrics(self) -> dict[str, int | float | None]:
        """Return metrics by name; "simulated_client_seconds" is the mean over returning clients."""
        returned = self.seconds[self.steps > 0]
        return {
            "dropped": self.dropped,
            "late": self.late,
            "partial": self.partial,
            "simulated_seconds": self.round_seconds,
            "simulated_client_seconds": float(returned.mean()) if returned.size else None,
        }


def limit_steps(
    availability: Availability,
    seed: int,
    round: int,
    ids: np.ndarray,
    levels: Sequence[str],
    steps: np.ndarray,
    pieces: Sequence[int] | int = 1,
) -> Outcome:
    """Simulate dropouts and late clients, and return the steps of each client that reach the server.

    Args:
        availability: The section of the recipe.
        seed, round: The run's seed and the round.
        ids: int [n], the clients.
        levels: [n], the name of each client's level.
        steps: int [n], planned local steps of each client.
        pieces: [n] or one for all, steps of a stage; a late client returns complete stages only.

    Returns:
        `Outcome`. Except for `round_seconds` and the counts, it does not depend on the other clients.

    Raises:
        ValueError: The seconds of a level are missing.
    """
    ids, steps = np.asarray(ids), np.asarray(steps, np.int32)
    dropped = seeds.uniform(seed, "client dropout", round, ids=ids) < availability.dropout
    pace = _pace(availability, seed, round, ids, levels)
    finished = _finished(availability.deadline, pace, steps)
    late = ~dropped & (finished < steps)
    in_time = finished - finished % pieces if availability.late == "partial" else np.zeros_like(steps)
    returned = np.where(dropped, 0, np.where(late, in_time, steps)).astype(np.int32)
    # Without a deadline no client is late.
    deadline = availability.deadline or 0.0
    seconds = np.where(dropped, 0.0, np.where(late, deadline, steps * pace))
    waits_for_deadline = availability.deadline is not None and (dropped | late).any()
    return Outcome(
        returned,
        seconds,
        int(dropped.sum()),
        int(late.sum()),
        int((late & (returned > 0)).sum()),
        float(deadline if waits_for_deadline else seconds.max(initial=0.0)),
    )


def check_deadline(recipe: Recipe, steps: Mapping[str, int]) -> None:
    """Raise `InvalidValue` if the deadline excludes every client in every round.

    Args:
        recipe: The recipe.
        steps: Smallest number of local steps of a client in a round, by level of the mix.

    Raises:
        InvalidValue: The path is `availability.deadline`.
    """
    availability, levels = recipe.availability, recipe.levels
    if availability.deadline is None or availability.spread:
        return
    able = [name for name in levels.names if name not in levels.idle]
    work = [(availability.seconds_per_step[name], steps[name] if availability.late == "drop" else 1) for name in able]
    fastest, needed = min(work, key=math.prod)
    if _finished(availability.deadline, np.asarray([fastest]), np.asarray([needed]))[0] < needed:
        raise InvalidValue(
            ("availability", "deadline"),
            f"the deadline excludes every client: the fastest level needs {fastest * needed:g} s ({needed} "
            f"step{'s' * (needed > 1)} of {fastest:g} s). Set at least {fastest * needed:g}. "
            f"Received: {availability.deadline:g}",
        )


def _pace(availability, seed, round, ids, levels):
    """Return the seconds of one local step of each client: float64 [n]."""
    if not availability.seconds_per_step:
        return np.zeros(len(ids))
    missing = sorted(set(levels) - set(availability.seconds_per_step))
    if missing:
        raise ValueError(
            "`availability.seconds_per_step` must name every level of the mix. "
            f"Received: nothing for {', '.join(missing)}"
        )
    level_pace = np.asarray([availability.seconds_per_step[name] for name in levels], float)
    first, second = (seeds.uniform(seed, "client pace", round, part, ids=ids) for part in range(2))
    # Box-Muller: two uniform numbers give a normal one, independently for each client.
    normal = np.sqrt(-2 * np.log1p(-first)) * np.cos(2 * np.pi * second)
    return level_pace * np.exp(availability.spread * normal)


def _finished(deadline, pace, steps):
    """Return the completed steps of each client at the deadline, at most `steps`: int32 [n]."""
    if deadline is None or not pace.any():
        return steps
    # In floats 0.3 / 0.1 is slightly below 3, but the third step is in time.
    return np.minimum(steps, np.floor(deadline / pace * (1 + 1e-9))).astype(np.int32)
