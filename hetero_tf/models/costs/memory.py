"""Memory and work of the clients of a level, and levels that fit the budgets or the devices of clients."""

import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.base.formatting import MIB
from hetero_tf.methods.stages.budgets import cap, fits
from hetero_tf.models.costs.level_costs import LevelCosts
from hetero_tf.models.family import build_family
from hetero_tf.planning.fleets.devices import ClientTimes, Devices, client_times, devices_of, local_steps
from hetero_tf.recipe.model import Width
from hetero_tf.recipe.nodes import InvalidValue
from hetero_tf.recipe.schema import Fleet, Levels, Mebibytes, Recipe

# The largest denominator of a fraction in a recipe.
DENOMINATORS = 9999


@dataclass(frozen=True)
class MemoryUse:
    """Memory of a client that trains its full sub-model, or one stage of it.

    Attributes:
        units: Names of the counted units.
        amount: Their cost in the measure of the budgets: bytes, or multiply-adds.
    """

    units: tuple[str, ...]
    amount: float


def stage_memory(costs: LevelCosts, level: str) -> tuple[MemoryUse, ...]:
    """Return the memory of a level's clients: one value for each stage, or a single one for one stage or drawn stages.

    Several networks of a client add up, and so do several widths in a step whose coupling compares their outputs; other
    widths can run one after the other. If levels differ in the units that their clients train at a time (blocks,
    depths), no estimate contains the first and the last unit, as in FeDepth's Table 1, whose budgets are shares of the
    full model with both.

    Reference: FeDepth (Zhang et al. 2023, arXiv 2303.04887), Table 1 and section 5.
    """
    family, model, levels = costs.family, costs.family.recipe.model, costs.family.recipe.levels
    stages, ends = costs.stages(level), {model.trunk[0], model.trunk[-1]}

    def amount(units, width):
        costs_of_units = costs.units(level, width)
        return sum(costs_of_units[unit].by(levels.measure) for unit in units)

    def routed(stage):
        """Add up the routes of a stage; routes of one network count separately unless a loss compares their outputs."""
        compared = registry.find("couplings", family.recipe.client.coupling.name).READS_LOGITS
        amounts: list[list[int]] = [[] for _ in stage.trained_by_network]
        for route in stage.routes:
            units = [*route.units, *(model.exits[number][1] for number in route.exits if number in model.exits)]
            counted = [unit for unit in units if unit not in ends or not levels.depths]
            amounts[route.network].append(amount(counted, route.width))
        run = tuple(dict.fromkeys(unit for route in stage.routes for unit in route.units))
        return MemoryUse(run, levels.networks_of(level) * sum(map(sum if compared else max, amounts)))

    def block(stage):
        """Add up the units with gradients in a stage; networks that are trained completely count all of theirs."""
        blocks = [
            model.trunk
            if stage.trained_by_network[route.network].issuperset(model.trunk)
            else tuple(unit for unit in route.units[route.frozen :] if unit not in ends)
            for route in stage.routes
        ]
        return MemoryUse(blocks[-1], sum(amount(units, levels.widths[level]) for units in blocks))

    if len(stages) == 1 or family.drawn:
        return (max(map(routed, stages), key=lambda use: use.amount),)
    return tuple(map(block, stages))


def estimate(costs: LevelCosts, level: str) -> float:
    """Return the largest memory of a level's clients."""
    return max(use.amount for use in stage_memory(costs, level))


def budget_shares(costs: LevelCosts) -> dict[str, float]:
    """Return `{level: memory as a share of its budget}` of the active levels that have a budget."""
    levels = costs.family.recipe.levels
    return {
        name: estimate(costs, name) / (levels.budgets[name] * costs.full_cost)
        for name in levels.names
        if name in levels.budgets and name not in levels.idle
    }


def over_budget(costs: LevelCosts) -> dict[str, float]:
    """Return the `budget_shares` of the levels that exceed their budget."""
    limit = 1 + costs.family.recipe.levels.tolerance
    return {name: share for name, share in budget_shares(costs).items() if not fits(share, limit)}


