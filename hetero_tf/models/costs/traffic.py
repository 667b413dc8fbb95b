"""Costs of a round for its clients: bytes in both directions and operations of training; and costs of a run so far."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hetero_tf.methods.stages import Stage

# Numbers of products: forward, gradient of the inputs, gradient of the weights.
TRAINED, PASSED, FROZEN = 3, 2, 1
# Totals of a run, and the metrics of each round that they add up.
TOTALS = {"bytes": ("bytes_down", "bytes_up"), "device_seconds": ("round_seconds",), "energy": ("round_energy",)}


@dataclass(frozen=True)
class ClientCost:
    """Cost of a client of one level.

    Attributes:
        bytes_down, bytes_up: Weights that it receives and sends in a round.
        train_flops: For each of the level's stages, operations of training on one example.
    """

    bytes_down: int
    bytes_up: int
    train_flops: tuple[float, ...]


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


def stage_flops(stage: Stage, units: Callable, exits: dict[int, tuple[int, str]], epochs: int) -> float:
    """Return the operations of training on one example in one stage, two for a multiply-add.

    A trained unit costs three times its forward pass, one of the leading frozen units once. A frozen unit after these
    passes the gradient on, which makes two. Buffered units run in one epoch of all. Constants have no gradient: a
    product with one costs a pass less, and two less before the first trained weight.

    Args:
        stage: `stages.Stage`; its routes (peers, teachers) add up.
        units: `width -> {unit: counting.ForwardCost}`.
        exits: `{number: (units of the trunk before it, unit of the branch)}`.
        epochs: Passes over a client's examples.
    """
    total = 0
    for route in stage.routes:
        costs, learns, trained = units(route.width), False, stage.trained_by_network[route.network]
        frozen = FROZEN / epochs if route.buffered else FROZEN
        branches = [exits[number][1] for number in route.exits if number in exits]
        # Units in the order of the forward pass; gradients stop before the first trained weight.
        for number, unit in enumerate((*route.units, *branches)):
            cost = costs[unit]
            learns = learns or cost.parameters > 0
            if number < route.frozen or not learns:
                products = (frozen if number < route.frozen else FROZEN) * cost.multiply_adds
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

    Raises:
        ValueError: The arrays differ in their clients or steps.
    """
    levels, steps, examples, stages = (np.asarray(values) for values in (levels, steps, examples, stages))
    if not levels.shape == steps.shape == examples.shape[:1] or examples.shape != stages.shape:
        raise ValueError(
            "`levels` and `steps` must be [cohort], `examples` and `stages` [cohort, steps]. "
            f"Received: {levels.shape}, {steps.shape}, {examples.shape} and {stages.shape}"
        )
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
    table = np.zeros((len(client_costs), max(len(each.train_flops) for each in client_costs)))
    for level, each in enumerate(client_costs):
        table[level, : len(each.train_flops)] = each.train_flops
    return table


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
