"""Rounds whose clients are simulated: planned on the host, and trained by the compiled round."""

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.base.constraints import Plugin
from hetero_tf.base.metrics import find_metric
from hetero_tf.methods.policies import AsynchronousPolicy, round_policy
from hetero_tf.methods.selections import ClientPool
from hetero_tf.models.state import State
from hetero_tf.planning.asynchronous import VersionPlanner
from hetero_tf.planning.fleets.devices import is_available
from hetero_tf.planning.packing import pack_rounds, share_blocks
from hetero_tf.planning.plan import Plan, assign_levels, plan_round
from hetero_tf.planning.selection import (
    able_clients,
    expected_seconds,
    reads_state,
    record_round,
    select_cohort,
    time_evaluation,
)
from hetero_tf.recipe.schema import FineTune, Recipe
from hetero_tf.rounds.batches import read_training_rows
from hetero_tf.rounds.round import build_round
from hetero_tf.run.federation import FAILURE, OVERFLOW, Federation, family_of
from hetero_tf.run.notes import format_engine

# Tracing time, measured on the shipped recipes on one core; it varies by a factor of 2.
TRACE_SECONDS_PER_VARIABLE = 0.05


@dataclass(frozen=True)
class SimulatedRounds:
    """The `RoundRunner` that trains all clients in this process, or in the replicas of its strategy."""

    federation: Federation

    @property
    def can_plan_ahead(self) -> bool:
        return not reads_state(self.federation.recipe)

    def describe(self) -> list[str]:
        federation = self.federation
        sizes = federation.partition.summary()["train_examples"]
        unit = "rows of text" if federation.dataset.train.y is None else "examples"
        least, most = sizes["min"], sizes["max"]
        size = str(least) if least == most else f"{least} to {most}"
        varies = registry.constant("selections", federation.recipe.round.selection.name, "SAMPLING") == "poisson"
        active = f"{'about ' * varies}{federation.recipe.round.clients} train in each round"
        return [
            f"clients: {len(federation.partition.train)} with {size} {unit} each; {active}",
            format_engine(federation.engine_report()),
        ]

    @property
    def preparation(self) -> tuple[str, float | None]:
        variables = sum(
            len(self.federation.paths) * len(submodel.block.stages) for submodel in self.federation.setup.submodels
        )
        return "tracing the round", TRACE_SECONDS_PER_VARIABLE * variables

    def prepare(self) -> None:
        self.compiled_round.get_concrete_function()

    @functools.cached_property
    def compiled_round(self) -> Any:
        """The tf.function of the round, see `rounds.round.build_round`; traced once."""
        return build_round(self.federation.setup, self.federation.state_layout)

    def plan(
        self, round: int, cohort: Sequence[int] | None = None, attempt: int = 0, state: State | None = None
    ) -> Plan:
        is_asynchronous = isinstance(round_policy(self.federation.recipe.round.policy), AsynchronousPolicy)
        if cohort is not None:
            # With an asynchronous policy all clients of a chosen cohort return at once.
            clock = None if is_asynchronous else self.federation.clock
            return self._plan_cohort(round, cohort, clock)
        if is_asynchronous:
            return self.version_planner.plan(round)
        choice = self._select(round, attempt, state)
        plan = self._plan_cohort(round, choice.ids, self.federation.clock)
        timing = plan.timing and dataclasses.replace(plan.timing, seconds=plan.timing.seconds + choice.waited)
        return dataclasses.replace(plan, timing=timing, choice=choice)

    def _plan_cohort(self, round, cohort, clock):
        plan = plan_round(self.federation.batching, self.federation.partition, round, cohort, clock)
        account = self.federation.privacy
        if account is None:
            return plan
        account.check_rounds(round + 1)
        seeds, stds = account.noise_of(round)
        return dataclasses.replace(plan, noise_seeds=seeds, noise_stds=stds)

    @functools.cached_property
    def version_planner(self) -> VersionPlanner:
        """The event queue of an asynchronous policy."""
        federation = self.federation
        assert federation.clock is not None
        return VersionPlanner(federation.clock, federation.partition, federation.batching, self._pool)

    def _select(self, round, attempt, state):
        recipe = self.federation.recipe
        if state is None and reads_state(recipe):
            raise ValueError(f"the selection {recipe.round.selection.name} needs `state`. Received: None")
        history = state.history if state else {}
        seconds = float(history["run"]["device_seconds"]) if history else 0.0
        pool = dataclasses.replace(
            self._pool(round, round, seconds),
            losses_of=lambda ids: self.client_losses(state, ids),
            history=history.get("clients", {}),
            memory=history.get("selection", {}),
        )
        if self.federation.privacy is not None:
            recipe = dataclasses.replace(recipe, seed=self.federation.privacy.cohort_seed)
        size = round_policy(recipe.round.policy).cohort_size(recipe.round.clients)
        choice = select_cohort(recipe, pool, size, attempt)
        clock, division = self.federation.clock, self.federation.division
        if clock is None or not choice.evaluated.size:
            return choice
        return time_evaluation(clock, division, round, choice, *self._work_of(choice.evaluated))

    @functools.cached_property
    def _able(self):
        # Dynamic levels have no idle ones, so the result is that of every round.
        recipe, partition = self.federation.recipe, self.federation.partition
        return able_clients(recipe.levels, len(partition.train), recipe.seed, 0)

    def _pool(self, number, round, seconds):
        """Return the clients to choose from, without history; `number`: of the draw, `seconds`: the device time."""
        partition = self.federation.partition
        return ClientPool(
            able=self._able,
            round=number,
            examples_of=lambda ids: partition.train.sizes[ids],
            seconds_of=lambda ids: self._expected_seconds(round, ids),
            device_seconds=seconds,
            available_at=lambda ids, seconds: self._available_at(round, ids, seconds),
            losses_of=lambda ids: np.zeros(len(ids)),
        )

    def _expected_seconds(self, round, ids):
        """Return the expected device time of clients, zeros without a fleet."""
        clock, division = self.federation.clock, self.federation.division
        return (
            np.zeros(len(ids)) if clock is None else expected_seconds(clock, division, round, ids, *self._work_of(ids))
        )

    def _work_of(self, ids):
        """Return the numbers of training examples of clients, and of the positions at which each batch is read."""
        federation = self.federation
        return federation.partition.train.sizes[ids], len(federation.batching.starts)

    def _available_at(self, round, ids, seconds):
        """Return which clients are available at a device time, all without a fleet."""
        clock, recipe = self.federation.clock, self.federation.recipe
        if clock is None:
            return np.ones(len(ids), bool)
        names = None
        if clock.fleet.assign == "levels":
            levels = assign_levels(recipe.levels, clock.clients, recipe.seed, round, ids)
            names = [recipe.levels.names[level] for level in levels]
        return is_available(clock.fleet, recipe.seed, ids, seconds, clients=clock.clients, levels=names)

    def client_losses(self, state: State, clients: np.ndarray) -> np.ndarray:
        """Return the loss of the global model on the training examples of clients, the mean over batches: float64.

        Each client evaluates the sub-model of its level like a local epoch, with a learning rate of 0.
        """
        federation, recipe = self.federation, self.federation.recipe
        one_epoch = dataclasses.replace(recipe, client=dataclasses.replace(recipe.client, epochs=1))
        batching = dataclasses.replace(federation.batching, recipe=one_epoch)
        plan = plan_round(batching, federation.partition, state.round, clients)
        _, (records,), _ = self._train(state, [plan], [0.0])
        # Networks of an ensemble count equally.
        sums = np.bincount(plan.clients, records["loss"], len(federation.partition.train))
        return (sums / np.maximum(np.bincount(plan.clients, minlength=len(sums)), 1))[clients]

    def count_examples(self, plan: Plan) -> np.ndarray:
        counts, source, train = plan.examples_of_steps, self.federation.input, self.federation.dataset.train
        if train.y is None:
            firsts = np.asarray(source.starts(train.x))
            lengths = np.array([int(source.length(train.x, first)) for first in firsts])
            counts = counts * lengths[np.searchsorted(firsts, plan.starts)]
        return counts.sum(axis=-1)

    def run(self, state: State, planned: Sequence[Plan]) -> tuple[State, list[dict]]:
        """Run planned rounds in one call, see `RoundRunner.run`.

        A round whose merge overflows changes only `State.round`.
        """
        # Replicas synchronise after each round, and data on disk are read for each.
        one_by_one = self._engine.replicas.count > 1 or self.federation.setup.examples.on_disk
        rows = []
        for call in [[plan] for plan in planned] if one_by_one else [planned]:
            state, rows_of_call = self._call(state, call)
            rows += rows_of_call
        return state, rows

    def _call(self, state, planned):
        federation, rows, history = self.federation, [], state.history
        rates = [federation.learning_rate(state.round + i) * plan.rate_factor for i, plan in enumerate(planned)]
        after, records, merge_finite = self._train(state, planned, rates)
        for index, (plan, rate, records_of_plan) in enumerate(zip(planned, rates, records)):
            outcome = plan.timing.metrics() if plan.timing else {}
            if federation.privacy is not None:
                outcome["epsilon"] = federation.privacy.epsilon(state.round + index + 1)
            row = federation.metrics_row(plan, rate, records_of_plan, outcome)
            row["bytes_down"] += self._evaluation_bytes(state.round + index, plan)
            if plan.timing and plan.choice:
                row["round_energy"] += plan.choice.energy
            rows.append(row if merge_finite[index] else {**row, FAILURE: OVERFLOW})
            if history and merge_finite[index]:
                history = _record_history(history, state.round + index + 1, plan, records_of_plan)
        state = federation.state_layout.state_of(state.round + len(planned), after)
        return dataclasses.replace(state, history=history), rows

    def _evaluation_bytes(self, round, plan):
        """Return the bytes of the models that clients received to report their loss, and did not train."""
        federation, recipe = self.federation, self.federation.recipe
        others = np.setdiff1d(plan.choice.evaluated, plan.clients) if plan.choice else np.zeros(0, np.int32)
        if not others.size:
            return 0
        levels = assign_levels(recipe.levels, len(federation.partition.train), recipe.seed, round, others)
        return sum(federation.client_costs[level].bytes_down for level in levels)

    def _train(self, state, planned, rates):
        """Train planned rounds; return the values after them, and the records and `merge_finite` of each round."""
        federation, replicas = self.federation, self._engine.replicas
        packed, slots = pack_rounds(planned, federation.setup.block_sizes, federation.family.submodel_of)
        if replicas.count > 1:
            packed = share_blocks(packed, slots[0], federation.round_cost(planned[0]).train_flops, replicas.count)
        disk_rows: list[dict[str, tf.Tensor]] = []
        if federation.setup.examples.on_disk:
            packed, *disk_rows = read_training_rows(federation.setup.examples, packed, replicas.local_range)
        after, records = self.compiled_round(
            federation.state_layout.values_of(state),
            tf.nest.map_structure(tf.constant, packed),
            tf.constant(rates, federation.recipe.float_type),
            state.round,
            federation.seed,
            () if federation.setup.private is None else _noise(planned),
            *disk_rows,
        )
        merge_finite = records.pop("merge_finite").numpy()
        # [rounds, slots of the blocks] -> [cohort]
        records_of_plans = [
            {name: values[index].numpy()[slots_of_plan] for name, values in records.items()}
            for index, slots_of_plan in enumerate(slots)
        ]
        return after, records_of_plans, merge_finite

    @property
    def _engine(self):
        return self.federation.setup.engine

    def evaluate(self, state: State, levels: str | None = None) -> tuple[dict, dict]:
        metrics, statistics = self.federation.evaluator.evaluate(state, levels)
        return metrics | self._tuned_metrics(state), statistics

    def _tuned_metrics(self, state):
        """Return metrics of the fine-tuned client models; empty without fine-tuning or local tests."""
        federation = self.federation
        tested = federation.evaluator.tests.clients.tolist() if federation.recipe.evaluate.fine_tune.epochs else []
        if not tested:
            return {}
        tuned_state = self.fine_tuning.fine_tune(state, tested)
        evaluator = self.fine_tuning.federation.evaluator
        client_metrics = evaluator.measure_personal("test", tuned_state)
        tuned = {f"tuned_{name.removeprefix('local_')}": float(value) for name, value in client_metrics.items()}
        return {name: value for name, value in tuned.items() if find_metric(name)}

    def fine_tune(self, state: State, clients: Sequence[int]) -> State:
        """Return a state after one fine-tuning round of some clients; all trained values are personal.

        Args:
            state: State before fine-tuning; these rounds are the `fine_tuning` of its process.
        """
        start = self.federation.begin({path: state.weights[path] for path in self.federation.paths})
        personal_values = start.clients["personal"] | state.clients.get("personal", {})
        start = dataclasses.replace(start, round=state.round, clients={**start.clients, "personal": personal_values})
        return self.run(start, [self.plan(state.round, clients)])[0]

    @functools.cached_property
    def fine_tuning(self) -> "SimulatedRounds":
        """The round that fine-tunes all clients with local tests."""
        federation = self.federation
        recipe = fine_tuning(federation.recipe, len(federation.evaluator.tests.clients))
        device, function = federation.family.device, federation.family.function
        family = family_of(recipe, federation.input, federation.dataset, device, function)
        units = tuned_units(federation.recipe)
        stages = {
            level: tuple(dataclasses.replace(stage, trained=stage.trained & units) for stage in level_stages)
            for level, level_stages in family.stages.items()
        }
        family = dataclasses.replace(family, stages=stages)
        dataset, partition = federation.dataset, federation.partition
        source, replicas = federation.input, self._engine.replicas
        return SimulatedRounds(Federation.of(family, dataset, partition, source, replicas, federation.functions))


