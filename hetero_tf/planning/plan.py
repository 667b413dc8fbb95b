"""Plans a round on the host: who takes part, at which level, with which examples in which order.

Everything is a pure function of (seed, round, client), so a resumed run plans the same rounds.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hetero_tf.base import seeds
from hetero_tf.partitions.partition import Partition
from hetero_tf.planning.availability import limit
from hetero_tf.planning.level_assignment import assign
from hetero_tf.recipe.schema import Levels, Recipe


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
        outcome: Metrics of clients that dropped out or were late, `availability.Outcome.metrics`.
    """

    clients: np.ndarray
    levels: np.ndarray
    steps: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    stages: np.ndarray
    members: np.ndarray
    outcome: dict = field(default_factory=dict)

    def arrays(self) -> tuple[np.ndarray, ...]:
        """Returns the arrays in the order of the attributes."""
        return tuple(getattr(self, name) for name in ARRAYS)


# Steps whose stages are drawn at once: the memory for a device does not grow with the examples that it claims.
CHUNK = 2**16
# The names of a plan's arrays.
ARRAYS = tuple(each.name for each in dataclasses.fields(Plan) if each.name != "outcome")


@dataclass(frozen=True, kw_only=True)
class DevicePlan(Plan):
    """A round of devices, which batch their own examples: `rows`, `starts` and `stages` have no steps.

    Its size depends on the number of devices, not on how many examples they claim.

    Attributes:
        stage_examples: int64 [cohort, stages], examples that each device reads in each stage; a segment of text is one.
    """

    stage_examples: np.ndarray


@dataclass(frozen=True)
class Division:
    """How many stages the clients of each level of the mix go through, and whether each step draws its own."""

    stages: tuple[int, ...]
    drawn: bool

    @property
    def passes(self) -> tuple[int, ...]:
        """How often each level's clients go through all their local epochs."""
        return tuple(1 if self.drawn else count for count in self.stages)


@dataclass(frozen=True)
class ClientWork:
    """The local steps of one client.

    Attributes:
        rows: int32 [steps, batch], examples of each step; -1 = padding.
        starts: int32 [steps], first position within the examples.
        stages: int32 [steps], position of each step's stage.
    """

    rows: np.ndarray
    starts: np.ndarray
    stages: np.ndarray

    def __len__(self):
        return len(self.starts)

    def first(self, steps: int) -> "ClientWork":
        """Returns the first steps of the work."""
        return ClientWork(self.rows[:steps], self.starts[:steps], self.stages[:steps])


