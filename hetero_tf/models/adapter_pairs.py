"""Adapters of a model: pairs of low-rank factors among its variables, and the cut of their products."""

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import keras

from hetero_tf.layers.stacked.dense import LowRank
from hetero_tf.methods.adapters import AdapterMerge
from hetero_tf.models.cut import Cut
from hetero_tf.models.variables import all_layers
from hetero_tf.recipe.nodes import InvalidValue
from hetero_tf.recipe.schema import Recipe

Key = TypeVar("Key", str, int)


@dataclass(frozen=True)
class Adapter(Generic[Key]):
    """A low-rank adapter, by the paths of its variables, or by their positions among the global values.

    Attributes:
        a: The factor (*channels, rank).
        b: The factor (rank, *outputs).
        base: The constant kernel (*channels, *outputs), to which `scale * a b` is added.
    """

    a: Key
    b: Key
    base: Key
    scale: float


def find_adapters(model: keras.Model) -> tuple[Adapter[str], ...]:
    """Find the adapters of a single-client model by the names and shapes of its variables.

    The factors are two weights of a layer whose names differ in the last letter, such as `lora_kernel_a` and
    `lora_kernel_b` of Keras' layers. The base is a constant of the model in the shape of their product: of several, the
    one whose path has the longest common start with theirs.
    """
    adapters = {}
    for layer in all_layers(model):
        weights = {v.path: v for v in (*layer._trainable_variables, *layer._non_trainable_variables)}
        for path, a in weights.items():
            b = weights.get(f"{path[:-1]}b")
            if not path.endswith("a") or b is None or len(a.shape) < 2 or a.shape[-1] != b.shape[0]:
                continue
            shape = (*a.shape[:-1], *b.shape[1:])
            constants = [v.path for v in model.non_trainable_variables if tuple(v.shape) == shape]
            bases = [base for base in constants if base not in (path, b.path)]
            if bases:
                base = max(bases, key=lambda base: len(os.path.commonprefix([base, path])))
                alpha = getattr(layer, "lora_alpha", None)
                scale = getattr(layer, "scale" if isinstance(layer, LowRank) else "lora_scale", 1.0)
                scale = scale if alpha is None else alpha / a.shape[-1]
                adapters[path] = Adapter(path, b.path, base, scale)
    return tuple(adapters.values())


def freeze_factors(model: keras.Model, single: keras.Model, merge: AdapterMerge) -> None:
    """Make the factors constant that no round trains.

    Args:
        single: The same model for one client.
    """
    frozen = {"a", "b"} - {factor for factors in merge.trained for factor in factors}
    paths = {getattr(adapter, factor) for adapter in (find_adapters(single) if frozen else ()) for factor in frozen}
    for variable in model.variables if paths else ():
        if variable.path in paths:
            variable.trainable = False


def transferred_shares(model: keras.Model, merge: AdapterMerge) -> dict[str, tuple[float, float]]:
    """Return `{path: (down, up)}` of the parts of adapters: the shares of rounds that transfer them."""
    up = {factor: sum(factor in factors for factors in merge.trained) / len(merge.trained) for factor in "ab"}
    return {
        getattr(adapter, part): (float(part in merge.downloaded), up.get(part, 0.0))
        for adapter in find_adapters(model)
        for part in ("a", "b", "base")
    }


@dataclass(frozen=True)
class AdapterLayout:
    """The adapters among the global values, and their products.

    Attributes:
        products: For each product the number of its adapter, and the half-open range of its ranks.
        cut: Cut of the products. A sub-model contains those of which it has a rank.
        first_merged_stage: For each product and sub-model, see `GlobalLayout`.
    """

    merge: AdapterMerge
    adapters: tuple[Adapter[int], ...]
    products: tuple[tuple[int, int, int], ...]
    cut: Cut
    first_merged_stage: tuple[tuple[int, ...], ...]

    @property
    def factors(self) -> tuple[int, ...]:
        """Positions of the factors among the global values, in order."""
        return tuple(sorted(position for adapter in self.adapters for position in (adapter.a, adapter.b)))

    def trained(self, positions: Sequence[int]) -> list[list[bool]]:
        """Return for each turn of rounds which of the global values at some positions it trains."""
        factor_of = {getattr(adapter, factor): factor for adapter in self.adapters for factor in ("a", "b")}
        return [[factor_of.get(at, factors[0]) in factors for at in positions] for factors in self.merge.trained]


def check_adapters(recipe: Recipe, adapters: Mapping[str, tuple[Adapter[str], ...]]) -> None:
    """Refuse a merge of adapters without adapters, or of adapters whose scale depends on the level.

    Args:
        adapters: Those of each level of the mix.

    Raises:
        InvalidValue: The key is `round.adapters`.
    """
    path, top, name = ("round", "adapters"), recipe.levels.global_level, recipe.round.adapters.name
    if not adapters[top]:
        text = "has no effect because the model has no low-rank adapter; give layers a lora_rank or remove this key"
        raise InvalidValue(path, f"{text}. Received: {name}")
    scales = {adapter.a: adapter.scale for adapter in adapters[top]}
    for level, adapter in ((level, each) for level, of_level in adapters.items() for each in of_level):
        if adapter.scale != scales[adapter.a]:
            text = f"needs one scale of an adapter at all levels, such as lora_alpha=None; {adapter.a} has the scale "
            text += f"{adapter.scale:g} at level {level} and {scales[adapter.a]:g} at level {top}"
            raise InvalidValue(path, f"{text}. Received: {name}")


def build_adapter_layout(
    merge: AdapterMerge,
    adapters: Sequence[Adapter[str]],
    paths: Sequence[str],
    cut: Cut,
    first_merged_stage: Sequence[tuple[int, ...]],
) -> AdapterLayout:
    """Build the layout of the adapters of the global model.

    Args:
        paths, cut, first_merged_stage: Those of the global values.
    """
    indices = [
        Adapter(paths.index(each.a), paths.index(each.b), paths.index(each.base), each.scale) for each in adapters
    ]
    products, shapes, axes, contained, stages = [], [], [], [], []
    for number, adapter in enumerate(indices if merge.combine else ()):
        ranks = [
            cut.shape_in(submodel, adapter.a)[-1] if has else 0 for submodel, has in enumerate(cut.contained[adapter.a])
        ]
        edges = sorted({0, *ranks} if merge.products == "ranks" else {0, max(ranks)})
        for first, end in itertools.pairwise(edges):
            products.append((number, first, end))
            shapes.append((*cut.shapes[adapter.a][:-1], *cut.shapes[adapter.b][1:]))
            axes.append((*cut.axes[adapter.a][:-1], *cut.axes[adapter.b][1:]))
            contained.append(tuple(rank > first for rank in ranks))
            stages.append(
                tuple(stage if rank > first else 0 for stage, rank in zip(first_merged_stage[adapter.a], ranks))
            )
    product_cut = Cut(tuple(shapes), tuple(axes), tuple(contained))
    return AdapterLayout(merge, tuple(indices), tuple(products), product_cut, tuple(stages))
