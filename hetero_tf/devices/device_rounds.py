"""Rounds whose clients are devices, with the simulator's cut, merge and server."""

import dataclasses
import functools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from hetero_tf.base import files
from hetero_tf.base.errors import TooFewDevices
from hetero_tf.devices.device_index import check_deployable, coverage_of, transfer_of
from hetero_tf.devices.measured_fleet import MeasuredFleet
from hetero_tf.devices.messages import (
    ITS_LEVEL,
    NARROWER_LEVELS,
    Message,
    Refused,
    gather,
    number,
    parse_arrays,
    parse_seconds,
    scatter,
    shapes_of,
)
from hetero_tf.devices.waiting import WaitingFleet
from hetero_tf.models.state import State
from hetero_tf.planning.plan import DevicePlan, Plan, plan_devices
from hetero_tf.planning.selection import pool_of, select_cohort
from hetero_tf.rounds.merge import is_finite, merge_updates
from hetero_tf.run.federation import FAILURE, OVERFLOW, Federation, RoundFailure
from hetero_tf.run.learning_process import LearningProcess


@dataclass(frozen=True)
class Result:
    """Result of a device in a round: its values by path, the means over its steps, and their seconds if reported."""

    values: dict[str, np.ndarray]
    loss: float
    gradient_norm: float
    seconds: float | None


@dataclass(frozen=True)
class Selection:
    """Number of devices that a round selects, and number of results that it needs.

    Attributes:
        over_selection: Share of `round.clients` selected in addition, to replace devices that do not return in time.
        quorum: Share of `round.clients` whose results a round needs; at least one result.
    """

    over_selection: float = 0.0
    quorum: float = 0.0

    def cohort_size(self, clients: int) -> int:
        """Return the number of devices that a round of `round.clients` selects."""
        return math.ceil(clients * (1 + self.over_selection))

    def quorum_size(self, clients: int) -> int:
        """Return the number of results that a round of `round.clients` needs."""
        return max(math.ceil(clients * self.quorum), 1)


DEFAULT_SELECTION = Selection()


