"""`sweep`: trains a recipe with many values, several runs in parallel; the same command resumes."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from absl.flags import FlagValues

from hetero_tf.base.console import Console, format_duration
from hetero_tf.base.errors import InputError, Unfinished
from hetero_tf.cli import sweep_child
from hetero_tf.cli.commands import RECIPE_FLAGS
from hetero_tf.cli.flags import program_name
from hetero_tf.cli.open_run import command_line, register_plugins
from hetero_tf.runs.trackers import check_trackers

if TYPE_CHECKING:
    from hetero_tf.sweeps.definition import SweepPart
    from hetero_tf.sweeps.pool import Program

USAGE, SUMMARY = "sweep FILE", "trains many variants of a recipe; the same command resumes"
FLAGS = ("definition", "recipe", "sweep", "seeds", "run_dir", "jobs", "dry_run", "log", *RECIPE_FLAGS)
WORDS, SOURCE = "definition", None


def run(recipe: None, flags: FlagValues, console: Console) -> dict:
    """Check all runs, then train the unfinished ones; raise `Unfinished` if some fail."""
    from hetero_tf.sweeps import cost, outcome, pool
    from hetero_tf.sweeps.expansion import expand
    from hetero_tf.sweeps.sweep_folder import SweepFolder

    start = console.clock()
    check_trackers(flags.log)
    register_plugins(flags)
    parts, label = _read_definition(flags)
    runs = expand(parts, label)
    default = Path("runs") / f"sweep-{Path(label.removeprefix('sweep of ')).stem}"
    folder = SweepFolder(Path(flags.run_dir or default))
    jobs = min(flags.jobs, len(runs))
    console.say(f"{len(runs)} runs in {folder.path}, {jobs} in parallel; all recipes are valid")
    if flags.dry_run:
        for run in runs:
            console.say(f"  {run.name}: {run.path} {' '.join(run.overrides)}")
        return cost.estimate(runs, _build_program(flags, 1), jobs, console)
    with folder.lock():
        folder.check(runs)
        folder.write_definition(parts, console.say)
        console.open_log(folder.log, command_line())
        outcomes = pool.train(runs, folder, _build_program(flags, jobs, flags.log), jobs, console)
    result = outcome.summarize(outcomes, folder.path, console.clock() - start)
    console.say(f"{outcome.to_text(result)}; {format_duration(result['seconds'])}; results: {folder.path}")
    if result["failed"]:
        raise Unfinished(f"{folder.path}: {_describe_failures(outcomes)}; the same command retries them", result)
    path, program = shlex.quote(str(folder.path)), program_name()
    commands = (f"compare {path}", f"plot {path} --out curves.png", f"report {path} --out report.html")
    console.say("next: " + "\n      ".join(f"{program} {words}" for words in commands))
    return result


def _read_definition(flags: FlagValues) -> "tuple[tuple[SweepPart, ...], str]":
    """Return the sweep of a file, or of --recipe with --sweep and --seeds; and its label for errors."""
    from hetero_tf.sweeps import definition

    has_flags = flags.recipe or flags.sweep or flags.seeds
    if bool(has_flags) == bool(flags.definition) or len(flags.definition) > 1:
        raise InputError(
            "sweep needs one file, such as sweep mine.yaml, or --recipe with --sweep path=value,value and --seeds 0-2"
        )
    overrides = list(flags["set"].value or ())
    if flags.definition:
        (file,) = flags.definition
        return definition.with_overrides(definition.read(file), overrides), file
    if not flags.recipe:
        raise InputError(f"--recipe is missing; try {program_name()} sweep --recipe digits --sweep levels.mix=a,a-c")
    return definition.from_flags(flags.recipe, overrides, flags.sweep, flags.seeds), f"sweep of {flags.recipe}"


def _build_program(flags: FlagValues, jobs: int, trackers: Sequence[str] = ()) -> "Program":
    from hetero_tf.sweeps.pool import Program

    words = [sys.executable, sweep_child.__file__]
    words += [f"--plugin={name}" for name in flags.plugin]
    words += [f"--data_dir={flags.data_dir}"] if flags.data_dir else []
    words += [f"--log={','.join(trackers)}"] if trackers else []
    return Program(tuple(words), max(flags.threads // jobs, 1))


def _describe_failures(outcomes) -> str:
    """Describe the failed runs and their errors."""
    failed = [outcome for outcome in outcomes if outcome.problem]
    reasons = "; ".join(f"{outcome.run.name}: {outcome.problem}" for outcome in failed[:3])
    more = f"; and {len(failed) - 3} more" if len(failed) > 3 else ""
    return f"{len(failed)} of {len(outcomes)} runs did not finish ({reasons}{more})"
