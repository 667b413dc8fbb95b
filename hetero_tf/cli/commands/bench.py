"""`bench`: trains a sweep and writes its results as rows; `bench verify` trains rows again and compares the results."""

import contextlib
import dataclasses
from pathlib import Path

from absl.flags import FlagValues

from hetero_tf.base import files, processes
from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError, NotReproduced, Unfinished
from hetero_tf.base.formatting import quote_shell
from hetero_tf.cli.commands.sweep import build_program, run_sweep
from hetero_tf.cli.flags import MOST_THREADS, program_name
from hetero_tf.cli.open_run import register_plugins

VERIFY = "verify"
# Results of a replay.
EQUAL, WITHIN, OUTSIDE, FAILED = "equal", "within the band", "outside of the band", "failed"
MESSAGES = {EQUAL: "equal, bit for bit", WITHIN: "not equal, but all values are within the band", OUTSIDE: OUTSIDE}
# Folder of rows in a checkout of hetero_tf, and elsewhere.
CHECKOUT_ROWS, ROWS = Path("benchmarks/rows"), Path("rows")


def run_bench(flags: FlagValues, console: Console) -> dict:
    """Train a sweep as `sweep` does and write a row for each finished group of seeds; or verify rows."""
    if flags.definition[:1] == [VERIFY]:
        return _verify(flags, console)
    if flags.seeds or not flags.definition:
        reason = "--seeds has no effect on the file of a sweep" if flags.seeds else "the file of a sweep is missing"
        raise InputError(f"{reason}; try bench mine.yaml for a sweep with seeds, or bench {VERIFY} ROW --seeds 0-2")
    try:
        result = run_sweep(flags, console)
    except Unfinished as unfinished:
        unfinished.result |= _write_rows(unfinished.result, flags, console)
        raise
    return result | _write_rows(result, flags, console)


def _write_rows(result, flags, console):
    from hetero_tf.sweeps.bench_rows import collect_rows, write_row
    from hetero_tf.sweeps.definition import SweepFolder

    sweep = Path(flags.definition[0]).stem
    folder = Path(flags.out or (CHECKOUT_ROWS if CHECKOUT_ROWS.is_dir() else ROWS)) / sweep
    rows, reasons = collect_rows(SweepFolder(Path(result["run_dir"])), sweep)
    paths = {row.name: folder / f"{row.name}.json" for row in rows}
    written = sum(write_row(row, paths[row.name]) for row in rows)
    console.say(f"rows in {folder}: {written} written, {len(rows) - written} unchanged, {len(reasons)} missing")
    console.say(*(f"missing: {name}: {reason}" for name, reason in reasons.items()))
    for path in [*paths.values()][:1]:
        console.say_lines(f"next: {program_name()} bench {VERIFY} {quote_shell(path)}")
    return {"rows": [str(path) for path in paths.values()], "missing": reasons}


def _verify(flags, console):
    from hetero_tf.sweeps.bench_rows import read_row
    from hetero_tf.sweeps.definition import parse_seeds

    paths = [Path(name) for name in flags.definition[1:]]
    for name in ("only", "out"):
        if flags[name].present:
            raise InputError(f"--{name} has no effect on bench {VERIFY}, which writes no rows")
    if not paths:
        raise InputError(f"bench {VERIFY} needs files of rows, such as rows/mixes/digits-levels.mix=a.json")
    register_plugins(flags)
    seeds = [] if flags.seeds is None else parse_seeds(flags.seeds, "--seeds")
    # All rows and recipes are checked before the first run starts.
    replays = [(path, row, _select_seeds(path, row, seeds)) for path in paths for row in [read_row(path)]]
    with processes.temporary_folder() if flags.run_dir is None else contextlib.nullcontext(flags.run_dir) as folder:
        results = [each for replay in replays for each in _replay(*replay, Path(folder), flags, console)]
    for state, error in ((OUTSIDE, NotReproduced), (FAILED, Unfinished)):
        if problems := [
            f"{each['file']}: seed {each['seed']}: {each['problem']}" for each in results if each["result"] == state
        ]:
            more = f"; other replays {state}: {len(problems) - 1}" if len(problems) > 1 else ""
            raise error(f"{problems[0]}{more}", {"rows": results})
    return {"rows": results}


