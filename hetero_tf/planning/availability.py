"""Which active clients return, and with how much of their work: dropouts and stragglers, in simulated time.

Nothing is waited for: a client takes as many seconds as its steps would on a device of its level. Everything is a pure
function of (seed, round, client).
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
    """What becomes of the clients of one round.

    Attributes:
        steps: int32 [n], local steps that reach the server; a client with none is left out of the merge.
        seconds: float64 [n], simulated seconds that each client works; 0 where it dropped out.
        dropped: How many dropped out.
        late: How many were not done at the deadline.
        partial: How many of those returned the steps that they had finished.
        round_seconds: Simulated seconds of the round: that of the slowest client, or the deadline if one is missing.
    """

    steps: np.ndarray
    seconds: np.ndarray
    dropped: int
    late: int
    partial: int
    round_seconds: float

    def metrics(self) -> dict[str, int | float | None]:
        """Returns the columns of a row of metrics; "simulated_client_seconds" is the mean over returning clients."""
        returned = self.seconds[self.steps > 0]
        return {
            "dropped": self.dropped,
            "late": self.late,
            "partial": self.partial,
            "simulated_seconds": self.round_seconds,
            "simulated_client_seconds": float(returned.mean()) if returned.size else None,
        }


def limit(
    availability: Availability,
    seed: int,
    round: int,
    ids: np.ndarray,
    levels: Sequence[str],
    steps: np.ndarray,
    pieces: Sequence[int] | int = 1,
) -> Outcome:
    """Decides who drops out, who is late, and how many steps each client returns.

    Args:
        availability: Of the recipe.
        seed, round: The run's seed and the round.
        ids: int [n], the clients.
        levels: [n], the name of each client's level.
        steps: int [n], local steps that each would take.
        pieces: [n] or one for all, how many steps only count together; a late client returns whole pieces.

    Returns:
        `Outcome`. It does not depend on who else is asked for, but for `round_seconds` and the counts.

    Raises:
        ValueError: A level has no seconds.
    """
    ids, steps = np.asarray(ids), np.asarray(steps, np.int32)
    gone = seeds.uniform(seed, "client dropout", round, ids=ids) < availability.dropout
    pace = _pace(availability, seed, round, ids, levels)
    finished = _finished(availability.deadline, pace, steps)
    late = ~gone & (finished < steps)
    in_time = finished - finished % pieces if availability.late == "partial" else np.zeros_like(steps)
    returned = np.where(gone, 0, np.where(late, in_time, steps)).astype(np.int32)
    # Without a deadline nobody is late.
    deadline = availability.deadline or 0.0
    seconds = np.where(gone, 0.0, np.where(late, deadline, steps * pace))
    waits = availability.deadline is not None and (gone | late).any()
    return Outcome(
        returned,
        seconds,
        int(gone.sum()),
        int(late.sum()),
        int((late & (returned > 0)).sum()),
        float(deadline if waits else seconds.max(initial=0.0)),
    )


def check_deadline(recipe: Recipe, steps: Mapping[str, int]) -> None:
    """Refuses a deadline that nobody can ever keep.

    Args:
        recipe: The recipe.
        steps: For each level of the mix the fewest local steps that a client takes in a round.

    Raises:
        InvalidValue: Names the key `availability.deadline`.
    """
    availability, levels = recipe.availability, recipe.levels
    if availability.deadline is None or availability.spread:
        return
    able = [name for name in levels.names if name not in levels.idle]
    work = [(availability.seconds_per_step[name], steps[name] if availability.late == "drop" else 1) for name in able]
    quickest, needed = min(work, key=math.prod)
    if _finished(availability.deadline, np.asarray([quickest]), np.asarray([needed]))[0] < needed:
        raise InvalidValue(
            ("availability", "deadline"),
            f"nobody ever returns: the quickest level takes {quickest:g} seconds a step and needs {needed} "
            f"step{'s' * (needed > 1)}, so this must be at least {quickest * needed:g}. "
            f"Received: {availability.deadline:g}",
        )


def _pace(availability, seed, round, ids, levels):
    """Seconds of one local step of each client: float64 [n]."""
    if not availability.seconds_per_step:
        return np.zeros(len(ids))
    missing = sorted(set(levels) - set(availability.seconds_per_step))
    if missing:
        raise ValueError(
            "`availability.seconds_per_step` must name every level of the mix. "
            f"Received: nothing for {', '.join(missing)}"
        )
    usual = np.asarray([availability.seconds_per_step[name] for name in levels], float)
    first, second = (seeds.uniform(seed, "client pace", round, part, ids=ids) for part in range(2))
    # Box and Muller: two uniform numbers make a normal one, for each client alone.
    normal = np.sqrt(-2 * np.log1p(-first)) * np.cos(2 * np.pi * second)
    return usual * np.exp(availability.spread * normal)


def _finished(deadline, pace, steps):
    """Whole steps that each client has finished at the deadline, at most `steps`: int32 [n]."""
    if deadline is None or not pace.any():
        return steps
    # 0.3 / 0.1 is a little below 3, and the third step is in time.
    return np.minimum(steps, np.floor(deadline / pace * (1 + 1e-9))).astype(np.int32)
