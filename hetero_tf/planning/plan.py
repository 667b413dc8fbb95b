"""Plans a round on the host: cohort, levels, and the examples of each local step.

Everything is a pure function of (seed, round, client), so a resumed run plans the same rounds.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hetero_tf.base import seeds
from hetero_tf.data.partitions.partition import Partition
from hetero_tf.methods.selections import Choice
from hetero_tf.planning.fleets.devices import local_steps
from hetero_tf.planning.timing import ClientWork, RoundClock, RoundTiming, time_round
from hetero_tf.recipe.schema import Levels, Recipe


def assign_levels(levels: Levels, clients: int, seed: int, round: int, ids: np.ndarray) -> np.ndarray:
    """Return the levels of some clients as indices into `levels.mix`, without computing those of others.

    Args:
        seed, round: The run's seed and the round, for dynamic assignment.
        ids: int [n], the clients.

    Returns:
        int32 [n]; the last level for clients that never train because no level fits their device.

    Reference: HeteroFL authors' code. Fixed: consecutive clients in the order of the mix; remaining clients have the
    last level. Dynamic: every client draws independently, with the shares as probabilities.
    """
    if levels.level_of_client is not None:
        by_device = levels.level_of_client[ids].astype(np.int32)
        return np.where(by_device < 0, len(levels.names) - 1, by_device)
    shares = np.asarray(list(levels.mix.values()), float)
    if levels.assignment == "dynamic":
        ends, points = np.cumsum(shares) / shares.sum(), seeds.uniform(seed, "levels", round, ids=ids)
    else:
        whole_numbers = np.all(shares == np.round(shares))
        counts = shares * (clients // shares.sum()) if whole_numbers else np.floor(shares / shares.sum() * clients)
        ends, points = np.cumsum(counts), np.asarray(ids)
    # Dropping the last end gives the last level to remaining clients, and to points above a sum just below 1.
    return np.searchsorted(ends[:-1], points, side="right").astype(np.int32)


@dataclass(frozen=True)
class Plan:
    """Plan of one round; all arrays are int32. With Poisson sampling or an asynchronous policy it may have no client.

    Attributes:
        clients: [cohort], ids of the active clients, most work first; with an ensemble, one entry per network that a
            client trains.
        levels: [cohort], indices into the mix of the recipe.
        rows: [cohort, steps, batch], examples of each step; -1: padding.
        starts: [cohort, steps], first position within the examples (text), 0 for images.
        stages: [cohort, steps], index of each step's stage among those of the level.
        members: [cohort], network of an ensemble that is trained.
        timing: Device time of the clients that start; None without a fleet.
        delays: [cohort], rounds after which each result arrives, see `rounds.arrivals`. If None, all arrive in it.
        choice: The selection of the clients; None if they were not selected.
        rate_factor: Factor of the learning rate of the round's schedule.
        noise_seeds: int64 [n, 2], the seeds of the summands of the noise of a private round; else None.
        noise_stds: float64 [n], their standard deviations with the signs of the summands; else None.
    """

    clients: np.ndarray
    levels: np.ndarray
    steps: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    stages: np.ndarray
    members: np.ndarray
    timing: RoundTiming | None = None
    delays: np.ndarray | None = None
    choice: Choice | None = None
    rate_factor: float = 1.0
    noise_seeds: np.ndarray | None = None
    noise_stds: np.ndarray | None = None

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays by name, in the order of the attributes."""
        others = ("timing", "choice", "rate_factor")
        names = [each.name for each in dataclasses.fields(Plan) if each.name not in others]
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def examples_of_steps(self) -> np.ndarray:
        """Number of examples of each step: int [cohort, steps]."""
        return np.count_nonzero(self.rows >= 0, axis=-1)

    def work(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the number of steps [cohort], and the examples and the stage of each [cohort, steps]."""
        return self.steps, self.examples_of_steps, self.stages


# Number of steps whose stages are drawn together, so memory does not grow with the examples that a device reports.
CHUNK = 2**16


@dataclass(frozen=True, kw_only=True)
class DevicePlan(Plan):
    """Plan of a round of devices, which form their own batches: `rows`, `starts` and `stages` have no steps.

    Its size depends on the number of devices, not on the number of examples that they report.

    Attributes:
        stage_examples: int64 [cohort, stages], examples that each device reads in each stage; a text segment is one.
    """

    stage_examples: np.ndarray

    def work(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the work of `Plan.work`; each stage counts as one step that reads all of its examples."""
        cohort, stages = self.stage_examples.shape
        position = np.broadcast_to(np.arange(stages), (cohort, stages))
        return np.where(self.steps > 0, stages, 0), self.stage_examples, position


@dataclass(frozen=True)
class Division:
    """Number of stages of each level of the mix; `drawn`: each step draws its stage at random."""

    stages: tuple[int, ...]
    drawn: bool

    @property
    def passes(self) -> tuple[int, ...]:
        """Number of times that the clients of each level run all local epochs."""
        return tuple(1 if self.drawn else count for count in self.stages)


def local_batches(
    examples: np.ndarray,
    starts: Sequence[int],
    epochs: int,
    batch_size: int,
    rng: np.random.Generator | None = None,
    classes: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Split the examples of one client into batches; the last batch may be short.

    Args:
        examples: int32 [n].
        starts: First positions at which each batch is read, (0,) for images.
        epochs: Passes over the examples.
        rng: Shuffles the examples in every epoch; None keeps their order.
        classes: int32 [n], classes of the examples, which every epoch draws equally often. If None, an epoch has each
            example once.

    Returns:
        rows int32 [steps, batch], starts int32 [steps].
    """
    count = len(examples)
    batches = -(-count // batch_size)
    padded = np.full((epochs, batches * batch_size), -1, np.int32)
    for epoch in range(epochs):
        drawn = examples if classes is None or rng is None else draw_balanced(examples, classes, rng)
        padded[epoch, :count] = drawn if rng is None else rng.permutation(drawn)
    rows = padded.reshape(epochs * batches, batch_size)
    return np.repeat(rows, len(starts), axis=0), np.tile(np.asarray(starts, np.int32), epochs * batches)


def draw_balanced(examples: np.ndarray, classes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw as many examples as there are, with an equal number of each class, up to one.

    The examples of a class are drawn equally often, up to once.

    Args:
        examples: int32 [n].
        classes: int32 [n], classes of the examples.
        rng: Draws the classes and examples with the remainders.
    """
    drawn, present = [examples[:0]], rng.permutation(np.unique(classes))
    for index, each in enumerate(present):
        count = (len(examples) + index) // len(present)
        drawn.append(np.resize(rng.permutation(examples[classes == each]), count))
    return np.concatenate(drawn)


@dataclass(frozen=True, eq=False)
class Batching:
    """Division of the examples of clients into local steps, the same for all clients and rounds of a run.

    Attributes:
        starts, shuffle: Attributes of its `Input`.
        classes: int32 [n], class of each training example for balanced sampling. If None, examples are shuffled.
    """

    recipe: Recipe
    starts: Sequence[int]
    shuffle: bool
    division: Division
    classes: np.ndarray | None = None

    def work(self, examples: np.ndarray, round: int, client: int, level: int) -> ClientWork:
        """Return all local steps of a client, for every stage of its level.

        Args:
            examples: Those of the client, int32 [n].
            round: Index, from 0.
            level: Its level, as index into the mix.
        """
        recipe, division = self.recipe, self.division
        rng = seeds.rng(recipe.seed, "batches", round, client) if self.shuffle else None
        epochs = recipe.client.epochs_of(recipe.levels.names[level]) * division.passes[level]
        classes = None if self.classes is None else self.classes[examples]
        rows, firsts = local_batches(examples, self.starts, epochs, recipe.client.batch_size, rng, classes)
        return ClientWork(rows, firsts, _step_stages(division, level, len(rows), recipe.seed, round, client))


def plan_round(
    batching: Batching,
    partition: Partition,
    round: int,
    cohort: Sequence[int] | np.ndarray,
    clock: RoundClock | None = None,
) -> Plan:
    """Plan one round.

    Args:
        round: Index, from 0.
        clock: Clock of the fleet. If None, all clients return.
    """
    recipe = batching.recipe
    assigned = assign_levels(recipe.levels, len(partition.train), recipe.seed, round, np.asarray(cohort))
    return plan_clients(batching, [partition.train[client] for client in cohort], round, cohort, assigned, clock)


def plan_clients(
    batching: Batching,
    shares: Sequence[np.ndarray],
    round: int,
    active: Sequence[int] | np.ndarray,
    assigned: Sequence[int] | np.ndarray,
    clock: RoundClock | None = None,
) -> Plan:
    """Plan a round of clients with known examples and levels.

    Args:
        batching, round, clock: See `plan_round`.
        shares: Examples of each active client, int32 [n].
        assigned: Level of each, as index into the mix.
    """
    work = [batching.work(examples, round, client, level) for examples, client, level in zip(shares, active, assigned)]
    timing = None
    if clock is not None:
        passes = [batching.division.passes[level] for level in assigned]
        # An incomplete stage would be merged with the same weight as complete ones.
        pieces = [max(len(each.stages) // count, 1) if count > 1 else 1 for each, count in zip(work, passes)]
        timing = time_round(clock, round, active, assigned, work, pieces)
        work = [each.first(steps) for each, steps in zip(work, timing.steps)]
    return arrange(batching.recipe, round, active, assigned, work, timing, first_card=round * len(active))


def arrange(
    recipe: Recipe,
    round: int,
    active: Sequence[int] | np.ndarray,
    assigned: Sequence[int] | np.ndarray,
    work: Sequence[ClientWork],
    timing: RoundTiming | None,
    first_card: int,
    delays: np.ndarray | None = None,
) -> Plan:
    """Return the `Plan` of clients, most work first.

    Args:
        round, active, assigned: See `plan_clients`.
        work: The steps of each client that reach the server.
        first_card: See `assign_members`.
        delays: [n], of the results of an asynchronous policy.
    """
    order = _most_work_first(recipe, active, assigned, [len(each.stages) for each in work])
    sorted_levels, sorted_ids = ([values[k] for k in order] for values in (assigned, active))
    members = assign_members(recipe.levels, sorted_levels, sorted_ids, recipe.seed, round, first_card)
    trained = [(k, member) for k, networks in zip(order, members) for member in networks]
    slots = [k for k, _ in trained]
    rows, starts, stages = _padded([work[k] for k in slots], recipe.client.batch_size)
    return Plan(
        clients=np.asarray(active, np.int32)[slots],
        levels=np.asarray(assigned, np.int32)[slots],
        steps=np.asarray([len(work[k].stages) for k in slots], np.int32),
        rows=rows,
        starts=starts,
        stages=stages,
        members=np.asarray([member for _, member in trained], np.int32),
        timing=timing,
        delays=None if delays is None else delays[slots],
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
    """Plan a round of devices, with the same order and steps as `plan_clients`.

    Args:
        recipe, starts, division: See `Batching`.
        sizes: Number of training examples of each active device.
        round: Index, from 0.
        assigned: Level of each, as index into the mix.
    """
    steps, stage_examples = device_work(recipe, sizes, len(starts), division, round, active, assigned)
    order, cohort = _most_work_first(recipe, active, assigned, steps), len(active)
    return DevicePlan(
        clients=np.asarray(active, np.int32)[order],
        levels=np.asarray(assigned, np.int32)[order],
        steps=steps[order],
        rows=np.zeros((cohort, 0, recipe.client.batch_size), np.int32),
        starts=np.zeros((cohort, 0), np.int32),
        stages=np.zeros((cohort, 0), np.int32),
        members=np.zeros(cohort, np.int32),
        stage_examples=stage_examples[order],
    )


def _most_work_first(recipe, active, assigned, steps):
    """Return the order of clients: if not all run in parallel, the longest must start first, or cores idle later."""
    widths = [recipe.levels.widths[name] for name in recipe.levels.names]
    return sorted(range(len(active)), key=lambda k: (-widths[assigned[k]], -steps[k], active[k]))


def expected_work(
    recipe: Recipe, sizes: np.ndarray, starts: int, division: Division, levels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the local steps of clients, int [n], and the examples that they read in each stage, float [n, stages].

    Args:
        recipe, division: See `Batching`. Stages that are drawn have equal shares of the examples.
        sizes: int [n], numbers of examples of the clients.
        starts: Number of positions at which each batch is read, 1 for images.
        levels: int [n], indices into the mix.
    """
    epochs = np.asarray([recipe.client.epochs_of(name) for name in recipe.levels.names])
    stages, passes = np.asarray(division.stages), epochs * division.passes
    steps = local_steps(sizes, recipe.client.batch_size, passes[levels], starts)
    shares = (np.arange(max(stages)) < stages[:, None]) * (passes / stages)[:, None]
    return steps, shares[levels] * sizes[:, None] * starts


def device_work(
    recipe: Recipe, sizes: ArrayLike, starts: int, division: Division, round: int, clients: ArrayLike, levels: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Return `expected_work` as int64, but with the stages that the steps of the clients draw in a round."""
    sizes, levels = np.asarray(sizes, np.int64), np.asarray(levels, np.int64)
    steps, examples = expected_work(recipe, sizes, starts, division, levels)
    if division.drawn:
        work = zip(sizes.tolist(), steps.tolist(), np.asarray(clients).tolist(), levels)
        drawn = [_draw_examples(recipe, *each, starts, division, round) for each in work]
        examples = np.reshape(drawn, examples.shape)
    return steps, examples.astype(np.int64)


def _draw_examples(recipe, size, steps, client, level, starts, division, round):
    """Return the examples that a client reads in each stage if every step draws its stage: int64 [stages]."""
    stages, batch, examples = division.stages[level], recipe.client.batch_size, np.zeros(max(division.stages), np.int64)
    rng, batches = seeds.rng(recipe.seed, "stages", round, client), -(-size // batch)
    for first in range(0, steps, CHUNK):
        step = np.arange(first, min(first + CHUNK, steps))
        is_last = step // starts % batches == batches - 1
        sizes = np.where(is_last, size - (batches - 1) * batch, batch)
        examples[:stages] += np.bincount(rng.integers(stages, size=len(step)), sizes, stages).astype(int)
    return examples


def _step_stages(division, level, steps, seed, round, client):
    """Return the stage of each step: drawn, or in sequence with the same number of steps."""
    count = division.stages[level]
    if division.drawn:
        return seeds.rng(seed, "stages", round, client).integers(count, size=steps).astype(np.int32)
    return np.repeat(np.arange(count, dtype=np.int32), steps // count)


def assign_members(
    levels: Levels, assigned: Sequence[int], cohort: Sequence[int], seed: int, round: int, first_card: int
) -> list[list[int]]:
    """Assign the networks of an ensemble to the clients of a cohort; without an ensemble, [0] to each.

    The first network of each client comes from a shuffled deck of all networks. The deck continues over clients and
    rounds and is reshuffled when empty, so all networks are trained equally often. Further networks of a client are
    drawn without replacement.

    Args:
        assigned: Level of each client, as index into the mix.
        seed, round: The run's seed and the round.
        first_card: Number of clients before those of the cohort, in all rounds.

    Reference: SplitMix (Hong et al. 2022) and its authors' code, in which the deck does not depend on the round.
    """
    if levels.ensemble is None:
        return [[0]] * len(cohort)
    members = []
    for slot, (level, client) in enumerate(zip(assigned, cohort)):
        deck, card = divmod(first_card + slot, levels.ensemble)
        first = int(seeds.rng(seed, "deck", deck).permutation(levels.ensemble)[card])
        others = np.delete(np.arange(levels.ensemble), first)
        count = levels.members[levels.names[level]] - 1
        members.append([first, *sorted(seeds.rng(seed, "members", round, client).permutation(others)[:count].tolist())])
    return members


def _padded(work, batch_size):
    """Return the rows, starts and stages of several clients, padded to the number of steps of the longest one."""
    size = (len(work), max([1, *(len(each.stages) for each in work)]))
    rows = np.full((*size, batch_size), -1, np.int32)
    starts, stages = np.zeros(size, np.int32), np.zeros(size, np.int32)
    for slot, each in enumerate(work):
        count = len(each.stages)
        rows[slot, :count], starts[slot, :count], stages[slot, :count] = each.rows, each.starts, each.stages
    return rows, starts, stages
