"""A device with TensorFlow: it trains its sub-model by the very graph of the simulator."""

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.base import seeds
from hetero_tf.devices.device_index import Placement
from hetero_tf.devices.messages import NARROWER_LEVELS, Member, Message, checked, introduction, put, shapes_of, taken
from hetero_tf.evaluation.predictor import statistics_rng
from hetero_tf.models.state import State
from hetero_tf.planning.plan import Plan, plan_clients
from hetero_tf.process.learning_process import LearningProcess
from hetero_tf.rounds.block_training import BlockPlan, train_block
from hetero_tf.rounds.global_row import joined, put_rows, split_values
from hetero_tf.rounds.round_setup import RoundSetup


@dataclass(frozen=True)
class TensorFlowClient:
    """A device. Make it with `tensorflow_client`.

    Attributes:
        process: Of the recipe on the device's data; its clients are computed one by one.
        client: The device's number.
        share: Position of its examples in the partition of `process`.
        level: Name of its level.
    """

    process: LearningProcess
    client: int
    share: int
    level: str

    def answer(self, action: str, question: Message) -> Message:
        """Returns the answer to a question of one of `fleet.ACTIONS`, see `deployed`.

        Raises:
            messages.Refused: The server sent other values than this device's level has.
        """
        return {"introduction": self._introduce, "training": self._train, "statistics": self._measure}[action](question)

    @property
    def member(self) -> Member:
        """What it says of itself."""
        labels = np.flatnonzero(self.process.partition.label_mask[self.share]).astype(np.int32)
        return Member(self.client, self.level, len(self._examples), labels, NARROWER_LEVELS)

    @property
    def _examples(self):
        return self.process.partition.train[self.share]

    def _introduce(self, question):
        return introduction(self.member, self.process.recipe)

    def _train(self, question: Message) -> Message:
        """Takes the local steps of a round: its trained values, and the means over its steps."""
        round, rate = question.told["round"], question.told["learning_rate"]
        travels = self._placement.travels(self.client, self.level, self.member.labels, round)
        weights = self._state(question.arrays, travels.down).weights
        plan = self._plan(round)
        work = BlockPlan(
            tf.constant([self.client]),
            tf.constant([0]),
            tf.constant(int(plan.steps[0])),
            tf.constant(plan.rows[:1]),
            tf.constant(plan.starts[0]),
            tf.constant(plan.stages[0]),
        )
        placed, losses, norms = self._steps(travels.submodel)(
            list(weights.values()), tf.constant(round), work, tf.constant(rate, self.process.recipe.float_type)
        )
        trained = dict(zip(self.process.paths, placed, strict=True))
        told = {"loss": float(np.mean(losses)), "gradient_norm": float(np.mean(norms)), "steps": int(plan.steps[0])}
        return Message(taken(trained, travels.up), told)

    @functools.cached_property
    def _compiled_steps(self):
        return {}

    def _steps(self, submodel):
        """`(weights, round, work, rate) -> (values in global shapes, losses, gradient norms)`, compiled once."""
        if submodel not in self._compiled_steps:
            self._compiled_steps[submodel] = self._compile_steps(submodel)
        return self._compiled_steps[submodel]

    def _compile_steps(self, submodel):
        parts = _as_client(self.process.parts, self.share, self.client)
        seed = tf.constant(seeds.seed32(self.process.recipe.seed, "round"))

        @tf.function(autograph=False)
        def steps(weights, round, work, rate):
            state = {"weights": joined(weights), "slots": [], "tables": {"personal": {}, "memory": {}, "peers": {}}}
            update = train_block(parts, submodel, state, round, seed, BlockPlan(*work), rate)
            cut = parts.placement.cut
            row = put_rows(cut, submodel, update.values, update.coordinates, [1] * len(cut.shapes))
            return split_values(row, cut.shapes), update.local.losses[:, 0], update.local.gradient_norms[:, 0]

        return lambda weights, round, work, rate: steps(weights, round, dataclasses.astuple(work), rate)

    def _plan(self, round) -> Plan:
        """Its own local steps of a round."""
        process = self.process
        position = process.recipe.levels.names.index(self.level)
        starts, shuffle = process.input.starts(process.dataset.train.x), process.input.shuffle
        return plan_clients(
            process.recipe, [self._examples], starts, shuffle, process.division, round, [self.client], [position]
        )

    def _measure(self, question):
        """Its means of the statistics of static batch normalisation, with a level's model."""
        process, level, round = self.process, question.told["level"], question.told["round"]
        everything = np.arange(process.dataset.classes)
        travels = self._placement.travels(self.client, level, everything, round)
        state = dataclasses.replace(self._state(question.arrays, travels.down), round=round)
        rng = statistics_rng(process.recipe, round)
        # The simulator shuffles the clients' examples one after the other with one generator.
        for earlier in range(self.share):
            rng.permutation(process.partition.train[earlier])
        found = process.evaluator.statistics(state, level, [self._examples], rng)
        return Message({path: np.asarray(value) for path, value in found.items()}, {})

    def _state(self, arrays: Mapping[str, bytes], indices: dict[str, tuple]) -> State:
        """The global values as far as this device was sent them; elsewhere zeros, or its own constants."""
        received = checked(arrays, shapes_of(indices), self.process.parts.placement.dtype)
        constant = self._constants
        weights = {
            path: constant[path] if path in constant else np.zeros(shape, self.process.parts.placement.dtype)
            for path, shape in zip(self.process.paths, self.process.parts.placement.cut.shapes, strict=True)
        }
        put(received, indices, weights)
        return State(0, weights)

    @functools.cached_property
    def _constants(self):
        """The global values that nobody trains or sends."""
        merged = self.process.parts.placement.merged_from
        blank = self.process.blank().weights
        return {path: np.array(blank[path]) for path, first in zip(self.process.paths, merged) if not any(first)}

    @functools.cached_property
    def _placement(self):
        return Placement(self.process)


def _as_client(parts: RoundSetup, share: int, client: int) -> RoundSetup:
    """The parts of a round in which a client has the labels of a share of the device's partition."""
    if share == client:
        return parts
    examples = parts.examples

    def repeated(table):
        return None if table is None else tf.repeat(table[share : share + 1], client + 1, axis=0)

    own = dataclasses.replace(
        examples,
        labels=repeated(examples.labels),
        present=repeated(examples.present),
        counts=repeated(examples.counts),
        sizes=repeated(examples.sizes),
    )
    return dataclasses.replace(parts, examples=own)
