"""The learning process of a recipe as pure steps, for notebooks and for the command line.

    recipe = hetero_tf.load_recipe("recipes/digits.yaml")
    process = hetero_tf.learning_process(recipe)
    state = process.initialize()
    state, metrics = process.next(state)
    model = process.model(state, level="e")
"""

import functools
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import tensorflow as tf

from hetero_tf import (accounting, calibration, data, evaluation, evaluation_personal, hardware, initial, levels, plans,
                       registry, seeds)
from hetero_tf import parts as building
from hetero_tf.inputs import Input
from hetero_tf.models import is_seed
from hetero_tf.nets import values
from hetero_tf.networks import source
from hetero_tf.packing import pack
from hetero_tf.rounds import build_round, new_state
from hetero_tf.stack_round import RoundParts


@dataclass(frozen=True)
class State:
    """What one round hands to the next.

    Attributes:
        round: Finished rounds.
        weights: Global values by variable path; those of an ensemble lead with an axis for its networks.
        server: What the server's step keeps of each value, `{slot: {path: value}}`.
        clients: What clients keep between rounds, `{"personal" or "memory": {path: [clients, ...]}}`.
    """

    round: int
    weights: dict
    server: dict = field(default_factory=dict)
    clients: dict = field(default_factory=dict)


@dataclass(frozen=True)
class LearningProcess:
    """Everything built once for a recipe. Make it with `learning_process`.

    Attributes:
        recipe: `recipe.schema.Recipe`.
        dataset: `data.dataset.Dataset`.
        partition: `partitions.partition.Partition`.
        input: `inputs.Input`.
        networks: `networks.Networks`.
        parts: `stack_round.RoundParts`.
        parallel: Clients in flight at once.
    """

    recipe: object
    dataset: object
    partition: object
    input: Input
    networks: object
    parts: RoundParts
    parallel: int

    def initialize(self):
        """The state before the first round; its values are those of the recipe's file, where it names one."""
        return self._begin(self._given(self.networks.initial()))

    def blank(self):
        """A state of the right shapes, without a look into the recipe's file of initial weights."""
        return self._begin(self.networks.initial())

    def _given(self, weights):
        """Initial values with those of the recipe's file in their places."""
        model = self.recipe.model
        if model.initial_weights is None:
            return weights
        wanted = [SimpleNamespace(path=path, shape=tuple(value.shape), dtype=value.dtype.name)
                  for path, value in weights.items()]
        found = initial.read(model.initial_weights, wanted, model.fresh)
        return weights | {path: tf.constant(value) for path, value in found.items()}

    def _begin(self, weights):
        """The `State` of initial values."""
        empty = new_state(self.parts, list(weights.values()), len(self._slots), len(self.partition.train), tf.zeros)
        for place, table in empty["tables"]["personal"].items():
            empty["tables"]["personal"][place] = table + empty["weights"][place]
        return self._state(0, empty)

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
        return plans.plan_round(self.recipe, self.partition, starts, self.input.shuffle, self._division, round, cohort,
                                attempt)

    def compile(self):
        """Traces the compiled round, which the first call would do otherwise."""
        self._round.get_concrete_function()

    def run(self, state, planned):
        """Runs the planned rounds, which must follow `state.round`, in one call.

        Returns:
            The new `State`, and per round a dict: loss and gradient_norm (means over the finite clients with
            examples), lost (clients left out because their result was not finite), clients per level, learning_rate,
            what `accounting.traffic.RoundCost.metrics` says and, where the recipe limits availability,
            `availability.Outcome.metrics`.
        """
        rates = [self.learning_rate(state.round + index) for index in range(len(planned))]
        packed = pack(planned, [stack.clients for stack in self.parts.engine.stacks])
        after, found = self._round(
            self.in_order(state), [tf.constant(array) for array in packed.arrays()],
            tf.constant(rates, self.recipe.float_type), state.round, self._seed)
        rows = [self._row(plan, rate, {name: values[index].numpy()[places] for name, values in found.items()})
                for index, (plan, rate, places) in enumerate(zip(planned, rates, packed.places))]
        return self._state(state.round + len(planned), after), rows

    def in_order(self, state):
        """A `State` as the compiled round takes it."""
        places = {path: place for place, path in enumerate(state.weights)}
        # Tensors, not the arrays of a loaded state: tf.function converts arrays only under keys that are text.
        tables = {name: {places[path]: tf.convert_to_tensor(v) for path, v in state.clients.get(name, {}).items()}
                  for name in ("personal", "memory")}
        return {"weights": list(state.weights.values()), "slots": [list(slot.values()) for slot in state.server.values()],
                "tables": tables}

    def _state(self, round, values):
        """The `State` of what the compiled round gives."""
        paths = self.paths
        return State(round, dict(zip(paths, values["weights"])),
                     {name: dict(zip(paths, slot)) for name, slot in zip(self._slots, values["slots"])},
                     {name: {paths[place]: value for place, value in table.items()}
                      for name, table in values["tables"].items()})

    @functools.cached_property
    def paths(self):
        """Paths of the global values, in order."""
        return tuple(self.networks.shapes(self.recipe.levels.global_level, self.dataset.classes))

    @functools.cached_property
    def global_model(self):
        """The Keras model by which the global level predicts, with the initial values where it is one network."""
        return self.build(self.recipe.levels.global_level)

    @property
    def _slots(self):
        return registry.find("servers", self.recipe.round.server.name).SLOTS

    @property
    def _division(self):
        counts = tuple(len(self.networks.stages[name]) for name in self.recipe.levels.names)
        return plans.Division(counts, self.networks.drawn)

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

    def step_examples(self, plan):
        """Examples that each step of a plan reads, a segment of text being one: int [cohort, steps]."""
        return np.count_nonzero(plan.rows >= 0, axis=-1)

    @functools.cached_property
    def _works(self):
        return accounting.works(self)

    def learning_rate(self, round):
        """The local learning rate of a round, counted from 0."""
        schedule = self.recipe.schedule
        multiplier = registry.find("schedules", schedule.name).multiplier
        return self.recipe.optimizer.learning_rate * multiplier(round, **schedule.options)

    def _row(self, plan, rate, found):
        names, finite = self.recipe.levels.names, found["finite"]
        kept = {name: found[name][finite & (plan.steps > 0)] for name in ("loss", "gradient_norm")}
        means = {name: float(values.mean()) if values.size else None for name, values in kept.items()}
        # A client of an ensemble stands in the plan once for each network that it trains.
        _, once = np.unique(plan.clients, return_index=True)
        mix = {name: int(np.sum(plan.levels[once] == place)) for place, name in enumerate(names)}
        cost = accounting.traffic.round_cost(self._works, plan.levels, plan.steps, self.step_examples(plan),
                                             plan.stages)
        return {**means, "lost": len(np.unique(plan.clients[~finite])), "levels": mix, "learning_rate": rate,
                **cost.metrics(), **plan.outcome}

    def evaluate(self, state):
        """Measures the global model; where units stay with the clients, Local measures every client's own model.

        Returns:
            Metrics by name, and the statistics of static batch normalisation by variable path (empty without it).
        """
        model, statistics = self.global_model, self.statistics(state)
        fixed = [statistics[v.path] if v.path in statistics else self._value(state, v)
                 for v in model.non_trainable_variables if not is_seed(v)]
        found = self._test(self._weights(state, model), fixed)
        if self.parts.personal and self.dataset.test.y is not None:
            given, key = self.in_order(state), seeds.seed32(self.recipe.seed, "statistics noise", state.round)
            found |= self._test_personal(given["weights"], given["tables"]["personal"], tf.constant(key))
        metrics = {name: float(value) for name, value in found.items() if value.shape.rank == 0}
        return metrics, statistics

    def statistics(self, state, level=None):
        """The statistics query of static batch normalisation: `{path: value}`.

        A narrower level's activations have other moments than the first channels of the global model's, so its
        statistics are queried with its own sub-model.
        """
        top = self.recipe.levels.global_level
        level = top if level is None else level
        model = self.global_model if level == top else self.build(level)
        paths = calibration.statistics_paths(model)
        if not paths:
            return {}
        settings, seed = self.recipe.evaluate, self.recipe.seed
        pooled = settings.statistics == "pooled"
        examples = [np.arange(len(self.dataset.train.x), dtype=np.int32)] if pooled else self.partition.train
        full, short = calibration.statistics_batches(
            examples, settings.statistics_batch, seeds.rng(seed, "statistics", state.round))
        key = seeds.seed32(seed, "statistics noise", state.round)
        calibrate = self._calibrate if level == top else self._build_calibrate(level)
        return dict(zip(paths, calibrate(self._weights(state, model), full, short, key)))

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
        for variable in values(model):
            variable.assign(self._value(state, variable))
        for variable in model.non_trainable_variables:
            if variable.path in statistics:
                variable.assign(statistics[variable.path])
        return model

    def build(self, level):
        """A new Keras model at a level, for inference: all classes, Scalers inert."""
        return self.networks.predictor(level)

    def _value(self, state, variable):
        """A predictor's value: the first channels of the global one; the clients' mean of what they keep."""
        path, member = source(variable.path)
        own = state.clients.get("personal", {}).get(path)
        value = state.weights[path] if own is None else tf.reduce_mean(own, 0)
        value = value if member is None else value[member]
        return tf.slice(value, [0] * len(variable.shape), variable.shape)

    def _weights(self, state, model):
        """The values of a predictor's trainable variables, in its order."""
        return [self._value(state, variable) for variable in model.trainable_variables]

    def _build_calibrate(self, level):
        return calibration.build_calibrate(self.build(level), self.build(level), self.input, self.parts.x, self.parts.y,
                                          self.recipe.evaluate.statistics_batch, self.parallel)

    @functools.cached_property
    def _seed(self):
        return tf.constant(seeds.seed32(self.recipe.seed, "round"))

    @functools.cached_property
    def _round(self):
        return build_round(self.parts, len(self._slots), len(self.partition.train))

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
            self._local_test(), masks, self.parallel)

    @functools.cached_property
    def _test_personal(self):
        recipe, test, pairs = self.recipe, self.dataset.test, self._local_test()
        # Who draws a level anew each round is tested at that of the global model.
        chosen = self._fixed_levels
        names = (recipe.levels.global_level,) if chosen is None else recipe.levels.names
        chosen = np.zeros(len(self.partition.train), int) if chosen is None else chosen
        settings = evaluation_personal.Settings(recipe.evaluate.batch_size, recipe.evaluate.statistics_batch,
                                                building.find_objective(recipe).MASKS_LABELS, self.parallel)
        return evaluation_personal.build_personal_test(
            [self.build(name) for name in names], chosen, self.parts, self.paths, self.partition.train,
            (tf.constant(test.x), tf.constant(test.y)), pairs, settings)

    def _local_test(self):
        """The `evaluation.LocalTest`, with the clients' levels where they have them for the whole run."""
        return evaluation.local_test(self.partition, self._fixed_levels, self.recipe.levels.names)

    @property
    def _fixed_levels(self):
        """int [clients], positions in the mix of the levels that clients have for the whole run; None: they draw them."""
        given, clients = self.recipe.levels, len(self.partition.train)
        if given.assignment == "dynamic":
            return None
        return levels.assign(given, clients, self.recipe.seed, 0, np.arange(clients))


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
    inputs = building.build_input(recipe)
    networks = building.networks_of(recipe, inputs, dataset)
    parts = building.round_parts(recipe, dataset, partition, networks, inputs, parallel,
                                 hardware.devices() if device is None else device)
    return LearningProcess(recipe, dataset, partition, inputs, networks, parts, parallel)
