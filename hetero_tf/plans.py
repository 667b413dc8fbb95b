"""Plans a round on the host: who takes part, at which level, with which examples in which order.

Everything is a pure function of (seed, round, client), so a resumed run plans the same rounds.
"""

from dataclasses import dataclass

import numpy as np

from hetero_tf import levels, seeds


@dataclass(frozen=True)
class Plan:
    """One round; all arrays are int32.

    Attributes:
        clients: [cohort], ids of the active clients, the most work first.
        levels: [cohort], positions in the recipe's mix.
        steps: [cohort], local steps.
        rows: [cohort, steps, batch], examples of each step; -1 = padding.
        starts: [cohort, steps], first position within the examples (text), 0 for images.
    """

    clients: np.ndarray
    levels: np.ndarray
    steps: np.ndarray
    rows: np.ndarray
    starts: np.ndarray

    def arrays(self):
        """The arrays in the order of the attributes."""
        return (self.clients, self.levels, self.steps, self.rows, self.starts)


def local_batches(examples, starts, epochs, batch_size, rng=None):
    """The batches of one client, short last ones kept.

    Args:
        examples: int32 [n].
        starts: First positions that each batch is read at, (0,) for images.
        epochs: Passes over the examples.
        batch_size: Examples of a batch.
        rng: Shuffles the examples every epoch; None keeps their order.

    Returns:
        rows int32 [steps, batch], starts int32 [steps].
    """
    count = len(examples)
    batches = -(-count // batch_size)
    padded = np.full((epochs, batches * batch_size), -1, np.int32)
    for epoch in range(epochs):
        padded[epoch, :count] = examples if rng is None else rng.permutation(examples)
    rows = padded.reshape(epochs * batches, batch_size)
    return np.repeat(rows, len(starts), axis=0), np.tile(np.asarray(starts, np.int32), epochs * batches)


def draw_cohort(clients, active, seed, round, attempt=0):
    """The ids of a round's active clients, drawn without replacement; the cost does not grow with `clients`."""
    return seeds.rng(seed, "cohort", round, attempt).choice(clients, active, replace=False).astype(np.int32)


def plan_round(recipe, partition, starts, shuffle, round, cohort=None, attempt=0):
    """Plans one round.

    Args:
        recipe: `recipe.schema.Recipe`.
        partition: `partitions.partition.Partition`.
        starts, shuffle: As the recipe's `inputs.Input` says.
        round: From 0.
        cohort: Ids of the active clients; None draws them.
        attempt: Greater than 0 draws another cohort for the same round.
    """
    seed, client = recipe.seed, recipe.client
    if cohort is None:
        cohort = draw_cohort(len(partition.train), recipe.round.clients, seed, round, attempt)
    chosen = levels.assign(recipe.levels, len(partition.train), seed, round, np.asarray(cohort))
    work = []
    for who in cohort:
        rng = seeds.rng(seed, "batches", round, who) if shuffle else None
        work.append(local_batches(partition.train[who], starts, client.epochs, client.batch_size, rng))
    widths = [recipe.levels.widths[name] for name in recipe.levels.names]
    # With fewer clients in flight than clients, the longest must start first or cores idle at the end.
    order = sorted(range(len(cohort)), key=lambda k: (-widths[chosen[k]], -len(work[k][1]), cohort[k]))
    return _padded([cohort[k] for k in order], [chosen[k] for k in order], [work[k] for k in order])


def _padded(clients, chosen, work):
    """A `Plan` whose clients all have room for the longest one's steps."""
    steps = np.asarray([len(starts) for _, starts in work], np.int32)
    size = (len(work), max(steps.max(initial=0), 1))
    rows = np.full((*size, work[0][0].shape[1]), -1, np.int32)
    firsts = np.zeros(size, np.int32)
    for slot, (batches, starts) in enumerate(work):
        rows[slot, :len(starts)], firsts[slot, :len(starts)] = batches, starts
    return Plan(np.asarray(clients, np.int32), np.asarray(chosen, np.int32), steps, rows, firsts)
