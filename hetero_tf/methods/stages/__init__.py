"""How a client's local steps go through its sub-model: `divide(outline, level, *, shares, options) -> tuple of Stage`.

A stage is what a client runs and trains in some of its steps. Stages follow one another, each with all local epochs,
or, where a module says `DRAWN = True`, every step draws one. `shares`, `{unit: share}`, says what each unit
takes of the whole model, in the measure of the budgets; it is empty where no level has a budget.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Route:
    """One way through the model.

    Attributes:
        units: The trunk's units that are run, in order.
        exits: The exits that are read, from 1, the shallowest first; the trunk's end is the last one.
        width: Share of channels of the model of width 1, at most that of the level.
        linked: Whether the output of the unit before the head is brought to the head's size without parameters,
            because the units between them are left out.
        frozen: So many of the first units pass no gradient on.
        buffered: Whether these are run once for each example of a stage, and its steps begin behind them.
        network: 0 for the network that the client returns, from 1 for its peers, which stay with it.
    """

    units: tuple[str, ...]
    exits: tuple[int, ...]
    width: float
    linked: bool = False
    frozen: int = 0
    buffered: bool = False
    network: int = 0

    @property
    def stepped(self) -> tuple[str, ...]:
        """The units of the trunk that every step runs."""
        return self.units[self.frozen :] if self.buffered else self.units

    @property
    def before(self) -> "Route":
        """The route through the frozen units; it ends in what they hand on."""
        return Route(self.units[: self.frozen], (), self.width)


@dataclass(frozen=True)
class Stage:
    """Some steps of a client.

    Attributes:
        routes: Ways through its networks, whose outputs are compared.
        trained: The units of the network that it returns which are trained.
        trained_of_peers: The same of each of its peers.
    """

    routes: tuple[Route, ...]
    trained: frozenset
    trained_of_peers: tuple[frozenset, ...] = ()

    @property
    def trained_by_network(self) -> tuple[frozenset, ...]:
        """The units that are trained of each network, those of the returned one first."""
        return (self.trained, *self.trained_of_peers)

    @property
    def before(self) -> Route | None:
        """The route through its frozen units where what they give is buffered, else None."""
        return next((route.before for route in self.routes if route.buffered), None)


@dataclass(frozen=True)
class ModelOutline:
    """What a division needs to know of a model and its levels.

    Attributes:
        trunk: Its units in order; the first is the stem, the last the head, which ends in logits.
        exits: `{number: (units of the trunk before it, unit of the branch)}` of the exits before the trunk's end.
        widths: Widths of the levels of the mix.
    """

    trunk: tuple[str, ...]
    exits: dict
    widths: tuple[float, ...]

    @property
    def last(self) -> int:
        """The number of the trunk's end among the exits."""
        return len(self.exits) + 1


@dataclass(frozen=True)
class Level:
    """A level as the recipe gives it.

    Attributes:
        name: Its name.
        width: Share of channels.
        depth: The number of its deepest exit.
        budget: Share of the whole model that its clients can hold, or None.
        tolerance: Share by which they may exceed it.
    """

    name: str
    width: float
    depth: int
    budget: float | None
    tolerance: float


def whole(outline: ModelOutline, level: Level) -> tuple[Route, frozenset]:
    """The `Route` through all of a level's sub-model with all its exits, and the units that are on it."""
    if level.depth == outline.last:
        trunk, numbers = outline.trunk, tuple(range(1, outline.last + 1))
    else:
        trunk = outline.trunk[: outline.exits[level.depth][0]]
        numbers = tuple(range(1, level.depth + 1))
    branches = {outline.exits[number][1] for number in numbers if number in outline.exits}
    return Route(trunk, numbers, level.width), frozenset(trunk) | branches
