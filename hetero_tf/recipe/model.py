"""The model of a recipe as frozen dataclasses: its layers, and the values in them that depend on level and data."""

import math
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Width:
    """`!w n`: n on a model of width 1, n * width on a sub-model, rounded up or down to a whole number of at least 1."""

    size: int
    down: bool = False

    def at(self, width: float) -> int:
        """Returns the size at `width`; the tolerance keeps 100 at width 0.07 at 7, which the float product exceeds."""
        rounded = math.floor(self.size * width + 1e-9) if self.down else math.ceil(self.size * width - 1e-9)
        return max(1, rounded)


@dataclass(frozen=True)
class Classes:
    """`!classes`: the label axis, one entry per class (or per word of the vocabulary)."""


@dataclass(frozen=True)
class OwnModel:
    """Stands for the key `model` where a Python function builds the model, see `models.custom_model`."""

    initial_weights: object = None


@dataclass(frozen=True, kw_only=True)
class LayerSpec:
    """One layer of the model: a class name of the layer table with its arguments.

    `name` is unique in the model and equal at every level. `unit` names the nested list that the layer
    stands in. `exit` is the number of the exit that the layer's branch ends in, None on the trunk. `starts_as` names
    the first copy of a `Repeat` whose initial values this copy takes over. `path` leads to it in the recipe.
    """

    kind: str
    args: dict
    name: str
    unit: str
    exit: int | None = None
    starts_as: str | None = None
    path: tuple = field(default=(), compare=False)


@dataclass(frozen=True, kw_only=True)
class Model:
    """The layers, in order, and what they start from; none before a function has built a model of one's own.

    `settings` are values that layers refer to by `!setting name`. `initial_weights` is a run folder or a file of
    weights by variable path; `reinitialize` names layers that draw new initial values instead. See
    `models.initial_weights`. `frozen` names units whose weights are constants: clients run them, and nobody trains,
    sends or merges them.
    """

    layers: tuple[LayerSpec, ...]
    settings: dict = field(default_factory=dict)
    initial_weights: str | None = None
    reinitialize: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()

    def rounded_down(self) -> "Model":
        """The same model, each `!w n` of which is rounded down."""

        def argument(value):
            return replace(value, down=True) if isinstance(value, Width) else value

        layers = (
            replace(spec, args={name: argument(value) for name, value in spec.args.items()}) for spec in self.layers
        )
        return replace(self, layers=tuple(layers))

    @property
    def units(self) -> dict[str, str]:
        """`{layer: unit}` by name; a variable's path begins with the name of its layer."""
        return {spec.name: spec.unit for spec in self.layers}

    def unit_of(self, path: str) -> str:
        """The unit of a variable's layer."""
        return self.units[path.split("/")[0]]

    @property
    def cuts_ranks_only(self) -> bool:
        """Whether `!w` cuts nothing but ranks of adapters, so that every level has all channels."""
        cut = {name for spec in self.layers for name, value in spec.args.items() if isinstance(value, Width)}
        return cut == {"lora_rank"}

    @property
    def trunk(self) -> tuple[str, ...]:
        """The names of the trunk's units, in order."""
        return tuple(dict.fromkeys(spec.unit for spec in self.layers if spec.exit is None))

    @property
    def exits(self) -> dict[int, tuple[int, str]]:
        """The exits before the trunk's end: `{number: (units of the trunk before it, unit of the branch)}`."""
        exits, before = {}, set()
        for spec in self.layers:
            if spec.exit is None:
                before.add(spec.unit)
            else:
                exits[spec.exit] = (len(before), spec.unit)
        return exits
