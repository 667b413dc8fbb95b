"""Costs of the units of a model, and their shares of the full model."""

import functools
from collections.abc import Iterable, Iterator, Mapping

from hetero_tf.models.build_model import build_model
from hetero_tf.models.costs.counting import ForwardCost, forward, total
from hetero_tf.recipe.schema import Recipe


def unit_costs(layers: Iterable[ForwardCost], units: dict[str, str]) -> tuple[ForwardCost, ...]:
    """Add up the costs of layers by unit.

    Args:
        layers: The result of `counting.forward`.
        units: `{name of a layer: name of its unit}`, such as `recipe.model.units`.

    Returns:
        One cost for each unit with layers, in the order of `units`.

    Raises:
        ValueError: A layer is in no unit.
    """
    by_name = {layer.name: layer for layer in layers}
    missing = [name for name in by_name if name not in units]
    if missing:
        raise ValueError(f"`units` must name the unit of every layer. Received: units without {', '.join(missing)}")
    by_unit: dict[str, list[ForwardCost]] = {}
    for name, unit in units.items():
        if name in by_name:
            by_unit.setdefault(unit, []).append(by_name[name])
    return tuple(total(costs, unit) for unit, costs in by_unit.items())


class UnitShares(Mapping):
    """`{unit: share}`: each unit's share of the full model's cost, in the measure of the budgets.

    The first access counts the costs, which builds the full model. Without budgets the mapping is empty.

    Args:
        recipe: The recipe.
        shape: Shape of one input without the batch axis, see `models.build_model.build_model`.
        example: The same without None.
        classes: Length of the global label axis.
    """

    def __init__(self, recipe: Recipe, shape: tuple[int | None, ...], example: tuple[int, ...], classes: int):
        self._recipe, self._model = recipe, (shape, example, classes)

    @functools.cached_property
    def _shares(self):
        levels = self._recipe.levels
        if not levels.budgets:
            return {}
        width = levels.widths[levels.global_level]
        amounts = _amounts(self._recipe, *self._model, width)
        whole = sum(amounts.values()) if width == 1 else full_model_cost(self._recipe, *self._model)
        return {unit: amount / whole for unit, amount in amounts.items()}

    def __getitem__(self, unit: str) -> float:
        return self._shares[unit]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shares)

    def __len__(self) -> int:
        return len(self._shares)


def full_model_cost(recipe: Recipe, shape: tuple[int | None, ...], example: tuple[int, ...], classes: int) -> float:
    """Return the cost that budgets are shares of: the model at width 1, without exits. Arguments: `UnitShares`."""
    return sum(_amounts(recipe, shape, example, classes, 1.0).values())


def _amounts(recipe, shape, example, classes, width):
    """Return the cost of each unit at a width, in the measure of the budgets."""
    is_map = recipe.targets == "label_map"
    model = build_model(recipe.model, shape, width, classes=classes, dtype=recipe.float_type, label_map=is_map)
    costs = unit_costs(forward(model, example), recipe.model.units)
    return {cost.name: cost.by(recipe.levels.measure) for cost in costs}
