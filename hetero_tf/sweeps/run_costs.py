"""Costs of the runs of a sweep, from their models and the shapes of their data; nothing is trained or downloaded."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetero_tf.base import registry
from hetero_tf.base.console import format_table
from hetero_tf.base.errors import InputError
from hetero_tf.base.units import format_bytes, format_count
from hetero_tf.data import Dataset, NotAvailable
from hetero_tf.recipe import Recipe
from hetero_tf.run.data import load_data, split
from hetero_tf.sweeps.expansion import SweepRun
from hetero_tf.sweeps.time_estimate import UNTIMED_KEYS

_MIX = re.compile(r" mix: \{[^{}]*\},")


@dataclass(frozen=True)
class RunCosts:
    """Costs of a run, expected over the clients of its mix.

    Attributes:
        parameters: Trainable values of a client.
        multiply_adds: Products of a client's forward pass of one example.
        bytes_down, bytes_up: Bytes that a client receives and sends in a round.
        bytes: Bytes that all clients receive and send in all rounds.
    """

    parameters: float
    multiply_adds: float
    bytes_down: float
    bytes_up: float
    bytes: float


class CostTable:
    """Computes the costs of runs; runs whose models are equal share those of their levels.

    Args:
        data_dir: Folder of the data, or None.
        notify: Prints a note about missing data.
    """

    def __init__(self, data_dir: Path | None, notify: Callable[[str], None]):
        self._data_dir, self._notify = data_dir, notify
        self._datasets: dict[str, Dataset | None] = {}
        self._notes: set[str] = set()
        self._levels: dict[tuple[str, str], Any] = {}

    def costs_of(self, run: SweepRun) -> RunCosts | None:
        """Return the costs of a run; None if its data are missing and those that replace them do not suffice.

        Raises:
            InputError: The data or the model are invalid.
        """
        recipe, shares = run.recipe, run.recipe.levels.divided(1.0)
        key = _MIX.sub("", "\n".join(line for line in recipe.source.splitlines() if not line.startswith(UNTIMED_KEYS)))
        if not all((key, level) in self._levels for level in shares):
            dataset = self._dataset(recipe)
            if dataset is None:
                return None
            try:
                self._levels |= {(key, level): cost for level, cost in _level_costs(recipe, dataset).items()}
            except InputError as error:
                if dataset.stand_in_for is None:
                    raise
                self._note(f"note: no costs of some runs without {dataset.stand_in_for}: {error}")
                return None

        def mean(name):
            return sum(share * getattr(self._levels[key, level], name) for level, share in shares.items())

        down, up = mean("bytes_down"), mean("bytes_up")
        total = recipe.rounds * recipe.round.clients * (down + up)
        return RunCosts(mean("parameters"), mean("multiply_adds"), down, up, total)

    def _note(self, text):
        """Print a note that was not printed before."""
        if text not in self._notes:
            self._notes.add(text)
            self._notify(text)

    def _dataset(self, recipe):
        """Return the data of a recipe without downloading them; None if they are missing."""
        key = repr((recipe.data, recipe.targets))
        if key not in self._datasets:
            try:
                dataset = load_data(_without_download(recipe), self._data_dir)
                if dataset.stand_in_for is not None:
                    self._notify(f"note: {dataset.stand_in_for} is not on this machine; costs are for {dataset.source}")
            except NotAvailable as error:
                self._notify(f"note: no costs without the data: {error}")
                dataset = None
            self._datasets[key] = dataset
        return self._datasets[key]


def _without_download(recipe: Recipe) -> Recipe:
    loader = recipe.data.loader
    if "download" not in inspect.signature(registry.find("data", loader.name).load).parameters:
        return recipe
    loader = dataclasses.replace(loader, options={**loader.options, "download": False})
    return dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, loader=loader))


def _level_costs(recipe, dataset):
    """Return `{level: LevelCost}` of the levels of the mix."""
    from hetero_tf.run.learning_process import learning_process

    # Costs do not depend on the engine, and models of several clients take more than half of the time to build.
    recipe = dataclasses.replace(recipe, engine="sequential")
    process = learning_process(recipe, dataset, split(recipe, dataset), parallel=1, device="cpu")
    return process.costs_of(process.recipe.levels.names)


def to_text(
    runs: Sequence[SweepRun], costs: dict[str, RunCosts | None], published: dict[str, str] | None = None
) -> str:
    """Return an aligned table of all runs; `published` has the values of papers by name of the run."""
    heads = ("run", "rounds", "parameters", "multiply-adds", "traffic/client/round", "traffic")
    rows: list[tuple[str, ...]] = [heads + (("published",) if published else ())]
    for run in runs:
        cost, cells = costs[run.name], ["-"] * 4
        if cost is not None:
            cells = [format_count(cost.parameters), format_count(cost.multiply_adds)]
            cells += [format_bytes(cost.bytes_down + cost.bytes_up), format_bytes(cost.bytes)]
        cells += [published.get(run.name, "-")] if published else []
        rows.append((run.name, f"{run.recipe.rounds}", *cells))
    return format_table(rows)


def to_json(runs: Sequence[SweepRun], costs: dict[str, RunCosts | None]) -> dict:
    """Return {"runs": [{"name", "recipe", "overrides", and those of `RunCosts` or null}], "bytes"}, ready for JSON."""
    return {
        "runs": [
            {"name": run.name, "recipe": run.path, "overrides": list(run.overrides)}
            | {field.name: getattr(costs[run.name], field.name, None) for field in dataclasses.fields(RunCosts)}
            for run in runs
        ],
        "bytes": sum(cost.bytes for cost in costs.values() if cost is not None),
    }
