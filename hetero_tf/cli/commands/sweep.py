"""`sweep`: trains a recipe with many values, several runs in parallel; the same command resumes."""

import dataclasses
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl.flags import FlagValues

from hetero_tf.base import hardware
from hetero_tf.base.console import Console, ProgressDisplay, format_duration
from hetero_tf.base.errors import InputError, Unfinished
from hetero_tf.base.formatting import format_bytes, join_shell, quote_shell
from hetero_tf.cli import sweep_child
from hetero_tf.cli.flags import program_name
from hetero_tf.cli.open_run import command_line, register_plugins
from hetero_tf.runs.history import keys_of_recipe
from hetero_tf.runs.published import in_order_of_table, read_published
from hetero_tf.runs.trackers import check_trackers

if TYPE_CHECKING:
    from hetero_tf.sweeps.definition import SweepPart
    from hetero_tf.sweeps.pool import Program

# At most one of these flags; without one, the sweep trains.
MODES = ("dry_run", "commands", "on")


def run_sweep(flags: FlagValues, console: Console) -> dict:
    """Check all runs, then train the unfinished ones; raise `Unfinished` if some fail."""
    from hetero_tf.sweeps.definition import SweepFolder, expand

    modes = [f"--{name}" for name in MODES if flags[name].value]
    if len(modes) > 1:
        raise InputError(f"{' and '.join(modes)} exclude each other; use one of them")
    if flags.slurm and not flags.on:
        raise InputError("--slurm has no effect without --on slurm")
    check_trackers(flags.log)
    register_plugins(flags)
    parts, label = _read_definition(flags)
    runs = _select_part(expand(parts, label), flags.only)
    default = Path("runs") / f"sweep-{Path(label.removeprefix('sweep of ')).stem}"
    folder, jobs = SweepFolder(Path(flags.run_dir or default)), max(min(flags.jobs, len(runs)), 1)
    program = build_program(flags, jobs)
    if flags.dry_run:
        return _print_costs(runs, folder, flags, console)
    if not flags.commands:
        parallel = "" if flags.on else f", {jobs} in parallel"
        console.say(f"{len(runs)} runs in {folder.path}{parallel}; all recipes are valid")
    submission = _submission(folder, program, flags) if flags.on else None
    # Standard output has only the commands.
    notify = Console(sys.stderr).say if flags.commands else console.say
    with folder.lock(notify):
        folder.write_definition(parts, notify)
    if flags.commands:
        return _print_commands(runs, folder, program, console)
    if submission is not None:
        return _submit(runs, folder, submission, console)
    return _train(runs, folder, program, jobs, console)


def _train(runs, folder, program, jobs, console):
    from hetero_tf.sweeps import pool

    start = console.clock()
    console.open_log(folder.path / "log.txt", command_line())
    outcomes = pool.train(runs, folder, program, jobs, console)
    result = pool.summarize(outcomes, folder.path, console.clock() - start)
    console.say(f"{pool.to_text(result)}; {format_duration(result['seconds'])}; results: {folder.path}")
    if failed := [outcome for outcome in outcomes if outcome.problem]:
        reasons = "; ".join(f"{outcome.run.name}: {outcome.problem}" for outcome in failed[:3])
        more = f"; and {len(failed) - 3} more" if len(failed) > 3 else ""
        text = f"{len(failed)} of {len(outcomes)} runs did not finish ({reasons}{more}); the same command retries them"
        raise Unfinished(f"{folder.path}: {text}", result)
    path, program = quote_shell(folder.path), program_name()
    commands = (f"compare {path}", f"plot {path} --out curves.png", f"report {path} --out report.html")
    console.say_lines("next: " + "\n      ".join(f"{program} {words}" for words in commands))
    return result


def _print_costs(runs, folder, flags, console):
    with ProgressDisplay(console) as display:
        display.begin("loading TensorFlow")
        hardware.import_quietly()
        from hetero_tf.sweeps import run_costs

        table = run_costs.CostTable(Path(flags.data_dir) if flags.data_dir else None, console.say)
        costs = {}
        for number, run in enumerate(runs, 1):
            display.begin(f"costs of run {number}/{len(runs)}")
            costs[run.name] = table.costs_of(run)
    by_name = {run.name: run for run in runs}
    keys = {name: keys_of_recipe(run.recipe) for name, run in by_name.items()}
    published = in_order_of_table(read_published(), keys)
    runs = [by_name[name] for name in published]
    seconds = run_costs.expected_seconds(runs, folder)
    rows = [run_costs.to_json(run, costs[run.name], seconds.get(run.name), published[run.name]) for run in runs]
    console.say_lines(run_costs.to_text(rows))
    sources = dict.fromkeys(value.source for values in published.values() for value in values)
    console.say(*(f"published: {source}" for source in sources))
    total: dict[str, Any] = {"bytes": sum(row["bytes"] or 0 for row in rows), "seconds": sum(seconds.values()) or None}
    time = f", about {format_duration(total['seconds'])} of training by the finished rounds" if seconds else ""
    console.say(f"{len(runs)} runs, {format_bytes(total['bytes'])} of traffic{time}; all recipes are valid")
    return {"runs": rows, **total}