def fit_levels(recipe: Recipe, shape: tuple[int | None, ...], example: tuple[int, ...], classes: int) -> Recipe:
    """Return a recipe whose budgets are shares of the full model, with its levels reduced by `levels.fit`.

    Args:
        shape: Shape of one input without the batch axis, see `models.build_model.build_model`.
        example: The same without None.
        classes: Length of the global label axis.
    """
    levels, counted = recipe.levels, dict[Any, Any]()
    if levels.fit in (None, "device") and not any(isinstance(budget, Mebibytes) for budget in levels.budgets.values()):
        return recipe
    # Without budgets, so that building the family does not check them.
    free = dataclasses.replace(recipe, levels=dataclasses.replace(levels, budgets={}, fit=None))
    full_cost = LevelCosts(build_family(free, shape, example, classes), classes, counted).full_cost
    budgets = {
        name: budget.amount * MIB / full_cost if isinstance(budget, Mebibytes) else budget
        for name, budget in levels.budgets.items()
    }
    levels = dataclasses.replace(levels, budgets=budgets)
    if levels.fit in (None, "device"):
        return dataclasses.replace(recipe, levels=levels)

    def needed(name, **changes):
        """Return the memory of a level's clients after some changes of the levels."""
        changed = dataclasses.replace(free, levels=dataclasses.replace(free.levels, **changes))
        return estimate(LevelCosts(build_family(changed, shape, example, classes), classes, counted), name)

    limits = {
        name: cap(share, full_cost, levels.tolerance) for name, share in budgets.items() if name not in levels.idle
    }
    changes = getattr(_Fit(recipe, limits, needed), levels.fit)() if limits else {}
    return dataclasses.replace(recipe, levels=dataclasses.replace(levels, **changes))


def as_fraction(share: float) -> Fraction:
    """Return a share as the fraction that a recipe would write for it."""
    return Fraction(share).limit_denominator(DENOMINATORS)


def describe_fit(levels: Levels) -> str:
    """Describe levels for a user: "widths a 1, b 1/2; members a 6, b 3"."""
    widths = {name: as_fraction(width) for name, width in levels.widths.items() if name in levels.names}
    settings: dict[str, dict] = {"widths": widths, "depths": levels.depths, "members": levels.members}
    return "; ".join(
        f"{setting} " + ", ".join(f"{name} {value}" for name, value in values.items())
        for setting, values in settings.items()
        if values
    )


@dataclass(frozen=True)
class _Fit:
    """Levels that are reduced to fit their budgets; a method for each value of `levels.fit` returns the changed fields.

    Attributes:
        limits: Largest memory of each level with a budget.
        needed: `(level, **changes of the levels) -> memory of its clients`.
    """

    recipe: Recipe
    limits: dict[str, float]
    needed: Callable[..., float]

    @property
    def smallest(self) -> str:
        """The level with the smallest limit."""
        return min(self.limits, key=lambda name: self.limits[name])

    def widths(self) -> dict:
        """Reduce every level's width if its budget requires it."""
        values = self.recipe.levels.widths

        def reduced(name):
            return self.widest(name, values[name], lambda width: {"widths": {**values, name: width}})

        return {"widths": values | {name: reduced(name) for name in self.limits}}

    def common_width(self) -> dict:
        """Give all levels one width: the smallest of theirs, reduced if the smallest budget requires it."""
        levels = self.recipe.levels

        def change(width):
            return {"widths": dict.fromkeys(levels.widths, width)}

        return change(self.widest(self.smallest, min(levels.widths[name] for name in levels.names), change))

    def depths(self) -> dict:
        """Give every level a shallower exit if its budget requires it, then fewer channels."""
        depths, start = dict(self.recipe.levels.depths), self.recipe.levels.widths
        widths = dict(start)

        def change(level, width):
            return {"depths": depths, "widths": {**start, level: width}}

        for name, limit in self.limits.items():
            while depths.get(name, 1) > 1 and not fits(self.needed(name, depths=depths), limit):
                depths[name] -= 1
            if depths.get(name) == 1:
                widths[name] = self.widest(name, start[name], functools.partial(change, name))
        return {"depths": depths, "widths": widths}

    def members(self) -> dict:
        """Reduce the networks of each level, of the width at which one fits the smallest budget."""
        levels = self.recipe.levels

        def change(width):
            return {"members": dict.fromkeys(levels.members, 1), "widths": dict.fromkeys(levels.widths, width)}

        changes = change(self.widest(self.smallest, levels.widths[self.smallest], change))
        # The cost of one network; budgets hold a multiple of it.
        per_network = self.needed(self.smallest, **changes)
        fitting = {name: max(1, math.floor(limit / per_network)) for name, limit in self.limits.items()}
        return changes | {
            "members": {name: min(most, fitting.get(name, most)) for name, most in levels.members.items()}
        }

    def widest(self, name: str, start: float, change: Callable[[float], dict]) -> float:
        """Return the largest width up to `start` at which a level's clients need at most their limit.

        Widths are multiples of the finest `!w` size of the model; `change(width)`: the changed fields of the levels.
        """
        limit, memory_at_start = self.limits[name], self.needed(name, **change(start))
        if fits(memory_at_start, limit):
            return start
        arguments = [value for spec in self.recipe.model.layers for value in spec.args.values()]
        granularity = max((value.size for value in arguments if isinstance(value, Width)), default=1)

        def fits_at(steps):
            return fits(self.needed(name, **change(steps / granularity)), limit)

        # Memory is roughly proportional to the width, so the search starts close to its result.
        steps = max(math.floor(start * granularity * limit / memory_at_start), 1)
        if fits_at(steps):
            while (steps + 1) / granularity < start and fits_at(steps + 1):
                steps += 1
            return steps / granularity
        while steps > 1:
            steps -= 1
            if fits_at(steps):
                return steps / granularity
        raise InputError(
            f"levels.fit: even the narrowest model exceeds the budget of level {name}; raise its budget, or exclude "
            f"its clients by levels.idle. Received: levels.budgets.{name}={self.recipe.levels.budgets[name]}"
        )


