"""Durations of local training: `timings.jsonl`.

Times differ from run to run, so they are separate from `metrics.jsonl`, which must be bit-equal after a resume. The
file is not part of checkpoints.
"""

from collections.abc import Mapping, Sequence

# Planning runs concurrently with the previous call. Merging is the time between the last local step and the end of the
# call, so it is that of the last round of a call; it is unknown if XLA compiles the round.
PARTS = ("planning", "training", "merging", "measuring", "sealing")


def call_row(last: int, planned: Sequence, examples: int, seconds: float, parts: Mapping[str, float | None]) -> dict:
    """Return the timings of one call of the compiled round, ready for JSON, without evaluation.

    Args:
        last: Number of the last round of the call, counted from 1.
        planned: Plans of the rounds of the call.
        examples: Number of images, or tokens of text, that were trained on.
        seconds: Wall time of the call.
        parts: Seconds of each of `PARTS`; None if not measured.

    Returns:
        {"round": last, "rounds", "seconds", "clients" (those with a step, over all rounds; each network of an
        ensemble is one), "steps" (of all of them), "examples", "round_seconds", "client_seconds", "step_seconds",
        "examples_per_second", and "PART_seconds" for each of `PARTS`}. Several clients train
        together, so the seconds of one client are its share of the wall time; None if no client took a step.
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
    """Format the share of each part of the time, largest first: "training 82 %, measuring 17 %, sealing 1 %"."""
    spent = {name: sum(parts[name] or 0.0 for parts in calls) for name in PARTS[1:]}
    ordered, total = sorted(spent.items(), key=lambda item: -item[1]), sum(spent.values())
    return ", ".join(f"{name} {100 * seconds / total:.0f} %" for name, seconds in ordered if seconds >= total / 200)


def seconds_left(calls: Sequence[tuple[int, float]], training: float | None, rounds: int) -> float:
    """Estimate the seconds to the last round from the calls of this start.

    The first call also optimises graphs, and its evaluation traces a graph. So it counts only until another call has
    ended, and then by the rate of its local steps.

    Args:
        calls: Number of rounds of each call, and its seconds with evaluation and checkpoint.
        training: Seconds of all local steps of the first call at the rate after its first steps, as
            `Live.seconds_of_steps` returns them; None if unknown.
        rounds: Number of remaining rounds.
    """
    if len(calls) == 1:
        (first, seconds), *_ = calls
        return (seconds if training is None else training) / first * rounds
    done, seconds = map(sum, zip(*calls[1:]))
    return seconds / done * rounds
