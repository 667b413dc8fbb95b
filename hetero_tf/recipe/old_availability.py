"""The former section `availability` as a fleet and a policy; it was the only form of simulated time."""

import re
from typing import Any

SECTION = "availability"
_FLOW = r"[ \t]*\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}"
_BLOCK = r"[ \t]*(?:#[^\n]*)?(?:\r?\n[ \t]+\S[^\r\n]*)+"
# The section in a text, without the end of its last line.
PATTERN = rf"([\"']?){SECTION}\1\s*:(?:{_FLOW}|{_BLOCK})"
# Seconds of a step of clients that only drop out: a device needs a time.
UNTIMED_STEP = 1.0


def new_values(section: Any) -> dict[tuple[str, ...], dict]:
    """Return the plain values of `fleet` and `round.policy` for a section, by path; neither if it limits no client."""
    section = section if isinstance(section, dict) else {}
    dropout = {"dropout": section["dropout"]} if section.get("dropout") else {}
    seconds_by_level = section.get("seconds_per_step")
    values: dict[tuple[str, ...], dict] = {}
    if isinstance(seconds_by_level, dict) and seconds_by_level:
        jitter = {"jitter": section["spread"]} if section.get("spread") else {}
        devices = {name: {"seconds_per_step": seconds, **dropout} for name, seconds in seconds_by_level.items()}
        values["fleet",] = {"assign": "levels", **jitter, "devices": devices}
    elif dropout:
        values["fleet",] = {"devices": {"any": {"seconds_per_step": UNTIMED_STEP, **dropout}}}
    if section.get("deadline") is not None:
        policy = {"name": "deadline", "seconds": section["deadline"], "late": section.get("late", "drop")}
        values["round", "policy"] = policy
    return values


def insert_policy(text: str, match: re.Match, policy: str) -> str:
    """Return the start of the section `round`, up to its first key, with the policy as its first key.

    Args:
        text: The text of the recipe.
        match: The brace that begins the section, or an empty match before its first key.
        policy: YAML text of the policy.
    """
    column = match.start() - text.rfind("\n", 0, match.start()) - 1
    return f"{{policy: {policy}, " if match[0] else f"policy: {policy}\n{' ' * column}"