@dataclass(frozen=True)
class LevelWork:
    """Work of a client of one level in a round.

    Attributes:
        memory: Bytes of training: weights, gradients, optimizer and activations of a batch; of the largest stage.
        flops: Operations of training on one example in all epochs and stages.
        passes: Number of passes over the examples in all epochs and stages.
        starts: Local steps for each batch; more than 1 for segments of text.
        bytes_down, bytes_up: Values received and sent.
    """

    memory: float
    flops: float
    passes: int
    batch_size: int
    starts: int
    bytes_down: float
    bytes_up: float

    def times(self, devices: Devices, examples: np.ndarray) -> ClientTimes:
        """Return the times of n clients of this level.

        Args:
            examples: int [n], number of examples of each client.
        """
        steps = local_steps(examples, self.batch_size, self.passes, self.starts)
        sizes = (np.full(len(examples), float(size)) for size in (self.bytes_down, self.bytes_up))
        return client_times(devices, steps, self.flops * self.starts * examples, *sizes)


def level_work(costs: LevelCosts, labels: np.ndarray, batch: int, starts: int) -> dict[str, LevelWork]:
    """Return the work of a client of each level of the mix.

    Args:
        labels: int [clients], number of labels of each client.
        batch: Maximum examples of a local step.
        starts: Local steps for each batch of examples.
    """
    family, recipe, work = costs.family, costs.family.recipe, {}
    all_labels = LevelCosts(family, family.classes)
    for name, client in zip(recipe.levels.names, costs.of_clients(labels), strict=True):
        flops, networks = client.train_flops, recipe.levels.networks_of(name)
        stages, whole = 1 if family.drawn else len(flops), all_labels.of_level(name, labels, batch).memory.total
        memory = float(networks * whole)
        if stages > 1:
            units = costs.units(name, recipe.levels.widths[name]).values()
            memory = whole * estimate(costs, name) / sum(unit.by(recipe.levels.measure) for unit in units)
        epochs = recipe.client.epochs_of(name)
        work[name] = LevelWork(
            memory=memory,
            flops=epochs * networks * sum(flops) * stages / len(flops),
            passes=epochs * networks * stages,
            batch_size=recipe.client.batch_size,
            starts=starts,
            bytes_down=networks * client.bytes_down,
            bytes_up=networks * client.bytes_up,
        )
    return work


def fit_to_devices(recipe: Recipe, work: dict[str, LevelWork], examples: np.ndarray) -> Recipe:
    """Return a recipe whose clients have the largest level of the mix that fits their device.

    Args:
        recipe: The recipe, with `levels.fit: device`.
        work: Work of a client at each level of the mix.
        examples: int [clients], number of examples of each client.

    Returns:
        The recipe with `levels.level_of_client`, and with the numbers of clients as shares of the mix.

    Raises:
        InvalidValue: No client or fewer clients than a round needs fit any level; with the path of the key.
    """
    levels, ids = recipe.levels, np.arange(len(examples))
    devices = devices_of(recipe.fleet or Fleet(), recipe.seed, ids, clients=len(ids))
    level_of_client = np.full(len(ids), -1, np.int8)
    for name in sorted(levels.names, key=lambda name: work[name].memory, reverse=True):
        fits = devices.memory >= work[name].memory
        if levels.fit_seconds is not None:
            fits &= work[name].times(devices, examples).total <= levels.fit_seconds
        level_of_client[(level_of_client < 0) & fits] = levels.names.index(name)
    counts: dict[str, float] = {name: int((level_of_client == index).sum()) for index, name in enumerate(levels.names)}
    able = sum(count for name, count in counts.items() if name not in levels.idle)
    if not able:
        smallest = min((name for name in levels.names if name not in levels.idle), key=lambda name: work[name].memory)
        seconds = work[smallest].times(devices, examples).total.min()
        raise InvalidValue(
            ("levels", "fit"),
            f"no device fits a level: the smallest level, {smallest}, needs {work[smallest].memory / MIB:.1f} MiB (the "
            f"largest device has {devices.memory.max() / MIB:.1f} MiB) and {seconds:.3g} s on the fastest device; add "
            "a smaller level or raise levels.fit_seconds. Received: 'device'",
        )
    if recipe.round.clients > able:
        text = f"more active clients than clients whose device fits a level (levels.fit); must be at most {able}"
        raise InvalidValue(("round", "clients"), f"{text}. Received: {recipe.round.clients}")
    fitted = dataclasses.replace(levels, mix=counts, level_of_client=level_of_client)
    return dataclasses.replace(recipe, levels=fitted)
