"""Costs of the levels: values and operations of a client in a round, memory, and the costs of rounds and runs.

Operations are counted twice: `paper_flops` follows the convention of the HeteroFL paper's tables for comparison, and
`multiply_adds` counts the executed products.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hetero_tf.base import registry
from hetero_tf.base.formatting import MIB
from hetero_tf.methods.adapters import AdapterMerge
from hetero_tf.methods.stages import Stage
from hetero_tf.models import global_layout
from hetero_tf.models.adapter_pairs import transferred_shares
from hetero_tf.models.costs.counting import ForwardCost, total, unit_amounts, unit_costs
from hetero_tf.models.family import ModelFamily
from hetero_tf.models.variables import constants, shared_path, values
from hetero_tf.recipe.schema import is_compression

# Numbers of products: forward, gradient of the inputs, gradient of the weights.
TRAINED, PASSED, FROZEN = 3, 2, 1
# Totals of a run, and the metrics of each round that they add up.
TOTALS = {"bytes": ("bytes_down", "bytes_up"), "device_seconds": ("round_seconds",), "energy": ("round_energy",)}
# Numbers of a level that are averaged over the clients of a mix.
MEANS = ("parameters", "paper_flops", "mebibytes", "multiply_adds", "bytes_down", "bytes_up")


@dataclass(frozen=True)
class TrainingMemory:
    """Estimated memory of training a complete sub-model (one network of an ensemble), in bytes by kind.

    Attributes:
        weights: Values of the model, and of the client's twin.
        optimizer: Optimizer slots, such as momentum.
        activations: Layer outputs of a batch that the backward pass reads, at all widths that a step trains. Gradients
            of activations are not counted: each is freed when the next is computed.

    Reference: FeDepth (Zhang et al. 2023, arXiv 2303.04887), Figure 1, for the split by kind.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        """Sum of all kinds."""
        return self.weights + self.gradients + self.optimizer + self.activations


@dataclass(frozen=True)
class InferenceMemory:
    """Estimated memory of predicting one example, in bytes: weights, and input and output of a layer.

    Attributes:
        whole: With all weights of one network.
        by_unit: With the weights of one unit at a time.

    Reference: FeDepth (Zhang et al. 2023, arXiv 2303.04887), "memory-efficient inference".
    """

    whole: int
    by_unit: int


@dataclass(frozen=True)
class LevelCost:
    """Costs of one level: its sub-model with its exits, or all networks of an ensemble that its clients train.

    Attributes:
        parameters: Trainable values, with all labels.
        paper_flops, multiply_adds: Counts of one forward pass of one example, see `counting.ForwardCost`.
        mebibytes: Size of the parameters, 2**20 bytes each.
        bytes_down, bytes_up: Weights that a client of this level receives and sends in a round, mean over all
            clients. With label cuts, only rows of the client's labels count. The row of the mask token is only sent
            down. Local units are not transferred.
        shapes: `{variable path: shape}` of one network, with all labels.
    """

    width: float
    parameters: int
    paper_flops: int
    multiply_adds: int
    mebibytes: float
    bytes_down: int
    bytes_up: int
    memory: TrainingMemory
    inference: InferenceMemory
    shapes: dict