@dataclass(frozen=True)
class DeviceRounds:
    """The `RoundRunner` whose clients are devices. Create it with `deployed`.

    Attributes:
        fleet_file: Path of the fleet file with the times of the devices, see `measured_fleet`; None: not written.
    """

    federation: Federation
    fleet: WaitingFleet
    selection: Selection = DEFAULT_SELECTION
    fleet_file: Path | None = None
    # `{level: {path: float32 array}}` of the last query of each level.
    _newest_statistics: dict[str, dict[str, np.ndarray]] = field(default_factory=dict, init=False)
    _measured: MeasuredFleet = field(default_factory=MeasuredFleet, init=False)
    # A plan needs the devices that are connected when its round starts, and may wait for them.
    can_plan_ahead = False
    preparation = ("waiting for devices", None)

    def prepare(self) -> None:
        """Wait for the devices of a round. Devices trace their steps themselves."""
        self.fleet.members(self.federation.recipe.round.clients)

    def describe(self) -> list[str]:
        active = self.federation.recipe.round.clients
        return [f"clients: devices with local examples; {active} train in each round"]

    def plan(
        self, round: int, cohort: Sequence[int] | None = None, attempt: int = 0, state: State | None = None
    ) -> DevicePlan:
        """Plan a round of the connected devices; with all devices it equals the simulator's plan."""
        recipe, members = self.federation.recipe, self.fleet.members(self.federation.recipe.round.clients)
        if cohort is None:
            able = np.asarray(sorted(client for client in members if members[client].level not in recipe.levels.idle))
            count = min(self.selection.cohort_size(recipe.round.clients), len(able))
            cohort = select_cohort(recipe, pool_of(able, round), count, attempt).ids.tolist() if count else []
        return self._plan(round, {client: members[client] for client in cohort if client in members})

    def _plan(self, round, members):
        """The plan of some devices, given by client."""
        federation, names = self.federation, self.federation.recipe.levels.names
        return plan_devices(
            federation.recipe,
            [member.examples for member in members.values()],
            federation.batching.starts,
            federation.division,
            round,
            list(members),
            [names.index(member.level) for member in members.values()],
        )

    def run(self, state: State, planned: Sequence[Plan]) -> tuple[State, list[dict]]:
        """Run the planned rounds, see `RoundRunner.run`; rows also count "dropped" and "refused" devices.

        A round without a quorum of results, or whose merge overflows, fails and ends the call.
        """
        rows: list[dict] = []
        for plan in planned:
            state, row = self._run_round(state, plan)
            rows.append(row)
            if FAILURE in row:
                break
        return state, rows

    def count_examples(self, plan: Plan) -> np.ndarray:
        assert isinstance(plan, DevicePlan)
        counts, source, train = plan.stage_examples.sum(axis=1), self.federation.input, self.federation.dataset.train
        if train.y is None:
            lengths = [int(source.length(train.x, start)) for start in source.starts(train.x)]
            counts = counts * sum(lengths) // len(lengths)
        return np.where(plan.steps > 0, counts, 0)

    def _run_round(self, state, plan):
        """The state after one round, and its row of metrics; "round_seconds" are from the requests to the merge."""
        start = time.monotonic()
        # Read the fleet once: claims of a device must not change within a round.
        federation, members, names = self.federation, self.fleet.members(0), self.federation.recipe.levels.names
        levels = {client: names[level] for client, level in zip(plan.clients.tolist(), plan.levels.tolist())}
        cohort = {
            client: members[client]
            for client, level in levels.items()
            if client in members and members[client].level == level
        }
        rate = federation.learning_rate(state.round) * plan.rate_factor
        transfers = {
            client: transfer_of(federation, client, member.level, member.labels, state.round)
            for client, member in cohort.items()
        }
        values = {path: np.asarray(value) for path, value in state.weights.items()}
        requests = {
            client: Message(
                # The file of such a device needs the newest statistics of its level; there are none at first.
                gather(values, each.down)
                | (
                    self._newest_statistics.get(cohort[client].level, {})
                    if cohort[client].measures == ITS_LEVEL
                    else {}
                ),
                {"round": state.round, "learning_rate": rate},
            )
            for client, each in transfers.items()
        }
        note = f"round {state.round + 1}: client {{}} was refused"
        counted, refused = self._request(
            "training", requests, note, lambda client, response: self._parse_result(response, transfers[client].up)
        )
        device_plan = self._plan(state.round, cohort)
        row = self._row(device_plan, len(levels), rate, counted, refused)
        self._measure(levels, counted, device_plan)
        after, failure = self._merge(state, cohort, transfers, counted, device_plan, rate)
        row["round_seconds"] = round(time.monotonic() - start, 3)
        return after, row if failure is None else {**row, FAILURE: failure}

    def _measure(self, levels, counted, plan):
        """Add the times of a round's devices to the fleet file."""
        if self.fleet_file is None:
            return
        steps = dict(zip(plan.clients.tolist(), plan.steps.tolist()))
        seconds = {client: each.seconds for client, each in counted.items() if each.seconds is not None}
        self._measured.add_round(levels, steps, seconds)
        text = self._measured.to_yaml()
        if text is not None:
            files.write_atomic(self.fleet_file, text.encode())

    def _request(self, action, requests, note, parse):
        """Return the results `parse(client, response)` and the `Refused` responses, both by client.

        Devices that are not connected at the end have dropped out.
        """
        responses, connected = self.fleet.request(action, requests), self.fleet.members(0)
        results: dict[int, Any] = {}
        refused: dict[int, Refused] = {}
        for client in [client for client in requests if client in responses and client in connected]:
            response = responses[client]
            try:
                if isinstance(response, Refused):
                    raise response
                results[client] = parse(client, response)
            except Refused as problem:
                refused[client] = problem
                self.fleet.say(f"note: {note.format(client)}: {problem}")
        return results, refused

    def _parse_result(self, response, indices):
        """Return the `Result` of a response; raise `Refused` if a value is invalid."""
        values = parse_arrays(response.arrays, shapes_of(indices), self._dtype)
        loss, norm = (number(response.metadata, name) for name in ("loss", "gradient_norm"))
        return Result(values, loss, norm, parse_seconds(response.metadata))

    def _merge(self, state, cohort, transfers, counted, plan, rate):
        """(state after the merge, failure of the round or None).

        Results are summed in the order of the plan, independent of the order of responses. A failed round only changes
        the round number of the state.
        """
        federation, unchanged = self.federation, dataclasses.replace(state, round=state.round + 1)
        clients = federation.recipe.round.clients
        quorum = self.selection.quorum_size(clients)
        if len(counted) < quorum:
            return unchanged, RoundFailure(
                f"{len(counted)} of {clients} devices returned a result, and the quorum is {quorum}",
                TooFewDevices,
                "Start the same command again once more devices are connected",
            )
        uniform = federation.recipe.round.weighting == "uniform"
        weights = {client: np.float32(1 if uniform else cohort[client].examples) for client in counted}
        total = np.zeros(sum(map(np.size, state.weights.values())), self._dtype)
        # An overflow is detected after the server's step.
        with np.errstate(over="ignore", invalid="ignore"):
            for client, result in counted.items():
                total += weights[client] * self._global_row(result.values, transfers[client])
        covered = coverage_of(federation, [(transfers[client], weights[client]) for client in counted])
        layout = federation.state_layout
        before, results = layout.pack(layout.values_of(state)), None
        if federation.setup.algorithm.aggregate is not None:
            results = self._client_results(cohort, transfers, counted, plan, rate, weights)
        merged = merge_updates(federation.setup, before, tf.constant(total), covered, clients=results)
        if is_finite(merged):
            return layout.state_of(state.round + 1, layout.unpack(merged)), None
        largest = {
            client: max(float(np.abs(v).max()) for v in each.values.values()) for client, each in counted.items()
        }
        client = max(largest, key=lambda client: largest[client])
        reason = f"{OVERFLOW.reason}; the largest of them, {largest[client]:.3g}, is from client {client}"
        return unchanged, dataclasses.replace(OVERFLOW, reason=reason)

    def _client_results(self, cohort, transfers, counted, plan, rate, weights):
        """The results of the devices, see `cohort.client_results`."""
        steps, dtype = dict(zip(plan.clients.tolist(), plan.steps.tolist())), self._dtype

        def rows(values_of):
            return np.stack([self._global_row(values_of(each), transfers[client]) for client, each in counted.items()])

        results = {
            "rows": rows(lambda result: result.values),
            "covered": rows(lambda result: dict.fromkeys(result.values, 1)) > 0,
            "weight": np.asarray(list(weights.values()), dtype),
            "steps": [steps[client] for client in counted],
            "loss": np.asarray([result.loss for result in counted.values()], dtype),
            "examples": [cohort[client].examples for client in counted],
            "submodel": [transfers[client].submodel for client in counted],
            "rate": np.asarray(rate, dtype),
        }
        return {name: tf.constant(each) for name, each in results.items()}

    def _global_row(self, values, transfer):
        """The values of a device in the global row, [values]; zeros where it has none."""
        shapes = self.federation.state_layout.shapes
        row = {path: np.zeros(shape, self._dtype) for path, shape in shapes.items()}
        scatter(values, transfer.up, row)
        return np.concatenate([value.ravel() for value in row.values()])

    def _row(self, plan, requested, rate, counted, refused):
        """The row of metrics; steps of devices without a response are not counted."""
        clients = plan.clients.tolist()
        infinite = [client in refused and not refused[client].finite for client in clients]
        reached = np.asarray([client in counted or bad for client, bad in zip(clients, infinite)], bool)
        outcome = {"dropped": requested - len(counted) - len(refused)}
        outcome["refused"] = sum(problem.finite for problem in refused.values())
        records = {
            name: np.asarray([getattr(counted.get(client), name, np.nan) for client in clients])
            for name in ("loss", "gradient_norm")
        }
        plan = dataclasses.replace(plan, steps=np.where(reached, plan.steps, 0))
        records["finite"] = ~np.asarray(infinite, bool)
        return self.federation.metrics_row(plan, rate, records, outcome)

    def evaluate(self, state: State, levels: str | None = None) -> tuple[dict, dict]:
        """Evaluate the global model on the server's test set; empty if no device returned its statistics.

        Args:
            state: `State`.
            levels: "global" or None.
        """
        evaluator, global_level = self.federation.evaluator, self.federation.recipe.levels.global_level
        # Devices that train files need statistics of the server for inference.
        of_files = {member.level for member in self.fleet.members(0).values() if member.measures == ITS_LEVEL}
        queried = dict.fromkeys((global_level, *sorted(of_files)))
        by_level = {level: self.statistics(state, level) for level in queried}
        statistics = by_level[global_level]
        if not statistics and evaluator.queried():
            self.fleet.say(
                f"note: round {state.round}: no evaluation, since no device of level "
                f"{global_level} responded to the statistics query"
            )
            return {}, {}
        metrics = evaluator.measure_global(*evaluator.global_values(state, statistics))
        # Local metrics need the clients' test sets, which the server does not have.
        return {name: float(value) for name, value in metrics.items() if name.startswith("global_")}, by_level

    def statistics(self, state: State, level: str | None = None) -> dict:
        """Query the statistics of static batch normalisation from the devices that have a level's model.

        Devices are weighted by their numbers of batches, so with all devices the result is the simulator's mean.
        """
        recipe = self.federation.recipe
        level = recipe.levels.global_level if level is None else level
        if not self.federation.evaluator.queried():
            return {}
        # Read the fleet once: a device that disconnects is excluded together with its batches.
        members = self.fleet.members(0)
        width, everything = recipe.levels.widths[level], np.arange(self.federation.family.classes)
        values = {path: np.asarray(value) for path, value in state.weights.items()}
        requests = {
            client: Message(
                gather(values, transfer_of(self.federation, client, level, everything, state.round).down),
                {"round": state.round, "level": level},
            )
            for client, member in sorted(members.items())
            if member.measures == NARROWER_LEVELS
            and recipe.levels.widths[member.level] >= width
            or member.measures == ITS_LEVEL
            and member.level == level
        }
        shapes = {v.path: tuple(v.shape) for v in self.federation.evaluator.queried(level)}
        note = f"round {state.round}: statistics of client {{}} were refused"
        moments, _ = self._request(
            "statistics", requests, note, lambda _, response: _parse_moments(response.arrays, shapes, self._dtype)
        )
        if not moments:
            return {}
        batches = [-(-members[client].examples // recipe.evaluate.statistics_batch) for client in moments]
        means = {
            path: np.average(
                [each[path].astype(np.float64) for each in moments.values()], axis=0, weights=batches
            ).astype(np.float32)
            for path in shapes
        }
        self._newest_statistics[level] = means
        return {path: tf.constant(value) for path, value in means.items()}

    @property
    def _dtype(self):
        return self.federation.setup.layout.dtype


def _parse_moments(arrays, shapes, dtype):
    """The statistics of a device; raises `Refused` for a negative variance, or as `parse_arrays` does."""
    moments = parse_arrays(arrays, shapes, dtype)
    for path, value in moments.items():
        if path.endswith("variance") and (value < 0).any():
            raise Refused(f"value {path} must not be negative")
    return moments


def deployed(
    process: LearningProcess,
    fleet: WaitingFleet,
    selection: Selection = DEFAULT_SELECTION,
    fleet_file: Path | None = None,
) -> LearningProcess:
    """Return the process of a recipe whose clients are the devices of a fleet.

    Raises:
        InputError: Devices cannot run the recipe; the message names the key.
    """
    check_deployable(process)
    build_runner = functools.partial(DeviceRounds, fleet=fleet, selection=selection, fleet_file=fleet_file)
    return dataclasses.replace(process, build_runner=build_runner)
