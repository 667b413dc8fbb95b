"""What the networks of each level take, with their exits and stages: values that travel, and the cost of each unit."""

import dataclasses
import functools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from hetero_tf.methods.stages import Stage, whole
from hetero_tf.models import global_layout
from hetero_tf.models.costs.traffic import ClientCost, stage_flops
from hetero_tf.models.costs.unit_costs import UnitCost, unit_costs, whole_model
from hetero_tf.models.cut import Cut
from hetero_tf.models.family import ModelFamily, level_of, outline
from hetero_tf.models.global_layout import may_cut_labels
from hetero_tf.models.variables import constants


@dataclass(frozen=True, eq=False)
class Costs:
    """Counts on the networks of a recipe; each is built and traced once, when it is first asked for.

    Attributes:
        family: The models of all levels.
        example: Shape of one input, without None.
        classes: Length of the label axis that clients train.
        counted: What is counted already; None: what was counted for this family. Recipes with the same layers, frozen
            units, examples and classes may share it.
    """

    family: ModelFamily
    example: tuple
    classes: int
    counted: dict | None = None

    def units(self, level: str, width: float) -> dict[str, UnitCost]:
        """`{unit: UnitCost}` of one network of a level at some width, all exits of the level with it."""
        route = dataclasses.replace(self.family.route(level), width=width)
        if route not in self._known:
            units = self.family.recipe.model.units
            model = self.family.alone(route, self.classes)
            self._known[route] = {cost.unit: cost for cost in unit_costs(model, self.example, units)}
        return self._known[route]

    def stages(self, level: str) -> tuple[Stage, ...]:
        """The `stages.Stage`s of a level; of one that is not in the mix, the whole of it."""
        recipe = self.family.recipe
        return self.family.stages.get(level) or (_whole(*whole(outline(recipe), level_of(recipe, level))),)

    def train_flops(self, level: str) -> tuple[float, ...]:
        """Operations of training one network on one example, for each stage; see `traffic.stage_flops`."""
        exits, epochs = self.family.recipe.model.exits, self.family.recipe.client.epochs_of(level)
        units = functools.partial(self.units, level)
        return tuple(stage_flops(stage, units, exits, epochs) for stage in self.stages(level))

    @property
    def whole(self) -> float:
        """What budgets are shares of: see `unit_costs.whole_model`."""
        recipe = self.family.recipe
        if recipe.levels.measure not in self._known:
            found = whole_model(recipe, self.family.shape, self.example, self.family.classes)
            self._known[recipe.levels.measure] = found
        return self._known[recipe.levels.measure]

    @property
    def _known(self):
        return self.family.once(("counted", self.example, self.classes), dict) if self.counted is None else self.counted


def _whole(route, units):
    return Stage((route,), units)


def travelling(
    costs: Costs,
    level: str,
    shapes: dict[str, tuple[int, ...]],
    fixed: Collection[str],
    label_axes: dict[str, dict[int, int]],
    classes: int,
    labels: np.ndarray,
) -> tuple[float, float]:
    """How many values of one network a client receives and sends in a round: means over clients (down, up).

    It receives what its stages run and sends what the merge counts. What stays with the clients does neither, and
    constants do neither: nobody changes them, so a client gets them once, with the program.

    Args:
        costs: `Costs`.
        level: Name of the level.
        shapes: `{path: shape}` of the level's values.
        fixed: Paths of the constants among them.
        label_axes: `{path: {dimension: extra}}`, see `cut.find_label_axes`.
        classes: Length of the global label axis.
        labels: int [clients], how many labels each client has.
    """
    recipe = costs.family.recipe
    run, trained = run_and_trained(costs.stages(level), recipe.model.exits)
    sent = run if recipe.round.untrained == "counted" else trained
    received, returned = _rows(recipe, classes, labels)
    down = up = 0.0
    for path, shape in shapes.items():
        unit, behind = recipe.model.unit_of(path), label_axes.get(path, {})
        if path in fixed or unit in recipe.round.personal or "all" in recipe.round.personal:
            continue
        down += float(np.mean(_size(shape, behind, received, 1))) * (unit in run)
        up += float(np.mean(_size(shape, behind, returned, 0))) * (unit in sent)
    return down, up


def run_and_trained(
    stages: Sequence[Stage], exits: dict[int, tuple[int, str]]
) -> tuple[frozenset[str], frozenset[str]]:
    """Returns the units that some stage runs, and those that some stage trains.

    Args:
        stages: Of a level.
        exits: `{number: (units of the trunk before it, unit of the branch)}`.
    """
    routes = [route for stage in stages for route in stage.routes]
    branches = {exits[number][1] for route in routes for number in route.exits if number in exits}
    return frozenset(branches).union(*(route.units for route in routes)), frozenset().union(
        *(stage.trained for stage in stages)
    )


def _rows(recipe, classes, labels):
    """How many rows of label axes each client receives and returns."""
    # Rows of other labels are never merged, but without the cut a client trains them and so receives them.
    every = np.full_like(labels, classes)
    return labels if may_cut_labels(recipe) else every, labels if recipe.round.label_rows == "own" else every


def _size(shape, behind, labels, extra):
    """Values of one variable where its label axis is `labels` long; `behind`: its rows behind the labels."""
    return math.prod(labels + extra * behind[place] if place in behind else size for place, size in enumerate(shape))


def client_costs(costs: Costs, cut: Cut, labels: np.ndarray) -> tuple[ClientCost, ...]:
    """The cost of each level of the mix: of a client, or in an ensemble of one network that it trains.

    Args:
        costs: Counts on the models that clients train.
        cut: Which axes of the global values are label axes.
        labels: int [clients], how many labels each client has.
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
        fixed = {variable.path for variable in constants(family.trained(level, costs.classes))}
        down, up = travelling(costs, level, shapes, fixed, label_axes, family.classes, labels)
        return ClientCost(round(down * size), round(up * size), costs.train_flops(level))

    return tuple(map(of_level, recipe.levels.names))
