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
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import hardware, registry
from hetero_tf.base.errors import NotFinite
from hetero_tf.base.replicas import Replicas
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.described import DescribedDataset
from hetero_tf.data.inputs import first_inputs
from hetero_tf.data.partitions.partition import Partition
from hetero_tf.evaluation.class_results import ClassResults
from hetero_tf.evaluation.fairness import ClientResults
from hetero_tf.models.compiled import UserFunctions, read_functions
from hetero_tf.models.costs import memory
from hetero_tf.models.custom_model import ModelBuilder, as_builder, user_model, width_function
from hetero_tf.models.global_layout import initial_values
from hetero_tf.models.initial_weights import read_weights
from hetero_tf.models.preprocessed import add_preprocessing, encode_strings, name_outputs, named_model, split_strings
from hetero_tf.models.state import State
from hetero_tf.planning.plan import Plan
from hetero_tf.planning.selection import reads_state
from hetero_tf.recipe import as_recipe, with_source_location
from hetero_tf.recipe.key_rules import check_keys
from hetero_tf.recipe.schema import Recipe
from hetero_tf.run.checks import build_input, check_cohort, check_data, check_split, example_shape
from hetero_tf.run.data import fit_data, load_data, split
from hetero_tf.run.federation import FAILURE, Federation, RoundFailure, family_of, work_of
from hetero_tf.run.simulated_rounds import SimulatedRounds

# Examples that a user's loss and metrics are tried on.
CHECKED_EXAMPLES = 32


class RoundRunner(Protocol):
    """Runner of the rounds and evaluations of a process: simulated here, on workers, or on devices."""

    @property
    def can_plan_ahead(self) -> bool:
        """True if a round may be planned while an earlier one runs."""

    @property
    def preparation(self) -> tuple[str, float | None]:
        """Short description of the work of `prepare`, and its estimated seconds (None if unknown)."""

    def prepare(self) -> None:
        """Trace the compiled round, or wait for devices, before the first round."""

    def plan(
        self, round: int, cohort: Sequence[int] | None = None, attempt: int = 0, state: State | None = None
    ) -> Plan:
        """Plan a round.

        Args:
            round: Counted from 0.
            cohort: Ids of the active clients; None selects them.
            attempt: Each number selects a different cohort.
            state: The state before the round, for selections that read it, see `methods.selections`.
        """

    def run(self, state: State, planned: Sequence[Plan]) -> tuple[State, list[dict]]:
        """Run planned rounds, starting with `state.round`.

        Returns:
            The new `State`, and the metrics of each round (see `base.metrics`), without those of an evaluation. A
            failed round changes only `State.round`; its metrics have a "failure", a `RoundFailure`.
        """

    def evaluate(self, state: State, levels: str | None = None) -> tuple[dict, dict]:
        """See `LearningProcess.evaluate`."""

    def count_examples(self, plan: Plan) -> np.ndarray:
        """Return the number of images, or of text tokens, that each client of a plan trains on: int [cohort]."""

    def describe(self) -> list[str]:
        """Return a line that describes the clients, and lines about the engine."""


