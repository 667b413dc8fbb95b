"""The sections of a report: what stands in each, where the runs have it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hetero_tf.base import metrics
from hetero_tf.base.errors import InputError, UserError
from hetero_tf.partitions import drawing
from hetero_tf.partitions.partition import Partition
from hetero_tf.reports import breakdowns, curves, figures, style
from hetero_tf.reports import table_formats as tables
from hetero_tf.reports.published import Value
from hetero_tf.reports.summaries import known_metrics
from hetero_tf.reports.table_formats import Table
from hetero_tf.runs.history import Run
from hetero_tf.store.run_folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure
from collections.abc import Iterator

from hetero_tf.base import files
from hetero_tf.reports.table_formats import cleaned
from hetero_tf.runs.history import MIX, differences, shown
from hetero_tf.store import plain_json

# Keys that a reader asks for first, and how they are called; all runs that agree in one share its line.
SETTING = {
    "data.dataset": "data set",
    "data.name": "data",
    "partition.name": "split",
    "partition.clients": "clients",
    "round.clients": "active clients of a round",
    "round.submodel.name": "sub-models",
    "client.loss.name": "local loss",
    "client.epochs": "local epochs",
    "client.batch_size": "batch size",
    "optimizer.name": "optimizer",
    "optimizer.learning_rate": "learning rate",
    "schedule.name": "schedule",
    "rounds": "rounds",
}


def common(groups: dict[str, list[Run]]) -> dict[str, str]:
    """`{what: values}` of what a reader asks for first: one value where all runs agree, else all of them."""
    facts: dict[str, str] = {}
    for key, name in SETTING.items():
        values = dict.fromkeys(shown(runs[0].keys[key]) for runs in groups.values() if key in runs[0].keys)
        if values:
            facts[name] = ", ".join(values)
    machines = dict.fromkeys(_machines(groups))
    return facts | ({"ran on": "; ".join(machines)} if machines else {})


def apart(groups: dict[str, list[Run]]) -> Table:
    """A row for each recipe: in what it differs from the others, besides its mix; no rows where that is nothing."""
    told = differences([runs[0] for runs in groups.values()], without=("name", "seed", MIX))
    return cleaned(Table(["run", "differs in"], [[name, text] for name, text in zip(groups, told) if text], []))


def _machines(groups) -> Iterator[str]:
    """Processor and versions of the runs that say them."""
    for run in (run for runs in groups.values() for run in runs):
        path = RunFolder(Path(run.folder)).environment
        try:
            facts = plain_json.parse(files.read_bytes(path, plain_json.LIMIT), path)
            versions = facts["versions"]  # type: ignore[index]
            yield (
                f"{facts['cpu']['model']}, {facts['cores']} cores, TensorFlow {versions['tensorflow']}, "  # type: ignore[index]
                f"Keras {versions['keras']}, hetero_tf {versions['hetero_tf']}"
            )
        except (UserError, TypeError, KeyError):
            continue


BAND = "range"


# Metrics that get learning curves, in this order, where some run has measured them.
DRAWN = ("global_accuracy", "global_perplexity", "local_accuracy", "tuned_accuracy", "global_loss", "loss")


MOST_SPLITS = 6


@dataclass(frozen=True)
class Picture:
    """A figure, the name of its files, its title and what it shows."""

    name: str
    title: str
    caption: str
    figure: "Figure"


@dataclass(frozen=True)
class Section:
    """A part of the page; what is empty is left out."""

    name: str
    title: str
    about: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)


def all_sections(groups: dict[str, list[Run]], rows: Sequence[dict], asked: Sequence[Value]) -> list[Section]:
    """The sections of a report that have something to say, in order.

    Args:
        groups: `{name: [Run]}`.
        rows: Of `comparison.compare`.
        asked: Published values that get rows of their own.
    """
    made = (
        _reached(rows, asked),
        _curves(groups),
        _levels_and_clients(groups, rows),
        _cost(groups, rows),
        _rounds(groups),
        _splits(groups),
        Section("setting", "Setting", facts=common(groups), tables=[table] if (table := apart(groups)).rows else []),
    )
    return [section for section in made if section.facts or section.tables or section.pictures]


def _reached(rows, asked):
    table = tables.to_table(rows, asked, lambda key: not tables.is_cost(key) and not tables.is_of_level(key))
    about = (
        "Means and standard deviations over seeds. “last” is the last measured round; “best” is chosen on held-out "
        "examples where a run has some, else on the test set, which flatters."
    )
    return Section("reached", "What the runs reached", about, tables=[table])


def _curves(groups):
    """Learning curves of each metric, the first one also against traffic, and accuracy against size."""
    known = known_metrics(run for runs in groups.values() for run in runs)
    # Only names of ours become names of files.
    drawn = [name for name in DRAWN if name in known]
    pictures = [_curve(groups, metric, "round") for metric in drawn]
    for made, x in ((_curve, "bytes"), (_size, "parameters")) if drawn else ():
        try:
            pictures.insert(1, made(groups, drawn[0], x))
        except InputError:
            # A run of an earlier version has not kept what this figure needs, or there is nothing to see in it.
            continue
    return Section("curves", "Learning curves", pictures=pictures)


def _curve(groups, metric, x):
    found = curves.learning_curves(groups, metric, x, BAND)
    known = metrics.find(metric)
    better = f", {known.better} is better" if known and known.better else ""
    title = f"{metric} against {'rounds' if x == 'round' else 'traffic'}"
    return Picture(
        f"{metric}-{x}",
        title,
        f"{_meaning(metric)}{better}. {_band(found)}",
        figures.draw_curves(found, metric, x, BAND),
    )


def _size(groups, metric, x):
    found = curves.size_series(groups, metric, x, BAND)
    points = [point for one in found for point in one.points]
    if len({point.x for point in points}) == 1:
        raise InputError("all clients have models of one size, so there is nothing to compare")
    caption = (
        "Each point is a mix at its last measured round; lines join the mixes of two levels, as HeteroFL's figures do. "
        + _band(points)
    )
    return Picture(f"{metric}-{x}", f"{metric} against size", caption, figures.draw_sizes(found, metric, x, BAND))


def _meaning(metric):
    known = metrics.find(metric)
    text = known.meaning if known else metric
    return text[0].upper() + text[1:]


def _band(found):
    several = curves.bands(found, BAND)
    return f"{several[0].upper()}{several[1:]}." if several else "One seed of each recipe."


def _levels_and_clients(groups, rows):
    """How good each level's model is, and how evenly clients are served, where the runs have measured it."""
    pictures, kind = [], breakdowns.levels_kind(groups)
    if kind is not None:
        caption = (
            "Each level's own model, cut from the global one, on the whole test set at the last measured round. Bars: "
            "lowest to highest seed."
        )
        found = breakdowns.of_levels(groups, kind)
        pictures.append(Picture("levels", "Models of the levels", caption, breakdowns.draw_levels(found, kind)))
    clients = breakdowns.of_clients(groups)
    if clients:
        caption = (
            "The global model on each client's own test examples at the last measured round, means over the seeds. A "
            "standard deviation near its noise floor says nothing: equally good clients would differ as much by chance."
        )
        pictures.append(Picture("clients", "Spread over clients", caption, breakdowns.draw_clients(clients)))
    table = [tables.to_table(rows, [], tables.is_of_level)] if kind is not None else []
    return Section("levels", "Levels and clients", tables=table, pictures=pictures)


