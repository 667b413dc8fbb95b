"""`python tests/campaign/campaign.py --minutes 60`: runs random trials of every kind until the time is over.

The seed and its number determine a trial, so `--only KIND --first NUMBER --trials 1` repeats one.
"""

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "support")]

from hetero_tf.base import hardware  # noqa: E402

# The programs under test must print only their own messages.
hardware.import_quietly()

from campaign import data_files, fleet, forgeries, inputs, interruptions, loopback  # noqa: E402
from campaign.world import Failed, World  # noqa: E402

MODULES = (interruptions, forgeries, inputs, data_files, loopback, fleet)
KINDS = {trial.__name__: trial for module in MODULES for trial in module.TRIALS}
# Number of trials in a turn for trials of milliseconds.
AT_ONCE = {"recipe_is_read": 50, "data_file": 50, "data_folder": 10, "refused_devices": 10}


def attempt(world, kind, seed, number):
    """Run a trial; return (outcome, True if it failed)."""
    rng = random.Random(f"{seed} {kind} {number}")
    try:
        outcome = KINDS[kind](world, rng)
        world.check()
    except Failed as problem:
        return str(problem), True
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno} {frame.name})", True
    return outcome, False


def campaign(world, kinds, seed, first=0, trials=None, minutes=None, on_failure=print):
    """Run trials of the kinds in turn.

    Args:
        world: `world.World`.
        kinds: Names in `KINDS`.
        seed: Seed of all draws.
        first: Number of the first trial of each kind.
        trials: Number of trials of each kind; None: until the time is over.
        minutes: Duration; None: no limit.
        on_failure: Function called with a line for each failure.

    Returns:
        (`{kind: Counter of outcomes}`, list of the failures).
    """
    end = None if minutes is None else time.monotonic() + 60 * minutes
    counts, failures, number = {kind: Counter() for kind in kinds}, [], first
    while (trials is None or number < first + trials) and (end is None or time.monotonic() < end):
        for kind in kinds:
            for index in range(AT_ONCE.get(kind, 1)):
                outcome, failed = attempt(world, kind, seed, f"{number}.{index}")
                counts[kind]["FAILED" if failed else outcome] += 1
                if failed:
                    failures.append(f"{kind} {number}.{index}: {outcome}")
                    on_failure(failures[-1])
        number += 1
    return counts, failures


def main():
    """Parse the arguments and run; the exit code is 1 if a trial failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--trials", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    args = parser.parse_args()
    if args.minutes is None and args.trials is None:
        parser.error("set --minutes or --trials")
    with tempfile.TemporaryDirectory() as folder:
        world = World(folder)
        counts, failures = campaign(
            world, args.only, args.seed, args.first, args.trials, args.minutes, lambda line: print(line, flush=True)
        )
        world.close()
    for kind, outcomes in counts.items():
        summary = ", ".join(f"{number} {name}" for name, number in sorted(outcomes.items()))
        print(f"{kind}: {sum(outcomes.values())} trials: {summary}")
    print(f"{sum(sum(outcomes.values()) for outcomes in counts.values())} trials, {len(failures)} failed")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
