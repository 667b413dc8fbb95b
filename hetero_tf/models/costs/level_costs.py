"""Costs of the networks of each level, with their exits and stages: transferred values, and the cost of each unit."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hetero_tf.methods.stages import Stage, full_route
from hetero_tf.models import global_layout
from hetero_tf.models.costs.counting import ForwardCost, full_model_cost, unit_costs
from hetero_tf.models.costs.traffic import ClientCost, stage_flops
from hetero_tf.models.family import ModelFamily, level_of, outline
from hetero_tf.models.variables import constants, values


@dataclass(frozen=True, eq=False)
class LevelCosts:
    """Costs of the networks of a recipe; each network is built and traced once, on first use.

    Attributes:
        example: Shape of one input, without None.
        classes: Length of the label axis that clients train.
        counted: Cached counts. Recipes with the same layers, frozen units, examples and classes may share them.
    """

    family: ModelFamily
    example: tuple
    classes: int
    counted: dict = dataclasses.field(default_factory=dict)

    def layers(self, level: str, width: float) -> tuple[ForwardCost, ...]:
        """Return the cost of each layer of one network of a level at some width, with all exits of the level."""
        route = dataclasses.replace(self.family.route(level), width=width)
        if route not in self.counted:
            self.counted[route] = self.family.forward(route, self.classes, self.example)
        return self.counted[route]

    def units(self, level: str, width: float) -> dict[str, ForwardCost]:
        """Return the same as `{unit: cost}`."""
        costs = unit_costs(self.layers(level, width), self.family.recipe.model.units)
        return {cost.name: cost for cost in costs}

    def stages(self, level: str) -> tuple[Stage, ...]:
        """Return the stages of a level; a level outside the mix is one stage of its full sub-model."""
        recipe = self.family.recipe
        return self.family.stages.get(level) or (_single_stage(*full_route(outline(recipe), level_of(recipe, level))),)

    def shapes(self, level: str) -> dict[str, tuple[int, ...]]:
        """Return `{path: shape}` of the values of one network, with the running statistics of its narrower routes."""
        variables = values(self.family.training_model(level, self.classes))
        shapes = {variable.path: tuple(variable.shape) for variable in variables}
        if level in self.family.stages:
            first = 0 if self.family.recipe.levels.ensemble is None else 1
            client_shapes = global_layout.shapes(self.family, level, self.classes)
            shapes |= {path: shape[first:] for path, shape in client_shapes.items()}
        return shapes

    def transferred(self, level: str, labels: np.ndarray) -> tuple[float, float]:
        """Return the number of values of one network that a client receives and sends in a round: means (down, up).

        A client receives the values that its stages run and sends those that the merge counts. Personal values are not
        transferred, and neither are constants: they never change, so a client gets them once, with the program.

        Args:
            labels: int [clients], number of labels of each client.
        """
        recipe, down, up = self.family.recipe, 0.0, 0.0
        run, trained = run_and_trained(self.stages(level), recipe.model.exits)
        # Untrained copies are sent too if the recipe counts them in the merge.
        sent = run if recipe.round.untrained == "counted" else trained
        # Rows of other labels are never merged, but without the cut a client trains them and therefore receives them.
        every = np.full_like(labels, self.family.classes)
        received = labels if global_layout.may_cut_labels(recipe) else every
        returned = labels if recipe.round.label_rows == "own" else every
        fixed = {variable.path for variable in constants(self.family.training_model(level, self.classes))}
        for path, shape in self.shapes(level).items():
            unit, extra_rows = recipe.model.unit_of(path), self._label_axes.get(path, {})
            if path not in fixed and not {unit, "all"} & set(recipe.round.personal):
                down += float(np.mean(_variable_size(shape, extra_rows, received, 1))) * (unit in run)
                up += float(np.mean(_variable_size(shape, extra_rows, returned, 0))) * (unit in sent)
        return down, up

    @functools.cached_property
    def _label_axes(self):
        return global_layout.label_axes(self.family)

    def train_flops(self, level: str) -> tuple[float, ...]:
        """Return the operations of training one network on one example, by stage; see `traffic.stage_flops`."""
        exits, epochs = self.family.recipe.model.exits, self.family.recipe.client.epochs_of(level)
        units = functools.partial(self.units, level)
        return tuple(stage_flops(stage, units, exits, epochs) for stage in self.stages(level))

    @property
    def full_cost(self) -> float:
        """The cost that budgets are shares of, see `unit_costs.full_model_cost`."""
        recipe = self.family.recipe
        if recipe.levels.measure not in self.counted:
            cost = full_model_cost(recipe, self.family.shape, self.example, self.family.classes)
            self.counted[recipe.levels.measure] = cost
        return self.counted[recipe.levels.measure]


def _single_stage(route, units):
    return Stage((route,), units)


def run_and_trained(
    stages: Sequence[Stage], exits: dict[int, tuple[int, str]]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the units that some stage runs, and those that some stage trains.

    Args:
        exits: `{number: (units of the trunk before it, unit of the branch)}`.
    """
    routes = [route for stage in stages for route in stage.routes]
    branches = {exits[number][1] for route in routes for number in route.exits if number in exits}
    return frozenset(branches).union(*(route.units for route in routes)), frozenset().union(
        *(stage.trained for stage in stages)
    )


def _variable_size(shape, extra_rows, labels, extra):
    """Return the size of one variable with `labels` rows on its label axis; `extra_rows`: those after the labels."""
    return math.prod(
        labels + extra * extra_rows[dimension] if dimension in extra_rows else size
        for dimension, size in enumerate(shape)
    )


def client_costs(costs: LevelCosts, labels: np.ndarray) -> tuple[ClientCost, ...]:
    """Return the cost of each level of the mix: of a client, or in an ensemble of one network that it trains.

    Args:
        labels: int [clients], number of labels of each client.
    """
    recipe = costs.family.recipe
    value_bytes = np.dtype(recipe.float_type).itemsize

    def of_level(level):
        down, up = costs.transferred(level, labels)
        return ClientCost(round(down * value_bytes), round(up * value_bytes), costs.train_flops(level))

    return tuple(map(of_level, recipe.levels.names))