def local_batches(
    examples: np.ndarray, starts: Sequence[int], epochs: int, batch_size: int, rng: np.random.Generator | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Deals the examples of one client into batches; a short last batch stays short.

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


def able_clients(levels: Levels, clients: int, seed: int, round: int) -> int | np.ndarray:
    """Returns who may take part: the number of registered clients, or the ids of those whose level is not idle.

    Args:
        levels: Of the recipe.
        clients: Number of registered clients.
        seed, round: The run's seed and the round.
    """
    if not levels.idle:
        return clients
    assigned = assign(levels, clients, seed, round, np.arange(clients))
    return np.flatnonzero(~np.isin(assigned, [levels.names.index(name) for name in levels.idle]))


def draw_cohort(clients: int | np.ndarray, active: int, seed: int, round: int, attempt: int = 0) -> np.ndarray:
    """Draws the ids of a round's active clients without replacement; its cost does not grow with a number `clients`.

    Args:
        clients: As `able_clients` gives it.
        active: How many to draw.
        seed, round: The run's seed and the round.
        attempt: Another number draws another cohort for the same round.
    """
    return seeds.rng(seed, "cohort", round, attempt).choice(clients, active, replace=False).astype(np.int32)


def plan_round(
    recipe: Recipe,
    partition: Partition,
    starts: Sequence[int],
    shuffle: bool,
    division: Division,
    round: int,
    cohort: Sequence[int] | np.ndarray | None = None,
    attempt: int = 0,
) -> Plan:
    """Plans one round.

    Args:
        recipe: The recipe.
        partition: Its split of the data.
        starts, shuffle: As the recipe's `Input` says.
        division: The stages of its levels.
        round: From 0.
        cohort: Ids of the active clients; None draws them.
        attempt: Greater than 0 draws another cohort for the same round.
    """
    clients, seed = len(partition.train), recipe.seed
    active: Sequence[int] | np.ndarray
    if cohort is None:
        able = able_clients(recipe.levels, clients, seed, round)
        active = draw_cohort(able, recipe.round.clients, seed, round, attempt)
    else:
        active = cohort
    assigned = assign(recipe.levels, clients, seed, round, np.asarray(active))
    shares = [partition.train[client] for client in active]
    return plan_clients(recipe, shares, starts, shuffle, division, round, active, assigned)


def plan_clients(
    recipe: Recipe,
    shares: Sequence[np.ndarray],
    starts: Sequence[int],
    shuffle: bool,
    division: Division,
    round: int,
    active: Sequence[int] | np.ndarray,
    assigned: Sequence[int] | np.ndarray,
) -> Plan:
    """Plans a round of clients whose examples and levels are known.

    Args:
        recipe, starts, shuffle, division, round: As for `plan_round`.
        shares: For each active client its examples, int32 [n].
        active: Ids of the active clients.
        assigned: Level of each, positions in the mix.
    """
    seed = recipe.seed
    work = [
        _work(recipe, examples, starts, shuffle, division, round, client, level)
        for examples, client, level in zip(shares, active, assigned)
    ]
    work, outcome = _available(recipe, division, active, assigned, work, round)
    # With fewer clients in flight than clients, the longest must start first or cores idle at the end.
    widths = [recipe.levels.widths[name] for name in recipe.levels.names]
    order = sorted(range(len(active)), key=lambda k: (-widths[assigned[k]], -len(work[k]), active[k]))
    members = deal_members(recipe.levels, [assigned[k] for k in order], [active[k] for k in order], seed, round)
    trained = [(k, member) for k, dealt in zip(order, members) for member in dealt]
    return _padded(
        [active[k] for k, _ in trained],
        [assigned[k] for k, _ in trained],
        [work[k] for k, _ in trained],
        [member for _, member in trained],
        outcome,
    )


def plan_devices(
    recipe: Recipe,
    sizes: Sequence[int],
    starts: Sequence[int],
    division: Division,
    round: int,
    active: Sequence[int],
    assigned: Sequence[int],
) -> DevicePlan:
    """Plan a round of devices, in the order and with the steps that `plan_clients` gives.

    Args:
        recipe, starts, division, round: As for `plan_round`.
        sizes: Training examples of each active device.
        active: Ids of the active devices.
        assigned: Level of each, positions in the mix.
    """
    widths = [recipe.levels.widths[name] for name in recipe.levels.names]
    work = [
        _device_work(recipe, size, starts, division, round, client, level)
        for size, client, level in zip(sizes, active, assigned)
    ]
    order = sorted(range(len(work)), key=lambda k: (-widths[assigned[k]], -work[k][0], active[k]))
    cohort = len(order)
    return DevicePlan(
        clients=np.asarray([active[k] for k in order], np.int32),
        levels=np.asarray([assigned[k] for k in order], np.int32),
        steps=np.asarray([work[k][0] for k in order], np.int64),
        rows=np.zeros((cohort, 0, recipe.client.batch_size), np.int32),
        starts=np.zeros((cohort, 0), np.int32),
        stages=np.zeros((cohort, 0), np.int32),
        members=np.zeros(cohort, np.int32),
        stage_examples=np.asarray([work[k][1] for k in order], np.int64).reshape(cohort, max(division.stages)),
    )


def _device_work(recipe, size, starts, division, round, client, level):
    """The local steps of a device, and the examples that it reads in each stage, [stages]."""
    epochs = recipe.client.epochs_of(recipe.levels.names[level])
    batches, stages = -(-size // recipe.client.batch_size), division.stages[level]
    steps = epochs * division.passes[level] * batches * len(starts)
    examples = np.zeros(max(division.stages), np.int64)
    if not division.drawn:
        examples[:stages] = epochs * size * len(starts)
        return steps, examples
    rng, last = seeds.rng(recipe.seed, "stages", round, client), size - (batches - 1) * recipe.client.batch_size
    for first in range(0, steps, CHUNK):
        step = np.arange(first, min(first + CHUNK, steps))
        is_last = step // len(starts) % batches == batches - 1
        drawn = rng.integers(stages, size=len(step))
        examples[:stages] += np.bincount(drawn, np.where(is_last, last, recipe.client.batch_size), stages).astype(int)
    return steps, examples


def _work(recipe, examples, starts, shuffle, division, round, client, level):
    """All local steps of a client, through every stage of its level."""
    rng = seeds.rng(recipe.seed, "batches", round, client) if shuffle else None
    epochs = recipe.client.epochs_of(recipe.levels.names[level]) * division.passes[level]
    rows, firsts = local_batches(examples, starts, epochs, recipe.client.batch_size, rng)
    return ClientWork(rows, firsts, _stages(division, level, len(rows), recipe.seed, round, client))


def _available(recipe, division, cohort, assigned, work, round):
    """The work that reaches the server, and what metrics say of the rest; see `availability.limit`."""
    if not recipe.availability.is_limited:
        return work, {}
    names = [recipe.levels.names[level] for level in assigned]
    steps = [len(of_client) for of_client in work]
    # A stage that is broken off would be merged as if it had been trained as long as the others.
    passes = [division.passes[level] for level in assigned]
    pieces = [max(count // several, 1) if several > 1 else 1 for count, several in zip(steps, passes)]
    outcome = limit(recipe.availability, recipe.seed, round, cohort, names, steps, pieces)
    return [of_client.first(returned) for of_client, returned in zip(work, outcome.steps)], outcome.metrics()


def _stages(division, level, steps, seed, round, client):
    """The stage of each step: drawn, or one after the other with equally many steps."""
    count = division.stages[level]
    if division.drawn:
        return seeds.rng(seed, "stages", round, client).integers(count, size=steps).astype(np.int32)
    return np.repeat(np.arange(count, dtype=np.int32), steps // count)


def deal_members(
    levels: Levels, assigned: Sequence[int], cohort: Sequence[int], seed: int, round: int
) -> list[list[int]]:
    """Deals the networks of an ensemble to the clients of a cohort; [0] to each where there is no ensemble.

    A client's first network comes from a shuffled deck of all of them, dealt over the clients of all rounds and then
    shuffled anew, so that all are trained equally often; the others are drawn without replacement.

    Args:
        levels: Of the recipe.
        assigned: Level of each client, positions in the mix.
        cohort: Their ids.
        seed, round: The run's seed and the round.

    Reference: SplitMix (Hong et al. 2022), as in its authors' code, whose deck is not tied to the round.
    """
    if levels.ensemble is None:
        return [[0]] * len(cohort)
    dealt = []
    for slot, (level, client) in enumerate(zip(assigned, cohort)):
        deck, card = divmod(round * len(cohort) + slot, levels.ensemble)
        first = int(seeds.rng(seed, "deck", deck).permutation(levels.ensemble)[card])
        others = np.delete(np.arange(levels.ensemble), first)
        count = levels.members[levels.names[level]] - 1
        dealt.append([first, *sorted(seeds.rng(seed, "members", round, client).permutation(others)[:count].tolist())])
    return dealt


def _padded(clients, assigned, work, members, outcome):
    """A `Plan` whose clients all have room for the longest one's steps."""
    steps = np.asarray([len(of_client) for of_client in work], np.int32)
    size = (len(work), max(steps.max(initial=0), 1))
    rows = np.full((*size, work[0].rows.shape[1]), -1, np.int32)
    starts, stages = np.zeros(size, np.int32), np.zeros(size, np.int32)
    for slot, of_client in enumerate(work):
        done = len(of_client)
        rows[slot, :done], starts[slot, :done], stages[slot, :done] = of_client.rows, of_client.starts, of_client.stages
    clients, assigned, members = (np.asarray(values, np.int32) for values in (clients, assigned, members))
    return Plan(clients, assigned, steps, rows, starts, stages, members, outcome)
