"""A device with TensorFlow: it trains its sub-model with the simulator's graph."""

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from hetero_tf.base import seeds
from hetero_tf.devices.device_index import transfer_of
from hetero_tf.devices.messages import (
    NARROWER_LEVELS,
    Member,
    Message,
    build_introduction,
    gather,
    parse_arrays,
    scatter,
    shapes_of,
)
from hetero_tf.evaluation.statistics_query import statistics_rng
from hetero_tf.models.state import State, StateRows, concat_values, split_values
from hetero_tf.planning.packing import BlockPlan
from hetero_tf.planning.plan import plan_clients
from hetero_tf.rounds.block_training import RoundScalars, train_block
from hetero_tf.rounds.round_setup import RoundSetup
from hetero_tf.run.learning_process import LearningProcess


@dataclass(frozen=True)
class TensorFlowClient:
    """A device that trains with TensorFlow. Create it with `machine.build_device`.

    Attributes:
        process: Learning process of the recipe on the device's data; it trains one client at a time.
        share: Index of its examples in the partition of `process`.
    """

    process: LearningProcess
    client: int
    share: int
    level: str

    def respond(self, action: str, request: Message) -> Message:
        """Return the response to a request of one of `messages.MESSAGE_TYPES`.

        Raises:
            messages.Refused: The server sent values that do not fit this device's level.
        """
        if action == "introduction":
            return build_introduction(self.member, self.process.recipe)
        return self._train(request) if action == "training" else self._measure(request)

    @property
    def member(self) -> Member:
        """The device as it introduces itself."""
        labels = np.flatnonzero(self.process.present_outputs[self.share]).astype(np.int32)
        return Member(self.client, self.level, len(self._examples), labels, NARROWER_LEVELS)

    @property
    def _examples(self):
        return self.process.partition.train[self.share]

    def _train(self, request: Message) -> Message:
        """Take the local steps of a round; return the trained values and means over the steps."""
        round, rate = request.metadata["round"], request.metadata["learning_rate"]
        transfer = transfer_of(self.process, self.client, self.level, self.member.labels, round)
        weights = self._state(request.arrays, transfer.down).weights
        process = self.process
        level = process.recipe.levels.names.index(self.level)
        plan = plan_clients(process.batching, [self._examples], round, [self.client], [level])
        work = BlockPlan(
            tf.constant([self.client]),
            tf.constant([0]),
            tf.constant(int(plan.steps[0])),
            tf.constant(plan.rows[:1]),
            tf.constant(plan.starts[0]),
            tf.constant(plan.stages[0]),
        )
        values, losses, norms = self._steps(transfer.submodel)(
            list(weights.values()), tf.constant(round), work, tf.constant(rate, self.process.recipe.float_type)
        )
        trained = dict(zip(self.process.paths, values, strict=True))
        metadata = {"loss": float(np.mean(losses)), "gradient_norm": float(np.mean(norms)), "steps": int(plan.steps[0])}
        return Message(gather(trained, transfer.up), metadata)

    @functools.cached_property
    def _steps(self):
        """`submodel -> (weights, round, work, rate) -> (values in global shapes, losses, gradient norms)`, cached."""
        return functools.cache(self._compile_steps)

    def _compile_steps(self, number):
        setup = _as_client(self.process.setup, self.share, self.client)
        seed, submodel = tf.constant(seeds.seed32(self.process.recipe.seed, "round")), setup.submodels[number]

        @tf.function(autograph=False)
        def steps(weights, round, work, rate):
            row = concat_values(weights)
            result = train_block(setup, submodel, StateRows(row, (), {}, {}), RoundScalars(round, seed, rate), work)
            # Global values; those that the client does not have are not read.
            trained = submodel.cut.overwrite(row, result.values[0], result.coordinates[0])
            values = split_values(trained, setup.layout.cut.shapes)
            return values, result.local.losses[:, 0], result.local.gradient_norms[:, 0]

        return steps

    def _measure(self, request):
        """Means of the statistics of static batch normalisation with a level's model, on the device's examples."""
        process, level, round = self.process, request.metadata["level"], request.metadata["round"]
        everything = np.arange(process.family.classes)
        transfer = transfer_of(self.process, self.client, level, everything, round)
        state = dataclasses.replace(self._state(request.arrays, transfer.down), round=round)
        rng = statistics_rng(process.recipe.seed, round)
        # The simulator shuffles the examples of all clients in order with one generator.
        for earlier in range(self.share):
            rng.permutation(process.partition.train[earlier])
        statistics = process.evaluator.statistics(state, level, [self._examples], rng)
        return Message({path: np.asarray(value) for path, value in statistics.items()}, {})

    def _state(self, arrays: Mapping[str, bytes], indices: dict[str, tuple]) -> State:
        """The global values received; constants of the device and zeros elsewhere."""
        received = parse_arrays(arrays, shapes_of(indices), self.process.setup.layout.dtype)
        constant = self._constants
        weights = {
            path: constant[path] if path in constant else np.zeros(shape, self.process.setup.layout.dtype)
            for path, shape in zip(self.process.paths, self.process.setup.layout.cut.shapes, strict=True)
        }
        scatter(received, indices, weights)
        return State(0, weights)

    @functools.cached_property
    def _constants(self):
        """Global values that are neither trained nor transferred."""
        merged = self.process.setup.layout.first_merged_stage
        blank = self.process.blank().weights
        return {path: np.array(blank[path]) for path, first in zip(self.process.paths, merged) if not any(first)}


def _as_client(setup: RoundSetup, share: int, client: int) -> RoundSetup:
    """The setup of a round in which client `client` has the labels of a share of the device's partition."""
    if share == client:
        return setup
    tables = {name: getattr(setup.examples, name) for name in ("labels", "present", "counts", "sizes")}
    repeated: dict[str, Any] = {
        name: None if table is None else tf.repeat(table[share : share + 1], client + 1, axis=0)
        for name, table in tables.items()
    }
    return dataclasses.replace(setup, examples=dataclasses.replace(setup.examples, **repeated))