@dataclass(frozen=True)
class ClientCost:
    """Cost of a client of one level, or in an ensemble of one network that it trains.

    Attributes:
        bytes_down, bytes_up: Weights that it receives and sends in a round.
        train_flops: For each of the level's stages, operations of training on one example.
    """

    bytes_down: int
    bytes_up: int
    train_flops: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class LevelCosts:
    """Costs of the networks of a recipe; each network is built and traced once, on first use.

    Attributes:
        classes: Length of the label axis that clients train.
        counted: Cached counts. Recipes with the same layers, frozen units, examples and classes may share them.
    """

    family: ModelFamily
    classes: int
    counted: dict = dataclasses.field(default_factory=dict)

    def layers(self, level: str, width: float) -> tuple[ForwardCost, ...]:
        """Return the cost of each layer of one network of a level at some width, with all exits of the level."""
        route = dataclasses.replace(self.family.route(level), width=width)
        if route not in self.counted:
            self.counted[route] = self.family.forward(route, self.classes)
        return self.counted[route]

    def units(self, level: str, width: float) -> dict[str, ForwardCost]:
        """Return the same as `{unit: cost}`."""
        costs = unit_costs(self.layers(level, width), self.family.recipe.model.units)
        return {cost.name: cost for cost in costs}

    def stages(self, level: str) -> tuple[Stage, ...]:
        """Return the stages of a level; a level outside the mix is one stage of its full sub-model."""
        if level in self.family.stages:
            return self.family.stages[level]
        route, units = self.family.full_route(level)
        return (Stage((route,), units),)

    def run_units(self, level: str) -> frozenset[str]:
        """Return the units that some stage of a level runs."""
        routes, exits = (
            [route for stage in self.stages(level) for route in stage.routes],
            self.family.recipe.model.exits,
        )
        branches = {exits[number][1] for route in routes for number in route.exits if number in exits}
        return frozenset(branches).union(*(route.units for route in routes))

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
        """Return the bytes of one network that a client receives and sends in a round: means (down, up).

        A client receives the values that its stages run and sends those that the merge counts. Personal values are not
        transferred, and neither are constants: they never change, so a client gets them once, with the program. Parts
        of adapters count by the share of rounds that transfer them, which `round.adapters` decides. A correction that
        reads slots of the server, such as SCAFFOLD's control, receives them too and sends their change. Parameters are
        compressed by `round.update` on the way down and by `client.update` on the way up.

        Args:
            labels: int [clients], number of labels of each client.
        """
        recipe = self.family.recipe
        # Numbers of values: of the parameters, and of all others.
        parameters, others = np.zeros(2), np.zeros(2)
        personal = global_layout.personal_paths(self.family)
        run, trained = self.run_units(level), frozenset().union(*(stage.trained for stage in self.stages(level)))
        # Untrained copies are sent too if the recipe counts them in the merge.
        sent = run if recipe.round.untrained == "counted" else trained
        # Rows of other labels are never merged, but without the cut a client trains them and therefore receives them.
        every = np.full_like(labels, self.family.classes)
        received = labels if global_layout.may_cut_labels(recipe) else every
        returned = labels if recipe.round.label_rows == "own" else every
        model = self.family.training_model(level, self.classes)
        shares = {variable.path: (0.0, 0.0) for variable in constants(model)}
        if self.family.adapter_merge != AdapterMerge():
            shares |= transferred_shares(model, self.family.adapter_merge)
        correction, learned = recipe.client.correction, {variable.path for variable in model.trainable_variables}
        slots = len(registry.find("corrections", correction.name).READS) if correction else 0
        for path, shape in self.shapes(level).items():
            unit, extra_rows = recipe.model.unit_of(path), self._label_axes.get(shared_path(path), {})
            if path not in personal:
                down = float(np.mean(_variable_size(shape, extra_rows, received, 1))) * (unit in run)
                up = float(np.mean(_variable_size(shape, extra_rows, returned, 0))) * (unit in sent)
                count = np.array([down, up])
                (parameters if path in learned else others)[:] += np.multiply(shares.get(path, 1.0), count)
                others += slots * count * (path in learned)
        down, up = map(self._bytes, parameters, (recipe.round.update, recipe.client.update))
        return down + others[0] * self._value_bytes, up + others[1] * self._value_bytes

    def _bytes(self, entries, update):
        """Return the bytes of a message with this mean number of values; `update`: a `Plugin`, or None."""
        if not is_compression(update):
            return entries * self._value_bytes
        return registry.function_of("updates", update, "message_bits")(entries) / 8

    @functools.cached_property
    def _label_axes(self):
        return global_layout.label_axes(self.family)

    @functools.cached_property
    def _value_bytes(self):
        return np.dtype(self.family.recipe.float_type).itemsize

    def train_flops(self, level: str) -> tuple[float, ...]:
        """Return the operations of training one network on one example, by stage; see `stage_flops`."""
        exits = self.family.recipe.model.exits
        units, plugin, passes = functools.partial(self.units, level), self.family.recipe.client.personalization, 1
        if plugin is not None:
            # Number of gradients that a local step evaluates, or the option that states it.
            passes = registry.constant("personalizations", plugin.name, "PASSES")
            passes = plugin.options.get(passes, passes)
        return tuple(passes * stage_flops(stage, units, exits) for stage in self.stages(level))

    @property
    def full_cost(self) -> float:
        """The cost that budgets are shares of, see `counting.unit_amounts`."""
        family, measure = self.family, self.family.recipe.levels.measure
        if measure not in self.counted:
            amounts = unit_amounts(family.recipe, family.shape, family.example, family.classes)
            self.counted[measure] = sum(amounts.values())
        return self.counted[measure]

    def of_clients(self, labels: np.ndarray) -> tuple[ClientCost, ...]:
        """Return the cost of a client of each level of the mix; `labels`: see `transferred`."""

        def of_level(level):
            down, up = self.transferred(level, labels)
            return ClientCost(round(down), round(up), self.train_flops(level))

        return tuple(map(of_level, self.family.recipe.levels.names))

    def of_level(self, level: str, labels: np.ndarray, batch: int) -> LevelCost:
        """Return the costs of a level of the recipe, in or outside of the mix.

        Args:
            labels: See `transferred`.
            batch: Maximum examples of a local step.
        """
        recipe, size = self.family.recipe, self._value_bytes
        members, width = recipe.levels.members.get(level, 1), recipe.levels.widths[level]
        variables = self.family.training_model(level, self.classes).trainable_variables
        parameters, layers = sum(math.prod(variable.shape) for variable in variables), self.layers(level, width)
        network, units = total(layers), unit_costs(layers, recipe.model.units)
        widths = {width, *(() if self.family.drawn else stage_widths(self.stages(level)))}
        activations = sum(total(self.layers(level, each)).activations for each in widths)
        down, up = (round(members * count) for count in self.transferred(level, labels))
        weights, slots = parameters * size, len(registry.find("optimizers", recipe.optimizer.method.name).SLOTS)
        models = 2 if recipe.twin else 1
        return LevelCost(
            width=width,
            parameters=members * parameters,
            paper_flops=members * network.paper_flops,
            multiply_adds=members * network.multiply_adds,
            mebibytes=members * weights / MIB,
            bytes_down=down,
            bytes_up=up,
            memory=TrainingMemory(models * weights, weights, models * slots * weights, batch * activations * size),
            inference=InferenceMemory(
                size * network.prediction_values, size * max(unit.prediction_values for unit in units)
            ),
            shapes=self.shapes(level),
        )


