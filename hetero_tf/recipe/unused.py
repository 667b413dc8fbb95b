"""Refuses keys that change nothing beside the others: somebody wrote them for an effect that does not come."""

from collections.abc import Iterator

from hetero_tf.base import registry
from hetero_tf.recipe.nodes import Wrong, show
from hetero_tf.recipe.schema import FineTune, Levels, Recipe

# Loaders that need no files: no stand-in can ever take their place.
ALWAYS_THERE = ("digits", "pydoc", "synthetic")
# Path, value, why nothing reads it, and what would change that.
Found = tuple[tuple, object, str, str]


def check_unused(recipe: Recipe) -> None:
    """Raises `Wrong` for the first key that has no effect."""
    found = (*_of_outputs(recipe), *_of_stages(recipe), *_of_ensembles(recipe.levels), *_of_the_rest(recipe))
    for path, value, reason, advice in found:
        raise Wrong(path, f"has no effect, since {reason}; {advice} or leave it out. Received: {show(value)}")


def _of_outputs(recipe: Recipe) -> Iterator[Found]:
    """What joins several outputs of a step: those of exits, of two widths, or of peers."""
    stages, levels, coupling = recipe.client.stages, recipe.levels, recipe.client.coupling
    exits = bool(recipe.model.exits) and any(levels.depths.get(name, 2) > 1 for name in levels.names)
    # Budgets decide who has peers, and another scenario of them is no mistake.
    peers = stages.options.get("peers")
    widths = len({levels.widths[name] for name in levels.names}) > 1
    several = {
        "joint": exits,
        "nested": exits or stages.options.get("distill"),
        "slimmable": exits or widths,
        "blockwise": peers,
    }
    if coupling.name != "sum" and not several.get(stages.name, True):
        advice = "add an `Exit` to model.layers, set client.stages to {name: nested, distill: true}"
        yield ("client", "coupling"), coupling.name, "a step has one output", advice
    if coupling.name == "weighted" and not coupling.options["gamma"]:
        yield from _switched_off(coupling, "couplings", ("client", "coupling"), "gamma", "temperature", "from_round")
    for path, value, many in (
        (("client", "stages", "exits"), stages.options.get("exits"), "last"),
        (("evaluate", "exits"), recipe.evaluate.exits, "mean"),
    ):
        if value == many and not recipe.model.exits:
            yield path, value, "the model has one output", "add an `Exit` to model.layers"


def _of_stages(recipe: Recipe) -> Iterator[Found]:
    """What divides a client's work."""
    stages, levels = recipe.client.stages, recipe.levels
    if levels.fit is not None and not levels.budgets:
        yield ("levels", "fit"), levels.fit, "no level has a budget", "give levels.budgets"
    if levels.fit is not None and stages.name == "blockwise":
        reason = "client.stages blockwise trains as many units at a time as the budgets hold"
        yield ("levels", "fit"), levels.fit, reason, "choose other client.stages"
    for fit, given in (("depths", levels.depths), ("members", levels.members)):
        if levels.fit == fit and not given:
            yield ("levels", "fit"), fit, f"no level has {fit}", f"give levels.{fit}"
    if stages.options.get("buffered") and stages.options.get("stem") == "every":
        reason = "with client.stages.stem every no unit stays as it is before a stage"
        yield ("client", "stages", "buffered"), True, reason, "set client.stages.stem to first"
    whole = stages.name in ("nested", "slimmable") or stages.options.get("exits") == "all"
    if recipe.round.untrained == "counted" and whole:
        reason = f"with client.stages {stages.name} a client trains all that it holds"
        yield ("round", "untrained"), "counted", reason, "choose other client.stages"


def _of_ensembles(levels: Levels) -> Iterator[Found]:
    """How the networks of an ensemble begin."""
    path, value = ("levels", "members_fan_in"), levels.members_fan_in
    if value == "wide" and levels.ensemble is None:
        yield path, value, "there is one network", "give levels.members"
    elif value == "wide" and levels.widths[levels.global_level] == 1:
        yield path, value, "the networks have width 1", "lower levels.widths"


def _of_the_rest(recipe: Recipe) -> Iterator[Found]:
    availability, model, server, data = recipe.availability, recipe.model, recipe.round.server, recipe.data
    if recipe.optimizer.method.options.get("momentum") == 0:
        yield from _switched_off(recipe.optimizer.method, "optimizers", ("optimizer",), "momentum", "nesterov")
    if availability.spread and not availability.seconds_per_step:
        yield (
            ("availability", "spread"),
            availability.spread,
            "no level has a pace",
            "give availability.seconds_per_step",
        )
    if availability.late != "drop" and availability.deadline is None:
        yield ("availability", "late"), availability.late, "nobody is late", "give availability.deadline"
    tune, plain = recipe.evaluate.fine_tune, FineTune()
    for name in ("units", "learning_rate"):
        if not tune.epochs and getattr(tune, name) != getattr(plain, name):
            advice = "give evaluate.fine_tune.epochs"
            yield ("evaluate", "fine_tune", name), getattr(tune, name), "nothing is fine-tuned", advice
    members = recipe.levels.members
    if recipe.evaluate.members == "best" and len({members.get(name) for name in recipe.levels.names}) == 1:
        reason = "every level predicts with all networks" if members else "the model is no ensemble"
        yield ("evaluate", "members"), "best", reason, "give levels.members, fewer for some level,"
    if model.reinitialize and model.initial_weights is None:
        reason = "all layers draw their initial values"
        yield ("model", "reinitialize"), model.reinitialize, reason, "give model.initial_weights"
    for index, unit in enumerate(recipe.round.personal):
        if unit in model.frozen:
            yield ("round", "personal", index), unit, "model.frozen keeps it alike everywhere", "thaw the unit"
    for spec in model.layers:
        if "lora_scale" in spec.args and spec.args.get("lora_rank") is None:
            yield (*spec.path, "lora_scale"), spec.args["lora_scale"], "there is no adapter", "give lora_rank"
    widths = {recipe.levels.widths[name] for name in recipe.levels.names}
    if recipe.round.uncovered == "zeros" and (len(widths) == 1 or recipe.levels.members):
        yield ("round", "uncovered"), "zeros", "all levels of the mix have one width", "give them several"
    if "all" in recipe.round.personal and server.name != "replace":
        yield ("round", "server"), server.name, "no unit is merged", "shorten round.personal"
    if data.fallback and data.loader.name in ALWAYS_THERE:
        reason = f"the data of {data.loader.name} are always there"
        yield ("data", "fallback"), data.fallback, reason, "choose other data"


def _switched_off(plugin, kind, path, switch, *names):
    """The options among `names` that are not as they are by default, while `switch` is 0."""
    known = registry.options(kind, plugin.name)
    for name in names:
        if name in known and plugin.options[name] != known[name].default:
            yield (*path, name), plugin.options[name], f"{switch} is 0", f"raise {switch}"
