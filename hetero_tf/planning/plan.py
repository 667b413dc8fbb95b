"""Plans a round on the host: who takes part, at which level, with which examples in which order.

Everything is a pure function of (seed, round, client), so a resumed run plans the same rounds.
"""

import dataclasses
from dataclasses import dataclass, field

import numpy as np

from hetero_tf.base import seeds
from hetero_tf.planning import availability, levels


@dataclass(frozen=True)
class Plan:
    """One round; all arrays are int32.

    Attributes:
        clients: [cohort], ids of the active clients, the most work first; once for each network that a client trains
            of an ensemble.
        levels: [cohort], positions in the recipe's mix.
        steps: [cohort], local steps.
        rows: [cohort, steps, batch], examples of each step; -1 = padding.
        starts: [cohort, steps], first position within the examples (text), 0 for images.
        stages: [cohort, steps], position of each step's stage among those of the level.
        members: [cohort], which network of an ensemble is trained.
        outcome: What metrics say of clients that are not there or late: `availability.Outcome.metrics`.
    """

    clients: np.ndarray
    levels: np.ndarray
    steps: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    stages: np.ndarray
    members: np.ndarray
    outcome: dict = field(default_factory=dict)

    def arrays(self):
        """The arrays in the order of the attributes."""
        return tuple(getattr(self, each.name) for each in dataclasses.fields(self) if each.name != "outcome")


@dataclass(frozen=True)
class Division:
    """How many stages the clients of each level of the mix go through, and whether each step draws its own."""

    stages: tuple[int, ...]
    drawn: bool

    @property
    def passes(self):
        """How often each level's clients go through all their local epochs."""
        return tuple(1 if self.drawn else count for count in self.stages)


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


def able_clients(given, clients, seed, round):
    """Who may take part: the number of registered clients, or the ids of those whose level is not idle.

    Args:
        given: `recipe.schema.Levels`.
        clients: Number of registered clients.
    """
    if not given.idle:
        return clients
    chosen = levels.assign(given, clients, seed, round, np.arange(clients))
    return np.flatnonzero(~np.isin(chosen, [given.names.index(name) for name in given.idle]))


def draw_cohort(clients, active, seed, round, attempt=0):
    """The ids of a round's active clients, drawn without replacement; the cost does not grow with a number `clients`.

    Args:
        clients: As `able_clients` gives it.
    """
    return seeds.rng(seed, "cohort", round, attempt).choice(clients, active, replace=False).astype(np.int32)


def plan_round(recipe, partition, starts, shuffle, division, round, cohort=None, attempt=0):
    """Plans one round.

    Args:
        recipe: `recipe.schema.Recipe`.
        partition: `partitions.partition.Partition`.
        starts, shuffle: As the recipe's `inputs.Input` says.
        division: `Division`.
        round: From 0.
        cohort: Ids of the active clients; None draws them.
        attempt: Greater than 0 draws another cohort for the same round.
    """
    seed, client = recipe.seed, recipe.client
    if cohort is None:
        able = able_clients(recipe.levels, len(partition.train), seed, round)
        cohort = draw_cohort(able, recipe.round.clients, seed, round, attempt)
    chosen = levels.assign(recipe.levels, len(partition.train), seed, round, np.asarray(cohort))
    work = []
    for who, level in zip(cohort, chosen):
        rng = seeds.rng(seed, "batches", round, who) if shuffle else None
        epochs = client.epochs * division.passes[level]
        rows, firsts = local_batches(partition.train[who], starts, epochs, client.batch_size, rng)
        work.append((rows, firsts, _stages(division, level, len(rows), seed, round, who)))
    work, outcome = _available(recipe, division, cohort, chosen, work, round)
    widths = [recipe.levels.widths[name] for name in recipe.levels.names]
    # With fewer clients in flight than clients, the longest must start first or cores idle at the end.
    order = sorted(range(len(cohort)), key=lambda k: (-widths[chosen[k]], -len(work[k][1]), cohort[k]))
    members = deal_members(recipe.levels, [chosen[k] for k in order], [cohort[k] for k in order], seed, round)
    order = [(k, member) for k, own in zip(order, members) for member in own]
    return _padded(
        [cohort[k] for k, _ in order],
        [chosen[k] for k, _ in order],
        [work[k] for k, _ in order],
        [member for _, member in order],
        outcome,
    )


def _available(recipe, division, cohort, chosen, work, round):
    """The work that reaches the server, and what metrics say of the rest; see `availability.limit`."""
    if not recipe.availability.is_limited:
        return work, {}
    names = [recipe.levels.names[level] for level in chosen]
    steps = [len(rows) for rows, _, _ in work]
    # A stage that is broken off would be merged as if it had been trained as long as the others.
    passes = [division.passes[level] for level in chosen]
    pieces = [max(count // several, 1) if several > 1 else 1 for count, several in zip(steps, passes)]
    found = availability.limit(recipe.availability, recipe.seed, round, cohort, names, steps, pieces)
    return [tuple(part[:steps] for part in own) for own, steps in zip(work, found.steps)], found.metrics()


def _stages(division, level, steps, seed, round, client):
    """The stage of each step: drawn, or one after the other with equally many steps."""
    count = division.stages[level]
    if division.drawn:
        return seeds.rng(seed, "stages", round, client).integers(count, size=steps).astype(np.int32)
    return np.repeat(np.arange(count, dtype=np.int32), steps // count)


def deal_members(given, chosen, cohort, seed, round):
    """The networks of an ensemble that each client of a cohort trains; [0] where there is no ensemble.

    A client's first network comes from a shuffled deck of all of them, dealt over the clients of all rounds and then
    shuffled anew, so that all are trained equally often; the others are drawn without replacement.

    Args:
        given: `recipe.schema.Levels`.
        chosen: Level of each client, positions in the mix.
        cohort: Their ids.

    Reference: SplitMix (Hong et al. 2022), as in its authors' code, whose deck is not tied to the round.
    """
    if given.ensemble is None:
        return [[0]] * len(cohort)
    dealt = []
    for place, (level, client) in enumerate(zip(chosen, cohort)):
        deck, position = divmod(round * len(cohort) + place, given.ensemble)
        first = int(seeds.rng(seed, "deck", deck).permutation(given.ensemble)[position])
        rest = np.delete(np.arange(given.ensemble), first)
        many = given.members[given.names[level]] - 1
        dealt.append([first, *sorted(seeds.rng(seed, "members", round, client).permutation(rest)[:many].tolist())])
    return dealt


def _padded(clients, chosen, work, members, outcome):
    """A `Plan` whose clients all have room for the longest one's steps."""
    steps = np.asarray([len(starts) for _, starts, _ in work], np.int32)
    size = (len(work), max(steps.max(initial=0), 1))
    rows = np.full((*size, work[0][0].shape[1]), -1, np.int32)
    firsts, stages = np.zeros(size, np.int32), np.zeros(size, np.int32)
    for slot, (batches, starts, own) in enumerate(work):
        rows[slot, : len(starts)], firsts[slot, : len(starts)], stages[slot, : len(starts)] = batches, starts, own
    clients, chosen, members = (np.asarray(values, np.int32) for values in (clients, chosen, members))
    return Plan(clients, chosen, steps, rows, firsts, stages, members, outcome)
