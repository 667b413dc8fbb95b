"""Refuses keys that change nothing beside the others: somebody wrote them for an effect that does not come."""

from collections.abc import Iterator

from hetero_tf.base import registry
from hetero_tf.recipe.nodes import Wrong, show
from hetero_tf.recipe.schema import Recipe

# Loaders that need no files: no stand-in can ever take their place.
ALWAYS_THERE = ("digits", "pydoc", "synthetic")
_TOLD = "nothing reads it here"
Found = tuple[tuple, object, str]


def check_unused(recipe: Recipe) -> None:
    """Raises `Wrong` for the first key that nothing reads."""
    for path, value, advice in (*_of_outputs(recipe), *_of_stages(recipe), *_of_the_rest(recipe)):
        raise Wrong(path, f"{_TOLD}; {advice}, or leave it out. Received: {show(value)}")


def _of_outputs(recipe: Recipe) -> Iterator[Found]:
    """What joins several outputs of a step: those of exits, of two widths, or of peers."""
    stages, levels, coupling = recipe.client.stages, recipe.levels, recipe.client.coupling
    exits = bool(recipe.model.exits) and any(levels.depths.get(name, 2) > 1 for name in levels.names)
    peers = stages.options.get("peers") and any(levels.budgets.get(name, 1) >= 2 for name in levels.names)
    several = {"joint": exits, "nested": exits or stages.options.get("distill"), "blockwise": peers}
    if coupling.name != "sum" and not several.get(stages.name, True):
        advice = (
            "a step has one output, so add an `Exit` to model.layers, or let stages run several (nested with distill)"
        )
        yield ("client", "coupling"), coupling.name, advice
    if coupling.name == "weighted" and not coupling.options["gamma"]:
        yield from _given(
            coupling, "couplings", ("client", "coupling"), ("temperature", "from_round", "detached"), "gamma"
        )
    if stages.options.get("peers") and not peers:
        yield ("client", "stages", "peers"), True, "give a level of the mix a budget of 2 or more"
    if stages.options.get("exits") == "last" and not recipe.model.exits:
        yield ("client", "stages", "exits"), "last", "add an `Exit` to model.layers"
    if recipe.evaluate.exits == "mean" and not recipe.model.exits:
        yield ("evaluate", "exits"), "mean", "add an `Exit` to model.layers"


def _of_stages(recipe: Recipe) -> Iterator[Found]:
    """What divides a client's work."""
    stages, levels = recipe.client.stages, recipe.levels
    if levels.budgets and stages.name in ("joint", "nested"):
        yield ("levels", "budgets"), levels.budgets, "set client.stages to blockwise"
    if levels.measure != "memory" and not levels.budgets:
        yield ("levels", "measure"), levels.measure, "give levels.budgets"
    if recipe.round.untrained == "counted" and (stages.name == "nested" or stages.options.get("exits") == "all"):
        yield (
            ("round", "untrained"),
            "counted",
            "a stage of each client trains all that it holds: choose other client.stages",
        )


def _of_the_rest(recipe: Recipe) -> Iterator[Found]:
    availability, model, server, data = recipe.availability, recipe.model, recipe.round.server, recipe.data
    if recipe.optimizer.method.options.get("momentum") == 0:
        yield from _given(recipe.optimizer.method, "optimizers", ("optimizer",), ("nesterov",), "momentum")
    if availability.spread and not availability.seconds_per_step:
        yield ("availability", "spread"), availability.spread, "give availability.seconds_per_step"
    if availability.late != "drop" and availability.deadline is None:
        yield ("availability", "late"), availability.late, "give availability.deadline"
    if model.reinitialize and model.initial_weights is None:
        yield ("model", "reinitialize"), model.reinitialize, "give model.initial_weights"
    if "all" in recipe.round.personal and server.name != "replace":
        yield ("round", "server"), server.name, "all units stay with the clients, so merge some (round.personal)"
    if data.fallback and data.loader.name in ALWAYS_THERE:
        yield ("data", "fallback"), data.fallback, f"the data {data.loader.name} are always there"


def _given(plugin, kind, path, names, switch):
    """The options among `names` that are not as they are by default, while another one switches them off."""
    known = registry.options(kind, plugin.name)
    for name in names:
        if name in known and plugin.options[name] != known[name].default:
            yield (*path, name), plugin.options[name], f"give {switch} a value above 0"