def _select_seeds(path, row, seeds):
    """Return `{seed: (its result, its recipe)}` of the requested seeds of a row, by default of its first one."""
    results = {result.seed: result for result in row.runs}
    if unknown := [seed for seed in seeds if seed not in results]:
        known = ", ".join(map(str, results))
        raise InputError(f"{path}: the row has the seeds {known}. Received: --seeds={unknown[0]}")
    try:
        return {seed: (results[seed], row.load_recipe(seed)) for seed in seeds or [row.runs[0].seed]}
    except InputError as problem:
        raise InputError(f"{path}: {problem}") from problem


def _replay(path, row, selected, base, flags, console):
    """Train seeds of a row in a folder; yield the result of each, ready for JSON."""
    from hetero_tf.sweeps import bench_rows, pool
    from hetero_tf.sweeps.definition import SweepFolder, SweepRun

    folder, jobs = SweepFolder(base / f"{VERIFY}-{row.sweep}"), max(min(flags.jobs, len(selected)), 1)
    with files.disk_errors(folder.path, "create"):
        folder.path.mkdir(parents=True, exist_ok=True)
    recipe_file = folder.path / f"{row.name}.yaml"
    files.write_atomic(recipe_file, row.recipe.encode())
    environment = row.environment | next(iter(selected.values()))[0].environment
    program, threads = build_program(flags, jobs), environment.get("threads.inter_op")
    # Exact numbers depend on the threads.
    if not flags["threads"].present and isinstance(threads, int) and 1 <= threads <= MOST_THREADS:
        program = dataclasses.replace(program, threads=threads)
    runs = [
        SweepRun(f"{row.name}-seed={seed}", str(recipe_file), (f"seed={seed}",), recipe)
        for seed, (_, recipe) in selected.items()
    ]
    for (expected, _), outcome in zip(selected.values(), pool.train(runs, folder, program, jobs, console)):
        result = {"file": str(path), "seed": expected.seed}
        if outcome.problem:
            problem = outcome.problem.replace(str(recipe_file), "recipe")
            yield result | {"result": FAILED, "metrics": [], "environment": [], "problem": problem}
            continue
        replay, _ = bench_rows.read_result(outcome.folder, expected.seed)
        yield result | _show(path, expected.seed, *bench_rows.compare(row, expected, replay), console)


def _show(path, seed, is_equal, metrics, environment, console):
    """Print a comparison, and return it ready for JSON."""
    outside = [metric for metric in metrics if not metric.is_within]
    result = EQUAL if is_equal else OUTSIDE if outside else WITHIN
    console.say(f"{path}: seed {seed}: {MESSAGES[result]}")
    if result != EQUAL:
        console.say(f"environment: {'; '.join(environment) or 'no difference'}")
    return {
        "result": result,
        "metrics": [dataclasses.asdict(metric) for metric in metrics],
        "environment": environment,
        "problem": _describe(outside) if result == OUTSIDE else "",
    }


def _describe(outside):
    """Return the first metric outside of its band, and the number of the others, as a part of a sentence."""
    first, others = outside[0], len(outside) - 1
    band = "and a row of one seed has no band"
    if first.band:
        band = f"{OUTSIDE} {_format(first.band[0])} to {_format(first.band[1])}"
    values = f"{first.evaluation} {first.metric} is {_format(first.replay)} instead of {_format(first.row)}, {band}"
    return values + (f"; {others} more values are outside" if others else "")


def _format(value):
    return "none" if value is None else f"{value:.4g}"
