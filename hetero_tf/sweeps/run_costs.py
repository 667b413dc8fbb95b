"""Costs of the runs of a sweep, from their models and the shapes of their data; nothing is trained or downloaded."""

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from hetero_tf.base import registry
from hetero_tf.base.console import format_duration, format_table
from hetero_tf.base.errors import InputError
from hetero_tf.base.formatting import format_bytes, format_count
from hetero_tf.data import Dataset, NotAvailable
from hetero_tf.run.data import load_data, split
from hetero_tf.runs import metrics_file
from hetero_tf.runs.published import PublishedValue
from hetero_tf.runs.run_folder import RunFolder
from hetero_tf.sweeps.definition import SweepFolder, SweepRun

# Keys that do not affect the costs of a client, as line prefixes of the resolved recipe.
_FREE_KEYS = ("name:", "seed:", "optimizer:", "schedule:", "rounds:", "checkpoint:")
_MIX = re.compile(r" mix: \{[^{}]*\},")
# Costs of a client, expected over its levels.
COSTS = ("parameters", "multiply_adds", "bytes_down", "bytes_up")


class CostTable:
    """Computes the costs of runs; runs whose models are equal share those of their levels."""

    def __init__(self, data_dir: Path | None, notify: Callable[[str], None]):
        self._data_dir, self._notify, self._notify_once = data_dir, notify, functools.cache(notify)
        self._datasets: dict[str, Dataset | None] = {}
        self._levels: dict[tuple[str, str], Any] = {}

    def costs_of(self, run: SweepRun) -> dict[str, float] | None:
        """Return `COSTS` and the "bytes" of all clients and rounds of a run.

        None if its data are missing and those that replace them do not suffice.
        """
        recipe, shares = run.recipe, run.recipe.levels.divided(1.0)
        key = _MIX.sub("", "\n".join(line for line in recipe.source.splitlines() if not line.startswith(_FREE_KEYS)))
        if not all((key, level) in self._levels for level in shares):
            if (dataset := self._dataset(recipe)) is None:
                return None
            try:
                self._levels |= {(key, level): cost for level, cost in _level_costs(recipe, dataset).items()}
            except InputError as error:
                if dataset.stand_in_for is None:
                    raise
                self._notify_once(f"note: no costs of some runs without {dataset.stand_in_for}: {error}")
                return None
        costs = {
            name: sum(share * getattr(self._levels[key, level], name) for level, share in shares.items())
            for name in COSTS
        }
        return costs | {"bytes": recipe.rounds * recipe.round.clients * (costs["bytes_down"] + costs["bytes_up"])}

    def _dataset(self, recipe):
        """Return the data of a recipe without downloading them; None if they are missing."""
        key, loader = repr((recipe.data, recipe.targets)), recipe.data.loader
        if key not in self._datasets:
            if "download" in inspect.signature(registry.find("data", loader.name).load).parameters:
                loader = dataclasses.replace(loader, options={**loader.options, "download": False})
            recipe = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, loader=loader))
            try:
                dataset = load_data(recipe, self._data_dir)
                if dataset.stand_in_for is not None:
                    source = dataset.source.partition(", standing in for")[0]
                    self._notify(f"note: {dataset.stand_in_for} is not on this machine; costs are for {source}")
            except NotAvailable as error:
                self._notify(f"note: no costs without the data: {error}")
                dataset = None
            self._datasets[key] = dataset
        return self._datasets[key]


def _level_costs(recipe, dataset):
    from hetero_tf.run.learning_process import learning_process

    # Costs do not depend on the engine, and models of several clients take more than half of the time to build.
    recipe = dataclasses.replace(recipe, engine="sequential")
    process = learning_process(recipe, dataset, split(recipe, dataset), parallel=1, device="cpu")
    return process.costs_of(process.recipe.levels.names)


def expected_seconds(runs: Sequence[SweepRun], folder: SweepFolder) -> dict[str, float]:
    """Return `{run: seconds of all its rounds}` from the rounds that runs have finished; empty if there are none.

    A round of a run that has finished none counts as the mean of the others.
    """
    known = {}
    for run in runs:
        if rows := metrics_file.rows(RunFolder(folder.path / run.name).timings):
            known[run.name] = sum(row["seconds"] + row["measuring_seconds"] for row in rows) / rows[-1]["round"]
    return {run.name: run.recipe.rounds * (known.get(run.name) or fmean(known.values())) for run in runs if known}


def to_text(costs: Sequence[dict]) -> str:
    """Return an aligned table of the output of `to_json` for each run."""
    heads = (("seconds", "time"), ("published", "published"))
    more = {key: head for key, head in heads if any(run[key] for run in costs)}
    rows: list[tuple[str, ...]] = [
        ("run", "rounds", "parameters", "multiply-adds", "traffic/client/round", "traffic", *more.values())
    ]
    for run in costs:
        cells = ["-"] * 4
        if run["bytes"] is not None:
            cells = [format_count(run["parameters"]), format_count(run["multiply_adds"])]
            cells += [format_bytes(run["bytes_down"] + run["bytes_up"]), format_bytes(run["bytes"])]
        last = {"seconds": format_duration(run["seconds"] or 0)}
        last["published"] = ", ".join(f"{value['value']:g} {value['metric']}" for value in run["published"]) or "-"
        rows.append((run["name"], f"{run['rounds']}", *cells, *(last[key] for key in more)))
    return format_table(rows)


def to_json(
    run: SweepRun, costs: dict[str, float] | None, seconds: float | None, published: Sequence[PublishedValue]
) -> dict:
    """Return the costs of a run, ready for JSON; those of missing data are None."""
    return {
        **{"name": run.name, "recipe": run.path, "overrides": list(run.overrides), "rounds": run.recipe.rounds},
        **(costs or dict.fromkeys((*COSTS, "bytes"))),
        "seconds": seconds,
        "published": [value.to_json() for value in published],
    }
