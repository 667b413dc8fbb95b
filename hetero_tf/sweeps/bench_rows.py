"""Rows of benchmarks: small files with the recipe and the results of the runs that differ only in their seed.

A row is JSON without paths, hosts and users, so that another person can train its runs again and compare the results.
"""

import dataclasses
import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from hetero_tf.base import files, typed_json
from hetero_tf.base.constraints import Range, Text
from hetero_tf.base.errors import InputError, UserError, shorten_repr
from hetero_tf.base.typed_json import Natural, NonNegative
from hetero_tf.recipe import Recipe, keys_of, loads
from hetero_tf.runs import environment, facts, metrics_file
from hetero_tf.runs.run_folder import RunFolder
from hetero_tf.sweeps.definition import SweepFolder, SweepRun
from hetero_tf.sweeps.pool import read_progress

EVALUATIONS = ("best", "last")
# A band is the mean over the seeds plus and minus this number of standard deviations.
DEVIATIONS = 3
# Totals of all clients and rounds, which a round has as its own values.
ROUND_SUMS = ("bytes_down", "bytes_up", "train_flops")

Name = Annotated[str, Text(pattern=r"[^/\x00-\x1f.][^/\x00-\x1f]{0,199}")]
Metrics = dict[str, Annotated[float, Range(low=-1e100, high=1e100)] | None]
Band = tuple[float, float]


@dataclass(frozen=True)
class SeedResult:
    """Results of the run with one seed.

    Attributes:
        metrics_sha256: Digest of its `metrics.jsonl`.
        best, last: Metrics of the best and of the last evaluation, with their "round".
        totals: `ROUND_SUMS`, and with a fleet "device_seconds" and "energy" in joules.
        environment: The entries of `environment_entries` in which the seeds of the row differ.
    """

    seed: Natural
    rounds: Natural
    metrics_sha256: str
    best: Metrics
    last: Metrics
    totals: dict[str, NonNegative]
    environment: dict[str, Any]


@dataclass(frozen=True)
class Row:
    """Content of the file of a row.

    Attributes:
        sweep, name: Names of the sweep, and of the run folders without their seed.
        recipe: Text of `recipe.yaml` without its seed.
        environment: The entries of `environment_entries` that all seeds share.
        band: See `compute_bands`.
    """

    format: Literal[1]
    sweep: Name
    name: Name
    recipe: str
    recipe_sha256: str
    environment: dict[str, Any]
    band: dict[str, dict[str, Band]]
    runs: tuple[SeedResult, ...]

    def __post_init__(self):
        if not self.runs:
            raise ValueError("runs must have a seed")
        if self.recipe_sha256 != _sha256(self.recipe):
            raise ValueError("recipe does not fit recipe_sha256: the text was changed")
        if self.band != compute_bands(self.runs):
            raise ValueError("band does not fit the values of best and last: a number was changed")

    def load_recipe(self, seed: int) -> Recipe:
        """Return the recipe of a seed; the error about one that cannot be loaded has the version that wrote it."""
        try:
            return loads(self.recipe, "recipe", [f"seed={seed}"])
        except InputError as error:
            writer, plugins = (self.environment.get(key) for key in ("hetero_tf", "plugins"))
            needs = f" with {shorten_repr(plugins)} of --plugin" if plugins else ""
            text = f"its recipe, of hetero_tf {shorten_repr(writer, 20)}{needs}, cannot be loaded: {error}"
            raise InputError(text) from error


def compute_bands(runs: Sequence[SeedResult]) -> dict[str, dict[str, Band]]:
    """Return `{"best" or "last": {metric: (low, high)}}`: the mean over the seeds ± three standard deviations.

    The standard deviation is that of a sample (divisor n - 1), so a row of one seed has no bands.
    """
    bands: dict[str, dict[str, Band]] = {}
    for name in EVALUATIONS:
        evaluations = [getattr(run, name) for run in runs]
        values = {metric: [each.get(metric) for each in evaluations] for metric in evaluations[0] if metric != "round"}
        bands[name] = {key: _band(each) for key, each in values.items() if len(each) > 1 and None not in each}
    return bands


def _band(values):
    # `statistics.stdev` is rounded differently since Python 3.11; the check of a row needs one value everywhere.
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) * (value - mean) for value in values) / (len(values) - 1)
    return mean - DEVIATIONS * math.sqrt(variance), mean + DEVIATIONS * math.sqrt(variance)


def _sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def read_row(path: Path) -> Row:
    """Read the file of a row.

    Raises:
        Damaged: The file is not a row, or its values do not fit each other.
    """
    return typed_json.read(Row, path, "; restore the file")


def write_row(row: Row, path: Path) -> bool:
    """Write the file of a row; return False if it exists with the same content, which is then not written again."""
    content = json.dumps(dataclasses.asdict(row), indent=1, allow_nan=False, ensure_ascii=False).encode() + b"\n"
    typed_json.from_json(Row, typed_json.parse(content, path), path)
    if os.path.lexists(path) and files.read_bytes(path, typed_json.LIMIT) == content:
        return False
    with files.disk_errors(path.parent, "create"):
        path.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomic(path, content)
    return True


