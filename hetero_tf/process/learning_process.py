"""The learning process of a recipe as pure steps, for notebooks and for the command line.

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
from hetero_tf.base.console import engine_lines
from hetero_tf.base.errors import InputError
from hetero_tf.base.metrics import METRICS, default_metric
from hetero_tf.base.replicas import Replicas
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.described import DescribedDataset
from hetero_tf.evaluation.evaluator import Evaluator
from hetero_tf.evaluation.fairness import ClientResults
from hetero_tf.evaluation.global_metrics import round_metrics
from hetero_tf.inputs import Input
from hetero_tf.models.costs import memory
from hetero_tf.models.costs.level_costs import Costs, client_costs
from hetero_tf.models.costs.traffic import ClientCost, round_cost
from hetero_tf.models.custom_model import ModelBuilder
from hetero_tf.models.family import ModelFamily
from hetero_tf.models.global_layout import initial_peers, initial_values, shapes
from hetero_tf.models.initial_weights import first_weights
from hetero_tf.models.preprocessed import normalised
from hetero_tf.models.state import State, in_order, state_of
from hetero_tf.partitions.partition import Partition
from hetero_tf.planning.packing import pack_rounds
from hetero_tf.planning.plan import Division, Plan, plan_round
from hetero_tf.planning.sharing import share_stacks
from hetero_tf.process.build_round import build_parts, family_of
from hetero_tf.process.data import build_input, check_data, check_split, example_shape, load_data, split
from hetero_tf.recipe import given, located
from hetero_tf.recipe.fine_tuning import fine_tuning, tuned_units
from hetero_tf.recipe.key_rules import check_keys
from hetero_tf.recipe.schema import Recipe
from hetero_tf.rounds.disk_rows import read_training_rows, reads_from_disk
from hetero_tf.rounds.engine import report
from hetero_tf.rounds.failure import FAILURE, OVERFLOW
from hetero_tf.rounds.round import build_round, new_state
from hetero_tf.rounds.round_setup import RoundSetup

# Of tracing; measured on the shipped recipes, on one core; half and twice as long were seen.
SECONDS_OF_A_VARIABLE = 0.05


@dataclass(frozen=True)
class LearningProcess:
    """The steps of a recipe's run. Make it with `learning_process`.

    Attributes:
        recipe: What is run.
        dataset: Its examples.
        partition: Which client has which of them.
        input: How examples become batches.
        family: The models of all levels.
        parts: What a round is made of.
        evaluator: Measures states.
    """

    recipe: Recipe
    dataset: Dataset
    partition: Partition
    input: Input
    family: ModelFamily
    parts: RoundSetup
    evaluator: Evaluator

    def initialize(self) -> State:
        """Returns the state before the first round, its values drawn or read as `model.initial_weights` says."""
        weights, _ = first_weights(self.recipe, self.family)
        return self.begin(weights)

    def blank(self) -> State:
        """Returns a state of the right shapes, without a look at the recipe's `model.initial_weights`."""
        return self.begin(initial_values(self.family))

    def evaluate(self, state: State, levels: str | None = None) -> tuple[dict, dict]:
        """Measures a state: metrics by name, and `{level: statistics of static batch normalisation by variable path}`.

        Args:
            state: `State`.
            levels: "global" or "all", see `Evaluator.evaluate`; None: as the recipe says.

        Where the recipe fine-tunes, `tuned_*` are of the clients' own models after it; the state stays as it is.
        """
        metrics, statistics = self.evaluator.evaluate(state, levels)
        return metrics | self._tuned(state), statistics

    def watched(self, watch: Callable[[int, int], None]) -> "LearningProcess":
        """Returns the same process, whose rounds tell how far they are; their results are the same bit for bit.

        Args:
            watch: `(steps that clients have done since its last call for them, clients that are done)`, called on
                threads of TensorFlow while a round runs; not where XLA compiles the round.
        """
        return dataclasses.replace(self, parts=dataclasses.replace(self.parts, watch=watch))

    @property
    def selection_metric(self) -> str:
        """The metric that chooses the best round."""
        return self.recipe.evaluate.best or self.default_selection_metric

    @property
    def default_selection_metric(self) -> str:
        """The metric that chooses it where the recipe names none."""
        return default_metric(self.dataset.kind, bool(self.partition.held_out.ids.size))

    def statistics(self, state: State, level: str | None = None) -> dict:
        """Queries the statistics of static batch normalisation at a level, see `Evaluator.statistics`."""
        return self.evaluator.statistics(state, level)

    def model(self, state: State, level: str | None = None, statistics: dict | None = None) -> keras.Model:
        """Returns the trained Keras model at any level, which takes examples as the data set has them and gives logits.

        Pixels of a data set of bytes are 0..255, float32 or uint8; the model normalises them as the recipe says.

        Args:
            state: `State`.
            level: Name of a level of the recipe; None for the global model.
            statistics: As `statistics` gives them for this level; None queries them.
        """
        network, of_bytes = self.network(state, level, statistics), self.dataset.train.x.dtype == np.uint8
        return normalised(network, self.input.normalised_by, of_bytes)

    def network(self, state: State, level: str | None = None, statistics: dict | None = None) -> keras.Model:
        """Returns the same model without the normalisation: it takes what clients train on, see `Evaluator.model`."""
        return self.evaluator.model(state, level, statistics)

    def client_results(self, state: State, level: str | None = None) -> ClientResults:
        """Returns what each client's own test examples give, as arrays; see `Evaluator.client_results`."""
        return self.evaluator.client_results(state, level)

    def begin(self, weights: dict[str, tf.Tensor]) -> State:
        """Returns the state before the first round with given global values by path, see `models.initial_weights`."""
        values = new_state(self.parts, list(weights.values()), len(self._slots), len(self.partition.train), tf.zeros)
        personal, peers = values["tables"]["personal"], values["tables"]["peers"]
        # Every client starts with the global values of the units that stay with it.
        for position, zeros in personal.items():
            personal[position] = zeros + values["weights"][position]
        if peers:
            drawn = initial_peers(self.family, values["weights"], self.parts.engine.peers)
            values["tables"]["peers"] = {position: zeros + drawn[position] for position, zeros in peers.items()}
        return state_of(0, self.paths, self._slots, values)

    @functools.cached_property
    def paths(self) -> tuple[str, ...]:
        """Paths of the global values, in order."""
        return tuple(shapes(self.family, self.recipe.levels.global_level, self.dataset.classes))

    def next(self, state: State, cohort: Sequence[int] | None = None) -> tuple[State, dict]:
        """Runs one round.

        Args:
            state: `State`.
            cohort: Ids of the active clients; None draws them as the recipe says.

        Returns:
            The new `State`, and metrics as `run` gives them for one round.
        """
        state, rows = self.run(state, [self.plan(state.round, cohort)])
        return state, rows[0]

    def plan(self, round: int, cohort: Sequence[int] | None = None, attempt: int = 0) -> Plan:
        """Plans a round.

        Args:
            round: Counted from 0.
            cohort: Ids of the active clients; None draws them as the recipe says.
            attempt: Every attempt draws another cohort.
        """
        starts, shuffle = self.input.starts(self.dataset.train.x), self.input.shuffle
        return plan_round(self.recipe, self.partition, starts, shuffle, self.division, round, cohort, attempt)

    @property
    def plans_ahead(self) -> bool:
        """Whether a round may be planned while an earlier one runs."""
        return True

    @property
    def division(self) -> Division:
        """The stages of the levels of the mix."""
        stages = tuple(len(self.family.stages[name]) for name in self.recipe.levels.names)
        return Division(stages, self.family.drawn)

    @property
    def preparation(self) -> tuple[str, float | None]:
        """What `compile` does, in a few words, and about how many seconds it takes; None: nobody knows."""
        variables = sum(len(self.paths) * len(stack.stages) for stack in self.parts.engine.stacks)
        return "tracing the round", SECONDS_OF_A_VARIABLE * variables

    def compile(self) -> None:
        """Traces the compiled round, which the first call would do otherwise."""
        self._round.get_concrete_function()

    def run(self, state: State, planned: Sequence[Plan]) -> tuple[State, list[dict]]:
        """Runs the planned rounds, which must follow `state.round`, in one call.

        Returns:
            The new `State`, and for each round the metrics that `base.metrics` names, without those of an evaluation.
            A round whose merge overflows changes only `State.round`; its metrics have a "failure", a `RoundFailure`.
        """
        engine = self.parts.engine
        shared = engine.replicas.count > 1
        if len(planned) > 1 and (shared or reads_from_disk(self.parts.examples)):
            rows = []
            for plan in planned:
                state, row = self.run(state, [plan])
                rows += row
            return state, rows
        rates = [self.learning_rate(state.round + index) for index in range(len(planned))]
        packed = pack_rounds(planned, [stack.clients for stack in engine.stacks], self.family.submodel_of)
        if shared:
            packed = share_stacks(packed, self.work(planned[0]), engine.replicas.count)
        packed, given = self._given(packed)
        after, records = self._round(
            in_order(state),
            [tf.constant(array) for array in packed.arrays(shared)],
            tf.constant(rates, self.recipe.float_type),
            state.round,
            self._seed,
            *given,
        )
        merge_finite = records.pop("merge_finite").numpy()
        # [rounds, places of the stacks] -> [cohort] of each round
        rows = [
            self._row(plan, rate, {name: values[index].numpy()[slots] for name, values in records.items()})
            for index, (plan, rate, slots) in enumerate(zip(planned, rates, packed.slots))
        ]
        rows = [row if finite else {**row, FAILURE: OVERFLOW} for row, finite in zip(rows, merge_finite)]
        return state_of(state.round + len(planned), self.paths, self._slots, after), rows

    def _given(self, packed):
        """The packed rounds, and what the compiled round is given of examples that stay on disk; nothing of others."""
        if not reads_from_disk(self.parts.examples):
            return packed, ()
        packed, given = read_training_rows(self.parts.examples, packed, self.parts.engine.replicas.here)
        return packed, (given,)

    @property
    def _slots(self):
        return registry.find("servers", self.recipe.round.server.name).SLOTS

    @property
    def example_shape(self) -> tuple[int, ...]:
        """Shape of one input: (height, width, channels), or (positions,) of a segment of text."""
        return example_shape(self.input, self.dataset.train.x)

    def examples(self, plan: Plan) -> np.ndarray:
        """Images, or tokens of text, that each client of a plan trains on: int [cohort]."""
        counts, x = np.sum(plan.rows >= 0, axis=-1), self.dataset.train.x
        if self.dataset.train.y is None:
            firsts = np.asarray(self.input.starts(x))
            lengths = np.array([int(self.input.length(x, first)) for first in firsts])
            counts = counts * lengths[np.searchsorted(firsts, plan.starts)]
        return counts.sum(axis=-1)

    def engine_report(self) -> dict:
        """How clients are computed, as a dict of plain JSON; see `rounds.engine.report`."""
        return report(self.parts.engine, self.recipe, self.family.submodel_of)

    def about_rounds(self) -> list[str]:
        """Says of how many clients rounds are, and how they are computed, a line each."""
        sizes = self.partition.summary()["train_examples"]
        unit = "rows of text" if self.dataset.train.y is None else "examples"
        clients = f"{len(self.partition.train)}, {self.recipe.round.clients} active a round"
        return [f"clients: {clients}, {sizes['min']} to {sizes['max']} {unit} each", engine_lines(self.engine_report())]

    def work(self, plan: Plan) -> np.ndarray:
        """Operations of training for each client of a plan: int64 [cohort]."""
        return self._cost(plan).train_flops

    @functools.cached_property
    def client_costs(self) -> tuple[ClientCost, ...]:
        """What a client of each level of the mix costs in a round."""
        costs = Costs(self.family, self.example_shape, self.parts.examples.present.shape[1])
        return client_costs(costs, self.parts.placement.cut, self.partition.label_mask.sum(axis=1))

    def learning_rate(self, round: int) -> float:
        """The local learning rate of a round, counted from 0."""
        schedule = self.recipe.schedule
        multiplier = registry.find("schedules", schedule.name).multiplier
        return self.recipe.optimizer.learning_rate * multiplier(round, **schedule.options)

    def _row(self, plan, rate, records):
        """The metrics of a round; records: as `round_metrics` takes them."""
        metrics = round_metrics(plan, records, self.recipe.levels.names)
        return {**metrics, "learning_rate": rate, **self._cost(plan).metrics(), **plan.outcome}

    def _cost(self, plan):
        """What a round costs each client of its plan."""
        examples = np.count_nonzero(plan.rows >= 0, axis=-1)
        return round_cost(self.client_costs, plan.levels, plan.steps, examples, plan.stages)

    def _tuned(self, state):
        """What the clients' own models reach after fine-tuning; nothing where there is none or nobody is tested."""
        tested = self.evaluator.tests.clients.tolist() if self.recipe.evaluate.fine_tune.epochs else []
        if not tested:
            return {}
        after = self._fine_tuning.tuned(state, tested)
        evaluator = self._fine_tuning.evaluator
        found = evaluator.measure_clients(*evaluator.client_values(after))
        tuned = {f"tuned_{name.removeprefix('local_')}": float(value) for name, value in found.items()}
        return {name: value for name, value in tuned.items() if name in METRICS}

    def tuned(self, state: State, clients: Sequence[int]) -> State:
        """Returns a state of another process after a round of this one, in which these clients keep what they train.

        Args:
            state: Of a process whose recipe differs in its `fine_tuning`.
            clients: Their ids.
        """
        start = self.begin({path: state.weights[path] for path in self.paths})
        own = start.clients["personal"] | state.clients.get("personal", {})
        start = dataclasses.replace(start, round=state.round, clients={**start.clients, "personal": own})
        return self.run(start, [self.plan(state.round, clients)])[0]

    @functools.cached_property
    def _fine_tuning(self):
        """The process of the round that fine-tunes the clients that are tested."""
        recipe, engine = fine_tuning(self.recipe, len(self.evaluator.tests.clients)), self.parts.engine
        family = family_of(recipe, self.input, self.dataset, self.family.function)
        units = tuned_units(self.recipe)
        stages = {
            level: tuple(dataclasses.replace(stage, trained=stage.trained & units) for stage in of_level)
            for level, of_level in family.stages.items()
        }
        family, device = dataclasses.replace(family, stages=stages), "gpu" if engine.compiled else "cpu"
        return _assembled(family, self.dataset, self.partition, self.input, engine.replicas, device)

    @functools.cached_property
    def _seed(self):
        return tf.constant(seeds.seed32(self.recipe.seed, "round"))

    @functools.cached_property
    def _round(self):
        return build_round(self.parts, len(self._slots), len(self.partition.train))


