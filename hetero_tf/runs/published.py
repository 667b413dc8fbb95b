"""Results reported by papers and ports, and the runs that match them.

`published.csv` has the cells of their tables. `published_runs.csv`, which `benchmarks/papers.py` writes, has the
runs of each cell: recipe, overrides, and the fingerprint of all keys that decide the result. A run matches a cell if
each such key agrees. A cell has several runs if the paper does not say which one it prints.

A user file is a list of tables. Each has a `name`, a `source` (paper and table), a short `setting`, the `recipe` keys
that a run must have (`{dotted key: value}`), and `rows`: a name, more keys in `recipe`, and values by metric name.
"""

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hetero_tf.base import files, registry
from hetero_tf.base.constraints import Plugin, walk_keys
from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.recipe.nodes import dotted
from hetero_tf.recipe.recipe_files import PLUGINS
from hetero_tf.recipe.schema import Recipe
from hetero_tf.runs.history import MIX, read

CELLS, RUNS = (Path(__file__).with_name(name) for name in ("published.csv", "published_runs.csv"))
# First part of the name of a table -> source.
PAPERS = {
    "heterofl": "HeteroFL (Diao et al. 2021, arXiv 2010.01264)",
    "fedepth": "FeDepth (Zhang et al. 2023, arXiv 2303.04887)",
    "flower-heterofl": "Flower's port of HeteroFL (baselines/heterofl, README)",
    "lg-fedavg": "LG-FedAvg (Liang et al. 2020, arXiv 2001.01523)",
}
# Tables of other programs; a run that a paper prints too is shown next to the paper.
PORTS = frozenset({"flower-heterofl"})
# Keys that decide no result. Which rounds are evaluated is not part of a setting either.
IGNORED_KEYS = frozenset(
    ("name", "seed", "data.download", "data.fallback", "engine", "precision", "checkpoint.every", "checkpoint.keep")
    + ("evaluate.every", "evaluate.batch_size", "evaluate.metrics", "evaluate.levels", "evaluate.best")
)


@dataclass(frozen=True)
class PublishedValue:
    """One number of a table.

    Attributes:
        name: "TABLE/ROW".
        spread: Standard deviation that the table prints, or None.
        runs: `{fingerprint: note}` of the matching runs; the note is added to the setting.
    """

    name: str
    metric: str
    value: float
    source: str
    setting: str
    spread: float | None = None
    runs: Mapping[str, str] = field(default_factory=dict)

    @property
    def table(self) -> str:
        """Name of the table."""
        return self.name.partition("/")[0]

    def to_json(self) -> dict:
        """Return all fields except those that select runs."""
        return {name: getattr(self, name) for name in ("name", "metric", "value", "source", "setting", "spread")}


def fingerprint(keys: Mapping[str, object]) -> str:
    """Return a digest of the keys of a resolved recipe that decide its result.

    Args:
        keys: See `Run.keys`. Keys with their default count as absent, so a new key changes no digest. The path of
            initial weights does not count, nor does the assignment of a single level.
    """
    defaults = defaults_of(keys)
    deciding = {
        key: value
        for key, value in keys.items()
        if key not in IGNORED_KEYS and (key not in defaults or value != defaults[key])
    }
    if "model.initial_weights" in deciding:
        deciding["model.initial_weights"] = "a file"
    if "-" not in str(keys[MIX]):
        deciding.pop("levels.assignment", None)
    return hashlib.sha256(repr(sorted(deciding.items())).encode()).hexdigest()[:16]


def defaults_of(keys: Mapping[str, object]) -> dict[str, object]:
    """Return the default of each key of the schema that has one, and of each option of the plug-ins of a recipe."""
    defaults = {dotted(path): option.default for path, option in walk_keys(Recipe)}
    for path, option in PLUGINS.items():
        kind, section = option.constraint.kind, dotted(path)
        if isinstance(option.default, Plugin):
            defaults[f"{section}.name"] = option.default.name
        name = keys.get(f"{section}.name", defaults.get(f"{section}.name"))
        if name in registry.names(kind):
            defaults |= {f"{section}.{each.name}": each.default for each in registry.options(kind, name).values()}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in defaults.items()}


