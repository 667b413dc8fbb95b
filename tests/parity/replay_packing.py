#!/usr/bin/env python3
"""Replays cases of packing units under a budget through hetero_tf.budgets.

    python tests/parity/replay_packing.py FILE

FILE is JSON: {"unit_numbering": "1-based", "cases": [{"name", "costs", "cap", "skip", "stages"}, ...]}, where `skip`
and `stages` number the units. A case with the key `error`, or without any stage, must be refused.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from hetero_tf.base.errors import BadInput  # noqa: E402
from hetero_tf.methods.stages import budgets  # noqa: E402


def replay_packing(path):
    """[(name of the case, whether it came out as recorded, what came out)] of all cases of a file."""
    held = json.loads(Path(path).read_text(encoding="utf-8"))
    first = 1 if held["unit_numbering"] == "1-based" else 0
    return [(case["name"], *_replay(case, first)) for case in held["cases"]]


def _replay(case, first):
    numbers = range(first, first + len(case["costs"]))
    refused = "error" in case or not case["stages"]
    try:
        found = budgets.pack(case["costs"], case["cap"], list(map(str, numbers)))
    except BadInput as problem:
        return refused, f"refused: {problem}"
    told = _told(
        [numbers[place] for place in found.skipped], [[numbers[place] for place in stage] for stage in found.stages]
    )
    if refused:
        return False, f"{told}, expected a refusal"
    expected = _told(case["skip"], case["stages"])
    return told == expected, told if told == expected else f"{told}, expected {expected}"


def _told(skipped, stages):
    """Skipped units and stages in one line: "skip 1,2; 3 | 4,5"."""
    packed = " | ".join(",".join(map(str, stage)) for stage in stages)
    return f"skip {','.join(map(str, skipped))}; {packed}" if skipped else packed


def main(argv):
    """Prints a line for each case; 1 if one differs."""
    results = replay_packing(argv[0])
    for name, good, detail in results:
        print(f"{'ok  ' if good else 'FAIL'} {name:24} {detail}")
    return int(not all(good for _, good, _ in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
