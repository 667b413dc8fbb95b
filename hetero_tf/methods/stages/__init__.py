"""Stages: divide local training into parts, `divide(outline, level, *, shares, options) -> tuple of Stage`.

A stage defines the units that a client runs and trains in some of its steps. Stages run in order, each with all local
epochs. In a module with `DRAWN = True` every step draws one stage instead. `shares`, `{unit: share}`, is the cost of
each unit as a share of the full model, in the measure of the budgets; it is empty if no level has a budget, and in a
module with `READS_SHARES = False`, since counting the costs builds the full model.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Route:
    """A path through the model.

    Attributes:
        units: Units of the trunk that run, in order.
        exits: Numbers of the exits whose logits are used, ascending from 1; the end of the trunk is the last exit.
        width: Share of the channels of the model of width 1, at most the width of the level.
        linked: Whether a `Link` without parameters brings the output of the last unit before the head to the head's
            input size, because units between them are skipped.
        frozen: Number of leading units without gradient.
        network: 0 for the network that the client returns; 1 and above for its peers, which stay on the client.
    """

    units: tuple[str, ...]
    exits: tuple[int, ...]
    width: float
    linked: bool = False
    frozen: int = 0
    network: int = 0


@dataclass(frozen=True)
class Stage:
    """A part of a client's local steps.

    Attributes:
        routes: Routes through its networks; the coupling combines their outputs.
        trained: Trained units of the network that it returns.
        trained_of_peers: Trained units of each of its peers.
    """

    routes: tuple[Route, ...]
    trained: frozenset
    trained_of_peers: tuple[frozenset, ...] = ()

    @property
    def trained_by_network(self) -> tuple[frozenset, ...]:
        """Trained units of each network, the returned one first."""
        return (self.trained, *self.trained_of_peers)


@dataclass(frozen=True)
class ModelOutline:
    """The structure of a model and the widths of its levels, as input of `divide`.

    Attributes:
        trunk: Units of the trunk in order, from the stem to the head, which ends in logits.
        exits: `{number: (units of the trunk before it, unit of the branch)}` of the exits before the end of the trunk.
    """

    trunk: tuple[str, ...]
    exits: dict
    widths: tuple[float, ...]

    @property
    def last(self) -> int:
        """The exit number of the end of the trunk."""
        return len(self.exits) + 1


@dataclass(frozen=True)
class LevelSpec:
    """A level of the recipe.

    Attributes:
        depth: Number of its deepest exit.
        budget: Share of the full model that fits on its clients, or None.
        tolerance: Share by which they may exceed the budget.
    """

    name: str
    width: float
    depth: int
    budget: float | None
    tolerance: float


def full_route(outline: ModelOutline, level: LevelSpec) -> tuple[Route, frozenset]:
    """Return the `Route` through the full sub-model of a level with all its exits, and the units on it."""
    if level.depth == outline.last:
        trunk, numbers = outline.trunk, tuple(range(1, outline.last + 1))
    else:
        trunk = outline.trunk[: outline.exits[level.depth][0]]
        numbers = tuple(range(1, level.depth + 1))
    branches = {outline.exits[number][1] for number in numbers if number in outline.exits}
    return Route(trunk, numbers, level.width), frozenset(trunk) | branches
