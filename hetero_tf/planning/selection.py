"""Selection of the clients of a round, and the history of clients that selections read.

A history is `{"clients": {name: [registered]}, "selection": {name: value}, "run": {"device_seconds": value}}`, float64:
the last result of each client, see `methods.selections.ClientPool.history`, the memory of the selection, and the device
time since the start of the run. It is part of the state of a run.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from hetero_tf.base import registry, seeds
from hetero_tf.methods.selections import Choice, ClientPool
from hetero_tf.planning.plan import Division, assign_levels, expected_work
from hetero_tf.planning.timing import RoundClock
from hetero_tf.recipe.schema import Levels, Recipe

_HISTORY = ("HISTORY", "TIME")
COLUMNS = ("squared_loss", "seconds", "round", "count")


def reads_history(recipe: Recipe) -> bool:
    """Return True if the selection of a recipe reads the history of the run: of its clients, or its device time."""
    constants = (registry.constant("selections", recipe.round.selection.name, f"READS_{name}") for name in _HISTORY)
    return any(constants)


def reads_state(recipe: Recipe) -> bool:
    """Return True if the selection of a recipe reads the state, so that rounds are planned one by one."""
    name = recipe.round.selection.name
    return reads_history(recipe) or bool(registry.constant("selections", name, "READS_LOSSES"))


def able_clients(levels: Levels, clients: int, seed: int, round: int) -> int | np.ndarray:
    """Return the clients that may train: their number if all may, else the ids of those with non-idle levels.

    Args:
        seed, round: The run's seed and the round.
    """
    idle = [levels.names.index(name) for name in levels.idle]
    if levels.level_of_client is not None:
        return np.flatnonzero(~np.isin(levels.level_of_client, [-1, *idle]))
    if not levels.idle:
        return clients
    levels_of_clients = assign_levels(levels, clients, seed, round, np.arange(clients))
    return np.flatnonzero(~np.isin(levels_of_clients, idle))


def count_clients(able: int | np.ndarray) -> int:
    """Return the number of clients in a result of `able_clients`."""
    return able if isinstance(able, int) else len(able)


def expected_seconds(
    clock: RoundClock, division: Division, round: int, ids: np.ndarray, examples: np.ndarray, starts: int
) -> np.ndarray:
    """Return the seconds that clients need for their whole work on their own links, without jitter: float64 [n].

    Args:
        ids: int [n], the clients.
        examples: int [n], their numbers of training examples.
        starts: Number of positions at which each batch is read, 1 for images.
    """
    recipe = clock.recipe
    levels = assign_levels(recipe.levels, clock.clients, recipe.seed, round, ids)
    work = expected_work(recipe, examples, starts, division, levels)
    return clock.without_shared_links().times(None, ids, levels, *work).total


def time_evaluation(
    clock: RoundClock, division: Division, round: int, choice: Choice, examples: np.ndarray, starts: int
) -> Choice:
    """Return a choice with the device time and the energy of the clients that report their loss.

    They download the model and run the forward pass of a local epoch, a third of its operations. The round starts when
    the slowest has reported; the chosen clients have the model then.

    Args:
        clock, division, round, starts: See `expected_seconds`.
        examples: int [evaluated], training examples of these clients.
    """
    recipe = dataclasses.replace(clock.recipe, client=dataclasses.replace(clock.recipe.client, epochs=1))
    levels = assign_levels(recipe.levels, clock.clients, recipe.seed, round, choice.evaluated)
    steps, stage_examples = expected_work(recipe, examples, starts, division, levels)
    times = clock.times(round, choice.evaluated, levels, steps, stage_examples / 3)
    devices, trains = clock.devices(round, choice.evaluated, levels), np.isin(choice.evaluated, choice.ids)
    seconds = (times.download + times.compute).max() - times.download[trains].max(initial=0.0)
    download = np.where(trains, 0.0, times.download)
    energy = (times.compute * devices.train_watts + download * devices.radio_watts).sum()
    return dataclasses.replace(choice, waited=choice.waited + float(seconds), energy=float(energy))


def pool_of(able: int | np.ndarray, round: int) -> ClientPool:
    """Return a pool of clients of which nothing but the ids is known; see `ClientPool`."""
    return ClientPool(
        able=able,
        round=round,
        examples_of=np.zeros_like,
        seconds_of=lambda ids: np.zeros(len(ids)),
        device_seconds=0.0,
        available_at=lambda ids, seconds: np.ones(len(ids), bool),
        losses_of=lambda ids: np.zeros(len(ids)),
    )


def select_cohort(recipe: Recipe, pool: ClientPool, count: int, attempt: int = 0) -> Choice:
    """Choose the clients of a round.

    Args:
        count: Number of clients to choose; fewer if fewer are able.
        attempt: Each number chooses a different cohort for the same round.

    Returns:
        `Choice`, with int32 ids.
    """
    selection, rng = recipe.round.selection, seeds.rng(recipe.seed, "cohort", pool.round, attempt)
    count = min(count, count_clients(pool.able))
    result = registry.find("selections", selection.name).choose(pool, count, rng, **selection.options)
    choice = result if isinstance(result, Choice) else Choice(result)
    ids, evaluated = (np.asarray(values, np.int32) for values in (choice.ids, choice.evaluated))
    return dataclasses.replace(choice, ids=ids, evaluated=evaluated)


def begin_history(recipe: Recipe, registered: int) -> dict[str, dict[str, np.ndarray]]:
    """Return the history before the first round; empty if the selection does not read it."""
    if not reads_history(recipe):
        return {}
    memory = registry.constant("selections", recipe.round.selection.name, "MEMORY") or {}
    return {
        "clients": {name: np.zeros(registered) for name in COLUMNS},
        "selection": {name: np.zeros(registered if form == "clients" else ()) for name, form in memory.items()},
        "run": {"device_seconds": np.zeros(())},
    }


def record_round(
    history: Mapping,
    round: int,
    clients: np.ndarray,
    squared_losses: np.ndarray,
    seconds: np.ndarray,
    round_seconds: float,
    memory: Mapping,
) -> dict:
    """Return the history after a round.

    Args:
        round: Number of finished rounds, with this one.
        clients: int [returned], ids of the clients that returned a finite result; of a client with several networks the
            last one counts.
        squared_losses: [returned], mean squared loss over the local steps of each.
        seconds: [returned], device time of each.
        round_seconds: Device time of the round.
        memory: `Choice.memory` of this round; empty if its clients were not chosen.
    """
    columns = {name: values.copy() for name, values in history["clients"].items()}
    for name, values in (("squared_loss", squared_losses), ("seconds", seconds), ("round", round)):
        columns[name][clients] = values
    columns["count"][clients] += 1
    stored = {name: np.asarray(memory.get(name, value), float) for name, value in history["selection"].items()}
    run = {"device_seconds": history["run"]["device_seconds"] + round_seconds}
    return {"clients": columns, "selection": stored, "run": run}
