"""The learning process of a recipe as pure steps, for notebooks and for the command line.

    recipe = hetero_tf.load_recipe("recipes/digits.yaml")
    process = hetero_tf.learning_process(recipe)
    state = process.initialize()
    state, metrics = process.next(state)
    model = process.model(state, level="e")
"""

import functools
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf import calibration, data, evaluation, hardware, plans, registry, seeds
from hetero_tf import parts as building
from hetero_tf.inputs import Input
from hetero_tf.packing import pack
from hetero_tf.rounds import build_round
from hetero_tf.stack_round import RoundParts


@dataclass(frozen=True)
class State:
    """What one round hands to the next.

    Attributes:
        round: Finished rounds.
        weights: Global trainable values by variable path.
    """

    round: int
    weights: dict


@dataclass(frozen=True)
class LearningProcess:
    """Everything built once for a recipe. Make it with `learning_process`.

    Attributes:
        recipe: `recipe.schema.Recipe`.
        dataset: `data.dataset.Dataset`.
        partition: `partitions.partition.Partition`.
        input: `inputs.Input`.
        global_model: Keras model at the global level, with the initial values.
        parts: `stack_round.RoundParts`.
        parallel: Clients in flight at once.
    """

    recipe: object
    dataset: object
    partition: object
    input: Input
    global_model: object
    parts: RoundParts
    parallel: int

    def initialize(self):
        """The state before the first round."""
        return State(0, {v.path: tf.convert_to_tensor(v) for v in self.global_model.trainable_variables})

    def next(self, state, cohort=None):
        """Runs one round.

        Args:
            state: `State`.
            cohort: Ids of the active clients; None draws them as the recipe says.

        Returns:
            The new `State`, and metrics as `run` gives them for one round.
        """
        state, rows = self.run(state, [self.plan(state.round, cohort)])
        return state, rows[0]

    def plan(self, round, cohort=None, attempt=0):
        """The `plans.Plan` of a round."""
        starts = self.input.starts(self.dataset.train.x)
        return plans.plan_round(self.recipe, self.partition, starts, self.input.shuffle, round, cohort, attempt)

    def compile(self):
        """Traces the compiled round, which the first call would do otherwise."""
        self._round.get_concrete_function()

    def run(self, state, planned):
        """Runs the planned rounds, which must follow `state.round`, in one call.

        Returns:
            The new `State`, and per round a dict: loss and gradient_norm (means over the finite clients with
            examples), lost (clients left out because their result was not finite), clients per level, learning_rate.
        """
        rates = [self.learning_rate(state.round + index) for index in range(len(planned))]
        packed = pack(planned, [stack.clients for stack in self.parts.engine.stacks])
        weights, found = self._round(
            list(state.weights.values()), [tf.constant(array) for array in packed.arrays()],
            tf.constant(rates, self.recipe.float_type), state.round, self._seed)
        rows = [self._row(plan, rate, {name: values[index].numpy()[places] for name, values in found.items()})
                for index, (plan, rate, places) in enumerate(zip(planned, rates, packed.places))]
        return State(state.round + len(planned), dict(zip(state.weights, weights))), rows

    @property
    def example_shape(self):
        """Shape of one input: (height, width, channels), or (positions,) of a segment of text."""
        return building.example_shape(self.input, self.dataset)

    def examples(self, plan):
        """Images, or tokens of text, that each client of a plan trains on: int [cohort]."""
        chosen = np.sum(plan.rows >= 0, axis=-1)
        x = self.dataset.train.x
        if self.dataset.train.y is None:
            firsts = np.asarray(self.input.starts(x))
            lengths = np.diff(firsts, append=x.shape[1])
            chosen = chosen * lengths[np.searchsorted(firsts, plan.starts)]
        return chosen.sum(axis=-1)

    def learning_rate(self, round):
        """The local learning rate of a round, counted from 0."""
        schedule = self.recipe.schedule
        multiplier = registry.find("schedules", schedule.name).multiplier
        return self.recipe.optimizer.learning_rate * multiplier(round, **schedule.options)

    def _row(self, plan, rate, found):
        names, finite = self.recipe.levels.names, found["finite"]
        kept = {name: found[name][finite & (plan.steps > 0)] for name in ("loss", "gradient_norm")}
        means = {name: float(values.mean()) if values.size else None for name, values in kept.items()}
        mix = {name: int(np.sum(plan.levels == place)) for place, name in enumerate(names)}
        return {**means, "lost": int(np.sum(~finite)), "levels": mix, "learning_rate": rate}

    def evaluate(self, state):
        """Measures the global model.

        Returns:
            Metrics by name, and the statistics of static batch normalisation by variable path (empty without it).
        """
        weights = list(state.weights.values())
        statistics = self.statistics(state)
        found = self._test(weights, list(statistics.values()))
        metrics = {name: float(value) for name, value in found.items() if value.shape.rank == 0}
        return metrics, statistics

    def statistics(self, state, level=None):
        """The statistics query of static batch normalisation: `{path: value}`.

        A narrower level's activations have other moments than the first channels of the global model's, so its
        statistics are queried with its own sub-model.
        """
        top = self.recipe.levels.global_level
        level = top if level is None else level
        paths = calibration.statistics_paths(self.global_model)
        if not paths:
            return {}
        settings, seed = self.recipe.evaluate, self.recipe.seed
        pooled = settings.statistics == "pooled"
        examples = [np.arange(len(self.dataset.train.x), dtype=np.int32)] if pooled else self.partition.train
        full, short = calibration.statistics_batches(
            examples, settings.statistics_batch, seeds.rng(seed, "statistics", state.round))
        key = seeds.seed32(seed, "statistics noise", state.round)
        calibrate = self._calibrate if level == top else self._build_calibrate(level)
        return dict(zip(paths, calibrate(self._submodel(state, level), full, short, key)))

    def model(self, state, level=None, statistics=None):
        """The trained Keras model at any level, with all classes and the first channels of the global weights.

        Args:
            state: `State`.
            level: Name of a level of the recipe; None for the global model.
            statistics: As `statistics` gives them for this level; None queries them.
        """
        level = self.recipe.levels.global_level if level is None else level
        statistics = self.statistics(state, level) if statistics is None else statistics
        model = self.build(level)
        for variable, value in zip(model.trainable_variables, self._submodel(state, level)):
            variable.assign(value)
        for variable in model.non_trainable_variables:
            if variable.path in statistics:
                variable.assign(statistics[variable.path])
        return model

    def build(self, level):
        """A new Keras model at a level, for inference: all classes, Scalers inert."""
        width = self.recipe.levels.widths[level]
        return building.build_at(self.recipe, self.input, self.dataset, width, 1.0, self.dataset.classes,
                                 self.recipe.float_type)

    def _submodel(self, state, level):
        """The level's first channels of the global weights, in model order."""
        weights = list(state.weights.values())
        if level == self.recipe.levels.global_level:
            return weights
        shapes = [variable.shape for variable in self.build(level).trainable_variables]
        return [tf.slice(value, [0] * len(shape), shape) for value, shape in zip(weights, shapes)]

    def _build_calibrate(self, level):
        return calibration.build_calibrate(self.build(level), self.build(level), self.input, self.parts.x, self.parts.y,
                                          self.recipe.evaluate.statistics_batch, self.parallel)

    @functools.cached_property
    def _seed(self):
        return tf.constant(seeds.seed32(self.recipe.seed, "round"))

    @functools.cached_property
    def _round(self):
        return build_round(self.parts)

    @functools.cached_property
    def _calibrate(self):
        return self._build_calibrate(self.recipe.levels.global_level)

    @functools.cached_property
    def _test(self):
        size, test = self.recipe.evaluate.batch_size, self.dataset.test
        if test.y is None:
            return evaluation.build_text_test(self.global_model, self.input, tf.constant(test.x),
                                              self.dataset.classes, size, self.recipe.seed, self.parallel)
        masks = building.find_objective(self.recipe).MASKS_LABELS
        return evaluation.build_image_test(
            self.global_model, self.input, tf.constant(test.x), tf.constant(test.y), size,
            evaluation.local_test(self.partition), masks, self.parallel)