def _within_budgets(recipe, source, dataset):
    """The recipe whose levels are as their budgets make them."""
    x = dataset.train.x
    found = memory.fitted(recipe, source.shape(x), example_shape(source, x), dataset.classes)
    if recipe.levels.fit is not None:
        check_keys(found)
    return found


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
    """Builds the learning process of a recipe.

    Args:
        recipe: What to run: a `Recipe`, a path or the name of a shipped one, a YAML text, or a mapping with its keys.
        dataset: The examples; None loads the recipe's.
        partition: Which client has which of them; None splits them as the recipe says.
        data_dir: Folder of the data, see README.
        parallel: Stacks of clients in flight at once; None: as many as there are cores.
        device: "cpu" or "gpu", what the engine is chosen for; None: what TensorFlow sees.
        model: `(width, classes) -> keras.Model`, which builds a model of your own in place of the recipe's layers, see
            `models.custom_model.build_custom_model`; the recipe need not have the key `model` then.
        strategy: Whose replicas share each round and each evaluation, such as `tf.distribute.MirroredStrategy()`;
            None: nobody does. The results are equal up to the order of summation.

    If TensorFlow has not started yet, its threads are set as `hardware.prepare` says.
    """
    parallel = hardware.cores() if parallel is None else parallel
    hardware.prepare(parallel)
    recipe = given(recipe, own_model=model is not None)
    if model is not None and (recipe.levels.fit or recipe.levels.budgets or recipe.levels.ensemble):
        raise InputError(
            "`model` cannot be divided as the layers of a recipe can; leave levels.fit, levels.budgets and "
            "levels.members out"
        )
    if dataset is None:
        dataset = load_data(recipe, data_dir)
    check_data(recipe, dataset)
    if partition is None:
        partition = split(recipe, dataset)
    source = build_input(recipe, dataset)
    device = hardware.devices() if device is None else device
    with located(recipe):
        check_split(recipe, partition, source.starts(dataset.train.x))
        family = family_of(_within_budgets(recipe, source, dataset), source, dataset, model)
        return _assembled(family, dataset, partition, source, Replicas(parallel, strategy), device)


def described_process(
    recipe: Recipe, dataset: DescribedDataset, partition: Partition, parallel: int
) -> LearningProcess:
    """Builds the process of a finished run whose data are only described: for its models, not to train or measure.

    Args:
        recipe: Of the run; it was checked against the data when the run began.
        dataset: The description.
        partition: Of the run, without test and held-out examples.
        parallel: See `learning_process`.
    """
    hardware.prepare(parallel)
    check_data(recipe, dataset)
    source = build_input(recipe, dataset)
    with located(recipe):
        family = family_of(_within_budgets(recipe, source, dataset), source, dataset)
        return _assembled(family, dataset, partition, source, Replicas(parallel), hardware.devices())


def _assembled(family, dataset, partition, source, replicas, device):
    """The `LearningProcess` of a model family."""
    recipe = family.recipe
    parts = build_parts(recipe, dataset, partition, family, source, replicas, device)
    evaluator = Evaluator(recipe, dataset, partition, family, parts.examples, replicas)
    return LearningProcess(recipe, dataset, partition, source, family, parts, evaluator)
