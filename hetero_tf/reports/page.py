"""Builds one self-contained HTML page about runs: its sections, and figures without external requests."""

import base64
import contextlib
import hashlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from hetero_tf.base import files, metrics, typed_json
from hetero_tf.base.errors import InputError, UserError, require_modules
from hetero_tf.base.formatting import MB, MIB, escape_line
from hetero_tf.base.typed_json import Natural
from hetero_tf.base.version import __version__
from hetero_tf.data.partitions import drawing
from hetero_tf.data.partitions.partition import Partition
from hetero_tf.evaluation.class_results import ClassResults
from hetero_tf.reports import figures, style
from hetero_tf.reports.breakdowns import breakdowns, round_breakdowns, timeline_pictures
from hetero_tf.reports.style import Picture
from hetero_tf.reports.summaries import compare, known_metrics
from hetero_tf.reports.tables import COLUMNS, FIRST, Table, best_first, is_of_level, to_table
from hetero_tf.runs import environment
from hetero_tf.runs.history import MIX, Run, differences, method_name, shown
from hetero_tf.runs.published import PublishedValue
from hetero_tf.runs.run_folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# Metrics with learning curves, after those of the tasks.
CURVE_METRICS = ("local_accuracy", "tuned_accuracy", "global_loss", "loss")
# Maximum figures of classes, and of splits.
MOST_FIGURES = 6
AXIS_TITLES = {"round": "rounds", "parameters": "size", "megabytes": "traffic", "device_hours": "device time"}
# Main recipe keys and their labels in the table of settings.
SETTING = {
    "data.dataset": "data set",
    "data.name": "data",
    "partition.name": "split",
    "partition.clients": "clients",
    "round.clients": "active clients of a round",
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


@dataclass(frozen=True)
class Section:
    """A section of the page; empty fields are omitted."""

    name: str
    title: str
    about: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)


@dataclass(frozen=True)
class _StoredClasses:
    state: Literal["best", "last"]
    round: Natural
    names: tuple[str, ...]
    confusion_matrix: tuple[tuple[Natural, ...], ...]

    def __post_init__(self):
        lengths = {len(self.confusion_matrix), *map(len, self.confusion_matrix)}
        if not self.names or lengths != {len(self.names)}:
            raise ValueError("confusion_matrix must have a count for each pair of classes")


def all_sections(
    groups: dict[str, list[Run]], rows: Sequence[dict], requested: Sequence[PublishedValue]
) -> list[Section]:
    """Return the non-empty sections of a report, in order."""
    results = to_table(rows, requested, lambda key: key not in COLUMNS and not is_of_level(key))
    # The columns that describe the runs, except their names, follow the results.
    order = sorted(range(len(results.heads)), key=lambda index: results.heads[index] in FIRST[1:])
    heads, *cells = ([row[index] for index in order] for row in (results.heads, *results.rows))
    best = frozenset((row, order.index(column)) for row, column in results.best)
    levels = [to_table(rows, [], is_of_level)] if any(map(is_of_level, rows[0])) else []
    about_results = (
        "Means and standard deviations over seeds. “last” is the last measured round; “best” is picked on validation "
        f"data if there are any; otherwise on the test set, so it is optimistic.{' Bold: the best mean.' * bool(best)}"
    )
    about_cost = "MB are 10⁶ bytes of weights, in both directions unless stated otherwise."
    class_tables, class_pictures = _classes(groups)
    texts = differences([runs[0] for runs in groups.values()], without=("name", "seed", MIX))
    partitions = list(_partitions(groups))
    differing = Table(["run", "differs in"], [[name, text] for name, text in zip(groups, texts) if text], [])
    sections = [
        Section("reached", "Results", about_results, tables=[Table(heads, cells, results.notes, best)]),
        Section("curves", "Learning curves", pictures=_curves(groups)),
        Section("classes", "Classes", tables=class_tables, pictures=class_pictures),
        Section("levels", "Levels and clients", tables=levels, pictures=breakdowns(groups)),
        Section("cost", "Costs", about_cost, tables=[to_table(rows, [], COLUMNS.__contains__), _cost_table(groups)]),
        Section("rounds", "Rounds", pictures=round_breakdowns(groups) + timeline_pictures(groups)),
        Section("split", "Data of the clients", pictures=_splits(partitions)),
        Section("setting", "Setting", facts=_settings(groups, partitions), tables=[differing]),
    ]
    sections = [replace(each, tables=[table for table in each.tables if table.rows]) for each in sections]
    return [section for section in sections if section.facts or section.tables or section.pictures]


