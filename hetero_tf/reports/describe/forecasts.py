"""Forecasts of a whole run for each policy: its device time, traffic and energy, from planned rounds."""

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from hetero_tf.base import registry
from hetero_tf.base.constraints import Plugin
from hetero_tf.base.units import format_number
from hetero_tf.methods.policies import AsynchronousPolicy
from hetero_tf.planning.selection import able_clients, count_clients, reads_state
from hetero_tf.planning.timing import round_policy
from hetero_tf.recipe.schema import Recipe
from hetero_tf.run.learning_process import LearningProcess

# Clients whose rounds are planned for a forecast, in at least the least number of rounds.
PLANNED_CLIENTS, LEAST_ROUNDS = 400, 3
# Share of the clients that return before the deadline, if the recipe does not set one.
IN_TIME = 0.8
# Options in the label of a policy, and their units.
NUMBERS = {"seconds": " s", "factor": "", "size": ""}


@dataclass(frozen=True)
class Forecast:
    """A whole run with one policy, extrapolated from its first rounds.

    Attributes:
        policy: Name, and the option that it depends on.
        in_recipe: True for the policy of the recipe.
        rounds: Rounds of the run; those of an asynchronous policy merge as many results in total.
        planned: Rounds that were planned.
        seconds: Device time of the run.
        bytes: Traffic of the run in both directions.
        energy: Joules of the run.
        busy: Share of the device time in which clients transfer or compute, and do not wait for the end of a round.
        merged: Share of the clients that start whose results are merged.
    """

    policy: str
    in_recipe: bool
    rounds: int
    planned: int
    seconds: float
    bytes: float
    energy: float
    busy: float
    merged: float


def forecasts(process: LearningProcess) -> tuple[Forecast, ...]:
    """Return the forecast of each policy for a learning process with a fleet; nothing is trained."""
    recipe = process.recipe
    waiting, client_seconds = _forecast(process, Plugin("wait"))
    able = count_clients(able_clients(recipe.levels, len(process.partition.train), recipe.seed, 0))
    results = [waiting]
    for name in registry.names("policies"):
        is_chosen = name == recipe.round.policy.name
        policy = recipe.round.policy if is_chosen else _typical_policy(recipe, name, client_seconds)
        if name == "wait" or policy is None:
            continue
        started = round_policy(_with_policy(recipe, policy)).cohort_size(recipe.round.clients)
        if started <= able:
            results.append(_forecast(process, policy)[0])
    return tuple(results)


def _typical_policy(recipe: Recipe, name: str, client_seconds: np.ndarray) -> Plugin | None:
    """Return a policy with typical options; None if it has others that must be set."""
    values = {"seconds": float(np.quantile(client_seconds, IN_TIME)), "size": recipe.round.clients}
    options = registry.options("policies", name)
    if any(option.required and key not in values for key, option in options.items()):
        return None
    return Plugin(name, {key: values.get(key, option.default) for key, option in options.items()})


def planned_selection(recipe: Recipe) -> Plugin:
    """Return the selection of the forecasts: that of the recipe, or uniform if that one reads results of training."""
    return Plugin("uniform") if reads_state(recipe) else recipe.round.selection


def _with_policy(recipe: Recipe, policy: Plugin) -> Recipe:
    changed = dataclasses.replace(recipe.round, policy=policy, selection=planned_selection(recipe))
    return dataclasses.replace(recipe, round=changed)


def _forecast(process, policy):
    """Return the forecast of a policy, and the seconds of the clients of its planned rounds: float64 [n]."""
    in_recipe, rounds = policy.name == process.recipe.round.policy.name, process.recipe.rounds
    recipe = _with_policy(process.recipe, policy)
    process, rule = dataclasses.replace(process, recipe=recipe), round_policy(recipe)
    clients = results = rule.cohort_size(recipe.round.clients)
    if isinstance(rule, AsynchronousPolicy):
        results = rule.buffer
        rounds = rounds if in_recipe else math.ceil(rounds * clients / results)
    planned = min(max(LEAST_ROUNDS, PLANNED_CLIENTS // results), rounds)
    plans = [process.plan(number) for number in range(planned)]
    timings, costs = [plan.timing for plan in plans], [process.round_cost(plan) for plan in plans]
    seconds = sum(each.seconds for each in timings)
    client_seconds = np.concatenate([each.times.total for each in timings])
    forecast = Forecast(
        policy=_label(policy),
        in_recipe=in_recipe,
        rounds=rounds,
        planned=planned,
        seconds=seconds * rounds / planned,
        bytes=sum(int(each.bytes_down.sum() + each.bytes_up.sum()) for each in costs) * rounds / planned,
        energy=sum(float(each.times.energy.sum()) for each in timings) * rounds / planned,
        busy=min(float(client_seconds.sum() / (clients * seconds)), 1.0) if seconds else 1.0,
        merged=float(np.mean(np.concatenate([each.steps for each in timings]) > 0)),
    )
    return forecast, client_seconds


def _label(policy):
    """Return the name of a policy, with the number that it depends on most."""
    numbers = [f"{format_number(policy.options[key])}{unit}" for key, unit in NUMBERS.items() if key in policy.options]
    return " ".join([policy.name, *numbers])
