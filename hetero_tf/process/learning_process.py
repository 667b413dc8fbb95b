"""The learning process of a recipe as pure functions, for notebooks and the command line.

recipe = hetero_tf.load_recipe("recipes/digits.yaml")
process = hetero_tf.learning_process(recipe)
state = process.initialize()
state, metrics = process.next(state)
model = process.model(state, level="e")
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import hardware, registry, seeds
from hetero_tf.base.console import format_engine
from hetero_tf.base.errors import InputError
from hetero_tf.base.metrics import METRICS, default_selection_metric
from hetero_tf.base.replicas import Replicas
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.described import DescribedDataset
from hetero_tf.evaluation.evaluator import Evaluator
from hetero_tf.evaluation.fairness import ClientResults
from hetero_tf.evaluation.global_metrics import round_metrics
from hetero_tf.inputs import Input
from hetero_tf.models.costs import memory
from hetero_tf.models.costs.level_costs import LevelCosts, client_costs
from hetero_tf.models.costs.traffic import ClientCost, round_cost
from hetero_tf.models.custom_model import ModelBuilder
from hetero_tf.models.family import ModelFamily
from hetero_tf.models.global_layout import initial_peers, initial_values, shapes
from hetero_tf.models.initial_weights import first_weights
from hetero_tf.models.preprocessed import add_normalisation
from hetero_tf.models.state import State, StateLayout
from hetero_tf.partitions.partition import Partition
from hetero_tf.planning.packing import pack_rounds
from hetero_tf.planning.plan import Division, Plan, plan_round
from hetero_tf.planning.sharing import share_blocks
from hetero_tf.process.build_round import build_setup, family_of
from hetero_tf.process.data import build_input, check_data, check_split, example_shape, load_data, split
from hetero_tf.recipe import as_recipe, with_source_location
from hetero_tf.recipe.fine_tuning import fine_tuning, tuned_units
from hetero_tf.recipe.key_rules import check_keys
from hetero_tf.recipe.schema import Recipe
from hetero_tf.rounds.disk_rows import read_training_rows, reads_from_disk
from hetero_tf.rounds.engine import report
from hetero_tf.rounds.failure import FAILURE, OVERFLOW
from hetero_tf.rounds.round import build_round
from hetero_tf.rounds.round_setup import RoundSetup

# Tracing time, measured on the shipped recipes on one core; it varies by a factor of 2.
TRACE_SECONDS_PER_VARIABLE = 0.05


@dataclass(frozen=True)
class LearningProcess:
    """Steps of the run of a recipe. Create it with `learning_process`.

    Attributes:
        recipe: The recipe.
        dataset: Its examples.
        partition: The examples of each client.
        input: Converts examples to batches.
        family: The models of all levels.
        setup: The objects of a round.
        evaluator: Evaluates states.
    """

    recipe: Recipe
    dataset: Dataset
    partition: Partition
    input: Input
    family: ModelFamily
    setup: RoundSetup
    evaluator: Evaluator

    def initialize(self) -> State:
        """Return the state before the first round, with random values or those of `model.initial_weights`."""
        weights, _ = first_weights(self.recipe, self.family)
        return self.begin(weights)

    def blank(self) -> State:
        """Return a state with the right shapes, without reading `model.initial_weights`."""
        return self.begin(initial_values(self.family))

    def evaluate(self, state: State, levels: str | None = None) -> tuple[dict, dict]:
        """Return metrics by name, and `{level: statistics of static batch normalisation by variable path}` of a state.

        Args:
            state: `State`.
            levels: "global" or "all", see `Evaluator.evaluate`; None: `evaluate.levels` of the recipe.

        With fine-tuning, `tuned_*` are metrics of the fine-tuned client models; the state is not changed.
        """
        metrics, statistics = self.evaluator.evaluate(state, levels)
        return metrics | self._tuned_metrics(state), statistics

    def with_progress(self, on_progress: Callable[[int, int], None]) -> "LearningProcess":
        """Return the same process with a progress callback; the results of its rounds are bit-identical.

        Args:
            on_progress: `(client steps since the previous call, clients that have finished)`, called on threads of
                TensorFlow while a round runs; never if XLA compiles the round.
        """
        return dataclasses.replace(self, setup=dataclasses.replace(self.setup, on_progress=on_progress))

    @property
    def selection_metric(self) -> str:
        """Metric that selects the best round."""
        return self.recipe.evaluate.best or self.default_selection_metric

    @property
    def default_selection_metric(self) -> str:
        """Metric that selects the best round if the recipe has none."""
        return default_selection_metric(self.dataset.kind, bool(self.partition.held_out.ids.size))

    def statistics(self, state: State, level: str | None = None) -> dict:
        """Compute the statistics of static batch normalisation at a level; see `Evaluator.statistics`."""
        return self.evaluator.statistics(state, level)

    def model(self, state: State, level: str | None = None, statistics: dict | None = None) -> keras.Model:
        """Return the trained Keras model at a level, from unprocessed examples of the data set to logits.

        Pixels of uint8 data are 0..255 in float32 or uint8; the model normalises them like the input of the recipe.

        Args:
            state: `State`.
            level: Name of a level of the recipe; None for the global model.
            statistics: Result of `statistics` for this level; None computes them.
        """
        network, is_bytes = self.network(state, level, statistics), self.dataset.train.x.dtype == np.uint8
        return add_normalisation(network, self.input.normalised_by, is_bytes)

    def network(self, state: State, level: str | None = None, statistics: dict | None = None) -> keras.Model:
        """Return the same model without the normalisation, for the inputs of local training; see `Evaluator.model`."""
        return self.evaluator.model(state, level, statistics)

    def client_results(self, state: State, level: str | None = None) -> ClientResults:
        """Return the local test results of each client as arrays; see `Evaluator.client_results`."""
        return self.evaluator.client_results(state, level)

    def begin(self, weights: dict[str, tf.Tensor]) -> State:
        """Return the state before the first round for global weights by path; see `models.initial_weights`."""
        values = self.state_layout.build(tf.zeros) | {"weights": weights}
        tables = values["clients"]
        # Personal units of every client start from the global values.
        tables["personal"] = {path: zeros + weights[path] for path, zeros in tables["personal"].items()}
        if tables["peers"]:
            drawn = initial_peers(self.family, list(weights.values()), self.setup.peers)
            tables["peers"] = {path: zeros + peers for (path, zeros), peers in zip(tables["peers"].items(), drawn)}
        return self.state_layout.state_of(0, values)

    @functools.cached_property
    def state_layout(self) -> StateLayout:
        """Order and shapes of the values of a state."""
        setup = self.setup
        return StateLayout(
            shapes=dict(zip(self.paths, setup.layout.cut.shapes, strict=True)),
            dtype=setup.layout.dtype,
            slots=registry.find("servers", self.recipe.round.server.name).SLOTS,
            registered=len(self.partition.train),
            ensemble=self.recipe.levels.ensemble,
            personal=tuple(self.paths[position] for position in setup.layout.personal),
            has_memory=setup.algorithm.remember is not None,
            peers=setup.peers,
        )

    @functools.cached_property
    def paths(self) -> tuple[str, ...]:
        """Paths of the global values, in order."""
        return tuple(shapes(self.family, self.recipe.levels.global_level, self.dataset.classes))

    def next(self, state: State, cohort: Sequence[int] | None = None) -> tuple[State, dict]:
        """Run one round.

        Args:
            state: `State`.
            cohort: Ids of the active clients; None draws them.

        Returns:
            The new `State`, and the metrics of the round, see `run`.
        """
        state, rows = self.run(state, [self.plan(state.round, cohort)])
        return state, rows[0]

    def plan(self, round: int, cohort: Sequence[int] | None = None, attempt: int = 0) -> Plan:
        """Plan a round.

        Args:
            round: Counted from 0.
            cohort: Ids of the active clients; None draws them.
            attempt: Each number draws a different cohort.
        """
        starts, shuffle = self.input.starts(self.dataset.train.x), self.input.shuffle
        return plan_round(self.recipe, self.partition, starts, shuffle, self.division, round, cohort, attempt)

    @property
    def can_plan_ahead(self) -> bool:
        """True if a round may be planned while an earlier one runs."""
        return True

    @property
    def division(self) -> Division:
        """Stages of the levels of the mix."""
        stages = tuple(len(self.family.stages[name]) for name in self.recipe.levels.names)
        return Division(stages, self.family.drawn)

    @property
    def preparation(self) -> tuple[str, float | None]:
        """Short description of the work of `compile`, and its estimated seconds (None if unknown)."""
        variables = sum(len(self.paths) * len(submodel.block.stages) for submodel in self.setup.submodels)
        return "tracing the round", TRACE_SECONDS_PER_VARIABLE * variables

    def compile(self) -> None:
        """Trace the compiled round before its first call."""
        self._round.get_concrete_function()

    def run(self, state: State, planned: Sequence[Plan]) -> tuple[State, list[dict]]:
        """Run planned rounds, starting with `state.round`, in one call.

        Returns:
            The new `State`, and the metrics of each round (see `base.metrics`), without those of an evaluation. A round
            whose merge overflows changes only `State.round`; its metrics have a "failure", a `RoundFailure`.
        """
        engine = self.setup.engine
        is_shared = engine.replicas.count > 1
        if len(planned) > 1 and (is_shared or reads_from_disk(self.setup.examples)):
            rows = []
            for plan in planned:
                state, row = self.run(state, [plan])
                rows += row
            return state, rows
        rates = [self.learning_rate(state.round + index) for index in range(len(planned))]
        packed, slots = pack_rounds(planned, self.setup.block_sizes, self.family.submodel_of)
        if is_shared:
            packed = share_blocks(packed, slots[0], self.work(planned[0]), engine.replicas.count)
        packed, disk_rows = self._with_disk_rows(packed)
        after, records = self._round(
            self.state_layout.values_of(state),
            tf.nest.map_structure(tf.constant, packed),
            tf.constant(rates, self.recipe.float_type),
            state.round,
            self._seed,
            *disk_rows,
        )
        merge_finite = records.pop("merge_finite").numpy()
        # [rounds, slots of the blocks] -> [cohort] of each round
        rows = [
            self._row(plan, rate, {name: values[index].numpy()[of_plan] for name, values in records.items()})
            for index, (plan, rate, of_plan) in enumerate(zip(planned, rates, slots))
        ]
        rows = [row if finite else {**row, FAILURE: OVERFLOW} for row, finite in zip(rows, merge_finite)]
        return self.state_layout.state_of(state.round + len(planned), after), rows

    def _with_disk_rows(self, packed):
        """Return the packed rounds, and their examples as arguments of the compiled round if the data are on disk."""
        if not reads_from_disk(self.setup.examples):
            return packed, ()
        packed, disk_rows = read_training_rows(self.setup.examples, packed, self.setup.engine.replicas.local_range)
        return packed, (disk_rows,)

    @property
    def example_shape(self) -> tuple[int, ...]:
        """Shape of one input: (height, width, channels), or (positions,) of a text segment."""
        return example_shape(self.input, self.dataset.train.x)

    def examples(self, plan: Plan) -> np.ndarray:
        """Return the number of images, or of text tokens, that each client of a plan trains on: int [cohort]."""
        counts, x = np.sum(plan.rows >= 0, axis=-1), self.dataset.train.x
        if self.dataset.train.y is None:
            firsts = np.asarray(self.input.starts(x))
            lengths = np.array([int(self.input.length(x, first)) for first in firsts])
            counts = counts * lengths[np.searchsorted(firsts, plan.starts)]
        return counts.sum(axis=-1)

    def engine_report(self) -> dict:
        """Return the engine's settings as a JSON dict; see `rounds.engine.report`."""
        blocks = [submodel.block for submodel in self.setup.submodels]
        return report(self.setup.engine, blocks, self.recipe, self.family.submodel_of)

    def describe_rounds(self) -> list[str]:
        """Return lines that describe the clients and the engine."""
        sizes = self.partition.summary()["train_examples"]
        unit = "rows of text" if self.dataset.train.y is None else "examples"
        least, most = sizes["min"], sizes["max"]
        size = str(least) if least == most else f"{least} to {most}"
        active = f"{self.recipe.round.clients} train in each round"
        return [
            f"clients: {len(self.partition.train)} with {size} {unit} each; {active}",
            format_engine(self.engine_report()),
        ]

    def work(self, plan: Plan) -> np.ndarray:
        """Return the training FLOPs of each client of a plan: int64 [cohort]."""
        return self._cost(plan).train_flops

    @functools.cached_property
    def client_costs(self) -> tuple[ClientCost, ...]:
        """Cost of a client in a round, by level of the mix."""
        costs = LevelCosts(self.family, self.example_shape, self.setup.examples.present.shape[1])
        return client_costs(costs, self.partition.label_mask.sum(axis=1))

    def learning_rate(self, round: int) -> float:
        """Return the local learning rate of a round, counted from 0."""
        schedule = self.recipe.schedule
        multiplier = registry.find("schedules", schedule.name).multiplier
        return self.recipe.optimizer.learning_rate * multiplier(round, **schedule.options)

    def _row(self, plan, rate, records):
        """Return the metrics of a round; records: see `round_metrics`."""
        metrics = round_metrics(plan, records, self.recipe.levels.names)
        return {**metrics, "learning_rate": rate, **self._cost(plan).metrics(), **plan.outcome}

    def _cost(self, plan):
        """Return the cost of a round for each client of its plan."""
        examples = np.count_nonzero(plan.rows >= 0, axis=-1)
        return round_cost(self.client_costs, plan.levels, plan.steps, examples, plan.stages)

    def _tuned_metrics(self, state):
        """Return metrics of the fine-tuned client models; empty without fine-tuning or local tests."""
        tested = self.evaluator.tests.clients.tolist() if self.recipe.evaluate.fine_tune.epochs else []
        if not tested:
            return {}
        tuned_state = self._fine_tuning.fine_tune(state, tested)
        evaluator = self._fine_tuning.evaluator
        client_metrics = evaluator.measure_clients(*evaluator.client_values(tuned_state))
        tuned = {f"tuned_{name.removeprefix('local_')}": float(value) for name, value in client_metrics.items()}
        return {name: value for name, value in tuned.items() if name in METRICS}

    def fine_tune(self, state: State, clients: Sequence[int]) -> State:
        """Return a state after one fine-tuning round of some clients; all trained values are personal.

        Args:
            state: State of the process before fine-tuning (see `fine_tuning.fine_tuning`).
            clients: Ids of the clients.
        """
        start = self.begin({path: state.weights[path] for path in self.paths})
        personal_values = start.clients["personal"] | state.clients.get("personal", {})
        start = dataclasses.replace(start, round=state.round, clients={**start.clients, "personal": personal_values})
        return self.run(start, [self.plan(state.round, clients)])[0]

    @functools.cached_property
    def _fine_tuning(self):
        """Process of the round that fine-tunes all clients with local tests."""
        recipe, engine = fine_tuning(self.recipe, len(self.evaluator.tests.clients)), self.setup.engine
        family = family_of(recipe, self.input, self.dataset, self.family.function)
        units = tuned_units(self.recipe)
        stages = {
            level: tuple(dataclasses.replace(stage, trained=stage.trained & units) for stage in level_stages)
            for level, level_stages in family.stages.items()
        }
        family, device = dataclasses.replace(family, stages=stages), "gpu" if engine.compiled else "cpu"
        return _assemble(family, self.dataset, self.partition, self.input, engine.replicas, device)

    @functools.cached_property
    def _seed(self):
        return tf.constant(seeds.seed32(self.recipe.seed, "round"))

    @functools.cached_property
    def _round(self):
        return build_round(self.setup, self.state_layout)


