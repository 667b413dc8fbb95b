"""Where a device's values lie among the global ones: the simulator's cut, as indices of what travels."""

import functools
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.base import seeds
from hetero_tf.base.errors import InputError
from hetero_tf.evaluation.calibration import statistics_paths
from hetero_tf.models.costs.level_costs import Costs, run_and_trained
from hetero_tf.models.cut import Axis
from hetero_tf.models.variables import constants
from hetero_tf.process.learning_process import LearningProcess
from hetero_tf.rounds.merge import coverage


@dataclass(frozen=True)
class Transfer:
    """What one device receives and returns in a round, as indices of the global values by path.

    Attributes:
        submodel: Position of its sub-model.
        down: What it receives: all that its steps run, but constants, which it has.
        up: What it returns: all that the merge counts.
        merged: For each cut axis the coordinates of `up`.
    """

    submodel: int
    down: dict[str, tuple]
    up: dict[str, tuple]
    merged: dict[Axis, np.ndarray]


@dataclass(frozen=True)
class Placement:
    """The places of the devices of a recipe.

    Attributes:
        process: The recipe's.
    """

    process: LearningProcess

    def travels(self, client: int, level: str, labels: np.ndarray, round: int) -> Transfer:
        """Returns what travels to a device and back.

        Args:
            client: Its number.
            level: Name of its level.
            labels: int [n], the labels that it has.
            round: Counted from 0.
        """
        parts, position = self.process.parts, self.process.recipe.levels.names.index(level)
        cut, submodel = parts.placement.cut, self.process.family.submodel_of[position]
        # Without the cut of labels a client trains every row, and returns those of its own labels all the same.
        held = np.arange(self.process.dataset.classes) if parts.examples.labels is None else labels
        returned = np.arange(self.process.dataset.classes) if parts.placement.merge_absent_labels else labels
        taken, merged = {}, {}
        for axis in cut.distinct:
            if axis.label:
                taken[axis] = np.concatenate([held, np.arange(axis.size, axis.size + axis.extra)])
                merged[axis] = np.asarray(returned)
            else:
                chosen = parts.algorithm.submodel(
                    axis.size, axis.sizes[submodel], tf.constant(round), tf.constant(client), self._seed
                )
                taken[axis] = merged[axis] = np.asarray(chosen)
        received = self._received(level)
        down, up = {}, {}
        for place, (path, shape) in enumerate(zip(self.process.paths, cut.shapes)):
            if path in received:
                down[path] = _index(shape, cut.axes[place], taken)
            if parts.placement.merged_from[place][submodel]:
                up[path] = _index(shape, cut.axes[place], merged)
        return Transfer(submodel, down, up, merged)

    def coverage(self, counted: list[tuple[Transfer, float]]) -> list[tf.Tensor]:
        """Returns the sum of the weights of the devices that cover an entry, as `cohort.train_cohort` does.

        Args:
            counted: What travelled, and the weight, of each device that counts.
        """
        placement = self.process.parts.placement
        weights = np.asarray([weight for _, weight in counted], placement.dtype)
        masks = {
            axis: tf.constant(np.stack([_mask(axis, each.merged[axis], placement.dtype) for each, _ in counted]))
            for axis in placement.cut.distinct
        }
        has = np.asarray([[first[each.submodel] > 0 for each, _ in counted] for first in placement.merged_from])
        of_values = [tf.constant(weights * counts) for counts in has]
        return coverage(placement.cut, masks, of_values, placement.zeros_count)

    def _received(self, level):
        """Paths of what a device of a level receives."""
        process = self.process
        run, _ = run_and_trained(self._costs.stages(level), process.recipe.model.exits)
        held = process.family.trained(level, process.dataset.classes)
        fixed = {variable.path for variable in constants(held)}
        submodel = process.family.submodel_of[process.recipe.levels.names.index(level)]
        return {
            path
            for path, contained in zip(process.paths, process.parts.placement.cut.contained)
            if contained[submodel] and path not in fixed and process.recipe.model.unit_of(path) in run
        }

    @functools.cached_property
    def _costs(self):
        process = self.process
        return Costs(process.family, process.example_shape, process.parts.examples.present.shape[1])

    @functools.cached_property
    def _seed(self):
        return tf.constant(seeds.seed32(self.process.recipe.seed, "round"))


def _index(shape, axes, places):
    return np.ix_(*(np.arange(size) if axis is None else places[axis] for size, axis in zip(shape, axes)))


def _mask(axis, places, dtype):
    mask = np.zeros(axis.size + axis.extra, dtype)
    mask[places] = 1
    return mask


def check_deployable(process: LearningProcess) -> None:
    """Refuses what devices cannot do: they get values, take local steps, return values and keep nothing.

    Raises:
        InputError: Names the first key of the recipe that asks for more.
    """
    recipe, parts = process.recipe, process.parts
    client, algorithm = recipe.client, parts.algorithm
    queries = bool(statistics_paths(process.evaluator.global_model))
    chosen, best = process.selection_metric, f"evaluate.best: {process.selection_metric}"
    keeps = "what a device keeps between rounds would be lost; take another method"
    asked = {
        "levels.assignment: dynamic": (
            recipe.levels.assignment == "dynamic" and len(recipe.levels.names) > 1,
            "a device has one level; set levels.assignment=fixed",
        ),
        "evaluate.statistics: pooled": (
            queries and recipe.evaluate.statistics == "pooled",
            "the server has no examples of its devices; set evaluate.statistics=clients",
        ),
        "availability": (recipe.availability.is_limited, "devices drop out by themselves; leave the key out"),
        "levels.members": (recipe.levels.ensemble is not None, "an ensemble is not sent; take another method"),
        "round.personal": (bool(recipe.round.personal), keeps),
        "round.mask": (algorithm.masks is not None, "masks of single entries are not sent; take another method"),
        f"client.correction: {client.correction.name if client.correction else None}": (
            algorithm.remember is not None or bool(algorithm.read_slots),
            keeps,
        ),
        f"client.stages: {client.stages.name}": (bool(parts.engine.peers), keeps),
        f"precision: {recipe.precision}": (recipe.precision != "float32", "devices count in float32"),
        "evaluate.fine_tune.epochs": (bool(recipe.evaluate.fine_tune.epochs), "the server trains nobody; set it to 0"),
        "evaluate.levels: all": (
            recipe.evaluate.levels == "all",
            "only the global model is measured; set it to global",
        ),
        best: (not chosen.startswith("global_"), "the server measures the global model on the test set alone"),
    }
    for key, (too_much, reason) in asked.items():
        if too_much:
            raise InputError(f"recipe {recipe.name!r} cannot be deployed on devices: {reason}. Received: {key}")
