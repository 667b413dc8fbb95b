"""The metrics of a training round, from what the compiled round records of each client."""

from collections.abc import Sequence

import numpy as np

from hetero_tf.planning.plan import Plan


def round_metrics(plan: Plan, records: dict[str, np.ndarray], levels: Sequence[str]) -> dict:
    """Sums up what the clients of a round have done.

    Args:
        plan: Who has trained what.
        records: `{"loss", "gradient_norm", "finite"}`, each [cohort] in the order of the plan.
        levels: Names of the levels of the mix.
    """
    finished = records["finite"] & (plan.steps > 0)
    # A client of an ensemble stands in the plan once for each network that it trains.
    _, once = np.unique(plan.clients, return_index=True)
    counts = np.bincount(plan.levels[once], minlength=len(levels))
    return {
        "loss": _mean(records["loss"][finished]),
        "gradient_norm": _mean(records["gradient_norm"][finished]),
        "non_finite": len(np.unique(plan.clients[~records["finite"]])),
        "levels": dict(zip(levels, counts.tolist())),
    }


def _mean(values):
    return float(values.mean()) if values.size else None
