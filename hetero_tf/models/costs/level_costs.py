"""Costs of the networks of each level, with their exits and stages: transferred values, and the cost of each unit."""

import dataclasses
import functools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from hetero_tf.methods.stages import Stage, full_route
from hetero_tf.models import global_layout
from hetero_tf.models.costs.traffic import ClientCost, stage_flops
from hetero_tf.models.costs.unit_costs import UnitCost, full_model_cost, unit_costs
from hetero_tf.models.cut import Cut
from hetero_tf.models.family import ModelFamily, level_of, outline
from hetero_tf.models.global_layout import may_cut_labels
from hetero_tf.models.variables import constants


@dataclass(frozen=True, eq=False)
class LevelCosts:
    """Costs of the networks of a recipe; each network is built and traced once, on first use.

    Attributes:
        family: The models of all levels.
        example: Shape of one input, without None.
        classes: Length of the label axis that clients train.
        counted: Cached counts; None: those of this family. Recipes with the same layers, frozen units, examples and
            classes may share them.
    """

    family: ModelFamily
    example: tuple
    classes: int
    counted: dict | None = None

    def units(self, level: str, width: float) -> dict[str, UnitCost]:
        """Return `{unit: UnitCost}` of one network of a level at some width, with all exits of the level."""
        route = dataclasses.replace(self.family.route(level), width=width)
        if route not in self._counts:
            units = self.family.recipe.model.units
            model = self.family.single_client_model(route, self.classes)
            self._counts[route] = {cost.unit: cost for cost in unit_costs(model, self.example, units)}
        return self._counts[route]

    def stages(self, level: str) -> tuple[Stage, ...]:
        """Return the stages of a level; a level outside the mix is one stage of its full sub-model."""
        recipe = self.family.recipe
        return self.family.stages.get(level) or (_single_stage(*full_route(outline(recipe), level_of(recipe, level))),)

    def train_flops(self, level: str) -> tuple[float, ...]:
        """Return the operations of training one network on one example, by stage; see `traffic.stage_flops`."""
        exits, epochs = self.family.recipe.model.exits, self.family.recipe.client.epochs_of(level)
        units = functools.partial(self.units, level)
        return tuple(stage_flops(stage, units, exits, epochs) for stage in self.stages(level))

    @property
    def full_cost(self) -> float:
        """The cost that budgets are shares of, see `unit_costs.full_model_cost`."""
        recipe = self.family.recipe
        if recipe.levels.measure not in self._counts:
            cost = full_model_cost(recipe, self.family.shape, self.example, self.family.classes)
            self._counts[recipe.levels.measure] = cost
        return self._counts[recipe.levels.measure]

    @property
    def _counts(self):
        return (
            self.family.cached(("counted", self.example, self.classes), dict) if self.counted is None else self.counted
        )


def _single_stage(route, units):
    return Stage((route,), units)


def transferred_values(
    costs: LevelCosts,
    level: str,
    shapes: dict[str, tuple[int, ...]],
    constant_paths: Collection[str],
    label_axes: dict[str, dict[int, int]],
    classes: int,
    labels: np.ndarray,
) -> tuple[float, float]:
    """Return the number of values of one network that a client receives and sends in a round: means (down, up).

    A client receives the values that its stages run and sends those that the merge counts. Personal values are not
    transferred, and neither are constants: they never change, so a client gets them once, with the program.

    Args:
        costs: `LevelCosts`.
        level: Name of the level.
        shapes: `{path: shape}` of the level's values.
        constant_paths: Paths of the constants among them.
        label_axes: `{path: {dimension: extra}}`, see `cut.find_label_axes`.
        classes: Length of the global label axis.
        labels: int [clients], number of labels of each client.
    """
    recipe = costs.family.recipe
    run, trained = run_and_trained(costs.stages(level), recipe.model.exits)
    # Untrained copies are sent too if the recipe counts them in the merge.
    sent = run if recipe.round.untrained == "counted" else trained
    received, returned = _label_rows(recipe, classes, labels)
    down = up = 0.0
    for path, shape in shapes.items():
        unit, extra_rows = recipe.model.unit_of(path), label_axes.get(path, {})
        if path in constant_paths or unit in recipe.round.personal or "all" in recipe.round.personal:
            continue
        down += float(np.mean(_variable_size(shape, extra_rows, received, 1))) * (unit in run)
        up += float(np.mean(_variable_size(shape, extra_rows, returned, 0))) * (unit in sent)
    return down, up


def run_and_trained(
    stages: Sequence[Stage], exits: dict[int, tuple[int, str]]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the units that some stage runs, and those that some stage trains.

    Args:
        stages: Of a level.
        exits: `{number: (units of the trunk before it, unit of the branch)}`.
    """
    routes = [route for stage in stages for route in stage.routes]
    branches = {exits[number][1] for route in routes for number in route.exits if number in exits}
    return frozenset(branches).union(*(route.units for route in routes)), frozenset().union(
        *(stage.trained for stage in stages)
    )


def _label_rows(recipe, classes, labels):
    """Return the number of rows of label axes that each client receives and returns."""
    # Rows of other labels are never merged, but without the cut a client trains them and therefore receives them.
    every = np.full_like(labels, classes)
    return labels if may_cut_labels(recipe) else every, labels if recipe.round.label_rows == "own" else every


def _variable_size(shape, extra_rows, labels, extra):
    """Return the size of one variable with `labels` rows on its label axis; `extra_rows`: those after the labels."""
    return math.prod(
        labels + extra * extra_rows[dimension] if dimension in extra_rows else size
        for dimension, size in enumerate(shape)
    )


def client_costs(costs: LevelCosts, cut: Cut, labels: np.ndarray) -> tuple[ClientCost, ...]:
    """Return the cost of each level of the mix: of a client, or in an ensemble of one network that it trains.

    Args:
        costs: Costs of the models that clients train.
        cut: Which axes of the global values are label axes.
        labels: int [clients], number of labels of each client.
    """
    family, recipe = costs.family, costs.family.recipe
    paths = global_layout.shapes(family, recipe.levels.global_level, family.classes)
    label_axes = {
        path: {dimension: axis.extra for dimension, axis in enumerate(axes) if axis is not None and axis.label}
        for path, axes in zip(paths, cut.axes)
    }
    size = np.dtype(recipe.float_type).itemsize

    def of_level(level):
        shapes = global_layout.shapes(family, level, costs.classes)
        constant_paths = {variable.path for variable in constants(family.training_model(level, costs.classes))}
        down, up = transferred_values(costs, level, shapes, constant_paths, label_axes, family.classes, labels)
        return ClientCost(round(down * size), round(up * size), costs.train_flops(level))

    return tuple(map(of_level, recipe.levels.names))
