"""`python tests/campaign/campaign.py --minutes 60`: draws trials of every kind until the time is over, and counts.

Each trial is drawn from the seed and its number, so `--only KIND --first NUMBER --trials 1` repeats one.
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

# The programs under attack say nothing but their own sentences.
hardware.import_quietly()

from campaign import (  # noqa: E402
    columnar,
    data_files,
    fleet,
    forgeries,
    identity,
    inputs,
    installation,
    interruptions,
    loopback,
    serving,
)
from campaign.world import Failed, World  # noqa: E402

MODULES = (interruptions, forgeries, inputs, data_files, columnar, serving, loopback, fleet, identity, installation)
KINDS = {trial.__name__: trial for module in MODULES for trial in module.TRIALS}
# Trials of milliseconds are drawn so many at a time, and one of minutes only every so many turns.
AT_ONCE = {
    "recipe_is_read": 50,
    "data_file": 50,
    "data_folder": 10,
    "columnar_file": 25,
    "refused_devices": 10,
    "cluster_is_read": 20,
}
SELDOM = {"installed_at_once": 12, "local_workers_expose_no_port": 4}


def attempt(world, kind, seed, number):
    """What became of a trial, and whether that is a failure."""
    rng = random.Random(f"{seed} {kind} {number}")
    try:
        found = KINDS[kind](world, rng)
        world.check()
    except Failed as problem:
        return str(problem), True
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno} {place.name})", True
    return found, False


def campaign(world, kinds, seed, first=0, trials=None, minutes=None, tell=print):
    """Runs trials of the kinds in turn.

    Args:
        world: `world.World`.
        kinds: Names in `KINDS`.
        seed: Of all that is drawn.
        first: Number of the first trial of each kind.
        trials: How many of each kind; None: until the time is over.
        minutes: When to stop.
        tell: Is given a line for each failure.

    Returns:
        (`{kind: Counter of outcomes}`, list of the failures).
    """
    end = None if minutes is None else time.monotonic() + 60 * minutes
    counts, failures, number = {kind: Counter() for kind in kinds}, [], first
    while (trials is None or number < first + trials) and (end is None or time.monotonic() < end):
        for kind in (kind for kind in kinds if number % SELDOM.get(kind, 1) == 0):
            for place in range(AT_ONCE.get(kind, 1)):
                found, failed = attempt(world, kind, seed, f"{number}.{place}")
                counts[kind]["FAILED" if failed else found] += 1
                if failed:
                    failures.append(f"{kind} {number}.{place}: {found}")
                    tell(failures[-1])
        number += 1
    return counts, failures


def main():
    """Reads the arguments; the exit code is 1 if a trial failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--trials", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    given = parser.parse_args()
    if given.minutes is None and given.trials is None:
        parser.error("give --minutes or --trials")
    with tempfile.TemporaryDirectory() as folder:
        world = World(folder)
        counts, failures = campaign(
            world,
            given.only,
            given.seed,
            given.first,
            given.trials,
            given.minutes,
            lambda line: print(line, flush=True),
        )
        world.close()
    for kind, outcomes in counts.items():
        told = ", ".join(f"{number} {name}" for name, number in sorted(outcomes.items()))
        print(f"{kind}: {sum(outcomes.values())} trials: {told}")
    print(f"{sum(sum(outcomes.values()) for outcomes in counts.values())} trials, {len(failures)} failed")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
