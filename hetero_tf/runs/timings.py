"""How long local training took, beside its FLOPs: `timings.jsonl`, which nothing seals, compares or reads again.

Times differ from run to run, so they stand apart from `metrics.jsonl`, which must be equal bit for bit after a resume.
"""

from collections.abc import Mapping, Sequence

# Planning runs beside the call before. Merging is what lies between the last client's last step and the end of the
# call, so of several rounds in one call it is that of the last one; where XLA compiles a round, nobody sees it.
PARTS = ("planning", "training", "merging", "measuring", "sealing")


def of_call(last: int, planned: Sequence, examples: int, seconds: float, parts: Mapping[str, float | None]) -> dict:
    """One row, ready for JSON: the rounds of one call of the compiled round, without their evaluation.

    Args:
        last: Number of its last round, counted from 1.
        planned: Its rounds.
        examples: Images, or tokens of text, that were trained on.
        seconds: Wall time of the call.
        parts: Seconds of each part of the work, of `PARTS`; None where one was not measured.

    Returns:
        {"round": last, "rounds", "seconds", "clients" (those with a step, over all rounds; each network of an
        ensemble is one), "steps" (of all of them), "examples", "round_seconds", "client_seconds", "step_seconds",
        "examples_per_second", and "PART_seconds" for each of `PARTS`}. Clients are computed several at once, so the
        seconds of one are its part of the wall time; None where nobody took a step.
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
        **{f"{name}_seconds": None if (part := parts[name]) is None else round(part, 6) for name in PARTS},
    }


def shares(calls: Sequence[Mapping[str, float | None]]) -> str:
    """Says which share of the time each part took, the largest first: "training 82 %, measuring 17 %, sealing 1 %".

    Args:
        calls: The seconds of the parts of each call, as `of_call` takes them; planning, which runs beside, is left out.
    """
    spent = {name: sum(parts[name] or 0.0 for parts in calls) for name in PARTS[1:]}
    ordered, total = sorted(spent.items(), key=lambda item: -item[1]), sum(spent.values())
    return ", ".join(f"{name} {100 * seconds / total:.0f} %" for name, seconds in ordered if seconds >= total / 200)


def seconds_left(calls: Sequence[tuple[int, float]], training: float | None, rounds: int) -> float:
    """Estimate the seconds to the last round from the calls of this start.

    The first call also optimises graphs, and the evaluation after it traces its own. So it counts only while no other
    call has ended, and then by the pace of its local steps.

    Args:
        calls: Rounds of each call, and its seconds with evaluation and checkpoint.
        training: Seconds of all local steps of the first call at the pace after its first ones, as
            `Live.seconds_of_steps` gives them; None where that is unknown.
        rounds: Rounds to go.
    """
    if len(calls) == 1:
        (first, seconds), *_ = calls
        return (seconds if training is None else training) / first * rounds
    done, seconds = map(sum, zip(*calls[1:]))
    return seconds / done * rounds
