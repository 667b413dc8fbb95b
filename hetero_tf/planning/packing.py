"""Packs planned rounds into blocks of clients on the host: the clients that train together, tick by tick.

In one tick every active client of a block runs one step; all of them read the same number of examples from the same
first position, and the others idle. So batches are never padded, which works for all layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hetero_tf.planning.plan import Plan


@dataclass(frozen=True)
class PackedRounds:
    """Input arrays of the compiled round for several rounds, all int32; S: blocks, K: clients of the largest block.

    Attributes:
        clients: [rounds, S, K], ids; -1: empty slot.
        members: [rounds, S, K], network of an ensemble that each client trains.
        submodels: [rounds, S], index of the block's sub-model among those of the mix.
        ticks: [rounds, S], number of ticks of the block.
        rows: [rounds, S, K, ticks, batch], examples; -1: padding, all -1 if the client idles.
        starts: [rounds, S, ticks], first position within the examples (text), 0 for images.
        stages: [rounds, S, ticks], index of the tick's stage among those of the sub-model.
        slots: For each round int32 [cohort], index of each client of the plan: block * K + slot in the block.
        replicas: [rounds, S], replica that trains each block.
    """

    clients: np.ndarray
    members: np.ndarray
    submodels: np.ndarray
    ticks: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    stages: np.ndarray
    slots: list[np.ndarray]
    replicas: np.ndarray

    def arrays(self, with_replicas: bool = False) -> tuple[np.ndarray, ...]:
        """Return the arrays in the order of the compiled round; `with_replicas`: several replicas share the round."""
        arrays = (self.clients, self.members, self.submodels, self.ticks, self.rows, self.starts, self.stages)
        return (*arrays, self.replicas) if with_replicas else arrays


@dataclass(frozen=True)
class _Block:
    """Clients of one block: their positions in the plan, and their steps as aligned by `align`."""

    positions: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    stages: np.ndarray


def pack_rounds(plans: Sequence[Plan], sizes: Sequence[int], submodel_of: Sequence[int]) -> PackedRounds:
    """Pack planned rounds into blocks; clients keep the order of the plan, so the most work starts first.

    Args:
        plans: The rounds.
        sizes: Clients of a block, for each sub-model of the mix.
        submodel_of: Index of the sub-model of each level of the mix.
    """
    submodels_of_plans = [np.asarray(submodel_of)[plan.levels] for plan in plans]
    rounds = [_build_blocks(plan, submodels, sizes) for plan, submodels in zip(plans, submodels_of_plans)]
    packed = _empty_rounds(plans, rounds, max(sizes))
    for number, (plan, submodels, blocks) in enumerate(zip(plans, submodels_of_plans, rounds)):
        # Padding blocks use the cheapest sub-model.
        packed.submodels[number] = submodels[-1]
        for index, block in enumerate(blocks):
            position, count, ticks = (number, index), len(block.positions), len(block.starts)
            packed.clients[position][:count] = plan.clients[block.positions]
            packed.members[position][:count] = plan.members[block.positions]
            packed.submodels[position], packed.ticks[position] = submodels[block.positions[0]], ticks
            packed.rows[position][:count, :ticks] = block.rows
            packed.starts[position][:ticks], packed.stages[position][:ticks] = block.starts, block.stages
            packed.slots[number][block.positions] = index * max(sizes) + np.arange(count)
    return packed


def _empty_rounds(plans, rounds, largest):
    """Return empty `PackedRounds` with space for all blocks and their ticks."""
    size = (len(plans), max(len(blocks) for blocks in rounds))
    ticks = max(1, *(len(block.starts) for blocks in rounds for block in blocks))
    batch = plans[0].rows.shape[2]
    return PackedRounds(
        clients=np.full((*size, largest), -1, np.int32),
        members=np.zeros((*size, largest), np.int32),
        submodels=np.zeros(size, np.int32),
        ticks=np.zeros(size, np.int32),
        rows=np.full((*size, largest, ticks, batch), -1, np.int32),
        starts=np.zeros((*size, ticks), np.int32),
        stages=np.zeros((*size, ticks), np.int32),
        slots=[np.zeros(len(plan.clients), np.int32) for plan in plans],
        replicas=np.zeros(size, np.int32),
    )


def _build_blocks(plan, submodels, sizes):
    """Return the blocks of one round, grouped by sub-model in the order of the plan."""
    blocks = []
    for submodel in dict.fromkeys(submodels.tolist()):
        submodel_positions = np.flatnonzero(submodels == submodel)
        for first in range(0, len(submodel_positions), sizes[submodel]):
            positions = submodel_positions[first : first + sizes[submodel]]
            aligned = align(plan.steps[positions], plan.rows[positions], plan.starts[positions], plan.stages[positions])
            blocks.append(_Block(positions, *aligned))
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