def _curves(groups):
    """Return learning curves of each metric; the first one also over device time, traffic and model size."""
    known = known_metrics(run for runs in groups.values() for run in runs)
    # Only known metric names become file names.
    of_tasks = (f"global_{name}" for name in metrics.first_metrics())
    drawn = [name for name in (*of_tasks, *CURVE_METRICS) if name in known]
    pictures = [_curve(groups, metric, "round") for metric in drawn]
    for x in ("parameters", "megabytes", "device_hours") if drawn else ():
        try:
            pictures.insert(1, _curve(groups, drawn[0], x))
        except InputError:
            # The runs lack data for this figure, or it would be empty.
            continue
    return pictures


def _curve(groups, metric, x):
    known = metrics.find_metric(metric)
    if x in figures.SIZES:
        series = figures.size_series(groups, metric, x)
        drawn: list = [point for entry in series for point in entry.points]
        if len({point.x[0] for point in drawn}) == 1:
            raise InputError("all clients have models of the same size, so there is nothing to compare")
        figure = figures.draw_sizes(series, metric, x)
        text = "each point is a mix at its last measured round; lines connect the mixes of two levels, as in HeteroFL"
    else:
        drawn = figures.learning_curves(groups, metric, x)
        figure = figures.draw_curves(drawn, metric, x)
        text = known.meaning if known else metric
        text += f", {known.better} is better" if known and known.better else ""
    band = figures.describe_bands(drawn) or "one seed of each recipe"
    caption = " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in (text, band))
    return Picture(f"{metric}-{x}", f"{metric} over {AXIS_TITLES[x]}", caption, figure)


def _classes(groups):
    """Return the confusion of the classes for the first seed of each recipe, if it was stored: tables and pictures."""
    class_tables: list[Table] = []
    pictures: list[Picture] = []
    for name, runs in groups.items():
        path = RunFolder(Path(runs[0].folder)).classes
        if not path.exists() or len(pictures) == MOST_FIGURES:
            continue
        stored = typed_json.read(_StoredClasses, path, "; delete the file")
        results, state = (
            ClassResults(stored.names, np.array(stored.confusion_matrix)),
            f"{stored.state} state, round {stored.round}",
        )
        figure = style.figure(float(np.clip(0.3 * len(results.names), 3.4, 8)))
        results.draw_into(figure)
        caption = f"Shares of the predictions for the test examples of each class. Global model, {state}."
        pictures.append(Picture(f"classes-{len(pictures) + 1}", f"Classes of {name}", caption, figure))
        head, *rows = map(list, results.rows())
        class_tables.append(Table(head, rows, [f"{name}, {state}", *filter(None, [results.omitted])]))
    return class_tables, pictures


def _cost_table(groups):
    """Return a table with one line for each level; runs with equal costs share a line."""
    lines: dict[tuple[str, ...], list[str]] = {}
    for name, runs in groups.items():
        costs = next((run.costs for run in runs if run.costs), None)
        for level, cost in costs.levels.items() if costs else ():
            cells = (level, *(format(getattr(cost, key) / unit, spec) for key, unit, spec in COST_CELLS.values()))
            lines.setdefault(cells, []).append(name)
    notes = [
        "FLOPs: forward pass of one example, counted as in the HeteroFL paper. MB down, MB up: per client and round. "
        "Training MiB: estimated memory of local training."
    ]
    rows = [[", ".join(names), *cells] for cells, names in lines.items()]
    return Table(["runs", "level", *COST_CELLS], rows, notes)


def _splits(partitions):
    """Return figures of the data splits of the first seeds; recipes may share a split."""
    drawn: dict[str, tuple[Partition, list[str]]] = {}
    for name, partition in partitions:
        if partition.sha256 in drawn or len(drawn) < MOST_FIGURES:
            drawn.setdefault(partition.sha256, (partition, []))[1].append(name)
    return [_split(number, *group) for number, group in enumerate(drawn.values(), 1)]


def _partitions(groups):
    """Yield the name of a first seed and its partition, without those of runs that lost it."""
    for name, runs in groups.items():
        with contextlib.suppress(UserError):
            yield f"{name}, seed {runs[0].seed}", Partition.load(RunFolder(Path(runs[0].folder)).partition)


