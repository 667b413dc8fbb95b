"""Arranges planned rounds as stacks of clients, on the host: which clients are computed at once, tick by tick.

In one tick every active client of a stack takes one step, and all of them read equally many examples from the same
first position; the others idle. So no batch is ever padded, whatever the layers do with it.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Packed:
    """Several rounds as the compiled round takes them; all arrays are int32, S = stacks, K = the largest stack.

    Attributes:
        clients: [rounds, S, K], -1 = empty place.
        levels: [rounds, S].
        ticks: [rounds, S], length of the stack's training.
        rows: [rounds, S, K, ticks, batch], examples; -1 = padding, all -1 where the client idles.
        starts: [rounds, S, ticks], first position within the examples (text), 0 for images.
        places: [rounds, cohort], where each client of the plans stands: stack * K + place.
    """

    clients: np.ndarray
    levels: np.ndarray
    ticks: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    places: np.ndarray

    def arrays(self):
        """The arrays that the compiled round takes, in its order."""
        return (self.clients, self.levels, self.ticks, self.rows, self.starts)


def pack(plans, sizes):
    """Packs rounds whose cohorts are equally large.

    Args:
        plans: List of `plans.Plan`; the order of their clients is kept, so the most work starts first.
        sizes: Clients of a stack, for each level of the mix.

    Returns:
        `Packed`.
    """
    if len({plan.clients.shape for plan in plans}) > 1:
        raise ValueError("rounds of one call need the same number of clients. Received: "
                         f"clients={[len(plan.clients) for plan in plans]}")
    rounds = [_stacks(plan, sizes) for plan in plans]
    most = max(len(stacks) for stacks in rounds)
    ticks = max(1, *(len(starts) for stacks in rounds for _, _, starts in stacks))
    widest, batch = max(sizes), plans[0].rows.shape[2]
    packed = Packed(np.full((len(plans), most, widest), -1, np.int32), np.zeros((len(plans), most), np.int32),
                    np.zeros((len(plans), most), np.int32),
                    np.full((len(plans), most, widest, ticks, batch), -1, np.int32),
                    np.zeros((len(plans), most, ticks), np.int32),
                    np.zeros((len(plans), len(plans[0].clients)), np.int32))
    for number, (plan, stacks) in enumerate(zip(plans, rounds)):
        # Stacks that only fill a round up to the others' number belong to the cheapest level.
        packed.levels[number] = plan.levels[-1]
        for place, (slots, rows, starts) in enumerate(stacks):
            packed.clients[number, place, :len(slots)] = plan.clients[slots]
            packed.levels[number, place] = plan.levels[slots[0]]
            packed.ticks[number, place] = len(starts)
            packed.rows[number, place, :len(slots), :len(starts)] = rows
            packed.starts[number, place, :len(starts)] = starts
            packed.places[number, slots] = place * widest + np.arange(len(slots))
    return packed


def _stacks(plan, sizes):
    """One round's stacks: (slots of the plan, rows [K, ticks, batch], starts [ticks])."""
    found = []
    for level in dict.fromkeys(plan.levels.tolist()):
        slots = np.flatnonzero(plan.levels == level)
        for first in range(0, len(slots), sizes[level]):
            own = slots[first:first + sizes[level]]
            found.append((own, *align(plan.steps[own], plan.rows[own], plan.starts[own])))
    return found


def align(steps, rows, starts):
    """Arranges several clients' steps so that in each tick all active ones read alike.

    The client that is furthest behind takes its next step, and with it everyone whose next step has as many
    examples and the same first position.

    Args:
        steps: [K]; rows: [K, steps, batch]; starts: [K, steps].

    Returns:
        rows [K, ticks, batch], starts [ticks].
    """
    counts = np.count_nonzero(rows >= 0, axis=-1)
    alike = (steps == steps[0]).all() and (counts == counts[0]).all() and (starts == starts[0]).all()
    if alike:
        return rows[:, :steps[0]], starts[0, :steps[0]]
    order = _order(steps, counts, starts)
    aligned = np.full((len(steps), len(order), rows.shape[2]), -1, np.int32)
    firsts = np.zeros(len(order), np.int32)
    for tick, taken in enumerate(order):
        for client, step in taken:
            aligned[client, tick], firsts[tick] = rows[client, step], starts[client, step]
    return aligned, firsts


def _order(steps, counts, starts):
    """For each tick the (client, step) pairs that are done in it."""
    order, done = [], np.zeros(len(steps), int)
    while (done < steps).any():
        waiting = [(done[k] / steps[k], -counts[k, done[k]], k) for k in range(len(steps)) if done[k] < steps[k]]
        first = min(waiting)[2]
        wanted = (counts[first, done[first]], starts[first, done[first]])
        taken = [(k, done[k]) for _, _, k in waiting if (counts[k, done[k]], starts[k, done[k]]) == wanted]
        order.append(taken)
        done[[k for k, _ in taken]] += 1
    return order
