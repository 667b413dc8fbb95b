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

from hetero_tf import data
from hetero_tf.accounting import traffic
from hetero_tf.accounting.levels import client_costs
from hetero_tf.base import hardware, registry, seeds
from hetero_tf.evaluation.evaluator import Measured
from hetero_tf.models.initial_weights import read
from hetero_tf.planning.packing import pack_rounds
from hetero_tf.planning.plan import Division, plan_round
from hetero_tf.rounds.build import build_input, build_parts, example_shape, family_of, split
from hetero_tf.rounds.engine import report
from hetero_tf.rounds.layout import initial_values
from hetero_tf.rounds.round import build_round, new_state


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
class LearningProcess(Measured):
    """The steps of a recipe's run. Make it with `learning_process`; attributes are those of `measured.Measured`."""

    def initialize(self):
        """The state before the first round; its values are those of the recipe's file, where it names one."""
        return self._begin(self._given(initial_values(self.family)))

    def blank(self):
        """A state of the right shapes, without a look into the recipe's file of initial weights."""
        return self._begin(initial_values(self.family))

    def _given(self, weights):
        """Initial values with those of the recipe's file in their places."""
        model = self.recipe.model
        if model.initial_weights is None:
            return weights
        wanted = [
            SimpleNamespace(path=path, shape=tuple(value.shape), dtype=value.dtype.name)
            for path, value in weights.items()
        ]
        found = read(model.initial_weights, wanted, model.reinitialize)
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
        return plan_round(
            self.recipe, self.partition, starts, self.input.shuffle, self._division, round, cohort, attempt
        )

    def compile(self):
        """Traces the compiled round, which the first call would do otherwise."""
        self._round.get_concrete_function()

    def run(self, state, planned):
        """Runs the planned rounds, which must follow `state.round`, in one call.

        Returns:
            The new `State`, and for each round the metrics that `base.metrics` names, without those of an evaluation.
        """
        rates = [self.learning_rate(state.round + index) for index in range(len(planned))]
        packed = pack_rounds(planned, [stack.clients for stack in self.parts.engine.stacks], self.family.submodel_of)
        after, found = self._round(
            self.in_order(state),
            [tf.constant(array) for array in packed.arrays()],
            tf.constant(rates, self.recipe.float_type),
            state.round,
            self._seed,
        )
        rows = [
            self._row(plan, rate, {name: values[index].numpy()[places] for name, values in found.items()})
            for index, (plan, rate, places) in enumerate(zip(planned, rates, packed.slots))
        ]
        return self._state(state.round + len(planned), after), rows

    def in_order(self, state):
        """A `State` as the compiled round takes it."""
        places = {path: place for place, path in enumerate(state.weights)}
        # Tensors, not the arrays of a loaded state: tf.function converts arrays only under keys that are text.
        tables = {
            name: {places[path]: tf.convert_to_tensor(v) for path, v in state.clients.get(name, {}).items()}
            for name in ("personal", "memory")
        }
        slots = [list(slot.values()) for slot in state.server.values()]
        return {"weights": list(state.weights.values()), "slots": slots, "tables": tables}

    def _state(self, round, values):
        """The `State` of what the compiled round gives."""
        paths = self.paths
        return State(
            round,
            dict(zip(paths, values["weights"])),
            {name: dict(zip(paths, slot)) for name, slot in zip(self._slots, values["slots"])},
            {name: {paths[place]: value for place, value in table.items()} for name, table in values["tables"].items()},
        )

    @property
    def _slots(self):
        return registry.find("servers", self.recipe.round.server.name).SLOTS

    @property
    def _division(self):
        counts = tuple(len(self.family.stages[name]) for name in self.recipe.levels.names)
        return Division(counts, self.family.drawn)

    @property
    def example_shape(self):
        """Shape of one input: (height, width, channels), or (positions,) of a segment of text."""
        return example_shape(self.input, self.dataset.train.x)

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

    def engine_report(self):
        """How clients are computed, as a dict of plain JSON; see `rounds.engine.report`."""
        return report(self.parts.engine, self.recipe, self.family.submodel_of)

    @functools.cached_property
    def _client_costs(self):
        return client_costs(self)

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
        cost = traffic.round_cost(self._client_costs, plan.levels, plan.steps, self.step_examples(plan), plan.stages)
        return {
            **means,
            "non_finite": len(np.unique(plan.clients[~finite])),
            "levels": mix,
            "learning_rate": rate,
            **cost.metrics(),
            **plan.outcome,
        }

    @functools.cached_property
    def _seed(self):
        return tf.constant(seeds.seed32(self.recipe.seed, "round"))

    @functools.cached_property
    def _round(self):
        return build_round(self.parts, len(self._slots), len(self.partition.train))


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
        partition = split(recipe, dataset)
    source = build_input(recipe)
    family = family_of(recipe, source, dataset)
    device = hardware.devices() if device is None else device
    parts = build_parts(recipe, dataset, partition, family, source, parallel, device)
    return LearningProcess(recipe, dataset, partition, source, family, parts, parallel)