def _split(number, partition, names):
    sizes, shares = drawing.table(partition)
    is_binary = bool(np.isin(shares, (0, 1)).all())
    figure = style.figure(3.0)
    drawing.draw_into(figure, partition, sizes, shares, "share of the clients with the label")
    caption = "Above: training examples of each client. Below: " + (
        "labels of each client: 1 is present." if is_binary else "share of neighbouring clients that have a label."
    )
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return Picture(f"split-{number}", f"Split of {names[0]}{more}", caption, figure)


def _settings(groups, partitions):
    """Return `{label: values}` of the main settings: one value if all runs agree, else all values."""
    facts = {"method": ", ".join(dict.fromkeys(method_name(runs[0].keys) for runs in groups.values()))}
    sizes = dict.fromkeys(f"{np.unique(partition.test.ids).size:,}" for _, partition in partitions)
    facts |= {"test examples of the clients": ", ".join(sizes)} if sizes.keys() - {"0"} else {}
    for key, name in SETTING.items():
        values = dict.fromkeys(shown(runs[0].keys[key]) for runs in groups.values() if key in runs[0].keys)
        if values:
            facts[name] = ", ".join(values)
    stored = [environment.load(RunFolder(Path(run.folder)).environment) for runs in groups.values() for run in runs]
    packages = {"TensorFlow": "tensorflow", "Keras": "keras", "hetero_tf": "hetero_tf"}
    machines = set()
    for each in filter(None, stored):
        versions = [f"{title} {each.versions.get(name)}" for title, name in packages.items()]
        machines.add(", ".join([str(each.cpu.get("model")), f"{each.cores} cores", *versions]))
    return facts | ({"ran on": "; ".join(sorted(machines))} if machines else {})


TEMPLATE = Path(__file__).with_name("report.html")
KINDS = ("svg", "png")


def make_report(
    groups: dict[str, list[Run]],
    warnings: Sequence[str],
    published: Sequence[PublishedValue],
    requested: Sequence[PublishedValue],
) -> "tuple[str, dict[str, Figure]]":
    """Return the HTML of a page about runs, and `{name: figure}`, inside a `style.figure_style` block."""
    rows = compare(groups, published=published)
    first_key = next((name for name in rows[0] if name.endswith(" last")), None)
    sections = all_sections(groups, best_first(rows, first_key) if first_key else rows, requested)
    runs = [run for group in groups.values() for run in group]
    names = list(dict.fromkeys(run.name for run in runs))
    lead = (
        f"{_format_count(len(runs), 'run')} of {_format_count(len(groups), 'recipe')}, "
        f"{sum(run.is_finished for run in runs)} finished. Generated {time.strftime('%Y-%m-%d %H:%M')} by hetero_tf "
        f"{__version__} from the run folders."
    )
    title = ", ".join(names) if len(names) <= 3 else f"{names[0]}, {names[1]} and {len(names) - 2} more"
    text = _render(title=title, lead=lead, warnings=warnings, sections=sections)
    return text, {picture.name: picture.figure for section in sections for picture in section.pictures}


def _format_count(count, noun):
    return f"{count} {noun}{'s' * (count != 1)}"


def _render(sections: Sequence[Section], **values: object) -> str:
    """Fill the template; every text is escaped, and becomes one line without control characters."""
    require_modules("report", ["jinja2"], "plot")
    from jinja2 import Environment
    from markupsafe import Markup, escape

    environment = Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else escape_line(str(value)),
    )
    # Names may break at underscores, so that numbers determine the width of columns.
    environment.filters["breakable"] = lambda text: escape(escape_line(text)).replace("_", Markup("_<wbr>"))
    template = TEMPLATE.read_text(encoding="utf-8")
    # The page's policy allows this script and no other one.
    (script,) = re.findall("<script>(.*?)</script>", template, re.DOTALL)
    return environment.from_string(template).render(
        values,
        sections=sections,
        script_digest=f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
        svg=lambda picture: Markup(base64.b64encode(style.encode_figure(picture.figure, "svg")).decode()),
    )


def write_report(text: str, drawn: "dict[str, Figure]", path: Path) -> Path:
    """Write the page and its figures, each atomically; return the folder of the figures."""
    folder = path.with_name(f"{path.stem}_figures")
    files.check_write_target(folder, folder=True)
    files.write_atomic(path, text.encode())
    files.make_folder(folder)
    for name, figure in drawn.items():
        for kind in KINDS:
            files.write_atomic(folder / f"{name}.{kind}", style.encode_figure(figure, kind))
    return folder