def _print_commands(runs, folder, program, console):
    """Print a line for each run; it works in any folder and on any machine with the same paths."""
    from hetero_tf.sweeps.pool import run_flags

    commands = {}
    for run in runs:
        words = [program_name(), *program.flags, *run_flags(run, (folder.path / run.name).absolute())]
        words.append(f"--threads={program.threads}")
        commands[run.name] = f"cd {quote_shell(os.getcwd())} && {join_shell(words)}"
        console.say_lines(commands[run.name])
    return {"run_dir": str(folder.path), "commands": commands}


def _submission(folder, program, flags):
    from hetero_tf.sweeps import slurm

    options = slurm.read_options(flags.slurm)
    if flags["jobs"].present:
        options["array_parallelism"] = flags.jobs
    threads = options.setdefault("cpus_per_task", program.threads)
    return slurm.build_executor(folder, options), dataclasses.replace(program, threads=threads)


def _submit(runs, folder, submission, console):
    from hetero_tf.sweeps import slurm

    executor, program = submission
    jobs = slurm.submit(runs, folder, program, executor)
    console.say(f"submitted {len(jobs)} of {len(runs)} runs{'; the others are finished' * (len(jobs) < len(runs))}")
    console.say(*(f"  job {job}: {name}" for name, job in jobs.items()))
    console.say_lines(f"next: {program_name()} list {quote_shell(folder.path)}")
    console.say(f"output of the jobs: {folder.path / 'slurm'}")
    return {"run_dir": str(folder.path), "jobs": jobs}


def _select_part(runs, part):
    """Return the runs of --only; every N-th run, so that parts of a grid take similar times."""
    if part is None:
        return runs
    match = re.fullmatch("([0-9]{1,5})/([0-9]{1,5})", part)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise InputError(f"--only must be K/N with K from 1 to N, such as 3/12. Received: --only={part[:40]}")
    return runs[int(match[1]) - 1 :: int(match[2])]


def _read_definition(flags: FlagValues) -> "tuple[tuple[SweepPart, ...], str]":
    """Return the sweep of a file, or of --recipe with --sweep and --seeds; and its label for errors."""
    from hetero_tf.sweeps import definition

    has_flags = flags.recipe or flags.sweep or flags.seeds
    if bool(has_flags) == bool(flags.definition) or len(flags.definition) > 1:
        raise InputError(
            "sweep needs a file with seeds (sweep mine.yaml), or --recipe with --sweep path=value,value and --seeds 0-2"
        )
    overrides = ([f"fleet={flags.fleet}"] if flags.fleet else []) + list(flags["set"].value or ())
    if flags.definition:
        return definition.with_overrides(definition.read(flags.definition[0]), overrides), flags.definition[0]
    if not flags.recipe and not any(text.startswith("recipe=") for text in flags.sweep):
        raise InputError(f"--recipe is missing; try {program_name()} sweep --recipe digits --sweep levels.mix=a,a-c")
    label = f"sweep of {flags.recipe or 'recipes'}"
    return definition.from_flags(flags.recipe, overrides, flags.sweep, flags.seeds), label


def build_program(flags: FlagValues, jobs: int) -> "Program":
    """Return the program of the runs, with the share of --threads of each of `jobs` parallel runs."""
    from hetero_tf.sweeps.pool import Program, can_fork

    plugins = [f"--plugin={name}" for name in flags.plugin]
    data = [f"--data_dir={flags.data_dir}"] if flags.data_dir else []
    log = [f"--log={','.join(flags.log)}"] if flags.log else []
    forks = can_fork() if flags.fork is None else flags.fork
    return Program(
        (sys.executable, sweep_child.__file__), (*plugins, *data, *log), max(flags.threads // jobs, 1), forks
    )