@dataclass(frozen=True)
class LearningProcess(Federation):
    """Steps of the run of a recipe, `State -> State`. Create it with `learning_process`.

    Attributes:
        build_runner: Builds the `RoundRunner` of this process.
    """

    build_runner: Callable[[Federation], RoundRunner] = SimulatedRounds

    @functools.cached_property
    def runner(self) -> RoundRunner:
        """The runner of the rounds and evaluations."""
        return self.build_runner(self)

    def initialize(self) -> State:
        """Return the state before the first round, with random values or those of `model.initial_weights`."""
        weights, _ = self.first_weights()
        return self.begin(weights)

    def first_weights(self) -> tuple[dict[str, tf.Tensor], str | None]:
        """Return the global values before the first round by path, and their source; None if all values are drawn."""
        weights = initial_values(self.family)
        if self.recipe.model.initial_weights is None:
            return weights, None
        return read_weights(self.recipe, self.family, weights)

    def next(self, state: State, cohort: Sequence[int] | None = None) -> tuple[State, dict]:
        """Run one round.

        Args:
            cohort: Ids of the active clients; None selects them.

        Returns:
            The new `State`, and the metrics of the round, see `RoundRunner.run`.
        """
        state, rows = self.run(state, [self.plan(state.round, cohort, state=state)])
        return state, rows[0]

    def plan(
        self, round: int, cohort: Sequence[int] | None = None, attempt: int = 0, state: State | None = None
    ) -> Plan:
        """Plan a round; see `RoundRunner.plan`."""
        return self.runner.plan(round, cohort, attempt, state)

    def run(self, state: State, planned: Sequence[Plan]) -> tuple[State, list[dict]]:
        """Run planned rounds; see `RoundRunner.run`."""
        return self.runner.run(state, planned)

    def evaluate(self, state: State, levels: str | None = None) -> tuple[dict, dict]:
        """Return metrics by name, and `{level: statistics of static batch normalisation by variable path}` of a state.

        Args:
            levels: "global" or "all", see `Evaluator.evaluate`; by default `evaluate.levels` of the recipe.

        With fine-tuning, `tuned_*` are metrics of the fine-tuned client models; the state is not changed.
        """
        return self.runner.evaluate(state, levels)

    def statistics(self, state: State, level: str | None = None) -> dict:
        """Compute the statistics of static batch normalisation at a level; see `Evaluator.statistics`."""
        return self.evaluator.statistics(state, level)

    def model(self, state: State, level: str | None = None, statistics: dict | None = None) -> keras.Model:
        """Return the trained Keras model at a level, from unprocessed examples of the data set to logits.

        Pixels of uint8 data are 0..255 in float32 or uint8; the model normalises them like the input of the recipe.
        Samples of audio have the range of 16 bits. Several arrays of an example, and several outputs, are dictionaries.

        Args:
            level: Name of a level of the recipe; None for the global model.
            statistics: Result of `statistics` for this level; None computes them.
        """
        model = add_preprocessing(self.network(state, level, statistics), self.input, self.dataset.train.x, True)
        return named_model(model, self.dataset.fields, self.functions.outputs, self.functions.strings)

    def network(self, state: State, level: str | None = None, statistics: dict | None = None) -> keras.Model:
        """Return the same model without the normalisation, for the inputs of local training; see `Evaluator.model`."""
        return self.evaluator.model(state, level, statistics)

    def client_results(self, state: State, level: str | None = None) -> ClientResults:
        """Return the local test results of each client as arrays; see `Evaluator.client_results`."""
        return self.evaluator.client_results(state, level)

    def class_results(self, state: State, level: str | None = None) -> ClassResults:
        """Return the confusion of the classes on the test set; see `Evaluator.class_results`."""
        return self.evaluator.class_results(state, level)

    def with_progress(self, on_progress: Callable[[int, int], None]) -> "LearningProcess":
        """Return the same process with a progress callback; the results of its rounds are bit-identical.

        Args:
            on_progress: `(client steps since the previous call, clients that have finished)`, called on threads of
                TensorFlow while a round runs; never if XLA compiles the round, or if devices train.
        """
        return dataclasses.replace(self, setup=dataclasses.replace(self.setup, on_progress=on_progress))


def _fit_levels(recipe, source, dataset, partition, device, builder):
    """Return the recipe with levels that fit their budgets or the devices of the clients."""
    if recipe.levels.fit is None and not recipe.levels.budgets:
        return recipe
    x = dataset.train.x
    fitted = memory.fit_levels(recipe, source.shape(x), example_shape(source, x), recipe.num_outputs(dataset.classes))
    if recipe.levels.fit == "device":
        work = work_of(family_of(fitted, source, dataset, device, builder), source, dataset, partition)
        return memory.fit_to_devices(fitted, work, partition.train.sizes)
    if recipe.levels.fit is not None:
        check_keys(fitted)
    return fitted


