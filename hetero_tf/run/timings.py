"""How long local training took, beside its FLOPs: `timings.jsonl`, which nothing seals, compares or reads again.

Times differ from run to run, so they stand apart from `metrics.jsonl`, which must be equal bit for bit after a resume.
"""

from collections.abc import Sequence

from hetero_tf.planning.plan import Plan


def of_call(last: int, planned: Sequence[Plan], examples: int, seconds: float) -> dict:
    """One row, ready for JSON: the rounds of one call of the compiled round, without their evaluation.

    Args:
        last: Number of its last round, counted from 1.
        planned: Its rounds.
        examples: Images, or tokens of text, that were trained on.
        seconds: Wall time of the call.

    Returns:
        {"round": last, "rounds", "seconds", "clients" (those with a step, over all rounds; each network of an
        ensemble is one), "steps" (of all of them),
        "examples", "round_seconds", "client_seconds", "step_seconds", "examples_per_second"}. Clients are computed
        several at once, so the seconds of one are its part of the wall time; None where nobody took a step.
    """
    clients = sum(int((plan.steps > 0).sum()) for plan in planned)
    steps = sum(int(plan.steps.sum()) for plan in planned)
    return {
        "round": last,
        "rounds": len(planned),
        "seconds": round(seconds, 6),
        "clients": clients,
        "steps": steps,
        "examples": examples,
        "round_seconds": round(seconds / len(planned), 6),
        "client_seconds": round(seconds / clients, 6) if clients else None,
        "step_seconds": round(seconds / steps, 9) if steps else None,
        "examples_per_second": round(examples / seconds, 1),
    }