def _fit_to_budgets(recipe, source, dataset):
    """Return the recipe with levels reduced to fit their budgets."""
    x = dataset.train.x
    fitted = memory.fit_levels(recipe, source.shape(x), example_shape(source, x), dataset.classes)
    if recipe.levels.fit is not None:
        check_keys(fitted)
    return fitted


def learning_process(
    recipe: Recipe | Mapping[str, Any] | str | Path,
    dataset: Dataset | None = None,
    partition: Partition | None = None,
    data_dir: Path | str | None = None,
    parallel: int | None = None,
    device: str | None = None,
    model: ModelBuilder | None = None,
    strategy: tf.distribute.Strategy | None = None,
) -> LearningProcess:
    """Build the learning process of a recipe.

    Args:
        recipe: A `Recipe`, a path, the name of a shipped recipe, a YAML text, or a mapping with the keys of a recipe.
        dataset: The examples; None loads those of the recipe.
        partition: The examples of each client; None splits them as in the recipe.
        data_dir: Folder of the data, see README.
        parallel: Client blocks that train in parallel; None: the number of cores.
        device: "cpu" or "gpu", the device for which the engine is chosen; None: the device that TensorFlow finds.
        model: `(width, classes) -> keras.Model`, a function that builds a custom model instead of the recipe's layers,
            see `models.custom_model.build_custom_model`; the key `model` of the recipe is then optional.
        strategy: Strategy whose replicas share each round and evaluation, such as
            `tf.distribute.MirroredStrategy()`; None: no sharing. Results are equal up to the order of summation.

    If TensorFlow has not started yet, `hardware.configure_threads` sets its threads.
    """
    parallel = hardware.core_count() if parallel is None else parallel
    hardware.configure_threads(parallel)
    recipe = as_recipe(recipe, custom_model=model is not None)
    if model is not None and (recipe.levels.fit or recipe.levels.budgets or recipe.levels.ensemble):
        raise InputError(
            "a custom `model` cannot be divided like the layers of a recipe; remove levels.fit, levels.budgets and "
            "levels.members"
        )
    if dataset is None:
        dataset = load_data(recipe, data_dir)
    check_data(recipe, dataset)
    if partition is None:
        partition = split(recipe, dataset)
    source = build_input(recipe, dataset)
    device = hardware.device_type() if device is None else device
    with with_source_location(recipe):
        check_split(recipe, partition, source.starts(dataset.train.x))
        family = family_of(_fit_to_budgets(recipe, source, dataset), source, dataset, model)
        return _assemble(family, dataset, partition, source, Replicas(parallel, strategy), device)


def described_process(
    recipe: Recipe, dataset: DescribedDataset, partition: Partition, parallel: int
) -> LearningProcess:
    """Build the process of a finished run without its data: for its models, not for training or evaluation.

    Args:
        recipe: The recipe of the run, which was checked against the data at the start of the run.
        dataset: Description of the data.
        partition: Partition of the run, without test and held-out examples.
        parallel: See `learning_process`.
    """
    hardware.configure_threads(parallel)
    check_data(recipe, dataset)
    source = build_input(recipe, dataset)
    with with_source_location(recipe):
        family = family_of(_fit_to_budgets(recipe, source, dataset), source, dataset)
        return _assemble(family, dataset, partition, source, Replicas(parallel), hardware.device_type())


def _assemble(family, dataset, partition, source, replicas, device):
    """Return the `LearningProcess` of a model family."""
    recipe = family.recipe
    setup = build_setup(recipe, dataset, partition, family, source, replicas, device)
    evaluator = Evaluator(recipe, dataset, partition, family, setup.examples, replicas)
    return LearningProcess(recipe, dataset, partition, source, family, setup, evaluator)