def _read_model(recipe, dataset, model, loss, metrics):
    """Return data with names of outputs, the recipe with the keys of compile(), and a builder (None: its layers)."""
    if model is None and recipe.model.function is not None:
        model = registry.function_of("models", recipe.model.function)
    if model is None and loss is None and not metrics and not dataset.outputs and not dataset.text_fields:
        return dataset, recipe, UserFunctions(), None
    built, outputs = None, recipe.num_outputs(dataset.label_count)
    if model is not None:
        model = width_function(model, recipe.levels.widths)
        built = user_model(model, recipe.levels.widths[recipe.levels.global_level], outputs)
    strings, rest = split_strings(built)
    if isinstance(model, keras.Model):
        model = rest
    dataset = name_outputs(encode_strings(dataset, strings), built)
    recipe, functions = read_functions(recipe, built, dataset.outputs, loss, metrics)
    builder = None if model is None else as_builder(model, None if dataset.outputs else outputs)
    return dataset, recipe, dataclasses.replace(functions, strings=strings), builder


def _check_functions(process):
    """Check the user's loss and metrics by the outputs and targets of the first examples."""
    family, train, functions = process.family, process.dataset.train, process.functions
    if train.y is None or not (functions.loss or functions.metrics):
        return
    inputs = first_inputs(process.input, train.x, family.classes, CHECKED_EXAMPLES)
    model = family.training_model(process.recipe.levels.global_level, family.classes)
    outputs = tf.cast(tf.nest.flatten(model(inputs, training=False))[-1], process.recipe.float_type)
    functions.check(process.evaluator.measures.task, outputs, train.y[:CHECKED_EXAMPLES])


def learning_process(
    recipe: Recipe | Mapping[str, Any] | str | Path,
    dataset: Dataset | None = None,
    partition: Partition | None = None,
    data_dir: Path | str | None = None,
    parallel: int | None = None,
    device: str | None = None,
    model: ModelBuilder | None = None,
    strategy: tf.distribute.Strategy | None = None,
    loss: Any = None,
    metrics: Sequence[Any] = (),
) -> LearningProcess:
    """Build the learning process of a recipe.

    Args:
        recipe: A `Recipe`, a path, the name of a shipped recipe, a YAML text, or a mapping with the keys of a recipe.
        dataset: The examples; None loads those of the recipe. A `DescribedDataset` is enough for the models of a
            finished run, not for training or evaluation.
        partition: The examples of each client; None splits them as in the recipe.
        data_dir: Folder of the data, see README.
        parallel: Client blocks that train in parallel, by default the number of cores.
        device: "cpu" or "gpu", the device for which the engine is chosen; by default the one that TensorFlow finds.
        model: A Keras model, or a function `(width, classes) -> keras.Model`, or of the `width` or of the name of the
            `level` alone, instead of the recipe's layers; see `models.custom_model.as_builder` and
            `build_custom_model`. The key `model` of the recipe is then optional.
        strategy: Strategy whose replicas share each round and evaluation, such as
            `tf.distribute.MirroredStrategy()`, or None for no sharing. Results are equal up to the order of summation.
        loss: Loss of local steps, as for `keras.Model.compile`: a function `(y_true, y_pred)`, an object or a name; by
            default that of a compiled model or of the recipe.
        metrics: Metrics as for `keras.Model.compile`, in addition to those of a compiled model and of the recipe.

    If TensorFlow has not started yet, `hardware.configure_threads` sets its threads. Without a GPU, this process
    skips the passes of the graph optimizer that rounds do not need, see `hardware.skip_graph_passes`.
    """
    hardware.check_keras()
    parallel = hardware.core_count() if parallel is None else parallel
    hardware.configure_threads(parallel)
    hardware.skip_graph_passes()
    recipe = as_recipe(recipe, model, dataset)
    dataset = load_data(recipe, data_dir) if dataset is None else dataset
    check_data(recipe, dataset)
    partition = split(recipe, dataset) if partition is None else partition
    dataset, partition = fit_data(dataset, partition)
    device = hardware.device_type() if device is None else device
    with with_source_location(recipe):
        # A described data set is that of a finished run, which was checked at its start.
        is_finished = isinstance(dataset, DescribedDataset)
        if not is_finished:
            check_split(recipe, partition)
        dataset, compiled, functions, builder = _read_model(recipe, dataset, model, loss, metrics)
        source = build_input(recipe, dataset)
        fitted = _fit_levels(compiled, source, dataset, partition, device, builder)
        family = family_of(fitted, source, dataset, device, builder)
        process = LearningProcess.of(family, dataset, partition, source, Replicas(parallel, strategy), functions)
        if not is_finished:
            _check_functions(process)
        if process.clock is not None and not is_finished:
            check_cohort(process.recipe, len(partition.train))
    return process


