"""The process of a recipe whose clients are devices: the simulator's cut, merge and server, and its run folder."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.evaluation.calibration import statistics_paths
from hetero_tf.flower.fleet import Fleet
from hetero_tf.flower.messages import Message, Refused, checked, number, put, shapes_of, taken, weighted_mean
from hetero_tf.flower.placement import Placement
from hetero_tf.flower.support import check_deployable
from hetero_tf.planning.plan import Plan, draw_cohort, plan_clients
from hetero_tf.process import LearningProcess
from hetero_tf.rounds.merge import merge_variables
from hetero_tf.rounds.state import State, in_order, state_of


@dataclass(frozen=True)
class Result:
    """What a device returned in a round: its values by path, and what it tells of its steps."""

    values: dict[str, np.ndarray]
    loss: float
    gradient_norm: float


@dataclass(frozen=True)
class DeployedProcess(LearningProcess):
    """A `LearningProcess` whose rounds are played by devices. Make it with `deployed`.

    Attributes:
        fleet: The devices.
    """

    fleet: Fleet

    def watched(self, watch: Callable[[int, int], None]) -> "DeployedProcess":
        """Returns the same process: nobody sees the steps of devices."""
        return self

    @property
    def preparation(self) -> tuple[str, float | None]:
        """What `compile` does."""
        return "waiting for devices", None

    def compile(self) -> None:
        """Waits for the devices of a round, which trace their own steps."""
        self.fleet.members(self.recipe.round.clients)

    def about_rounds(self) -> list[str]:
        """Says of how many clients rounds are, and who plays them."""
        return [f"clients: devices, {self.recipe.round.clients} active a round, each with examples of its own"]

    def plan(self, round: int, cohort: Sequence[int] | None = None, attempt: int = 0) -> Plan:
        """Plans a round of the devices that are connected; where all are, it is the simulator's."""
        recipe, members = self.recipe, self.fleet.members(self.recipe.round.clients)
        able = np.asarray(sorted(client for client, each in members.items() if each.level not in recipe.levels.idle))
        if cohort is None:
            count = min(recipe.round.clients, len(able))
            cohort = draw_cohort(able, count, recipe.seed, round, attempt).tolist()
        x, names = self.dataset.train.x, recipe.levels.names
        return plan_clients(
            recipe,
            [np.arange(members[client].examples, dtype=np.int32) for client in cohort],
            self.input.starts(x),
            self.input.shuffle,
            self.division,
            round,
            cohort,
            [names.index(members[client].level) for client in cohort],
        )

    def run(self, state: State, planned: Sequence[Plan]) -> tuple[State, list[dict]]:
        """Plays the planned rounds, see `LearningProcess.run`; rows also have "dropped" and "refused" devices."""
        rows = []
        for plan in planned:
            state, row = self._play(state, plan)
            rows.append(row)
        return state, rows

    def _play(self, state, plan):
        """The state after one round, and its row of metrics."""
        rate, travels = self.learning_rate(state.round), self._travels(plan, state.round)
        values = {path: np.asarray(value) for path, value in state.weights.items()}
        questions = {
            client: Message(taken(values, each.down), {"round": state.round, "learning_rate": rate})
            for client, each in travels.items()
        }
        answers = self.fleet.ask("training", questions)
        results = {client: self._result(answers[client], travels[client]) for client in travels if client in answers}
        counted = {client: each for client, each in results.items() if isinstance(each, Result)}
        refused = {client: each for client, each in results.items() if isinstance(each, Refused)}
        for client, problem in refused.items():
            self.fleet.say(f"note: round {state.round + 1}: client {client} was refused: {problem}")
        after = self._merged(state, travels, counted)
        return after, self._row_of(plan, rate, counted, refused)

    def _travels(self, plan, round):
        """What travels to each device of a plan, in its order."""
        members, names = self.fleet.members(0), self.recipe.levels.names
        levels = {client: names[level] for client, level in zip(plan.clients.tolist(), plan.levels.tolist())}
        return {
            client: self._placement.travels(client, level, members[client].labels, round)
            for client, level in levels.items()
            if client in members
        }

    def _result(self, answer, travels):
        """The `Result` of an answer, or why it is refused."""
        try:
            if isinstance(answer, Refused):
                raise answer
            values = checked(answer.arrays, shapes_of(travels.up), self.parts.placement.dtype)
            return Result(values, number(answer.told, "loss"), number(answer.told, "gradient_norm"))
        except Refused as problem:
            return problem

    def _merged(self, state, travels, counted):
        """The state after the merge; summed in the order of the plan, whoever answered first."""
        if not counted:
            return dataclasses.replace(state, round=state.round + 1)
        total = {path: np.zeros(value.shape, self.parts.placement.dtype) for path, value in state.weights.items()}
        weights = {client: self._weight(client) for client in counted}
        for client, result in counted.items():
            up = travels[client].up
            have = taken(total, up)
            put({path: have[path] + weights[client] * value for path, value in result.values.items()}, up, total)
        covered = self._placement.coverage([(travels[client], weights[client]) for client in counted])
        summed = [tf.constant(value) for value in total.values()]
        merged = merge_variables(self.parts, in_order(state), summed, covered)
        return state_of(state.round + 1, self.paths, self._slots, merged)

    def _weight(self, client):
        uniform = self.recipe.round.weighting == "uniform"
        return np.float32(1 if uniform else self.fleet.members(0)[client].examples)

    def _row_of(self, plan, rate, counted, refused):
        """The row of metrics: a device that gave no answer has taken no step that reached the server."""
        clients = plan.clients.tolist()
        infinite = [client in refused and not refused[client].finite for client in clients]
        reached = np.asarray([client in counted or bad for client, bad in zip(clients, infinite)])
        outcome = {"dropped": len(set(clients) - counted.keys() - refused.keys())}
        outcome["refused"] = sum(problem.finite for problem in refused.values())
        records = {
            name: np.asarray([getattr(counted.get(client), name, np.nan) for client in clients])
            for name in ("loss", "gradient_norm")
        }
        plan = dataclasses.replace(plan, steps=np.where(reached, plan.steps, 0), outcome=outcome)
        return self._row(plan, rate, {**records, "finite": ~np.asarray(infinite)})

    def evaluate(self, state: State, levels: str | None = None) -> tuple[dict, dict]:
        """Measures the global model on the server's test set; nothing where no device could give its statistics.

        Args:
            state: `State`.
            levels: "global" or None.
        """
        statistics = self.statistics(state)
        if not statistics and self._queried:
            self.fleet.say(
                f"note: round {state.round}: nothing was measured, as no device that holds level "
                f"{self.recipe.levels.global_level} answered the query for statistics"
            )
            return {}, {}
        measure = self.evaluator.measure_global
        found = measure(*self.evaluator.global_values(state, statistics))
        # What clients have of the test set, only they know.
        return {name: float(value) for name, value in found.items() if name.startswith("global_")}, statistics

    def statistics(self, state: State, level: str | None = None) -> dict:
        """Queries the statistics of static batch normalisation from the devices that hold a level's model.

        Each counts as much as the batches that it read, so with all devices it is the simulator's mean over batches.
        """
        recipe = self.recipe
        level = recipe.levels.global_level if level is None else level
        if not self._queried:
            return {}
        width, everything = recipe.levels.widths[level], np.arange(self.dataset.classes)
        values = {path: np.asarray(value) for path, value in state.weights.items()}
        questions = {
            client: Message(
                taken(values, self._placement.travels(client, level, everything, state.round).down),
                {"round": state.round, "level": level},
            )
            for client, member in sorted(self.fleet.members(0).items())
            if member.measures and recipe.levels.widths[member.level] >= width
        }
        shapes, found = self._statistics_shapes(level), {}
        for client, answer in sorted(self.fleet.ask("statistics", questions).items()):
            try:
                if isinstance(answer, Refused):
                    raise answer
                found[client] = checked(answer.arrays, shapes, self.parts.placement.dtype)
            except Refused as problem:
                self.fleet.say(f"note: round {state.round}: statistics of client {client} were refused: {problem}")
        if not found:
            return {}
        batches = [-(-self.fleet.members(0)[client].examples // recipe.evaluate.statistics_batch) for client in found]
        return {path: tf.constant(value) for path, value in weighted_mean(list(found.values()), batches).items()}

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


def deployed(process: LearningProcess, fleet: Fleet) -> DeployedProcess:
    """Returns the process of a recipe whose clients are the devices of a fleet.

    Raises:
        BadInput: Devices cannot play the recipe; names the key.
    """
    check_deployable(process)
    fields = {each.name: getattr(process, each.name) for each in dataclasses.fields(LearningProcess)}
    return DeployedProcess(**fields, fleet=fleet)