def _noise(planned):
    """Return the seeds and the standard deviations of the noise of private rounds, padded to the most summands."""
    size = max(len(plan.noise_stds) for plan in planned)

    def padded(values):
        return np.pad(values, [(0, size - len(values)), *[(0, 0)] * (values.ndim - 1)])

    names = ("noise_seeds", "noise_stds")
    return tuple(tf.constant(np.stack([padded(getattr(plan, name)) for plan in planned])) for name in names)


def _record_history(history, round, plan, records):
    """Return the history after a round, with the results of its clients that returned."""
    returned = records["finite"] & (plan.steps > 0)
    clients, seconds = plan.clients[returned], np.zeros(len(history["clients"]["seconds"]))
    if plan.timing:
        seconds[plan.timing.clients] = plan.timing.times.total
    memory, round_seconds = plan.choice.memory if plan.choice else {}, plan.timing.seconds if plan.timing else 0.0
    squares = records["squared_loss"][returned]
    return record_round(history, round, clients, squares, seconds[clients], round_seconds, memory)


def tuned_units(recipe: Recipe) -> frozenset[str]:
    """Return the units that fine-tuning trains."""
    named, units = recipe.evaluate.fine_tune.units, frozenset(spec.unit for spec in recipe.model.layers)
    return units if "all" in named else units & frozenset(named)