def learning_process(recipe, dataset=None, partition=None, data_dir=None, parallel=None, device=None):
    """Builds the learning process of a recipe.

    Args:
        recipe: `recipe.schema.Recipe`.
        dataset: `data.dataset.Dataset`; None loads the recipe's.
        partition: `partitions.partition.Partition`; None splits as the recipe says.
        data_dir: Folder of the data, see README.
        parallel: Stacks of clients in flight at once; None: as many as there are cores.
        device: "cpu" or "gpu", what the engine is chosen for; None: what TensorFlow sees.

    If TensorFlow has not started yet, its threads are set as `hardware.prepare` says.
    """
    parallel = hardware.cores() if parallel is None else parallel
    hardware.prepare(parallel)
    if dataset is None:
        dataset = data.load(recipe.data.loader, recipe.data.fallback, data_dir)
    if partition is None:
        partition = building.split(recipe, dataset)
    source = building.build_input(recipe)
    width = recipe.levels.widths[recipe.levels.global_level]
    global_model = building.build_at(recipe, source, dataset, width, 1.0, dataset.classes, recipe.float_type)
    parts = building.round_parts(recipe, dataset, partition, source, global_model, parallel,
                                  hardware.devices() if device is None else device)
    return LearningProcess(recipe, dataset, partition, source, global_model, parts, parallel)
