"""Simulated time of a round: the clients that drop out or are late, and the local steps that reach the server.

No process waits for this time. Everything is a pure function of (seed, round, client), except for the end of the round
and for transfers on a shared link, which depend on all clients of the round.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hetero_tf.base import seeds
from hetero_tf.methods.policies import SynchronousPolicy, round_policy
from hetero_tf.planning.fleets.devices import ClientTimes, Devices, client_times, devices_of
from hetero_tf.recipe.schema import Fleet, Recipe

# Results of the clients of a round.
RETURNED, PARTIAL, LATE, DROPPED, STALE = "returned", "partial", "late", "dropped", "stale"
# In floats 10 * 0.1 is slightly above 1, but the tenth step is in time.
TOLERANCE = 1 + 1e-9


@dataclass(frozen=True)
class RoundClock:
    """Clock of the clients of a recipe: the work of each level, and the fleet that it runs on.

    Attributes:
        bytes_down, bytes_up: [levels], bytes of weights that a client receives and sends in a round.
        train_flops: [levels, stages], operations of training on one example in each stage.
    """

    recipe: Recipe
    clients: int
    bytes_down: np.ndarray
    bytes_up: np.ndarray
    train_flops: np.ndarray

    @property
    def fleet(self) -> Fleet:
        """The fleet of the recipe."""
        assert self.recipe.fleet is not None
        return self.recipe.fleet

    def devices(self, round: int | None, ids: np.ndarray, levels: np.ndarray) -> Devices:
        """Return the devices of clients; `round`: see `devices_of`, `levels`: int [n], indices into the mix."""
        names = [self.recipe.levels.names[level] for level in levels]
        return devices_of(self.fleet, self.recipe.seed, ids, clients=self.clients, levels=names, round=round)

    def times(
        self, round: int | None, ids: np.ndarray, levels: np.ndarray, steps: np.ndarray, stage_examples: np.ndarray
    ) -> ClientTimes:
        """Return the times of clients that start together and finish all of their work.

        Args:
            round: The round, whose jitter changes the speeds; None for the speeds without jitter.
            ids: int [n], the clients.
            levels: int [n], their levels as indices into the mix.
            steps: int [n], their local steps; a client without steps sends nothing.
            stage_examples: int [n, stages], the examples that each client reads in each stage.
        """
        levels, steps = np.asarray(levels), np.asarray(steps)
        # A local step of an ensemble's client trains all of its networks.
        networks = self._networks[levels]
        flops = (self.train_flops[levels] * stage_examples).sum(axis=1)
        down, up = self.bytes_down[levels], np.where(steps > 0, self.bytes_up[levels], 0)
        devices = self.devices(round, ids, levels)
        return client_times(devices, *(networks * values for values in (steps, flops, down, up)))

    def drop_out(self, round: int, ids: np.ndarray, devices: Devices) -> np.ndarray:
        """Return which clients drop out of a round, bool [n]; `devices`: theirs."""
        return seeds.uniform(self.recipe.seed, "client dropout", round, ids=ids) < devices.dropout

    def without_shared_links(self) -> "RoundClock":
        """Return the clock of clients that transfer alone."""
        fleet = dataclasses.replace(self.fleet, shared_down_mbit=None, shared_up_mbit=None)
        return dataclasses.replace(self, recipe=dataclasses.replace(self.recipe, fleet=fleet))

    def step_seconds(
        self, devices: Devices, index: int, level: int, examples: np.ndarray, stages: np.ndarray
    ) -> np.ndarray:
        """Return the seconds of each local step of one client: float64 [steps].

        Args:
            index: Index of the client among them.
            level: Its level as index into the mix.
            examples: int [steps], the examples of each step.
            stages: int [steps], the stage of each step.
        """
        flops = self.train_flops[level, stages] * examples
        return self._networks[level] * (devices.seconds_per_step[index] + flops / devices.speed[index])

    @functools.cached_property
    def _networks(self):
        """Number of networks that a client of each level trains: int [levels]."""
        return np.asarray([self.recipe.levels.networks_of(name) for name in self.recipe.levels.names])


@dataclass(frozen=True)
class ClientWork:
    """The local steps of one client.

    Attributes:
        rows: int32 [steps, batch], examples of each step; -1: padding.
        starts: int32 [steps], first position within the examples.
        stages: int32 [steps], index of each step's stage.
    """

    rows: np.ndarray
    starts: np.ndarray
    stages: np.ndarray

    @property
    def examples(self) -> np.ndarray:
        """Number of examples of each step, int [steps]."""
        return np.count_nonzero(self.rows >= 0, axis=-1)

    def first(self, steps: int) -> "ClientWork":
        """Return the first steps of the work."""
        return ClientWork(self.rows[:steps], self.starts[:steps], self.stages[:steps])


@dataclass(frozen=True)
class RoundTiming:
    """Device time of one round, for each of the n clients that start.

    Attributes:
        clients: int32 [n], ids.
        kinds: int32 [n], indices of their devices among those of the fleet.
        levels: int32 [n], indices of their levels in the mix.
        steps: int32 [n], local steps that reach the server; clients without steps are not merged.
        statuses: [n], one of `RETURNED`, `PARTIAL`, `LATE` and `DROPPED`.
        times: Their times and energy until they finish, drop out or the round ends.
        seconds: Seconds from the start to the end of the round.
    """

    clients: np.ndarray
    kinds: np.ndarray
    levels: np.ndarray
    steps: np.ndarray
    statuses: tuple[str, ...]
    times: ClientTimes
    seconds: float

    @property
    def start_seconds(self) -> np.ndarray:
        """Seconds from the start of the round to those of the clients: float64 [n]."""
        return np.zeros(len(self.clients))

    def metrics(self) -> dict[str, int | float | None]:
        """Return metrics by name; "client_seconds" is None if no client returned."""
        seconds = self.times.total[self.steps > 0]
        return {
            "dropped": self.statuses.count(DROPPED),
            "late": self.statuses.count(LATE) + self.statuses.count(PARTIAL),
            "partial": self.statuses.count(PARTIAL),
            "round_seconds": self.seconds,
            "client_seconds": float(seconds.mean()) if seconds.size else None,
            "round_energy": float(self.times.energy.sum()),
        }


def time_round(
    clock: RoundClock, round: int, ids: ArrayLike, levels: ArrayLike, work: Sequence[ClientWork], pieces: Sequence[int]
) -> RoundTiming:
    """Simulate a synchronous round: its end, dropouts and late clients.

    A client drops out after its download. The round ends as soon as all clients have returned, or `round.clients` of
    them with over-selection; else at the deadline; without a deadline when no client remains. The others stop then:
    their download, and their energy until then, count.

    Args:
        ids, levels: int [n], the clients and their levels as indices into the mix.
        work: Planned steps of each client.
        pieces: Steps of a stage of each client; a late client returns complete stages only.
    """
    policy = round_policy(clock.recipe.round.policy)
    ids, levels = np.asarray(ids, np.int32), np.asarray(levels, np.int32)
    assert isinstance(policy, SynchronousPolicy)
    planned = np.asarray([len(each.stages) for each in work], np.int32)
    stages = clock.train_flops.shape[1]
    examples = [np.bincount(each.stages, each.examples, stages) for each in work]
    stage_examples = np.reshape(examples, [len(work), stages])
    times, devices = clock.times(round, ids, levels, planned, stage_examples), clock.devices(round, ids, levels)
    dropped = clock.drop_out(round, ids, devices)
    needed = min(clock.recipe.round.clients, len(ids)) if policy.factor > 1 else len(ids)
    merged, end = _end_of_round(policy.deadline, needed, ids, times, dropped)
    steps = np.where(merged, planned, 0).astype(np.int32)
    late = ~(dropped | merged)
    if policy.partial and end == policy.deadline:
        for index in np.flatnonzero(late).tolist():
            available = end - times.download[index] - times.upload[index]
            completed = _completed_steps(clock, devices, index, levels[index], work[index], available)
            steps[index] = completed - completed % pieces[index]
    partial = late & (steps > 0)
    statuses = np.select([dropped, partial, late], [DROPPED, PARTIAL, LATE], RETURNED).tolist()
    times = _until(end, times, devices, merged, dropped, partial)
    return RoundTiming(ids, devices.kind, levels, steps, tuple(statuses), times, end)


def _end_of_round(deadline, needed, ids, times, dropped):
    """Return whether each client is merged with all of its steps, bool [n], and the seconds until the round's end."""
    limit = math.inf if deadline is None else deadline * TOLERANCE
    in_time = np.flatnonzero(~dropped & (times.total <= limit))
    # Clients that return at the same time count in the order of their ids.
    first = in_time[np.lexsort((ids[in_time], times.total[in_time]))][:needed]
    merged = np.zeros(len(ids), bool)
    merged[first] = True
    if len(first) < needed and deadline is not None:
        return merged, float(deadline)
    # If all needed clients have returned, the round does not wait for the others.
    lost = times.download[dropped & (len(first) < needed)]
    return merged, float(max(times.total[merged].max(initial=0.0), lost.max(initial=0.0)))


def _completed_steps(clock, devices, index, level, work, seconds):
    """Return the number of steps that a client completes within some seconds."""
    step_seconds = clock.step_seconds(devices, index, level, work.examples, work.stages)
    return int(np.searchsorted(np.cumsum(step_seconds), seconds * TOLERANCE, side="right"))


def _until(end, times, devices, merged, dropped, partial):
    """Return the times and the energy of clients until the end of the round; late clients reserve time to upload."""
    reserved = np.where(partial, times.upload, 0.0)
    download = np.where(merged, times.download, np.minimum(times.download, end))
    compute = np.where(merged, times.compute, np.clip(end - download - reserved, 0.0, times.compute))
    upload = np.where(merged, times.upload, np.clip(end - download - compute, 0.0, times.upload))
    compute, upload = (np.where(dropped, 0.0, seconds) for seconds in (compute, upload))
    return ClientTimes.of(devices, download, compute, upload)
