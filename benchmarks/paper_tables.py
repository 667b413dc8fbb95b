#!/usr/bin/env python3
"""Prints the tables of RESULTS.md that compare this package with papers.

    benchmarks/paper_tables.py [NAME ...]    names of tables; without names: all

`fedepth_memory` counts the memory of FeDepth's network, and `privacy` compares the packed runs of `privacy_mnist`, seed
by seed with 95 % intervals; the others are from the packed runs of `heterofl_narrow`. There
"best" is the best evaluated round on the test set, as in the paper, and "last" the last round. Seeds of one recipe
share a row, with the mean and the range of their values. Cells of two metrics have Global / Local.
"""

import argparse
import functools
import statistics

import checkout  # noqa: F401  finds hetero_tf and its libraries
from packed import best_row, describe_difference, last_by_seed, markdown, narrow_runs, packed_rows, values_of

from hetero_tf.recipe import load
from hetero_tf.runs import published

MIX, NORM, LOSS = "levels.mix", "model.settings.norm", "client.loss.name"
BOTH = ("global_accuracy", "local_accuracy")
# {name: (recipe, table of the paper, {head of a column: key of the recipe}, metrics; the first selects the best round)}
TABLES = {
    "wikitext2": ("wikitext2", "heterofl_table9", {"mix": MIX, "rounds": "rounds"}, ("global_perplexity",)),
    "mnist": ("mnist", "heterofl_table7", {"mix": MIX}, BOTH[:1]),
    "mnist_norms": ("mnist", "heterofl_table4", {"norm": NORM}, BOTH[:1]),
    "cifar10": ("cifar10", "heterofl_table8", {"mix": MIX}, BOTH[:1]),
    "mnist_noniid": ("mnist_noniid", "heterofl_table7", {"mix": MIX}, BOTH),
    "mnist_noniid_norms": ("mnist_noniid", "heterofl_table5", {"norm": NORM, "loss": LOSS}, BOTH),
}

# FeDepth, Table 1: {part of PreResNet-20: MB}; the last five rows are shares of the whole model.
MEMORY = {"B1 to B3, each": 20.02, "B4": 14.05, "B5 and B6, each": 10.07, "B7": 7.21, "B8 and B9, each": 5.28}
MEMORY |= {"1/8 of the width": 14.51, "1/6": 19.34, "1/3": 38.68, "1/2": 58.02, "the whole model": 116.04}
SHARES = (1 / 8, 1 / 6, 1 / 3, 1 / 2, 1)
# {what: pairs of (run, level), of which the second is subtracted} of the sweep privacy_mnist.
PRIVACY = {
    "level a, epsilon 2 minus 1; 4 minus 2; 8 minus 4": [
        ((f"epsilon_{high}", "a"), (f"epsilon_{low}", "a")) for low, high in ((1, 2), (2, 4), (4, 8))
    ],
    "level a, open minus clip_only; clip_only minus epsilon 8": [
        (("open", "a"), ("clip_only", "a")),
        (("clip_only", "a"), ("epsilon_8", "a")),
    ],
    "level b minus a, epsilon 1; 2; 4; 8": [
        ((f"epsilon_{budget}", "b"), (f"epsilon_{budget}", "a")) for budget in (1, 2, 4, 8)
    ],
    "narrow minus level c; wide minus level a, open": [
        (("narrow_open", "c"), ("open", "c")),
        (("wide_open", "a"), ("open", "a")),
    ],
    "the same, epsilon 2": [
        (("narrow_epsilon_2", "c"), ("epsilon_2", "c")),
        (("wide_epsilon_2", "a"), ("epsilon_2", "a")),
    ],
    "narrow minus level a; b, epsilon 2": [(("narrow_epsilon_2", "c"), ("epsilon_2", level)) for level in "ab"],
    "5,000 minus 1,000 clients, level a, epsilon 1; 2; 4; 8; open": [
        ((f"clients_5000_{name}", "a"), (name, "a")) for name in (*(f"epsilon_{each}" for each in (1, 2, 4, 8)), "open")
    ],
    "open_rate_1 minus open, level a; c": [(("open_rate_1", level), ("open", level)) for level in "ac"],
}


