"""Indices of a device's values in the global values: the simulator's cut, as the values to transfer."""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.models.costs.level_costs import LevelCosts
from hetero_tf.models.cut import Axis
from hetero_tf.models.variables import constants
from hetero_tf.recipe.schema import is_compression
from hetero_tf.rounds.merge import axis_mask, coverage
from hetero_tf.run.federation import Federation


@dataclass(frozen=True)
class Transfer:
    """Values that one device receives and returns in a round, as indices of the global values by path.

    Attributes:
        submodel: Index of its sub-model.
        down: Received values: all values that its steps use, except constants, which the device has.
        up: Returned values: all values that are merged.
        merged: Coordinates of `up` on each cut axis.
    """

    submodel: int
    down: dict[str, tuple]
    up: dict[str, tuple]
    merged: dict[Axis, np.ndarray]


def transfer_of(federation: Federation, client: int, level: str, labels: np.ndarray, round: int) -> Transfer:
    """Return the transfer of a device in a round.

    Args:
        labels: int [n], the outputs of its labels, see `Federation.present_outputs`.
        round: Round number, counted from 0.
    """
    setup, position = federation.setup, federation.recipe.levels.names.index(level)
    cut, submodel = setup.layout.cut, federation.family.submodel_of[position]
    # Without the cut of labels a client trains all rows, but still returns only those of its own labels.
    everything = np.arange(federation.family.classes)
    model_labels = everything if setup.examples.labels is None else labels
    returned = everything if setup.layout.merge_absent_labels else labels
    coordinates = setup.submodels[submodel].cut.coordinates(
        setup.algorithm.submodel,
        tf.constant(round),
        tf.constant(client),
        federation.seed,
        labels=tf.constant(model_labels, tf.int32),
        member=tf.constant(0),
    )
    received_coordinates = {axis: np.asarray(index) for axis, index in coordinates.items()}
    merged = received_coordinates | {axis: np.asarray(returned) for axis in cut.distinct if axis.label}
    received = _received(federation, level)
    down, up = {}, {}
    for index, (path, shape) in enumerate(zip(federation.paths, cut.shapes)):
        if path in received:
            down[path] = _index(shape, cut.axes[index], received_coordinates)
        if setup.layout.first_merged_stage[index][submodel]:
            up[path] = _index(shape, cut.axes[index], merged)
    return Transfer(submodel, down, up, merged)


def coverage_of(federation: Federation, counted: list[tuple[Transfer, float]]) -> tf.Tensor:
    """Return the sum of the weights of the devices that cover each entry of the global row, [values]."""
    layout = federation.setup.layout
    weights = np.asarray([weight for _, weight in counted], layout.dtype)
    masks = {
        axis: tf.stack([axis_mask(axis, each.merged, layout.dtype) for each, _ in counted])
        for axis in layout.cut.distinct
    }
    kinds, submodels = layout.first_merged_stage, [each.submodel for each, _ in counted]
    weights_of = {first: tf.constant(weights * (np.asarray(first)[submodels] > 0)) for first in set(kinds)}
    return coverage(layout.cut, masks, weights_of, kinds, layout.zeros_count)


def _received(federation, level):
    """Paths of the values that a device of a level receives."""
    run = LevelCosts(federation.family, federation.setup.examples.present.shape[1]).run_units(level)
    model = federation.family.training_model(level, federation.family.classes)
    fixed = {variable.path for variable in constants(model)}
    submodel = federation.family.submodel_of[federation.recipe.levels.names.index(level)]
    return {
        path
        for path, contained in zip(federation.paths, federation.setup.layout.cut.contained)
        if contained[submodel] and path not in fixed and federation.recipe.model.unit_of(path) in run
    }


def _index(shape, axes, coordinates):
    return np.ix_(*(np.arange(size) if axis is None else coordinates[axis] for size, axis in zip(shape, axes)))


def check_deployable(federation: Federation) -> None:
    """Refuse recipes that devices cannot run.

    Devices receive values, take local steps, return values and store nothing.

    Raises:
        InputError: The message names the first unsupported key of the recipe.
    """
    recipe, algorithm = federation.recipe, federation.setup.algorithm
    levels, evaluate, correction = recipe.levels, recipe.evaluate, recipe.client.correction
    unsupported = {
        "levels.assignment: dynamic": levels.assignment == "dynamic" and len(levels.names) > 1,
        f"evaluate.statistics: {evaluate.statistics}": evaluate.statistics != "clients"
        and bool(federation.evaluator.queried()),
        "fleet": recipe.fleet is not None,
        "round.selection": recipe.round.selection.name != "uniform",
        "privacy": recipe.privacy is not None,
        **federation.unusual_local_steps(),
        f"client.correction: {correction and correction.name}": algorithm.remember is not None
        or bool(algorithm.read_slots),
        "client.update": is_compression(recipe.client.update),
        f"client.stages: {recipe.client.stages.name}": bool(federation.setup.peers),
        "evaluate.fine_tune.epochs": bool(evaluate.fine_tune.epochs),
        "evaluate.levels: all": evaluate.levels == "all",
        f"evaluate.best: {federation.selection_metric}": not federation.selection_metric.startswith("global_"),
    }
    for key, is_used in unsupported.items():
        if is_used:
            raise InputError(
                f"recipe {recipe.name!r} cannot be deployed on devices: a device has one level, takes local steps in "
                "float32 and stores nothing between rounds, and the server evaluates only the global model on its test "
                "set. Set levels.assignment=fixed, evaluate.statistics=clients, evaluate.levels=global and a global_ "
                f"metric as evaluate.best, and remove other keys. Received: {key}"
            )
