"""Packs planned rounds into blocks of clients on the host: the clients that train together, tick by tick.

In one tick every active client of a block runs one step; all of them read the same number of examples from the same
first position, and the others idle. So batches are never padded, which works for all layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hetero_tf.planning.plan import Plan


class PackedRounds(NamedTuple):
    """Input arrays of the compiled round for several rounds, all int32: of NumPy, or tensors in the graph.

    S: blocks, K: clients of the largest block.

    Attributes:
        clients: [rounds, S, K], ids; -1: empty slot.
        members: [rounds, S, K], network of an ensemble that each client trains.
        submodels: [rounds, S], index of the block's sub-model among those of the mix.
        ticks: [rounds, S], number of ticks of the block.
        rows: [rounds, S, K, ticks, batch], examples; -1: padding, all -1 if the client idles.
        starts: [rounds, S, ticks], first position within the examples (text), 0 for images.
        stages: [rounds, S, ticks], index of the tick's stage among those of the sub-model.
        replicas: [rounds, S], replica that trains each block.
        delays: [rounds, S, K], rounds after which each result arrives; 0: at the end of the same round. Empty
            slots of a block with clients have that of its last one.
    """

    clients: Any
    members: Any
    submodels: Any
    ticks: Any
    rows: Any
    starts: Any
    stages: Any
    replicas: Any
    delays: Any

    def block(self, index: Any, clients: int) -> "BlockPlan":
        """Return the plan of one block, whose sub-model has `clients` clients; of arrays without the axis of rounds."""
        return BlockPlan(
            self.clients[index, :clients],
            self.members[index, :clients],
            self.ticks[index],
            self.rows[index, :clients],
            self.starts[index],
            self.stages[index],
        )


# Ranks of the arrays, and their values in an empty block.
RANKS = PackedRounds(clients=3, members=3, submodels=2, ticks=2, rows=5, starts=3, stages=3, replicas=2, delays=3)
EMPTY = PackedRounds(clients=-1, members=0, submodels=0, ticks=0, rows=-1, starts=0, stages=0, replicas=0, delays=0)


class BlockPlan(NamedTuple):
    """The work of one block of clients in a round, all int32.

    Attributes:
        clients: [K]; -1 = empty slot.
        members: [K], index of the ensemble network that each client trains.
        ticks: Scalar, number of ticks.
        rows, starts, stages: [K, ticks, batch], [ticks] and [ticks], as in `PackedRounds`.
    """

    clients: Any
    members: Any
    ticks: Any
    rows: Any
    starts: Any
    stages: Any


@dataclass(frozen=True)
class _Block:
    """Clients of one block: their positions in the plan and sub-model, and their steps, see `align`."""

    positions: np.ndarray
    submodel: int
    rows: np.ndarray
    starts: np.ndarray
    stages: np.ndarray


def pack_rounds(
    plans: Sequence[Plan], sizes: Sequence[int], submodel_of: Sequence[int]
) -> tuple[PackedRounds, list[np.ndarray]]:
    """Pack planned rounds into blocks; clients keep the order of the plan, so the most work starts first.

    Args:
        sizes: Clients of a block, for each sub-model of the mix.
        submodel_of: Index of the sub-model of each level of the mix.

    Returns:
        The packed rounds; and for each round int32 [cohort], the index of each client of the plan among the slots of
        all blocks: block * K + slot in the block.
    """
    rounds = [_build_blocks(plan, np.asarray(submodel_of)[plan.levels], sizes) for plan in plans]
    packed = _empty_rounds(plans, rounds, max(sizes))
    slots = [np.zeros(len(plan.clients), np.int32) for plan in plans]
    for number, (plan, blocks) in enumerate(zip(plans, rounds)):
        # Padding blocks use the cheapest sub-model; a round of an asynchronous policy may have no client.
        packed.submodels[number] = blocks[-1].submodel if blocks else len(sizes) - 1
        for index, block in enumerate(blocks):
            position, count, ticks = (number, index), len(block.positions), len(block.starts)
            packed.clients[position][:count] = plan.clients[block.positions]
            packed.members[position][:count] = plan.members[block.positions]
            packed.submodels[position], packed.ticks[position] = block.submodel, ticks
            if plan.delays is not None:
                packed.delays[position] = np.pad(plan.delays[block.positions], (0, max(sizes) - count), mode="edge")
            packed.rows[position][:count, :ticks] = block.rows
            packed.starts[position][:ticks], packed.stages[position][:ticks] = block.starts, block.stages
            slots[number][block.positions] = index * max(sizes) + np.arange(count)
    return packed, slots


def _empty_rounds(plans, rounds, largest):
    """Return empty `PackedRounds` with space for all blocks and their ticks."""
    size = (len(plans), max(1, *(len(blocks) for blocks in rounds)))
    ticks = max([1, *(len(block.starts) for blocks in rounds for block in blocks)])
    batch = plans[0].rows.shape[2]
    shapes = PackedRounds(
        clients=(*size, largest),
        members=(*size, largest),
        submodels=size,
        ticks=size,
        rows=(*size, largest, ticks, batch),
        starts=(*size, ticks),
        stages=(*size, ticks),
        replicas=size,
        delays=(*size, largest),
    )
    return PackedRounds(*(np.full(shape, empty, np.int32) for shape, empty in zip(shapes, EMPTY)))


def _build_blocks(plan, submodels, sizes):
    """Return the blocks of one round, grouped by sub-model in the order of the plan."""
    blocks = []
    for submodel in dict.fromkeys(submodels.tolist()):
        group = np.flatnonzero(submodels == submodel)
        for first in range(0, len(group), sizes[submodel]):
            positions = group[first : first + sizes[submodel]]
            aligned = align(plan.steps[positions], plan.rows[positions], plan.starts[positions], plan.stages[positions])
            blocks.append(_Block(positions, submodel, *aligned))
    return blocks


def align(
    steps: np.ndarray, rows: np.ndarray, starts: np.ndarray, stages: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Align the steps of several clients so that all active clients of a tick have equal batches and stages.

    Each tick runs the next step of the client that is furthest behind, and of all clients whose next step has the same
    number of examples, first position and stage.

    Args:
        steps: [K]; rows: [K, steps, batch]; starts, stages: [K, steps].

    Returns:
        rows [K, ticks, batch], starts [ticks], stages [ticks].
    """
    counts = np.count_nonzero(rows >= 0, axis=-1)
    # [K, steps, 3]: steps of equal kinds can run in the same tick.
    kinds = np.stack([counts, starts, stages], axis=-1)
    if (steps == steps[0]).all() and (kinds == kinds[0]).all():
        return rows[:, : steps[0]], starts[0, : steps[0]], stages[0, : steps[0]]
    order = _tick_order(steps, kinds)
    aligned = np.full((len(steps), len(order), rows.shape[2]), -1, np.int32)
    tick_starts, tick_stages = np.zeros(len(order), np.int32), np.zeros(len(order), np.int32)
    for tick, pairs in enumerate(order):
        for client, step in pairs:
            aligned[client, tick] = rows[client, step]
            tick_starts[tick], tick_stages[tick] = starts[client, step], stages[client, step]
    return aligned, tick_starts, tick_stages


