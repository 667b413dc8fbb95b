"""Rounds whose clients are simulated: planned on the host, and trained by the compiled round."""

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from hetero_tf.base.console import format_engine
from hetero_tf.base.metrics import find_metric
from hetero_tf.methods.policies import AsynchronousPolicy
from hetero_tf.models.state import State
from hetero_tf.planning.asynchronous import VersionPlanner
from hetero_tf.planning.packing import pack_rounds
from hetero_tf.planning.plan import Plan, plan_round
from hetero_tf.planning.sharing import share_blocks
from hetero_tf.planning.timing import round_policy
from hetero_tf.process.failure import FAILURE, OVERFLOW
from hetero_tf.process.federation import Federation, family_of
from hetero_tf.recipe.fine_tuning import fine_tuning, tuned_units
from hetero_tf.rounds.disk_rows import read_training_rows
from hetero_tf.rounds.round import build_round

# Tracing time, measured on the shipped recipes on one core; it varies by a factor of 2.
TRACE_SECONDS_PER_VARIABLE = 0.05


@dataclass(frozen=True)
class SimulatedRounds:
    """The `RoundRunner` that trains all clients in this process, or in the replicas of its strategy.

    Attributes:
        federation: The objects of the recipe.
    """

    federation: Federation
    can_plan_ahead = True

    def describe(self) -> list[str]:
        federation = self.federation
        sizes = federation.partition.summary()["train_examples"]
        unit = "rows of text" if federation.dataset.train.y is None else "examples"
        least, most = sizes["min"], sizes["max"]
        size = str(least) if least == most else f"{least} to {most}"
        active = f"{federation.recipe.round.clients} train in each round"
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

    def plan(self, round: int, cohort: Sequence[int] | None = None, attempt: int = 0) -> Plan:
        federation, classes = self.federation, self.federation.sampled_classes
        starts, shuffle = federation.input.starts(federation.dataset.train.x), federation.input.shuffle
        clock = federation.clock
        if isinstance(round_policy(federation.recipe), AsynchronousPolicy):
            if cohort is None:
                return self.version_planner.plan(round)
            # All clients of a chosen cohort return at once.
            clock = None
        return plan_round(
            federation.recipe,
            federation.partition,
            starts,
            shuffle,
            federation.division,
            round,
            cohort,
            attempt,
            classes,
            clock,
        )

    @functools.cached_property
    def version_planner(self) -> VersionPlanner:
        """The event queue of an asynchronous policy."""
        federation = self.federation
        return VersionPlanner(
            federation.clock,
            federation.partition,
            federation.input.starts(federation.dataset.train.x),
            federation.input.shuffle,
            federation.division,
            federation.sampled_classes,
        )

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
        federation, replicas = self.federation, self._engine.replicas
        rates = [federation.learning_rate(state.round + index) for index in range(len(planned))]
        packed, slots = pack_rounds(planned, federation.setup.block_sizes, federation.family.submodel_of)
        if replicas.count > 1:
            packed = share_blocks(packed, slots[0], federation.round_cost(planned[0]).train_flops, replicas.count)
        disk_rows = ()
        if federation.setup.examples.on_disk:
            packed, *disk_rows = read_training_rows(federation.setup.examples, packed, replicas.local_range)
        after, records = self.compiled_round(
            federation.state_layout.values_of(state),
            tf.nest.map_structure(tf.constant, packed),
            tf.constant(rates, federation.recipe.float_type),
            state.round,
            federation.seed,
            *disk_rows,
        )
        merge_finite = records.pop("merge_finite").numpy()
        rows = []
        for index, (plan, rate, slots_of_plan) in enumerate(zip(planned, rates, slots)):
            # [rounds, slots of the blocks] -> [cohort]
            records_of_plan = {name: values[index].numpy()[slots_of_plan] for name, values in records.items()}
            outcome = plan.timing.metrics() if plan.timing else {}
            row = federation.metrics_row(plan, rate, records_of_plan, outcome)
            rows.append(row if merge_finite[index] else {**row, FAILURE: OVERFLOW})
        return federation.state_layout.state_of(state.round + len(planned), after), rows

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
        client_metrics = evaluator.measure_clients(*evaluator.client_values(tuned_state))
        tuned = {f"tuned_{name.removeprefix('local_')}": float(value) for name, value in client_metrics.items()}
        return {name: value for name, value in tuned.items() if find_metric(name)}

    def fine_tune(self, state: State, clients: Sequence[int]) -> State:
        """Return a state after one fine-tuning round of some clients; all trained values are personal.

        Args:
            state: State before fine-tuning; these rounds are the `fine_tuning` of its process.
            clients: Ids of the clients.
        """
        start = self.federation.begin({path: state.weights[path] for path in self.federation.paths})
        personal_values = start.clients["personal"] | state.clients.get("personal", {})
        start = dataclasses.replace(start, round=state.round, clients={**start.clients, "personal": personal_values})
        return self.run(start, [self.plan(state.round, clients)])[0]

    @functools.cached_property
    def fine_tuning(self) -> "SimulatedRounds":
        """The round that fine-tunes all clients with local tests."""
        federation, engine = self.federation, self._engine
        recipe = fine_tuning(federation.recipe, len(federation.evaluator.tests.clients))
        family = family_of(recipe, federation.input, federation.dataset, federation.family.function)
        units = tuned_units(federation.recipe)
        stages = {
            level: tuple(dataclasses.replace(stage, trained=stage.trained & units) for stage in level_stages)
            for level, level_stages in family.stages.items()
        }
        family, device = dataclasses.replace(family, stages=stages), "gpu" if engine.compiled else "cpu"
        dataset, partition = federation.dataset, federation.partition
        return SimulatedRounds(Federation.of(family, dataset, partition, federation.input, engine.replicas, device))
