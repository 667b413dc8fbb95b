"""Arranges planned rounds as stacks of clients, on the host: which clients are computed at once, tick by tick.

In one tick every active client of a stack takes one step, and all of them read equally many examples from the same
first position; the others idle. So no batch is ever padded, whatever the layers do with it.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class PackedRounds:
    """Several rounds as the compiled round takes them; all arrays are int32, S = stacks, K = the largest stack.

    Attributes:
        clients: [rounds, S, K], -1 = empty place.
        members: [rounds, S, K], which network of an ensemble each client trains.
        submodels: [rounds, S], position of the stack's sub-model among those of the mix.
        ticks: [rounds, S], length of the stack's training.
        rows: [rounds, S, K, ticks, batch], examples; -1 = padding, all -1 where the client idles.
        starts: [rounds, S, ticks], first position within the examples (text), 0 for images.
        stages: [rounds, S, ticks], position of the tick's stage among those of the sub-model.
        places: For each round int [cohort], where each client of its plan stands: stack * K + place.
    """

    clients: np.ndarray
    members: np.ndarray
    submodels: np.ndarray
    ticks: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    stages: np.ndarray
    places: list

    def arrays(self):
        """The arrays that the compiled round takes, in its order."""
        return (self.clients, self.members, self.submodels, self.ticks, self.rows, self.starts, self.stages)


def pack_rounds(plans, sizes, submodel_of):
    """Packs rounds.

    Args:
        plans: List of `plans.Plan`; the order of their clients is kept, so the most work starts first.
        sizes: Clients of a stack, for each sub-model of the mix.
        submodel_of: For each level of the mix the position of its sub-model.

    Returns:
        `PackedRounds`.
    """
    kinds = [np.asarray(submodel_of)[plan.levels] for plan in plans]
    rounds = [_stacks(plan, own, sizes) for plan, own in zip(plans, kinds)]
    most = max(len(stacks) for stacks in rounds)
    ticks = max(1, *(len(starts) for stacks in rounds for _, _, starts, _ in stacks))
    widest, batch = max(sizes), plans[0].rows.shape[2]
    size = (len(plans), most)
    clients, members = np.full((*size, widest), -1, np.int32), np.zeros((*size, widest), np.int32)
    submodels, lengths = np.zeros(size, np.int32), np.zeros(size, np.int32)
    rows = np.full((*size, widest, ticks, batch), -1, np.int32)
    starts, stages = np.zeros((*size, ticks), np.int32), np.zeros((*size, ticks), np.int32)
    places = [np.zeros(len(plan.clients), np.int32) for plan in plans]
    for number, (plan, stacks) in enumerate(zip(plans, rounds)):
        # Stacks that only fill a round up to the others' number are of the cheapest sub-model.
        submodels[number] = kinds[number][-1]
        for place, (slots, own, firsts, order) in enumerate(stacks):
            here, many = (number, place), len(slots)
            clients[here][:many], members[here][:many] = plan.clients[slots], plan.members[slots]
            submodels[here], lengths[here] = kinds[number][slots[0]], len(firsts)
            rows[here][:many, : len(firsts)] = own
            starts[here][: len(firsts)], stages[here][: len(firsts)] = firsts, order
            places[number][slots] = place * widest + np.arange(many)
    return PackedRounds(clients, members, submodels, lengths, rows, starts, stages, places)


def _stacks(plan, kinds, sizes):
    """One round's stacks: (slots of the plan, rows [K, ticks, batch], starts [ticks], stages [ticks])."""
    found = []
    for kind in dict.fromkeys(kinds.tolist()):
        slots = np.flatnonzero(kinds == kind)
        for first in range(0, len(slots), sizes[kind]):
            own = slots[first : first + sizes[kind]]
            found.append((own, *align(plan.steps[own], plan.rows[own], plan.starts[own], plan.stages[own])))
    return found


def align(steps, rows, starts, stages):
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
    firsts, trained = np.zeros(len(order), np.int32), np.zeros(len(order), np.int32)
    for tick, taken in enumerate(order):
        for client, step in taken:
            aligned[client, tick] = rows[client, step]
            firsts[tick], trained[tick] = starts[client, step], stages[client, step]
    return aligned, firsts, trained


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
