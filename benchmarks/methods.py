#!/usr/bin/env python3
"""Runs several methods on the same data and clients with several seeds, and prints a table.

    benchmarks/methods.py DIR --data mnist [--mode controlled] [--methods heterofl my.yaml] [--seeds 0 1] [--jobs 2]

Every method is a recipe of recipes/methods, or another recipe file (`--plugin` names its modules), in a small form: a
PreResNet-20 of 6, 12 and 24 channels whose stem halves the image, and few rounds (`--rounds`). BOUNDS has one more row:
FedAvg with the whole model on every client, whatever its budget.

published: each recipe unchanged. controlled: one loss, merge weighting, label rule and optimizer for all; FeDepth's
budgets "Fair", for which levels become narrower, shallower or fewer ("of budget" names levels that still exceed them);
a tenth of the clients' examples held out, which select each method's learning rate from RATES (in runs of a third of
the rounds with a separate seed) and its best round. UNSHARED and the table have settings that are not shared. The table
does not rank methods: "heterofl" has neither its masked loss nor its label rows, and the grid of rates is short.

Each run has a folder in DIR; after an interruption the same command resumes. The line after the table is the noise
floor, which is one method repeated under other seeds and another name.
"""

import argparse
import json
import re
import sys
from pathlib import Path

from checkout import ROOT

from hetero_tf import recipe
from hetero_tf.base import hardware
from hetero_tf.base.console import Console
from hetero_tf.base.registry import register_plugin
from hetero_tf.cli import sweep_child
from hetero_tf.reports.summaries import mean_and_spread, run_cost, summarize
from hetero_tf.runs.history import read
from hetero_tf.runs.run_folder import RunFolder
from hetero_tf.sweeps import pool
from hetero_tf.sweeps.definition import SweepFolder, SweepRun
from hetero_tf.sweeps.pool import Program, can_fork

SMALL = (
    "model.settings.channels=[!w 6, !w 12, !w 24]",
    "model.settings.stem_stride=2",
    "client.epochs=2",
    "client.batch_size=50",
    "evaluate.statistics_batch=50",
    "evaluate.batch_size=500",
)
DATA = {
    # Two labels for each client, as HeteroFL's non-IID split.
    "mnist": (
        "data.dataset=mnist",
        "input={name: images, mean: [0.1307], std: [0.3081]}",
        "partition={name: labels, clients: 100, per_client: 2}",
    ),
    # FeDepth's Table 2 and Table 3: clients of equal and of unequal size.
    "cifar10": ("partition={name: dirichlet_equal, clients: 100, alpha: 0.3}",),
    "cifar10_unequal": ("partition={name: dirichlet, clients: 100, alpha: 0.3, least: 2}",),
}
CONTROLLED = (
    "client.loss=cross_entropy",
    "round.weighting=samples",
    "round.label_rows=all",
    "optimizer.momentum=0.9",
    "optimizer.weight_decay=5.0e-4",
    "optimizer.clip_norm=null",
    "partition.held_out=0.1",
)
# Settings that a method cannot share with the others; `{ramp}` and `{quarter}` depend on the rounds of the run.
UNSHARED = {
    "scaffold": ("optimizer.momentum=0.0", "round.weighting=uniform"),
    "median": ("round.weighting=uniform",),
    "trimmed_mean": ("round.weighting=uniform",),
    # Exits need memory: without `fit`, their levels take 1.7 to 2.4 times the budgets.
    "depthfl": ("levels.fit=depths", "round.weighting=uniform", "client.coupling.ramp={ramp}"),
    "inclusivefl": ("levels.fit=depths",),
    "scalefl": ("client.coupling.from_round={quarter}",),
    "fedepth_mkd": ("levels.budgets=surplus",),
    # Their results are the clients' personal models; the global model has the mean of the values that stay there.
    "lg_fedavg": ("evaluate.best=validation_local_accuracy",),
    **dict.fromkeys(
        ("standalone", "fedper", "fedrep", "fedbn", "ditto", "apfl"), ("evaluate.best=validation_local_accuracy",)
    ),
    "pfedme": ("evaluate.best=validation_local_accuracy", "optimizer.momentum=0.0", "round.weighting=uniform"),
}
# Of the two local epochs of SMALL, one trains the head.
EPOCHS = {"fedrep": ("client.personalization.personal_epochs=1",)}
# Private runs have other weights, and hold out no examples of clients.
LEFT_OUT = {"dp_fedavg"}
# Rows whose shared settings replace a part of their method.
LABELS = {"heterofl": "heterofl, cross-entropy, all label rows"}
RATES = (0.03, 0.1, 0.3)
# Seeds of the runs that choose a learning rate, and of those that measure the noise.
PILOT_SEED, NOISE_SEED = 1000, 2000
# Methods that start from the run of another method with the same seed.
STARTS = {"lg_fedavg": "fedavg"}
# Rows that are another recipe with these settings.
BOUNDS = {"fedavg_wide": ("fedavg", ("levels.widths={a: 1, b: 1, c: 1, d: 1}", "levels.fit=null"))}
METRICS = ("global_accuracy last", "global_accuracy best", "local_accuracy last", "local_worst_decile last")