def collect_rows(folder: SweepFolder, sweep: str) -> tuple[list[Row], dict[str, str]]:
    """Return a row for each group of runs that differ only in their seed.

    Returns:
        The rows, and the reason of each group that has none, such as an unfinished seed, by the name of the group.
    """
    groups: dict[str, list[SweepRun]] = {}
    for run in folder.stored_runs():
        groups.setdefault(_without_seed(run.recipe.source), []).append(run)
    rows: list[Row] = []
    reasons: dict[str, str] = {}
    for runs in groups.values():
        name = _group_name(runs[0])
        if name in {*reasons, *(row.name for row in rows)}:
            raise InputError(f"{folder.path}: two recipes have runs of the name {name}; rename one of them in the list")
        try:
            rows.append(_build_row(sweep, name, [(run, folder.path / run.name) for run in runs]))
        except UserError as problem:
            reasons[name] = str(problem)
    return rows, reasons


def _group_name(run: SweepRun) -> str:
    """Return the name of a run folder without its seed; a shortened name, which ends with a digest, may have none."""
    return re.sub(rf"(^|-)seed={run.recipe.seed}(?=-|$)", "", run.name).strip("-") or run.recipe.name


def _without_seed(text):
    return re.sub(r"^seed: -?\d+\n", "", text, count=1, flags=re.MULTILINE)


def _build_row(sweep, name, runs):
    results: list[SeedResult] = []
    texts: dict[str, None] = {}
    for run, folder in runs:
        done, is_finished, _ = read_progress(run, folder, 0)
        if not is_finished:
            raise InputError(f"seed {run.recipe.seed} has {done} of {run.recipe.rounds} rounds")
        result, text = read_result(folder, run.recipe.seed)
        results.append(result)
        texts[text] = None
    recipe, *others = texts
    if others:
        raise InputError("its seeds have different recipes, such as another number of rounds")
    for key, value in keys_of(recipe).items():
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, str) and os.path.isabs(path):
                raise InputError(f"a row may not contain an absolute path. Received: {key}={path}")
    entries = [result.environment for result in results]
    shared = {key: value for key, value in entries[0].items() if all(each.get(key) == value for each in entries)}
    results = [
        dataclasses.replace(result, environment={key: each[key] for key in each if key not in shared})
        for result, each in zip(results, entries)
    ]
    return Row(1, sweep, name, recipe, _sha256(recipe), shared, compute_bands(results), tuple(results))


def read_result(folder: Path, seed: int) -> tuple[SeedResult, str]:
    """Return the results of the newest round of a run, with its whole environment, and its recipe without seed."""
    run = RunFolder(folder)
    info, rows = facts.newest(run, with_arrays=False), metrics_file.rows(run.metrics)
    if info is None or len(rows) < info["round"]:
        raise InputError(f"{folder}: has no metrics of all its rounds")
    totals = {name: sum(row.get(name, 0) for row in rows) for name in ROUND_SUMS}
    totals |= {name: value for name, value in info["totals"].items() if name != "bytes"}
    digest, entries = info["metrics"]["sha256"], environment_entries(info["environment"])
    result = SeedResult(seed, info["round"], digest, info["best"], info["last"], totals, entries)
    return result, _without_seed(info["recipe"])


def environment_entries(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of `environment.json` that affect results, flat; and hetero_tf, its source and Python."""
    entries = {"hetero_tf": stored["versions"].get("hetero_tf"), "source": stored.get("source")}
    entries |= {"python": stored.get("python")}
    entries |= {key: stored[key] for key in ("platform", "plugins") if stored.get(key)}
    return entries | environment.decisive(dict(stored))


@dataclass(frozen=True)
class MetricDifference:
    """A metric whose value differs between a row and a replay; `band` is None for a row of one seed."""

    evaluation: str
    metric: str
    row: float | None
    replay: float | None
    band: Band | None

    @property
    def is_within(self) -> bool:
        """True if the value of the replay is in the band."""
        return self.band is not None and self.replay is not None and self.band[0] <= self.replay <= self.band[1]


def compare(row: Row, expected: SeedResult, replay: SeedResult) -> tuple[bool, list[MetricDifference], list[str]]:
    """Compare a replay with the result of its seed in a row.

    Returns:
        True if all metrics of all rounds are equal, bit for bit, and those in the row are theirs; the metrics of the
        best and the last evaluation that differ, in equal runs also totals; and the entries of the environment that
        differ, such as "numpy was '2.3.0', is '2.4.1'".
    """
    metrics: list[MetricDifference] = []
    is_equal = replay.metrics_sha256 == expected.metrics_sha256
    # The last evaluation is often the best one. Totals follow from the rows of all rounds.
    is_last = (expected.best, replay.best) == (expected.last, replay.last)
    for name in (*EVALUATIONS[is_last:], *["totals"] * is_equal):
        before, now = getattr(expected, name), getattr(replay, name)
        metrics += [
            MetricDifference(name, metric, before.get(metric), now.get(metric), row.band.get(name, {}).get(metric))
            for metric in sorted((before.keys() | now.keys()) - {"round"})
            if before.get(metric) != now.get(metric)
        ]
    differences = environment.differences(row.environment | expected.environment, replay.environment)
    return is_equal and not metrics, metrics, differences