def _tick_order(steps, kinds):
    """Return the (client, step) pairs of each tick."""
    order, done = [], np.zeros(len(steps), int)
    while (done < steps).any():
        waiting = [(done[k] / steps[k], -kinds[k, done[k], 0], k) for k in range(len(steps)) if done[k] < steps[k]]
        first = min(waiting)[2]
        kind = tuple(kinds[first, done[first]])
        pairs = [(k, done[k]) for _, _, k in waiting if tuple(kinds[k, done[k]]) == kind]
        order.append(pairs)
        done[[k for k, _ in pairs]] += 1
    return order


def share_blocks(packed: PackedRounds, slots: np.ndarray, costs: np.ndarray, replicas: int) -> PackedRounds:
    """Return the packed round with a replica for each block; replicas without one get an empty block.

    Args:
        slots: [cohort], index of each client of its plan among the slots of all blocks.
        costs: [cohort], training cost of each client.
    """
    _, blocks, largest = packed.clients.shape
    block_costs = np.zeros(max(blocks, replicas))
    np.add.at(block_costs, slots // largest, costs)
    missing = len(block_costs) - blocks
    empty = EMPTY._replace(submodels=packed.submodels[0, -1])
    padded = PackedRounds(
        *(
            np.pad(array, [[0, 0], [0, missing], *[[0, 0]] * (array.ndim - 2)], constant_values=value)
            for array, value in zip(packed, empty)
        )
    )
    return padded._replace(replicas=assign_jobs(block_costs, replicas)[None])


def assign_jobs(costs: np.ndarray, replicas: int) -> np.ndarray:
    """Assign jobs to replicas, longest first, each to the least loaded replica; int32 [jobs].

    Args:
        costs: [jobs], at least as many as replicas.

    Every replica gets a job. The result is deterministic.

    Reference: longest processing time first (Graham 1969), at most 4/3 of the optimum.
    """
    assignment, loads, jobs = np.zeros(len(costs), np.int32), np.zeros(replicas), np.zeros(replicas, int)
    for job in np.argsort(-costs, kind="stable"):
        # Costs may be 0, so replicas without a job come first.
        replica = min(range(replicas), key=lambda candidate: (jobs[candidate] > 0, loads[candidate], jobs[candidate]))
        assignment[job] = replica
        loads[replica] += costs[job]
        jobs[replica] += 1
    return assignment