def read_published() -> list[PublishedValue]:
    """Read the shipped values; a cell that two tables print is a value of each."""
    runs: dict[tuple[str, str], dict[str, str]] = {}
    for run in files.read_rows(RUNS):
        runs.setdefault((run["setting"], run["row"]), {})[run["fingerprint"]] = run["note"]
    values = []
    for cell in files.read_rows(CELLS):
        setting, row, tables = cell["setting"], cell["row"], cell["tables"].split()
        papers, parts = zip(*(table.partition("_")[::2] for table in tables))
        source = ", ".join([PAPERS[papers[0]], *(part.replace("table", "Table ") for part in parts if part)])
        spread, cell_runs = float(cell["spread"]) if cell["spread"] else None, runs.get((setting, row), {})
        for table in tables:
            number = float(cell["value"])
            values.append(PublishedValue(f"{table}/{row}", cell["metric"], number, source, setting, spread, cell_runs))
    return values


def select_published(names: Sequence[str]) -> tuple[list[PublishedValue], list[PublishedValue]]:
    """Return all known values, and the requested ones, which are always shown.

    Args:
        names: Requested tables or rows ("TABLE", "TABLE/ROW").

    Raises:
        InputError: No table or row has a name.
    """
    values, requested = read_published(), []
    for name in names:
        matches = [value for value in values if name in (value.name, value.table)]
        if not matches:
            known = {part for value in values for part in (value.name, value.table)}
            raise InputError(f"no published table or row has that name{did_you_mean(name, known)} Received: {name}")
        requested += matches
    return values, requested


def matching_values(
    values: Iterable[PublishedValue], keys: Mapping[str, object], metrics: Sequence[str] | None = None
) -> list[PublishedValue]:
    """Return the values that match the keys of a run, those of two tables once."""
    digest, matches = fingerprint(keys), dict[tuple, PublishedValue]()
    for value in values:
        if (metrics is None or value.metric in metrics) and digest in value.runs:
            note = value.runs.get(digest)
            setting = f"{value.setting}; {note}" if note else value.setting
            matches.setdefault(
                (value.source, setting, value.metric, value.value), dataclasses.replace(value, setting=setting)
            )
    return list(matches.values())


def describe_values_of(run_dir: Path) -> list[str]:
    """Return a line for each value that a paper reports for the recipe of a run."""
    run = read(run_dir)
    values = [] if run is None else matching_values(read_published(), run.keys, tuple(run.rows[-1]))
    return [f"published: {value.metric} {value.value:g} ({value.source}: {value.setting})" for value in values]


def in_order_of_table(
    values: Sequence[PublishedValue], keys_of_runs: Mapping[str, Mapping[str, object]]
) -> dict[str, list[PublishedValue]]:
    """Return the values of each run, in the order of the paper's table that prints most of the runs.

    A run that this table does not print has its values of other tables, and follows the others. A table of a port is
    selected only if no paper prints one of the runs.
    """
    digests = {name: fingerprint(keys) for name, keys in keys_of_runs.items()}
    tables = Counter(
        table for digest in digests.values() for table in {value.table for value in values if digest in value.runs}
    )
    sizes = Counter(value.table for value in values)
    main = max(
        sizes, key=lambda table: (tables[table] > 0 and table not in PORTS, tables[table], -sizes[table]), default=None
    )
    printed = [value for value in values if value.table == main]
    ordered = {}
    for name, keys in keys_of_runs.items():
        position = next((index for index, value in enumerate(printed) if digests[name] in value.runs), len(printed))
        ordered[name] = position, matching_values(printed if position < len(printed) else values, keys)
    return {name: matches for name, (_, matches) in sorted(ordered.items(), key=lambda item: item[1][0])}


def missing_cells(
    values: Sequence[PublishedValue], keys_of_runs: Iterable[Mapping[str, object]], tables: Iterable[str] = ()
) -> list[str]:
    """List the cells without a run, a sentence for each of `tables` and each table of which half the cells have one."""
    digests, sentences = {fingerprint(keys) for keys in keys_of_runs}, []
    for table in dict.fromkeys(value.table for value in values if value.runs or value.table in tables):
        cells = [value for value in values if value.table == table]
        missing = [value for value in cells if digests.isdisjoint(value.runs)]
        if table in tables or len(missing) * 2 <= len(cells):
            rows: dict[str, dict[str, None]] = {}
            for value in missing:
                rows.setdefault(value.setting, {})[value.name.removeprefix(f"{table}/")] = None
            listed = "; ".join(f"{setting}: {', '.join(names)}" for setting, names in rows.items())
            count = len(cells) - len(missing)
            sentences.append(f"{table}: {count} of {len(cells)} cells{f'; missing: {listed}' if listed else ''}")
    return sentences