def parse(arguments=None):
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the runs")
    parser.add_argument("--data", choices=sorted(DATA), default="mnist")
    parser.add_argument("--mode", choices=("published", "controlled"), default="controlled")
    parser.add_argument("--methods", nargs="+", default=methods(), help="recipes of recipes/methods, or files")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=30, help="rounds of each run")
    parser.add_argument("--noise", help="method to repeat under other seeds, such as fedavg")
    parser.add_argument("--set", action="append", default=[], help="further overrides of all recipes")
    parser.add_argument("--plugin", action="append", default=[], help="Python module that a recipe needs")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time; they share the cores")
    parser.add_argument("--data_dir", help="folder of the data, see README")
    return parser.parse_args(arguments)


def methods():
    """The names of the recipes of methods, and of BOUNDS."""
    shipped = {path.stem for path in (ROOT / "recipes/methods").glob("*.yaml")}
    return sorted([*BOUNDS, *shipped - LEFT_OUT])


def unshared_settings(method, rounds):
    """Settings that a method does not share with the others in the controlled mode."""
    return tuple(
        text.format(ramp=max(rounds * 3 // 5, 1), quarter=rounds // 4 + 1) for text in UNSHARED.get(method, ())
    )


def planned(args, method, seed, rates, pilot=False, name=None):
    """The `SweepRun` of a method with a seed; `rates`: `{method: learning rate}`, by default that of the recipe.

    Evaluating all levels takes longer than several rounds, so pilots are evaluated once and other runs twice.
    """
    rounds, short, rate = args.rounds // 3 if pilot else args.rounds, Path(method).stem, rates.get(method)
    rounds, evaluations = max(rounds, 1), 1 if pilot else 2
    name = name or short
    label = name if rate is None else f"{name}-rate{rate:g}"
    overrides = [*SMALL, *EPOCHS.get(short, ()), *DATA[args.data], f"rounds={rounds}", f"schedule.rounds={rounds}"]
    overrides += [f"evaluate.every={-(-rounds // evaluations)}", f"name={name}", f"seed={seed}"]
    overrides += ["evaluate.levels=global"] * pilot
    if args.mode == "controlled":
        overrides += [*CONTROLLED, *unshared_settings(short, rounds)]
    if rate is not None:
        overrides.append(f"optimizer.learning_rate={rate}")
    if short in STARTS:
        start = planned(args, STARTS[short], seed, rates, pilot)
        overrides.append(f"model.initial_weights={folder_of(args).of(start)}")
    base, settings = BOUNDS.get(method, (method, ()))
    path, overrides = base if base.endswith(".yaml") else f"methods/{base}", (*overrides, *settings, *args.set)
    return SweepRun(f"{label}-{seed}", path, overrides, recipe.load(path, overrides))


def folder_of(args):
    """The folder of all runs."""
    return SweepFolder(args.folder / args.data / args.mode)


def program(args):
    """The command of a run."""
    flags = [f"--plugin={name}" for name in args.plugin] + [f"--data_dir={args.data_dir}"] * bool(args.data_dir)
    threads = max(hardware.core_count() // args.jobs, 1)
    return Program((sys.executable, sweep_child.__file__), tuple(flags), threads, can_fork())


def do(args, runs):
    """Trains the unfinished runs, `--jobs` at once; returns the folders of all that are finished.

    A run that starts from the folder of another one waits until all others have ended.
    """
    outcomes = []
    for starts in (False, True):
        batch = [run for run in runs if (Path(run.path).stem in STARTS) == starts]
        if batch:
            outcomes += pool.train(batch, folder_of(args), program(args), args.jobs, Console(sys.stderr))
    return {outcome.folder for outcome in outcomes if not outcome.problem}


def chosen_rates(args):
    """`{method: learning rate}` with the highest accuracy on held-out examples, in runs of a third of the rounds."""
    best = {}
    for starts in (False, True):
        runs = {
            (method, rate): planned(args, method, PILOT_SEED, best | {method: rate}, pilot=True)
            for method in ordered(args)
            if (method in STARTS) == starts
            for rate in RATES
        }
        done = do(args, list(runs.values()))
        folders = {key: folder_of(args).of(run) for key, run in runs.items()}
        ended = [(method, rate, read(folder)) for (method, rate), folder in folders.items() if folder in done]
        accuracies = [
            (summarize(run, run.keys.get("evaluate.best") or "validation_accuracy")["last"], rate, method)
            for method, rate, run in ended
        ]
        best |= {method: rate for _, rate, method in sorted(accuracies)}
    return best


def ordered(args):
    """The methods, those from which others start first."""
    needed = dict.fromkeys(STARTS[method] for method in args.methods if method in STARTS)
    return list(dict.fromkeys([*needed, *args.methods]))


def tabulated(args, rates):
    """The rows of the table: results of each method over the seeds, see `summaries.mean_and_spread`."""
    rows = {
        Path(method).stem: (rates.get(method), [planned(args, method, seed, rates) for seed in args.seeds])
        for method in ordered(args)
    }
    if args.noise:
        again = [planned(args, args.noise, NOISE_SEED + seed, rates, name="again") for seed in args.seeds]
        rows[f"{args.noise} again"] = (rates.get(args.noise), again)
    done = do(args, [run for _, runs in rows.values() for run in runs])
    folders = {name: [folder_of(args).of(run) for run in runs] for name, (_, runs) in rows.items()}
    rows = {name: row_of([one for one in folders[name] if one in done], rate) for name, (rate, _) in rows.items()}
    return {name: row for name, row in rows.items() if row}


def row_of(folders, rate):
    """One row: means and spreads of all columns; None without runs."""
    if not folders:
        return None
    results, values = [read(folder) for folder in folders], {}
    for column in METRICS:
        metric, what = column.split()
        values[column] = mean_and_spread(summarize(run, metric)[what] for run in results)
    for level in results[0].mix:
        name = f"level_accuracy_{level}"
        values[name] = mean_and_spread(run.rows[-1].get(name) for run in results)
    costs = [run_cost(run) for run in results]
    values |= {key: mean_and_spread(one[key] for one in costs) for key in ("bytes", "train_flops")}
    over = re.findall(
        r"level (\w+) is OVER its budget: its clients use ([\d.]+) %", RunFolder(folders[0]).log.read_text("utf-8")
    )
    rate = results[0].keys["optimizer.learning_rate"] if rate is None else rate
    return {"rate": rate, "seeds": len(results), "over": dict(over), "values": values}


def table(args, rows):
    """The rows as Markdown, sorted by method: rows with different budgets have no ranking."""
    heads = ["method", "rate", "Global", "Global, best round", "Local", "its worst decile", "a", "b", "c", "d"]
    heads += ["of budget", "MB", "TFLOP", "own settings"]
    lines = [heads, ["---"] * len(heads)]
    for name, row in sorted(rows.items()):
        values = row["values"]
        cells = [_cell(values[column]) for column in METRICS]
        cells += [_cell(values.get(f"level_accuracy_{level}")) for level in "abcd"]
        over = ", ".join(f"{level} {float(share):.0f} %" for level, share in row["over"].items())
        cells += [over or "within", _cell(values["bytes"], 1e6), _cell(values["train_flops"], 1e12)]
        is_controlled = args.mode == "controlled"
        unshared = unshared_settings(name, args.rounds) if is_controlled else ()
        label = LABELS.get(name, name) if is_controlled else name
        lines.append([label, f"{row['rate']:g}", *cells, ", ".join(unshared) or "-"])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value, unit=1):
    if value is None or value["mean"] is None:
        return "-"
    spread = "" if value["spread"] is None or unit != 1 else f" ± {value['spread']:.1f}"
    return f"{value['mean'] / unit:,.4g}{spread}" if unit != 1 else f"{value['mean']:.1f}{spread}"


def noise_floor(args, rows):
    """A sentence with the difference of one method repeated under other seeds; empty without a repetition."""
    if not args.noise or f"{args.noise} again" not in rows:
        return ""
    one, other = (rows[name]["values"][METRICS[0]] for name in (args.noise, f"{args.noise} again"))
    return (
        f"noise floor: {args.noise} twice, under other seeds, differs by {abs(one['mean'] - other['mean']):.1f} "
        f"in Global; means of {rows[args.noise]['seeds']} seeds that are closer say nothing"
    )


def main(arguments=None):
    """Executes the missing runs and prints the table; returns the exit code."""
    args = parse(arguments)
    args.folder = args.folder.resolve()
    for module in args.plugin:
        sys.path.append(str(Path.cwd()))
        register_plugin(module)
    rates = chosen_rates(args) if args.mode == "controlled" else {}
    rows = tabulated(args, rates)
    expected = len(ordered(args)) + bool(args.noise)
    if rows:
        print(table(args, rows) + "\n\n" + noise_floor(args, rows))
        (args.folder / args.data / args.mode / "table.json").write_text(json.dumps(rows, indent=1))
    return int(len(rows) < expected or any(row["seeds"] < len(args.seeds) for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
