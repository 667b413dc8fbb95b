"""Device time of finished runs on a fleet, without training.

A round that waits for all clients takes as long as its slowest one. Cohorts and levels are functions of (seed, round),
so the recipe, the split and the costs in a run folder suffice.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.files import Damaged
from hetero_tf.data.partitions.partition import Partition
from hetero_tf.planning.fleets.device_table import device_table
from hetero_tf.planning.plan import DevicePlan, Division, assign_levels, plan_devices
from hetero_tf.planning.selection import able_clients, pool_of, select_cohort
from hetero_tf.planning.timing import RETURNED, RoundClock, RoundTiming
from hetero_tf.recipe import Recipe
from hetero_tf.reports.summaries import active_clients
from hetero_tf.runs import facts, metrics_file
from hetero_tf.runs.history import RoundWork, Run
from hetero_tf.runs.run_folder import RunFolder

# A round is repeated at most once, with another cohort.
ATTEMPTS = 2


class NotComputable(Exception):
    """The device times of a run cannot be computed; the message has the reason."""


def time_runs(runs: Sequence[Run], fleet: str) -> tuple[list[Run], list[str]]:
    """Return the runs with the times and energy of a fleet, and messages about runs that are left out."""
    timed, messages, may_be_absent = [], [], False
    for run in runs:
        try:
            recipe = recipe_on_fleet(run, fleet)
            timed.append(time_run(run, recipe))
            assert recipe.fleet is not None
            table = device_table(recipe.fleet)
            columns = table.columns["dropout"].any() or (table.columns["charging"] < 1).any()
            may_be_absent = may_be_absent or bool(columns or any(table.windows))
        except NotComputable as reason:
            messages.append(f"left out: {run.folder}, --fleet cannot time it: {reason}")
    if not timed:
        raise InputError(f"no run can be timed. Received: {'; '.join(messages)}")
    if may_be_absent:
        messages.append(
            "note: all clients of these runs returned, so dropout, hours and charging of --fleet do not count"
        )
    return timed, messages


def recipe_on_fleet(run: Run, fleet: str) -> Recipe:
    """Return the recipe of a run with a fleet.

    Raises:
        NotComputable: The rounds of the run do not wait for all clients, or depend on its own fleet or on results.
        InputError: The fleet is invalid or does not fit the recipe.
    """
    folder = RunFolder(Path(run.folder))
    try:
        recipe = facts.load_recipe(folder)
    except InputError as error:
        raise NotComputable("its recipe needs plug-in modules") from error
    if recipe.round.policy.name != "wait":
        raise NotComputable(f"its rounds do not wait for all clients (round.policy: {recipe.round.policy.name})")
    if recipe.round.selection.name != "uniform":
        raise NotComputable(f"its clients were not chosen uniformly (round.selection: {recipe.round.selection.name})")
    if recipe.levels.fit == "device":
        raise NotComputable("its levels depend on its own fleet (levels.fit: device)")
    if any(row.get(name) for row in run.rows for name in ("dropped", "late")):
        raise NotComputable("clients of it dropped out or were late")
    return facts.load_recipe(folder, [f"fleet={fleet}"])


def time_run(run: Run, recipe: Recipe) -> Run:
    """Return a run whose rows and timeline have the times and energy of the fleet of a recipe.

    Raises:
        NotComputable: The folder lacks data, or the clients of a round cannot be computed.
    """
    work, sizes = _work_and_sizes(recipe, run)
    of_levels = work.levels.values()
    down, up = (np.asarray([getattr(level, f"bytes_{way}") for level in of_levels]) for way in ("down", "up"))
    stages = max(len(level.train_flops) for level in of_levels)
    flops = np.asarray([np.pad(level.train_flops, (0, stages - len(level.train_flops))) for level in of_levels])
    clock = RoundClock(recipe, len(sizes), down, up, flops)
    rows, timeline, seconds, energy = [], [], 0.0, 0.0
    for index, row in enumerate(run.rows):
        if row["round"] != index + 1:
            raise NotComputable(f"its metrics lack round {index + 1}")
        plan = _plan(recipe, work, sizes, row)
        times = clock.times(index, plan.clients, plan.levels, plan.steps, plan.stage_examples)
        kinds = clock.devices(index, plan.clients, plan.levels).kind
        end, statuses = float(times.total.max()), (RETURNED,) * len(kinds)
        timing = RoundTiming(plan.clients, kinds, plan.levels, plan.steps, statuses, times, end)
        metrics = timing.metrics()
        if index < metrics_file.MOST_ROUNDS:
            timeline.append(metrics_file.timeline_row(clock.fleet.devices, work.levels, index + 1, seconds, timing))
        seconds, energy = seconds + timing.seconds, energy + float(timing.times.energy.sum())
        rows.append({**row, **metrics, "device_seconds": seconds, "energy": energy})
    return dataclasses.replace(run, rows=rows, timeline=timeline)


def _work_and_sizes(recipe: Recipe, run: Run) -> tuple[RoundWork, np.ndarray]:
    folder = RunFolder(Path(run.folder))
    if not run.costs:
        raise NotComputable("it has no costs.json, which resuming the training adds")
    work = run.costs.round
    if len(work.levels) != len(recipe.levels.names):
        raise Damaged(f"{folder.costs}: does not have the levels of the recipe; delete it")
    if folder.partition.exists():
        return work, np.asarray(Partition.load(folder.partition).train.sizes)
    # Without a split: equal numbers of examples of all clients, from the operations that the run has counted.
    names, clients = recipe.levels.names, recipe.partition.options.get("clients")
    counts = np.asarray([[active_clients(row).get(name, 0) for name in names] for row in run.rows])
    flops = [sum(level.train_flops) for level in work.levels.values()]
    total = (counts * flops * [recipe.client.epochs_of(name) for name in names]).sum()
    if clients is None or not total or not all("train_flops" in row for row in run.rows):
        raise NotComputable("it has no partition.npz")
    return work, np.full(clients, round(sum(row["train_flops"] for row in run.rows) / total))


def _plan(recipe: Recipe, work: RoundWork, sizes: np.ndarray, row: dict) -> DevicePlan:
    """Return the plan of the round of a row; its clients are those of the first or the repeated cohort."""
    seed, index, levels = recipe.seed, row["round"] - 1, recipe.levels
    able = able_clients(levels, len(sizes), seed, index)
    for attempt in range(ATTEMPTS):
        cohort = select_cohort(recipe, pool_of(able, index), recipe.round.clients, attempt).ids
        assigned = assign_levels(levels, len(sizes), seed, index, cohort)
        counts = np.bincount(assigned, minlength=len(levels.names)).tolist()
        if dict(zip(levels.names, counts)) == active_clients(row):
            stages = tuple(len(level.train_flops) for level in work.levels.values())
            division = Division(stages, work.draws_stages)
            return plan_devices(
                recipe, sizes[cohort], range(work.reads), division, index, cohort.tolist(), assigned.tolist()
            )
    raise NotComputable(f"its clients of round {index + 1} were chosen in another way")