def stage_widths(stages: Sequence[Stage]) -> frozenset[float]:
    """Return the widths at which local steps run the sub-model of a client."""
    return frozenset(route.width for stage in stages for route in stage.routes)


def _variable_size(shape, extra_rows, labels, extra):
    """Return the size of one variable with `labels` rows on its label axis; `extra_rows`: those after the labels."""
    return math.prod(
        labels + extra * extra_rows[dimension] if dimension in extra_rows else size
        for dimension, size in enumerate(shape)
    )


def costs_to_json(levels: dict[str, LevelCost], shares: dict[str, float]) -> dict:
    """Return costs ready for JSON: "levels", and "mix" with the means over the clients.

    Args:
        levels: Costs of levels, among them those of the mix.
        shares: `{level: share of the clients}` of the mix; the first level is the global model's.
    """
    means = {name: sum(share * getattr(levels[level], name) for level, share in shares.items()) for name in MEANS}
    ratio = means["parameters"] / levels[next(iter(shares))].parameters
    plain = {level: dataclasses.asdict(cost) | {"training_bytes": cost.memory.total} for level, cost in levels.items()}
    for cost in plain.values():
        del cost["shapes"]
    return {"levels": plain, "mix": {"shares": dict(shares), **means, "ratio": ratio}}


@dataclass(frozen=True)
class RoundCost:
    """Cost of one round for each client of its cohort (each network that it trains); all arrays are int64 [cohort].

    Attributes:
        bytes_down: Weights received, also by clients that return nothing.
        bytes_up: Weights sent.
        train_flops: Operations of the steps that reached the server.
    """

    bytes_down: np.ndarray
    bytes_up: np.ndarray
    train_flops: np.ndarray

    def metrics(self) -> dict[str, int]:
        """Return the sums over the cohort as `{"bytes_down", "bytes_up", "train_flops"}`, for a row of metrics."""
        return {name: int(values.sum()) for name, values in vars(self).items()}


