"""Frozen dataclasses of the model of a recipe: its layers, and values that depend on level and data."""

import math
from dataclasses import dataclass, field
from typing import Annotated

from hetero_tf.base.constraints import Kind, Plugin, Units


@dataclass(frozen=True)
class Width:
    """`!w n`: n at width 1, n * width on a sub-model, rounded up or down to a whole number of at least 1."""

    size: int
    down: bool = False

    def at(self, width: float) -> int:
        """Return the size at `width`; the tolerance absorbs float errors: 100 * 0.07 is slightly above 7."""
        rounded = math.floor(self.size * width + 1e-9) if self.down else math.ceil(self.size * width - 1e-9)
        return max(1, rounded)


@dataclass(frozen=True)
class Classes:
    """`!classes`: number of outputs, one for each class, word or target; for ordinal and binary, one less."""


# Kinds of values that `round.personal` may name; the head are the layers whose outputs are the classes.
KINDS = ("norms", "biases", "embeddings", "head", "body")


@dataclass(frozen=True, kw_only=True)
class LayerSpec:
    """One layer of the model: a class name of the layer table with its arguments.

    `name` is unique in the model and equal at every level. `unit` is the name of the nested list that contains the
    layer. `exit` is the number of the exit at the end of the layer's branch, None on the trunk. `starts_as` is the
    first copy of a `Repeat` whose initial values this copy shares. `path` is its path in the recipe.
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
    """The layers in order, or the function that builds them, and their initial weights.

    Args:
        function: function that builds a Keras model at a width, instead of layers: MODULE:FUNCTION of --plugin MODULE
        settings: values that layers refer to by `!setting name` or `!setting name.0`
        initial_weights: weights that training starts from: the folder of another run (its best checkpoint, else the
            newest one), or a .npz file with one array per variable path; relative paths start at the working folder
        reinitialize: layers, such as `9_0_dense`, that draw new initial values instead
        frozen: units that keep their initial values, numbered from 0 as in model.layers; clients run them, but they
            are not trained, sent or merged
        layers: the layers in order: class names with their arguments, units as nested lists, Repeats and Exits
    """

    function: Annotated[Plugin, Kind("models")] | None = None
    settings: dict = field(default_factory=dict)
    initial_weights: str | None = None
    reinitialize: tuple[str, ...] = ()
    frozen: Units = ()
    layers: tuple[LayerSpec, ...] = ()

    @property
    def units(self) -> dict[str, str]:
        """`{layer: unit}` by name; the path of a variable begins with the name of its layer."""
        return {spec.name: spec.unit for spec in self.layers}

    def unit_of(self, path: str) -> str:
        """Return the unit of a variable's layer."""
        return self.units[path.split("/")[0]]

    @property
    def cuts_ranks_only(self) -> bool:
        """True if only adapter ranks depend on the width, so every level has all channels."""
        cut = {name for spec in self.layers for name, value in spec.args.items() if isinstance(value, Width)}
        return cut == {"lora_rank"}

    @property
    def trunk(self) -> tuple[str, ...]:
        """Names of the units of the trunk, in order."""
        return tuple(dict.fromkeys(spec.unit for spec in self.layers if spec.exit is None))

    @property
    def exits(self) -> dict[int, tuple[int, str]]:
        """Exits before the end of the trunk: `{number: (trunk units before it, unit of the branch)}`."""
        exits, before = {}, set()
        for spec in self.layers:
            if spec.exit is None:
                before.add(spec.unit)
            else:
                exits[spec.exit] = (len(before), spec.unit)
        return exits