def is_measured(recipe: Recipe, round: int) -> bool:
    """Return True if the state after a round, counted from 1, is evaluated."""
    return round == recipe.rounds or round % recipe.evaluate.every == 0


def plan_call(process: LearningProcess, first: int, state: State | None = None) -> list[Plan]:
    """Plan the rounds of one call, starting with `first`; empty after the last round.

    Args:
        first: Number of finished rounds.
        state: The state after them; None if the selection does not read it. A call has one round if it does.
    """
    recipe = process.recipe
    # The next round after which the state is evaluated or saved, or on which the selection depends.
    stops = [first - first % every + every for every in (recipe.evaluate.every, recipe.checkpoint.every)]
    stop = min(*stops, recipe.rounds, first + 1 if reads_state(recipe) else recipe.rounds)
    return [process.plan(round, state=state) for round in range(first, stop)]


def advance(process: LearningProcess, state: State, planned: list[Plan]) -> tuple[State, list[dict], list[Plan]]:
    """Train the planned rounds, or those before the first one that fails.

    A round fails if too many clients diverge, its merge overflows or too few devices respond. If the first planned
    round fails, it is repeated once with another cohort, unless the policy is asynchronous.

    Returns:
        The new state, and a row of metrics and the plan of each trained round.

    Raises:
        NotFinite, TooFewDevices: The second cohort also failed.
    """
    after, rows = process.run(state, planned)
    failed = [index for index, row in enumerate(rows) if _failure(process.recipe, row)]
    if failed and failed[0] > 0:
        return advance(process, state, planned[: failed[0]])
    if failed:
        # The clients of an asynchronous policy started in the order of all arrivals before.
        again = not registry.constant("policies", process.recipe.round.policy.name, "ASYNCHRONOUS")
        # A second cohort would be a further query of the clients' data, which the account does not count.
        again &= process.recipe.privacy is None
        if again:
            plan, factor = process.plan(state.round, attempt=1, state=state), planned[0].rate_factor
            planned = [plan if factor == plan.rate_factor else dataclasses.replace(plan, rate_factor=factor)]
            after, rows = process.run(state, planned)
        if failure := _failure(process.recipe, rows[0]):
            rate = f"Lower optimizer.learning_rate, or that of round.server. Received: {rows[0]['learning_rate']:g}"
            raise failure.error(
                f"round {state.round + 1}: {failure.reason}{', also with a second cohort' * again}; the state before "
                f"this round is kept. {failure.remedy or rate}"
            )
    rows = [{"round": state.round + index + 1, **row} for index, row in enumerate(rows)]
    return after, rows, planned


def _failure(recipe, row):
    """Return the `RoundFailure` of a failed round, else None."""
    # A private round counts diverged clients as zeros: its repetition would show that they took part.
    diverged = row["non_finite"] if recipe.privacy is None else 0
    if FAILURE not in row and diverged and diverged >= recipe.round.non_finite_share * sum(row["levels"].values()):
        return RoundFailure(f"{diverged} of {recipe.round.clients} clients returned NaN or infinity", NotFinite)
    return row.get(FAILURE)
