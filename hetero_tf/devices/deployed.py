"""The process of a recipe whose clients are devices: the simulator's cut, merge and server, and its run folder."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import TooFewDevices
from hetero_tf.devices.device_index import Placement, check_deployable
from hetero_tf.devices.messages import (
    ITS_LEVEL,
    NARROWER_LEVELS,
    Member,
    Message,
    Refused,
    checked,
    number,
    put,
    shapes_of,
    taken,
    weighted_mean,
)
from hetero_tf.evaluation.calibration import statistics_paths
from hetero_tf.models.costs.traffic import round_cost
from hetero_tf.models.state import State, in_order, state_of
from hetero_tf.planning.plan import DevicePlan, Plan, draw_cohort, plan_devices
from hetero_tf.process.learning_process import LearningProcess
from hetero_tf.rounds.failure import FAILURE, OVERFLOW, RoundFailure
from hetero_tf.rounds.merge import all_finite, merge_variables

# What a device can be asked for; the first is asked of every device that connects.
ACTIONS = ("introduction", "training", "statistics")


class Fleet(Protocol):
    """The devices that are connected."""

    def members(self, least: int) -> dict[int, Member]:
        """Returns the devices that are ready by client; with 0 at once, else see `waiting.WaitingFleet.members`."""

    def ask(self, action: str, questions: Mapping[int, Message]) -> dict[int, Message | Refused]:
        """Asks devices and waits for their answers.

        Args:
            action: One of `ACTIONS`.
            questions: By client.

        Returns:
            By client what came back, its arrays as bytes; a device that did not answer in time or left is left out.
        """

    def say(self, sentence: str) -> None:
        """Tells a person."""


@dataclass(frozen=True)
class Result:
    """What a device returned in a round: its values by path, and what it tells of its steps."""

    values: dict[str, np.ndarray]
    loss: float
    gradient_norm: float


@dataclass(frozen=True)
class Selection:
    """How many devices a round asks, and how many of them it needs.

    Attributes:
        over_selection: Share of `round.clients` that is asked in addition, for devices that do not return in time.
        quorum: Share of `round.clients` whose results a round needs; it always needs one.
        max_examples: Most training examples that a device may claim; None: as many as the recipe's training data have.
    """

    over_selection: float = 0.0
    quorum: float = 0.0
    max_examples: int | None = None

    def cohort_size(self, clients: int) -> int:
        """Return how many devices a round of `round.clients` asks."""
        return math.ceil(clients * (1 + self.over_selection))

    def quorum_size(self, clients: int) -> int:
        """Return how many results a round of `round.clients` needs."""
        return max(math.ceil(clients * self.quorum), 1)


DEFAULT_SELECTION = Selection()


@dataclass(frozen=True)
class DeployedProcess(LearningProcess):
    """A `LearningProcess` whose rounds are played by devices. Make it with `deployed`.

    Attributes:
        fleet: The devices.
        selection: How many of them a round asks and needs.
    """

    fleet: Fleet
    selection: Selection = DEFAULT_SELECTION

    def watched(self, watch: Callable[[int, int], None]) -> "DeployedProcess":
        """Returns the same process: nobody sees the steps of devices."""
        return self

    @property
    def preparation(self) -> tuple[str, float | None]:
        """What `compile` does."""
        return "waiting for devices", None

    @property
    def plans_ahead(self) -> bool:
        """False: a plan is of the devices that are connected when its round begins, and may wait for them."""
        return False

    def compile(self) -> None:
        """Waits for the devices of a round, which trace their own steps."""
        self.fleet.members(self.recipe.round.clients)

    def about_rounds(self) -> list[str]:
        """Says of how many clients rounds are, and who plays them."""
        return [f"clients: devices, {self.recipe.round.clients} active a round, each with examples of its own"]

    def plan(self, round: int, cohort: Sequence[int] | None = None, attempt: int = 0) -> DevicePlan:
        """Plans a round of the devices that are connected; where all are, it is the simulator's."""
        recipe, members = self.recipe, self._members(self.recipe.round.clients)
        if cohort is None:
            able = np.asarray(sorted(client for client in members if members[client].level not in recipe.levels.idle))
            count = min(self.selection.cohort_size(recipe.round.clients), len(able))
            cohort = draw_cohort(able, count, recipe.seed, round, attempt).tolist() if count else []
        return self._plan(round, {client: members[client] for client in cohort if client in members})

    def _plan(self, round, members):
        """The plan of some devices, by client."""
        names = self.recipe.levels.names
        return plan_devices(
            self.recipe,
            [member.examples for member in members.values()],
            self.input.starts(self.dataset.train.x),
            self.division,
            round,
            list(members),
            [names.index(member.level) for member in members.values()],
        )

    def _members(self, least):
        """The devices that may take part; one that claims more examples than is allowed may not."""
        members = self.fleet.members(least)
        limit = self.selection.max_examples or len(self.dataset.train.x)
        for client in [client for client, member in members.items() if member.examples > limit]:
            count = members.pop(client).examples
            if self._reported.get(client) != count:
                self._reported[client] = count
                self.fleet.say(
                    f"note: client {client} does not take part: examples must be at most {limit}, as many as the "
                    "recipe's training data have, or as --max_examples allows. "
                    f"Received: {count}"
                )
        return members

    @functools.cached_property
    def _reported(self):
        """Examples of the devices that were reported for claiming too many, by client."""
        return {}

    def run(self, state: State, planned: Sequence[Plan]) -> tuple[State, list[dict]]:
        """Plays the planned rounds, see `LearningProcess.run`; rows also have "dropped" and "refused" devices.

        A round without a quorum of results, or whose merge overflows, fails; no later round is played then.
        """
        rows: list[dict] = []
        for plan in planned:
            state, row = self._play(state, plan)
            rows.append(row)
            if FAILURE in row:
                break
        return state, rows

    def examples(self, plan: Plan) -> np.ndarray:
        """Images, or tokens of text, that each device of a plan trains on: int [cohort]."""
        if not isinstance(plan, DevicePlan):
            return super().examples(plan)
        counts, x = plan.stage_examples.sum(axis=1), self.dataset.train.x
        if self.dataset.train.y is None:
            lengths = [int(self.input.length(x, start)) for start in self.input.starts(x)]
            counts = counts * sum(lengths) // len(lengths)
        return np.where(plan.steps > 0, counts, 0)

    def _cost(self, plan):
        if not isinstance(plan, DevicePlan):
            return super()._cost(plan)
        cohort, stages = plan.stage_examples.shape
        # Each stage counts as one step that reads all of its examples.
        steps = np.where(plan.steps > 0, stages, 0)
        position = np.broadcast_to(np.arange(stages), (cohort, stages))
        return round_cost(self.client_costs, plan.levels, steps, plan.stage_examples, position)

    def _play(self, state, plan):
        """The state after one round, and its row of metrics."""
        # The fleet is read once: what a device claims does not change within a round.
        members, names = self._members(0), self.recipe.levels.names
        levels = {client: names[level] for client, level in zip(plan.clients.tolist(), plan.levels.tolist())}
        cohort = {
            client: members[client]
            for client, level in levels.items()
            if client in members and members[client].level == level
        }
        rate = self.learning_rate(state.round)
        travels = {
            client: self._placement.travels(client, member.level, member.labels, state.round)
            for client, member in cohort.items()
        }
        values = {path: np.asarray(value) for path, value in state.weights.items()}
        questions = {
            client: Message(
                taken(values, each.down) | self._statistics_for(cohort[client]),
                {"round": state.round, "learning_rate": rate},
            )
            for client, each in travels.items()
        }
        answers = self._ask("training", questions)
        results = {client: self._result(answers[client], travels[client]) for client in travels if client in answers}
        counted = {client: each for client, each in results.items() if isinstance(each, Result)}
        refused = {client: each for client, each in results.items() if isinstance(each, Refused)}
        for client, problem in refused.items():
            self.fleet.say(f"note: round {state.round + 1}: client {client} was refused: {problem}")
        row = self._row_of(self._plan(state.round, cohort), len(levels), rate, counted, refused)
        after, failure = self._merged(state, cohort, travels, counted)
        return after, row if failure is None else {**row, FAILURE: failure}

    def _ask(self, action, questions):
        """The answers of the devices that are still connected once all have come; others have dropped out."""
        answers = self.fleet.ask(action, questions)
        connected = self.fleet.members(0)
        return {client: answers[client] for client in questions if client in answers and client in connected}

    def _statistics_for(self, member):
        """The newest statistics of a device's level, where its file infers by them and they have been measured."""
        return self._newest_statistics.get(member.level, {}) if member.measures == ITS_LEVEL else {}

    def _result(self, answer, travels):
        """The `Result` of an answer, or why it is refused."""
        try:
            if isinstance(answer, Refused):
                raise answer
            values = checked(answer.arrays, shapes_of(travels.up), self.parts.placement.dtype)
            return Result(values, number(answer.told, "loss"), number(answer.told, "gradient_norm"))
        except Refused as problem:
            return problem

    def _merged(self, state, cohort, travels, counted):
        """(state after the merge, why the round failed or None), summed in the order of the plan.

        Which device answers first makes no difference. A round that failed changes the number of the round alone.
        """
        unchanged, clients = dataclasses.replace(state, round=state.round + 1), self.recipe.round.clients
        quorum = self.selection.quorum_size(clients)
        if len(counted) < quorum:
            return unchanged, RoundFailure(
                f"{len(counted)} of {clients} devices returned a result, and the quorum is {quorum}",
                TooFewDevices,
                "Start the same command again once more devices are connected",
            )
        total = {path: np.zeros(value.shape, self.parts.placement.dtype) for path, value in state.weights.items()}
        uniform = self.recipe.round.weighting == "uniform"
        weights = {client: np.float32(1 if uniform else cohort[client].examples) for client in counted}
        # An overflow is found after the server's step.
        with np.errstate(over="ignore", invalid="ignore"):
            for client, result in counted.items():
                up = travels[client].up
                have = taken(total, up)
                put({path: have[path] + weights[client] * value for path, value in result.values.items()}, up, total)
        covered = self._placement.coverage([(travels[client], weights[client]) for client in counted])
        summed = [tf.constant(value) for value in total.values()]
        merged = merge_variables(self.parts, in_order(state), summed, covered)
        if all_finite(tf.nest.flatten(merged)):
            return state_of(state.round + 1, self.paths, self._slots, merged), None
        largest = {
            client: max(float(np.abs(v).max()) for v in each.values.values()) for client, each in counted.items()
        }
        client = max(largest, key=lambda client: largest[client])
        reason = f"{OVERFLOW.reason}; the largest of them, {largest[client]:.3g}, is from client {client}"
        return unchanged, dataclasses.replace(OVERFLOW, reason=reason)

    def _row_of(self, plan, requested, rate, counted, refused):
        """The row of metrics: a device that gave no answer has taken no step that reached the server.

        Args:
            plan: Of the devices that were connected when the round began.
            requested: How many devices were planned.
            rate: Learning rate of the round.
            counted, refused: By client the results that are merged, and why others are not.
        """
        clients = plan.clients.tolist()
        infinite = [client in refused and not refused[client].finite for client in clients]
        reached = np.asarray([client in counted or bad for client, bad in zip(clients, infinite)], bool)
        outcome = {"dropped": requested - len(counted) - len(refused)}
        outcome["refused"] = sum(problem.finite for problem in refused.values())
        records = {
            name: np.asarray([getattr(counted.get(client), name, np.nan) for client in clients])
            for name in ("loss", "gradient_norm")
        }
        plan = dataclasses.replace(plan, steps=np.where(reached, plan.steps, 0), outcome=outcome)
        return self._row(plan, rate, {**records, "finite": ~np.asarray(infinite, bool)})

    def evaluate(self, state: State, levels: str | None = None) -> tuple[dict, dict]:
        """Measures the global model on the server's test set; nothing where no device could give its statistics.

        Args:
            state: `State`.
            levels: "global" or None.
        """
        global_level = self.recipe.levels.global_level
        queried = dict.fromkeys((global_level, *self._levels_of_files()))
        by_level = {level: self.statistics(state, level) for level in queried}
        statistics = by_level[global_level]
        if not statistics and self._queried:
            self.fleet.say(
                f"note: round {state.round}: nothing was measured, as no device that holds level "
                f"{global_level} answered the query for statistics"
            )
            return {}, {}
        measure = self.evaluator.measure_global
        found = measure(*self.evaluator.global_values(state, statistics))
        # What clients have of the test set, only they know.
        return {name: float(value) for name, value in found.items() if name.startswith("global_")}, by_level

    def statistics(self, state: State, level: str | None = None) -> dict:
        """Queries the statistics of static batch normalisation from the devices that hold a level's model.

        Each counts as much as the batches that it read, so with all devices it is the simulator's mean over batches.
        """
        recipe = self.recipe
        level = recipe.levels.global_level if level is None else level
        if not self._queried:
            return {}
        # The fleet is read once: a device that leaves meanwhile is left out, and its batches with it.
        members = self._members(0)
        width, everything = recipe.levels.widths[level], np.arange(self.dataset.classes)
        values = {path: np.asarray(value) for path, value in state.weights.items()}
        questions = {
            client: Message(
                taken(values, self._placement.travels(client, level, everything, state.round).down),
                {"round": state.round, "level": level},
            )
            for client, member in sorted(members.items())
            if member.measures == NARROWER_LEVELS
            and recipe.levels.widths[member.level] >= width
            or member.measures == ITS_LEVEL
            and member.level == level
        }
        shapes, found = self._statistics_shapes(level), {}
        for client, answer in self._ask("statistics", questions).items():
            try:
                if isinstance(answer, Refused):
                    raise answer
                found[client] = _checked_moments(answer.arrays, shapes, self.parts.placement.dtype)
            except Refused as problem:
                self.fleet.say(f"note: round {state.round}: statistics of client {client} were refused: {problem}")
        if not found:
            return {}
        batches = [-(-members[client].examples // recipe.evaluate.statistics_batch) for client in found]
        means = weighted_mean(list(found.values()), batches)
        self._newest_statistics[level] = means
        return {path: tf.constant(value) for path, value in means.items()}

    def _levels_of_files(self):
        """The levels whose devices infer by statistics that the server sends."""
        return sorted({member.level for member in self._members(0).values() if member.measures == ITS_LEVEL})

    @functools.cached_property
    def _newest_statistics(self):
        """`{level: {path: float32 array}}` of the last query of each level."""
        return {}

    def _statistics_shapes(self, level):
        """`{path: shape}` of what the query gives at a level."""
        model = self.family.predictor(level)
        wanted = set(statistics_paths(model))
        return {v.path: tuple(v.shape) for v in model.non_trainable_variables if v.path in wanted}

    @property
    def _queried(self):
        """Whether there are statistics to query."""
        return bool(statistics_paths(self.evaluator.global_model))

    @functools.cached_property
    def _placement(self):
        return Placement(self)


def _checked_moments(arrays, shapes, dtype):
    """The statistics of a device; `Refused` where a variance is negative or as `checked` says."""
    moments = checked(arrays, shapes, dtype)
    for path, value in moments.items():
        if path.endswith("variance") and (value < 0).any():
            raise Refused(f"value {path} must not be negative")
    return moments


def deployed(process: LearningProcess, fleet: Fleet, selection: Selection = DEFAULT_SELECTION) -> DeployedProcess:
    """Returns the process of a recipe whose clients are the devices of a fleet.

    Args:
        process: Of the recipe.
        fleet: The devices.
        selection: How many of them a round asks and needs.

    Raises:
        InputError: Devices cannot play the recipe; names the key.
    """
    check_deployable(process)
    fields = {each.name: getattr(process, each.name) for each in dataclasses.fields(LearningProcess)}
    return DeployedProcess(**fields, fleet=fleet, selection=selection)