def stage_flops(stage: Stage, units: Callable, exits: dict[int, tuple[int, str]]) -> float:
    """Return the operations of training on one example in one stage, two for a multiply-add.

    A trained unit costs three times its forward pass, one of the leading frozen units once. A frozen unit after these
    passes the gradient on, which makes two. Constants have no gradient: a product with one costs a pass less, and two
    less before the first trained weight.

    Args:
        stage: `stages.Stage`; its routes (peers, teachers) add up.
        units: `width -> {unit: counting.ForwardCost}`.
        exits: `{number: (units of the trunk before it, unit of the branch)}`.
    """
    total = 0
    for route in stage.routes:
        costs, learns, trained = units(route.width), False, stage.trained_by_network[route.network]
        branches = [exits[number][1] for number in route.exits if number in exits]
        # Units in the order of the forward pass; gradients stop before the first trained weight.
        for number, unit in enumerate((*route.units, *branches)):
            cost = costs[unit]
            learns = learns or cost.parameters > 0
            if number < route.frozen or not learns:
                products = FROZEN * cost.multiply_adds
            elif unit in trained:
                products = TRAINED * cost.multiply_adds - cost.by_constants
            else:
                products = PASSED * cost.multiply_adds
            total += 2 * products
    return total


def round_cost(
    client_costs: Sequence[ClientCost], levels: np.ndarray, steps: np.ndarray, examples: np.ndarray, stages: np.ndarray
) -> RoundCost:
    """Return the `RoundCost` of a round.

    Args:
        client_costs: `ClientCost` of every level of the mix, in its order.
        levels: int [cohort], positions in the mix.
        steps: int [cohort], local steps that reach the server; without one a client sends nothing.
        examples: [cohort, steps], number of examples in each step; a segment of text is one example.
        stages: int [cohort, steps], position of each step's stage among those of the level.
    """
    levels, steps, examples, stages = (np.asarray(array) for array in (levels, steps, examples, stages))
    per_example = train_flops_table(client_costs)
    # Examples of the steps that reached the server, [cohort, steps].
    counted = np.where(np.arange(examples.shape[1]) < steps[:, None], examples, 0)
    down, up = (
        np.asarray([getattr(each, name) for each in client_costs], np.int64)[levels]
        for name in ("bytes_down", "bytes_up")
    )
    return RoundCost(
        down,
        np.where(steps > 0, up, 0),
        np.rint((per_example[levels[:, None], stages] * counted).sum(axis=1)).astype(np.int64),
    )


def train_flops_table(client_costs: Sequence[ClientCost]) -> np.ndarray:
    """Return the operations of training on one example: float64 [levels, stages], 0 for stages that a level lacks."""
    stages = itertools.zip_longest(*(each.train_flops for each in client_costs), fillvalue=0)
    return np.array([*stages], np.float64).T


def accumulate_totals(rows: list[dict], totals: dict[str, int | float]) -> list[dict]:
    """Add the totals of the run up to each row of metrics; those of time and energy only if the rows have them.

    Args:
        rows: Metrics of consecutive rounds.
        totals: Totals by name before the first row; empty at the start of the run.
    """
    accumulated = []
    for row in rows:
        totals = {
            name: totals.get(name, 0) + sum(row[part] for part in parts)
            for name, parts in TOTALS.items()
            if parts[0] in row
        }
        accumulated.append({**row, **totals})
    return accumulated