def _cost(groups, rows):
    each = [tables.to_table(rows, [], tables.is_cost), *(table for table in [_cost_table(groups)] if table.rows)]
    about = "MB are 10⁶ bytes of weights, in both directions where nothing else is said."
    return Section("cost", "What they cost", about, tables=each)


def _cost_table(groups):
    """One line for each level of a mix; runs whose levels cost the same share it."""
    lines: dict[tuple[str, ...], list[str]] = {}
    for name, runs in groups.items():
        run = next((run for run in runs if run.costs), None)
        for level, cost in run.costs.levels.items() if run else ():
            cells = (
                level,
                f"{cost['width']:.4g}",
                f"{cost['parameters']:,.0f}",
                f"{cost['paper_flops']:,.0f}",
                f"{cost['multiply_adds']:,.0f}",
                f"{cost['bytes_down'] / 1e6:,.4g}",
                f"{cost['bytes_up'] / 1e6:,.4g}",
                f"{cost['training_bytes'] / 2**20:,.2f}",
            )
            lines.setdefault(cells, []).append(name)
    heads = ["runs", "level", "width", "parameters", "FLOPs", "multiply-adds", "MB down", "MB up", "training MiB"]
    notes = [
        "FLOPs: one example forward, counted as in the HeteroFL paper. MB down, MB up: a client and round. Training "
        "MiB: an estimate of what local training holds."
    ]
    return tables.cleaned(Table(heads, [[", ".join(names), *cells] for cells, names in lines.items()], notes))


def _splits(groups):
    """How the data of each recipe's first seed are split, as long as splits are few; recipes may share one."""
    drawn: dict[str, tuple[Partition, list[str]]] = {}
    for name, runs in groups.items():
        try:
            partition = Partition.load(RunFolder(Path(runs[0].folder)).partition)
        except UserError:
            # Nothing else depends on it; a run of which it was lost has all the rest.
            continue
        if partition.sha256 in drawn or len(drawn) < MOST_SPLITS:
            drawn.setdefault(partition.sha256, (partition, []))[1].append(f"{name}, seed {runs[0].seed}")
    pictures = [_split(number, *one) for number, one in enumerate(drawn.values(), 1)]
    return Section("split", "Data of the clients", pictures=pictures)


def _split(number, partition, names):
    sizes, shares = drawing.presence(partition)
    two = bool(np.isin(shares, (0, 1)).all())
    figure = style.figure(3.0)
    drawing.draw_into(figure, partition, sizes, shares, "" if two else "share of the clients that have the label")
    caption = "Above, training examples of each client; below, " + (
        "dark where it has the label." if two else "the share of neighbouring clients that have a label."
    )
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return Picture(f"split-{number}", f"Split of {names[0]}{more}", caption, figure)


def _rounds(groups):
    """Who was active, and where the time went."""
    pictures, more = [], len(groups) - breakdowns.MOST_PANELS
    if any(any(many) for runs in groups.values() for many in breakdowns.of_mix(runs)[1].values()):
        caption = "Active clients, means over the seeds." + (f" {more} more runs are not drawn." * (more > 0))
        pictures.append(Picture("mix", "Levels over the rounds", caption, breakdowns.draw_mix(groups)))
    found = breakdowns.of_time(groups)
    if found:
        caption = "Wall time by part of the work, means over the seeds; planning runs beside them."
        pictures.append(Picture("time", "Where the time went", caption, breakdowns.draw_time(found)))
    return Section("rounds", "Rounds", pictures=pictures)
