"""Builds the sections of a report from the data of the runs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hetero_tf.base import files, metrics
from hetero_tf.base.errors import InputError, UserError
from hetero_tf.base.files import Damaged
from hetero_tf.base.units import MB, MIB
from hetero_tf.data.partitions import drawing
from hetero_tf.data.partitions.partition import Partition
from hetero_tf.evaluation.class_results import ClassResults
from hetero_tf.reports import breakdowns, curves, figures, style, timelines
from hetero_tf.reports import table_formats as tables
from hetero_tf.reports.summaries import known_metrics
from hetero_tf.reports.table_formats import Table
from hetero_tf.runs import plain_json
from hetero_tf.runs.history import MIX, Run, differences, shown
from hetero_tf.runs.published import PublishedValue
from hetero_tf.runs.run_folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BAND = "range"
# Decimals of percentages in tables.
DECIMALS = 2
# Metrics with learning curves, after those of the tasks.
CURVE_METRICS = ("local_accuracy", "tuned_accuracy", "global_loss", "loss")
MOST_SPLITS = 6
AXIS_TITLES = {"round": "rounds", "megabytes": "traffic", "device_hours": "device time"}
# Main recipe keys and their labels in the table of settings.
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
# Key, divisor and format of each column of the table of costs.
COST_CELLS = {
    "width": ("width", 1, ".4g"),
    "parameters": ("parameters", 1, ",.0f"),
    "FLOPs": ("paper_flops", 1, ",.0f"),
    "multiply-adds": ("multiply_adds", 1, ",.0f"),
    "MB down": ("bytes_down", MB, ",.4g"),
    "MB up": ("bytes_up", MB, ",.4g"),
    "training MiB": ("training_bytes", MIB, ",.2f"),
}


def common_settings(groups: dict[str, list[Run]]) -> dict[str, str]:
    """Return `{label: values}` of the main settings: one value if all runs agree, else all values."""
    facts: dict[str, str] = {}
    for key, name in SETTING.items():
        values = dict.fromkeys(shown(runs[0].keys[key]) for runs in groups.values() if key in runs[0].keys)
        if values:
            facts[name] = ", ".join(values)
    machines = dict.fromkeys(_machines(groups))
    return facts | ({"ran on": "; ".join(machines)} if machines else {})


def differences_table(groups: dict[str, list[Run]]) -> Table:
    """Return a table with the differences of each recipe except its mix; no rows without differences."""
    differences_of_runs = differences([runs[0] for runs in groups.values()], without=("name", "seed", MIX))
    return tables.to_single_lines(
        Table(["run", "differs in"], [[name, text] for name, text in zip(groups, differences_of_runs) if text], [])
    )


def _machines(groups) -> Iterator[str]:
    """Yield processor and versions of the runs that stored them."""
    for run in (run for runs in groups.values() for run in runs):
        path = RunFolder(Path(run.folder)).environment
        try:
            environment = plain_json.parse(files.read_bytes(path, plain_json.LIMIT), path)
            versions = environment["versions"]  # type: ignore[index]
            yield (
                f"{environment['cpu']['model']}, {environment['cores']} cores, TensorFlow {versions['tensorflow']}, "  # type: ignore[index]
                f"Keras {versions['keras']}, hetero_tf {versions['hetero_tf']}"
            )
        except (UserError, TypeError, KeyError):
            continue


@dataclass(frozen=True)
class Picture:
    """A figure with the name of its files, title and caption.

    Attributes:
        has_page_legend: The legend of the page replaces that of the figure; the files of the figure keep theirs.
    """

    name: str
    title: str
    caption: str
    figure: "Figure"
    has_page_legend: bool = False


@dataclass(frozen=True)
class Section:
    """A section of the page; empty fields are omitted."""

    name: str
    title: str
    about: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    legend: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)


def all_sections(
    groups: dict[str, list[Run]], rows: Sequence[dict], requested: Sequence[PublishedValue]
) -> list[Section]:
    """Return the non-empty sections of a report, in order.

    Args:
        groups: `{name: [Run]}`.
        rows: Output of `comparison.compare`.
        requested: Published values that get separate rows.
    """
    sections = (
        _results(rows, requested),
        _curves(groups),
        _classes(groups),
        _levels_and_clients(groups, rows),
        _cost(groups, rows),
        _rounds(groups),
        _splits(groups),
        Section("setting", "Setting", facts=common_settings(groups), tables=_non_empty(differences_table(groups))),
    )
    return [section for section in sections if section.facts or section.tables or section.pictures]


def _non_empty(*candidates):
    return [table for table in candidates if table.rows]


def _is_result(key):
    return not tables.is_cost(key) and not tables.is_of_level(key)


def _results(rows, requested):
    table = tables.to_table(rows, requested, _is_result, DECIMALS)
    about = (
        "Means and standard deviations over seeds. “last” is the last measured round; “best” is picked on "
        "validation data if there are any; otherwise on the test set, so it is optimistic."
    )
    return Section("reached", "Results", about, tables=[tables.results_first(table)])


def _curves(groups):
    """Return learning curves of each metric; the first one also over device time, traffic and model size."""
    known = known_metrics(run for runs in groups.values() for run in runs)
    # Only known metric names become file names.
    of_tasks = (f"global_{name}" for name in metrics.first_metrics())
    drawn = [name for name in (*of_tasks, *CURVE_METRICS) if name in known]
    pictures = [_curve(groups, metric, "round") for metric in drawn]
    for draw, x in ((_size, "parameters"), (_curve, "megabytes"), (_curve, "device_hours")) if drawn else ():
        try:
            pictures.insert(1, draw(groups, drawn[0], x))
        except InputError:
            # Runs of earlier versions lack data for this figure, or it would be empty.
            continue
    return Section("curves", "Learning curves", legend=list(groups) if pictures else [], pictures=pictures)


def _curve(groups, metric, x):
    learning_curves = curves.learning_curves(groups, metric, x, BAND)
    known = metrics.find_metric(metric)
    meaning = known.meaning if known else metric
    better = f", {known.better} is better" if known and known.better else ""
    title = f"{metric} over {AXIS_TITLES[x]}"
    caption = f"{_capitalize(meaning)}{better}. {_band(learning_curves)}"
    return Picture(f"{metric}-{x}", title, caption, figures.draw_curves(learning_curves, metric, x, BAND), True)


def _size(groups, metric, x):
    series = curves.size_series(groups, metric, x, BAND)
    points = [point for entry in series for point in entry.points]
    if len({point.x for point in points}) == 1:
        raise InputError("all clients have models of the same size, so there is nothing to compare")
    caption = (
        "Each point is a mix at its last measured round; lines connect the mixes of two levels, as in HeteroFL. "
        + _band(points)
    )
    return Picture(f"{metric}-{x}", f"{metric} over size", caption, figures.draw_sizes(series, metric, x, BAND))


def _capitalize(text):
    return text[0].upper() + text[1:]


def _band(drawn):
    text = curves.describe_bands(drawn, BAND)
    return f"{_capitalize(text)}." if text else "One seed of each recipe."


def _levels_and_clients(groups, rows):
    """Return figures of the accuracy of level models and of its spread over clients, if measured."""
    pictures, prefix = [], breakdowns.level_metric_prefix(groups)
    if prefix is not None:
        caption = (
            "The model of each level, cut from the global model, on the test set at the last measured round, in the "
            "colours of the learning curves. Bars: lowest to highest seed."
        )
        values = breakdowns.level_values(groups, prefix)
        pictures.append(
            Picture("levels", "Models of the levels", caption, breakdowns.draw_levels(values, prefix), True)
        )
    spreads = breakdowns.client_spreads(groups)
    if spreads:
        caption = (
            "The global model on the test examples of each client at the last measured round, means over the seeds. A "
            "standard deviation near its noise floor is not significant: equally good clients would differ by chance."
        )
        pictures.append(Picture("clients", "Spread over clients", caption, breakdowns.draw_clients(spreads)))
    table = [tables.to_table(rows, [], tables.is_of_level, DECIMALS)] if prefix is not None else []
    return Section("levels", "Levels and clients", tables=table, pictures=pictures)


def _classes(groups):
    """Return the confusion of the classes for the first seed of each recipe, up to `MOST_SPLITS`, if it was stored."""
    pictures: list[Picture] = []
    class_tables = []
    for name, runs in groups.items():
        path = RunFolder(Path(runs[0].folder)).classes
        if not path.exists() or len(pictures) == MOST_SPLITS:
            continue
        content: Any = plain_json.parse(files.read_bytes(path, plain_json.LIMIT), path)
        try:
            results, state = ClassResults.from_json(content), f"{content['state']} state, round {int(content['round'])}"
        except (TypeError, KeyError, ValueError) as error:
            raise Damaged(f"{path}: does not contain results of classes; delete it: {error}") from error
        figure = style.figure(float(np.clip(0.3 * len(results.names), 3.4, 8)))
        results.draw_into(figure)
        caption = f"Shares of the predictions for the test examples of each class. Global model, {state}."
        pictures.append(Picture(f"classes-{len(pictures) + 1}", f"Classes of {name}", caption, figure))
        head, *rows = map(list, results.rows())
        notes = [f"{name}, {state}", *([results.omitted] if results.omitted else [])]
        class_tables.append(tables.to_single_lines(Table(head, rows, notes)))
    return Section("classes", "Classes", tables=class_tables, pictures=pictures)


def _cost(groups, rows):
    cost_tables = _non_empty(tables.to_table(rows, [], tables.is_cost), _cost_table(groups))
    about = "MB are 10⁶ bytes of weights, in both directions unless stated otherwise."
    return Section("cost", "Costs", about, tables=cost_tables)


def _cost_table(groups):
    """Return a table with one line for each level; runs with equal costs share a line."""
    lines: dict[tuple[str, ...], list[str]] = {}
    for name, runs in groups.items():
        run = next((run for run in runs if run.costs), None)
        for level, cost in run.costs.levels.items() if run else ():
            cells = (level, *(format(cost[key] / unit, spec) for key, unit, spec in COST_CELLS.values()))
            lines.setdefault(cells, []).append(name)
    heads = ["runs", "level", *COST_CELLS]
    notes = [
        "FLOPs: forward pass of one example, counted as in the HeteroFL paper. MB down, MB up: per client and round. "
        "Training MiB: estimated memory of local training."
    ]
    return tables.to_single_lines(Table(heads, [[", ".join(names), *cells] for cells, names in lines.items()], notes))


def _splits(groups):
    """Return figures of the data splits of the first seeds, up to `MOST_SPLITS`; recipes may share a split."""
    drawn: dict[str, tuple[Partition, list[str]]] = {}
    for name, runs in groups.items():
        try:
            partition = Partition.load(RunFolder(Path(runs[0].folder)).partition)
        except UserError:
            # Only this figure needs the partition, so skip runs that lost it.
            continue
        if partition.sha256 in drawn or len(drawn) < MOST_SPLITS:
            drawn.setdefault(partition.sha256, (partition, []))[1].append(f"{name}, seed {runs[0].seed}")
    pictures = [_split(number, *group) for number, group in enumerate(drawn.values(), 1)]
    return Section("split", "Data of the clients", pictures=pictures)


def _split(number, partition, names):
    sizes, shares = drawing.presence(partition)
    is_binary = bool(np.isin(shares, (0, 1)).all())
    figure = style.figure(3.0)
    drawing.draw_into(figure, partition, sizes, shares, "share of the clients with the label")
    caption = "Above: training examples of each client. Below: " + (
        "labels of each client: 1 is present." if is_binary else "share of neighbouring clients that have a label."
    )
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return Picture(f"split-{number}", f"Split of {names[0]}{more}", caption, figure)


def _rounds(groups):
    """Return figures of active clients and of the time by part of the work."""
    pictures, num_omitted = [], len(groups) - breakdowns.MOST_PANELS
    if any(any(counts) for runs in groups.values() for counts in breakdowns.active_by_level(runs)[1].values()):
        caption = "Active clients, means over the seeds." + (
            f" {num_omitted} more runs are not drawn." * (num_omitted > 0)
        )
        pictures.append(Picture("mix", "Levels over the rounds", caption, breakdowns.draw_mix(groups)))
    seconds = breakdowns.seconds_by_part(groups)
    if seconds:
        caption = "Wall time by part of the work, means over the seeds; planning runs in parallel."
        pictures.append(Picture("time", "Time", caption, breakdowns.draw_time(seconds)))
    return Section("rounds", "Rounds", pictures=[*pictures, *_timelines(groups)])


def _timelines(groups):
    """Return the timelines of the first seeds, up to `MOST_SPLITS`."""
    spans = {}
    for name, runs in groups.items():
        if drawn := timelines.first_rounds(runs[0].timeline):
            spans[name] = drawn
    return [
        Picture(f"timeline-{number}", f"Timeline of {name}", timelines.describe(drawn), timelines.draw(drawn))
        for number, (name, drawn) in enumerate(list(spans.items())[:MOST_SPLITS], 1)
    ]
