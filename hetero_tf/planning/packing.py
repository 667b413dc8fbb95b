"""Arranges planned rounds as stacks of clients, on the host: which clients are computed at once, tick by tick.

In one tick every active client of a stack takes one step, and all of them read equally many examples from the same
first position; the others idle. So no batch is ever padded, whatever the layers do with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hetero_tf.planning.plan import Plan


@dataclass(frozen=True)
class PackedRounds:
    """Several rounds as the compiled round takes them; all arrays are int32, S = stacks, K = the largest stack.

    Attributes:
        clients: [rounds, S, K], -1 = empty slot.
        members: [rounds, S, K], which network of an ensemble each client trains.
        submodels: [rounds, S], position of the stack's sub-model among those of the mix.
        ticks: [rounds, S], length of the stack's training.
        rows: [rounds, S, K, ticks, batch], examples; -1 = padding, all -1 where the client idles.
        starts: [rounds, S, ticks], first position within the examples (text), 0 for images.
        stages: [rounds, S, ticks], position of the tick's stage among those of the sub-model.
        slots: For each round int32 [cohort], where each client of its plan stands: stack * K + slot in the stack.
        replicas: [rounds, S], which of the replicas that share the work trains each stack.
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

    def arrays(self, shared: bool = False) -> tuple[np.ndarray, ...]:
        """Returns the arrays that the compiled round takes, in its order; `shared`: replicas share the work."""
        found = (self.clients, self.members, self.submodels, self.ticks, self.rows, self.starts, self.stages)
        return (*found, self.replicas) if shared else found


@dataclass(frozen=True)
class _Stack:
    """The clients of one stack: their positions in the plan, and what `align` makes of their steps."""

    positions: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    stages: np.ndarray


def pack_rounds(plans: Sequence[Plan], sizes: Sequence[int], submodel_of: Sequence[int]) -> PackedRounds:
    """Packs planned rounds into stacks; the order of a plan's clients is kept, so the most work starts first.

    Args:
        plans: The rounds.
        sizes: Clients of a stack, for each sub-model of the mix.
        submodel_of: For each level of the mix the position of its sub-model.
    """
    submodels_of_plans = [np.asarray(submodel_of)[plan.levels] for plan in plans]
    rounds = [_stacks(plan, submodels, sizes) for plan, submodels in zip(plans, submodels_of_plans)]
    packed = _empty(plans, rounds, max(sizes))
    for number, (plan, submodels, stacks) in enumerate(zip(plans, submodels_of_plans, rounds)):
        # Stacks that only fill a round up to the others' number are of the cheapest sub-model.
        packed.submodels[number] = submodels[-1]
        for index, stack in enumerate(stacks):
            here, count, ticks = (number, index), len(stack.positions), len(stack.starts)
            packed.clients[here][:count] = plan.clients[stack.positions]
            packed.members[here][:count] = plan.members[stack.positions]
            packed.submodels[here], packed.ticks[here] = submodels[stack.positions[0]], ticks
            packed.rows[here][:count, :ticks] = stack.rows
            packed.starts[here][:ticks], packed.stages[here][:ticks] = stack.starts, stack.stages
            packed.slots[number][stack.positions] = index * max(sizes) + np.arange(count)
    return packed


def _empty(plans, rounds, largest):
    """`PackedRounds` without any client, with room for all stacks and all their ticks."""
    size = (len(plans), max(len(stacks) for stacks in rounds))
    ticks = max(1, *(len(stack.starts) for stacks in rounds for stack in stacks))
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


def _stacks(plan, submodels, sizes):
    """One round's stacks, sub-model by sub-model in the order of the plan."""
    stacks = []
    for submodel in dict.fromkeys(submodels.tolist()):
        of_submodel = np.flatnonzero(submodels == submodel)
        for first in range(0, len(of_submodel), sizes[submodel]):
            chosen = of_submodel[first : first + sizes[submodel]]
            aligned = align(plan.steps[chosen], plan.rows[chosen], plan.starts[chosen], plan.stages[chosen])
            stacks.append(_Stack(chosen, *aligned))
    return stacks


def align(
    steps: np.ndarray, rows: np.ndarray, starts: np.ndarray, stages: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Arranges several clients' steps so that in each tick all active ones read and train alike.

    The client that is furthest behind takes its next step, and with it everyone whose next step has as many
    examples, the same first position and the same stage.

    Args:
        steps: [K]; rows: [K, steps, batch]; starts, stages: [K, steps].

    Returns:
        rows [K, ticks, batch], starts [ticks], stages [ticks].
    """
    counts = np.count_nonzero(rows >= 0, axis=-1)
    # [K, steps, 3]: steps with equal kinds can be done in one tick.
    kinds = np.stack([counts, starts, stages], axis=-1)
    if (steps == steps[0]).all() and (kinds == kinds[0]).all():
        return rows[:, : steps[0]], starts[0, : steps[0]], stages[0, : steps[0]]
    order = _order(steps, kinds)
    aligned = np.full((len(steps), len(order), rows.shape[2]), -1, np.int32)
    tick_starts, tick_stages = np.zeros(len(order), np.int32), np.zeros(len(order), np.int32)
    for tick, taken in enumerate(order):
        for client, step in taken:
            aligned[client, tick] = rows[client, step]
            tick_starts[tick], tick_stages[tick] = starts[client, step], stages[client, step]
    return aligned, tick_starts, tick_stages


def _order(steps, kinds):
    """For each tick the (client, step) pairs that are done in it."""
    order, done = [], np.zeros(len(steps), int)
    while (done < steps).any():
        waiting = [(done[k] / steps[k], -kinds[k, done[k], 0], k) for k in range(len(steps)) if done[k] < steps[k]]
        first = min(waiting)[2]
        wanted = tuple(kinds[first, done[first]])
        taken = [(k, done[k]) for _, _, k in waiting if tuple(kinds[k, done[k]]) == wanted]
        order.append(taken)
        done[[k for k, _ in taken]] += 1
    return order