def fine_tuning(recipe: Recipe, clients: int) -> Recipe:
    """Return the recipe of the round that fine-tunes `clients` clients; all trained units are personal.

    With dynamic assignment, clients are fine-tuned at the global level, at which they are tested.
    """
    tune, tuned_names = recipe.evaluate.fine_tune, tuned_units(recipe)
    frozen = tuple(unit for unit in recipe.model.frozen if unit not in tuned_names)
    levels, optimizer = dataclasses.replace(recipe.levels, idle=()), recipe.optimizer
    if levels.assignment == "dynamic":
        levels = dataclasses.replace(levels, mix={levels.global_level: 1}, assignment="fixed")
    if tune.learning_rate is not None:
        optimizer = dataclasses.replace(optimizer, learning_rate=tune.learning_rate)
    return dataclasses.replace(
        recipe,
        # The client models of fine-tuning are not released.
        privacy=None,
        model=dataclasses.replace(recipe.model, frozen=frozen),
        levels=levels,
        fleet=None,
        # Client models are tested with the first channels of the global model.
        round=dataclasses.replace(
            recipe.round,
            clients=clients,
            policy=Plugin("wait"),
            selection=Plugin("uniform"),
            submodel=Plugin("prefix"),
            personal=("all",),
            server=Plugin("replace"),
        ),
        client=dataclasses.replace(
            recipe.client, epochs=tune.epochs, correction=None, personalization=None, update=None
        ),
        optimizer=optimizer,
        schedule=Plugin("constant"),
        evaluate=dataclasses.replace(recipe.evaluate, fine_tune=FineTune()),
    )
