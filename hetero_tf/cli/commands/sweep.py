"""`sweep`: trains a recipe with many values, several runs at a time; the same command goes on."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hetero_tf.base.console import Console, duration
from hetero_tf.base.errors import InputError, Unfinished
from hetero_tf.cli import sweep_child
from hetero_tf.cli.flags import program
from hetero_tf.cli.open_run import register_plugins, typed

if TYPE_CHECKING:
    from absl.flags import FlagValues

    from hetero_tf.sweeps.definition import Part
    from hetero_tf.sweeps.expansion import Run
    from hetero_tf.sweeps.pool import Program

USAGE, SUMMARY = "sweep FILE", "trains many values of a recipe; the same command goes on"
FLAGS = ("definition", "recipe", "sweep", "seeds", "run_dir", "jobs", "dry_run", "set", "plugin", "data_dir", "threads")
WORDS, SOURCE = "definition", None


def run(recipe: None, flags: "FlagValues", console: Console) -> dict:
    """Checks all runs, then trains those that are not finished; raises `Unfinished` if some are not at the end."""
    from hetero_tf.sweeps import outcome, pool
    from hetero_tf.sweeps.expansion import expand
    from hetero_tf.sweeps.sweep_folder import SweepFolder

    began = console.clock()
    register_plugins(flags)
    parts, label = _definition(flags)
    runs = expand(parts, label)
    folder = SweepFolder(Path(flags.run_dir or Path("runs") / _name(label)))
    jobs = min(flags.jobs, len(runs))
    console.say(f"{len(runs)} runs in {folder.path}, {jobs} at a time; all recipes are checked")
    if flags.dry_run:
        return _dry_run(runs, folder, _program(flags, 1), jobs, console)
    with folder.lock():
        folder.check(runs)
        folder.keep(parts, console.say)
        console.open_log(folder.log, typed())
        outcomes = pool.train(runs, folder, _program(flags, jobs), jobs, console)
    result = outcome.summary(outcomes, folder.path, console.clock() - began)
    console.say(f"{outcome.to_text(result)}; {duration(result['seconds'])}; everything is in {folder.path}")
    if result["failed"]:
        raise Unfinished(f"{folder.path}: {_unfinished(outcomes)}; the same command tries them again", result)
    console.say(f"next: {program()} list {folder.path}")
    return result


def _definition(flags: "FlagValues") -> "tuple[tuple[Part, ...], str]":
    """The sweep that a file, or --recipe with --sweep and --seeds, asks for; and what stands for it in refusals."""
    from hetero_tf.sweeps import definition

    given = flags.recipe or flags.sweep or flags.seeds
    if bool(given) == bool(flags.definition) or len(flags.definition) > 1:
        raise InputError(
            "sweep needs one file, such as sweep mine.yaml, or --recipe with --sweep path=value,value and --seeds 0-2"
        )
    if flags.definition:
        return definition.with_overrides(
            definition.read(flags.definition[0]), list(flags["set"].value or ())
        ), flags.definition[0]
    if not flags.recipe:
        raise InputError(f"--recipe is missing; try {program()} sweep --recipe digits --sweep levels.mix=a,a-c")
    parts = definition.from_flags(flags.recipe, list(flags["set"].value or ()), flags.sweep, flags.seeds)
    return parts, f"sweep of {flags.recipe}"


def _name(label: str) -> str:
    """The default name of the folder."""
    return f"sweep-{Path(label.removeprefix('sweep of ')).stem}"


def _program(flags: "FlagValues", jobs: int) -> "Program":
    from hetero_tf.sweeps.pool import Program

    words = [sys.executable, sweep_child.__file__]
    words += [f"--plugin={name}" for name in flags.plugin]
    words += [f"--data_dir={flags.data_dir}"] if flags.data_dir else []
    return Program(tuple(words), max(flags.threads // jobs, 1))


def _unfinished(outcomes) -> str:
    """Which runs did not finish, and why."""
    failed = [one for one in outcomes if one.problem]
    told = "; ".join(f"{one.run.name}: {one.problem}" for one in failed[:3])
    more = f"; and {len(failed) - 3} more" if len(failed) > 3 else ""
    return f"{len(failed)} of {len(outcomes)} runs did not finish ({told}{more})"


def _dry_run(runs: "tuple[Run, ...]", folder, program, jobs, console) -> dict:
    """Says what would be trained, and how long it would take by short runs that are measured."""
    from hetero_tf.sweeps import cost

    for run in runs:
        console.say(f"  {run.name}: {run.path} {' '.join(run.overrides)}")
    return cost.estimate(runs, program, jobs, console)