def rows_of(recipe, paper, columns):
    """The runs that a table of the paper has too: `{values of the columns: runs, one for each seed}`."""
    rows = {}
    for run in narrow_runs():
        if run.name == recipe and printed_values(run, paper):
            rows.setdefault(tuple(str(run.keys[key]) for key in columns.values()), []).append(run)
    return rows


def printed_values(run, table):
    """The values of a published table for the recipe of a run: `{metric: value}`."""
    return {value.metric: value.value for value in published.matching_values(values_of(table), run.keys)}


def describe_values(values):
    """The only value, or the mean and the range of several ones."""
    mean = f"{statistics.mean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.2f} to {max(values):.2f})"


def metric_cells(metric, runs, best, paper, port):
    """The cells of a metric: best, last, published, their difference, and the value of a port if there is one."""
    values = [row[metric] for row in best]
    cells = [describe_values(values), describe_values([run.rows[-1][metric] for run in runs])]
    # Adding zero turns -0.00 into +0.00.
    cells += [f"{paper[metric]:.2f}", f"{round(statistics.mean(values) - paper[metric], 2) + 0:+.2f}"]
    return [*cells, f"{port[metric]:.2f}"] if port else cells


def table(name):
    """The Markdown of a table."""
    recipe, paper, columns, metrics = TABLES[name]
    lines = []
    for label, runs in rows_of(recipe, paper, columns).items():
        best, costs = [best_row(run, metrics[0]) for run in runs], runs[0].costs.mix
        values = printed_values(runs[0], paper)
        port = printed_values(runs[0], "flower-heterofl") if "mix" in columns else {}
        merged = map(" / ".join, zip(*(metric_cells(metric, runs, best, values, port) for metric in metrics)))
        rounds = ", ".join(str(row["round"]) for row in best)
        lines.append([*label, rounds, *merged, f"{costs.parameters:,.0f}", f"{costs.paper_flops / 1e6:.2f} M"])
    heads = [*columns, "best round", "best", "last", "paper", "best minus paper", "Flower's port"]
    heads += ["parameters", "FLOPs"]
    if len(heads) > len(lines[0]):
        heads.remove("Flower's port")
    return markdown(heads, lines)


def memory_table():
    """The Markdown of FeDepth's Table 1: the training memory of the blocks, and that of narrower models."""
    from hetero_tf.models.build_model import build_model
    from hetero_tf.models.costs.counting import TABLE_BATCH, forward, total, unit_costs

    recipe, example = load("methods/fedepth"), (32, 32, 3)
    units = unit_costs(
        forward(build_model(recipe.model, example, 1), example), {spec.name: spec.unit for spec in recipe.model.layers}
    )
    blocks = [unit.memory(TABLE_BATCH) / 2**20 for unit in units if unit.name.count("_")]
    whole = total(units).memory(TABLE_BATCH) / 2**20
    here = [blocks[0], blocks[3], blocks[4], blocks[6], blocks[7], *(whole * share for share in SHARES)]
    rows = [(name, f"{printed:.2f}", f"{mib:.2f}") for (name, printed), mib in zip(MEMORY.items(), here, strict=True)]
    return markdown(("part", "paper", "here"), rows)


def privacy_table():
    """The Markdown of differences between private runs."""
    runs = packed_rows("privacy_mnist")
    rows = []
    for name, pairs in PRIVACY.items():
        values = [[last_by_seed(runs, run, f"level_accuracy_{level}") for run, level in pair] for pair in pairs]
        rows.append((name, "; ".join(describe_difference(*each) for each in values)))
    return markdown(("difference of accuracies", "points"), rows)


def main(arguments=None):
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="tables to print")
    options = parser.parse_args(arguments)
    tables = {name: functools.partial(table, name) for name in TABLES}
    tables |= {"fedepth_memory": memory_table, "privacy": privacy_table}
    if unknown := sorted(set(options.names) - set(tables)):
        parser.error(f"NAME must be one of {', '.join(tables)}. Received: {', '.join(unknown)}")
    print("\n\n".join(tables[name]() for name in options.names or tables))


if __name__ == "__main__":
    main()
