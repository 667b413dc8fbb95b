"""Rules for keys that distinguish methods: depths, members, budgets, masks, stages, availability."""

from collections.abc import Iterator

from hetero_tf.base import registry
from hetero_tf.base.errors import did_you_mean
from hetero_tf.recipe.nodes import InvalidValue, format_value
from hetero_tf.recipe.schema import FineTune, Levels, Recipe

# Blockwise stages divide the units between a stem and a head.
FEWEST_UNITS = 3
# Expected number of clients that return in the whole run.
FEWEST_RETURNS = 0.01


def check_methods(recipe: Recipe) -> None:
    """Raise `InvalidValue` for the first rule that a recipe violates."""
    for section, key in (
        ("levels", "depths"),
        ("levels", "members"),
        ("levels", "budgets"),
        ("levels", "entries"),
        ("availability", "seconds_per_step"),
    ):
        _known(getattr(getattr(recipe, section), key), recipe.levels.widths, (section, key))
    _epochs(recipe)
    _idle(recipe)
    _depths(recipe)
    _members(recipe.levels)
    _best_members(recipe)
    _availability(recipe)
    _returns(recipe)
    _paired_methods(recipe)
    _scaffold(recipe)
    _mask(recipe)
    _blockwise(recipe)
    _peers(recipe)
    _several_widths(recipe)


def _known(by_level, widths, path):
    for name in by_level:
        if name not in widths:
            raise InvalidValue((*path, name), f"levels.widths has no level {name!r}{did_you_mean(name, widths)}", True)


def _epochs(recipe):
    epochs, path = recipe.client.epochs, ("client", "epochs")
    if not isinstance(epochs, dict):
        return
    _known(epochs, recipe.levels.widths, path)
    for name in recipe.levels.names:
        if name not in epochs:
            raise InvalidValue(
                path,
                f"level {name!r} is missing; set the epochs of every level of the mix. "
                f"Received: {format_value(epochs)}",
            )


def _idle(recipe):
    levels, clients = recipe.levels, recipe.partition.options.get("clients")
    for index, name in enumerate(levels.idle):
        if name not in levels.names:
            raise InvalidValue(
                ("levels", "idle", index), f"the mix has no level {name!r}{did_you_mean(name, levels.names)}"
            )
    if set(levels.names) <= set(levels.idle):
        raise InvalidValue(
            ("levels", "idle"),
            f"all levels of the mix are idle; leave at least one out. Received: {format_value(levels.idle)}",
        )
    if levels.idle and levels.assignment == "dynamic":
        raise InvalidValue(
            ("levels", "assignment"),
            "must be fixed with levels.idle: with dynamic assignment no client is permanently idle. Received: dynamic",
        )
    if not levels.idle or clients is None:
        return
    each = clients // sum(levels.mix.values())
    counts = {name: share * each for name, share in levels.mix.items()}
    # Remaining clients have the last level.
    counts[levels.names[-1]] += clients - sum(counts.values())
    able = sum(count for name, count in counts.items() if name not in levels.idle)
    if recipe.round.clients > able:
        raise InvalidValue(
            ("round", "clients"),
            f"more active clients than clients that are not idle (levels.idle); must be at most "
            f"{able}. Received: {recipe.round.clients}",
        )


def _depths(recipe):
    levels, last = recipe.levels, len(recipe.model.exits) + 1
    for name, depth in levels.depths.items():
        if depth > last:
            raise InvalidValue(
                ("levels", "depths", name),
                f"unknown exit; must be a whole number from 1 to {last}, the end of the trunk (each `Exit` "
                f"in model.layers adds one). Received: {depth}",
            )
    first = levels.depth_of(levels.global_level, last)
    for name in levels.names:
        depth = levels.depth_of(name, last)
        if depth > first:
            raise InvalidValue(
                ("levels", "depths"),
                f"level {name!r} (depth {depth}) is deeper than the first of the mix, "
                f"{levels.global_level!r} (depth {first}), which is the global model's; "
                "list the deepest level first",
            )


def _members(levels):
    path, top = ("levels", "members"), levels.global_level
    if not levels.members:
        return
    for name in levels.names:
        if name not in levels.members:
            raise InvalidValue(
                path,
                f"level {name!r} is missing; set the number of networks for every level of the mix. "
                f"Received: {format_value(levels.members)}",
            )
        if levels.members[name] > levels.members[top]:
            raise InvalidValue(
                (*path, name),
                f"more networks than the first level of the mix, {top!r}, which has all of them; "
                f"must be at most {levels.members[top]}. Received: {levels.members[name]}",
            )
        if levels.widths[name] != levels.widths[top]:
            raise InvalidValue(
                ("levels", "widths"),
                "all levels of the mix must have the same width with levels.members: that of the networks of the "
                f"ensemble. Received: {format_value(levels.widths)}",
            )


def _best_members(recipe):
    if recipe.evaluate.members == "best" and recipe.round.personal:
        raise InvalidValue(
            ("evaluate", "members"),
            "must be first with round.personal: clients keep their units of the networks that they started with. "
            "Received: best",
        )


def _availability(recipe):
    availability, path = recipe.availability, ("availability", "seconds_per_step")
    if availability.deadline is not None and not availability.seconds_per_step:
        raise InvalidValue(
            ("availability", "deadline"), "a deadline needs availability.seconds_per_step, such as {a: 0.1, e: 0.02}"
        )
    for name in recipe.levels.names if availability.seconds_per_step else ():
        if name not in availability.seconds_per_step:
            raise InvalidValue(
                path,
                f"level {name!r} is missing; set the seconds of every level of the mix. "
                f"Received: {format_value(availability.seconds_per_step)}",
            )


def _returns(recipe):
    """Reject a dropout with which practically no client ever returns."""
    dropout, chances = recipe.availability.dropout, recipe.round.clients * recipe.rounds
    returns = (1 - dropout) * chances
    if returns < FEWEST_RETURNS:
        raise InvalidValue(
            ("availability", "dropout"),
            f"only {returns:.1g} of {chances} clients return on average in the whole run; must be at most "
            f"{1 - FEWEST_RETURNS / chances:.9g}. Received: {dropout!r}",
        )


def _paired_methods(recipe):
    """Check that a server and a correction of the same method are used together."""
    server, correction = recipe.round.server, recipe.client.correction
    for name, other in (("dynamic", " too, with the same alpha"), ("scaffold", " too")):
        if server.name == name and getattr(correction, "name", None) != name:
            raise InvalidValue(
                ("round", "server"),
                f"the server {name} needs the correction {name}; set client.correction to {name}{other}",
            )
        if getattr(correction, "name", None) == name and server.name != name:
            raise InvalidValue(
                ("client", "correction"),
                f"the correction {name} needs the server {name}; set round.server to {name}{other}",
            )
    if server.name != "dynamic":
        return
    if server.options["alpha"] != correction.options["alpha"]:
        raise InvalidValue(
            ("client", "correction"),
            f"alpha must equal that of round.server, {server.options['alpha']:g}. "
            f"Received: {correction.options['alpha']:g}",
        )
    if recipe.round.weighting != "uniform":
        raise InvalidValue(
            ("round", "weighting"),
            f"must be uniform with the server dynamic, which counts clients. Received: {recipe.round.weighting}",
        )


def _scaffold(recipe):
    """Check the settings of SCAFFOLD: its controls are mean gradients only with plain SGD on the whole model."""
    if recipe.round.server.name != "scaffold":
        return
    method = recipe.optimizer.method
    if method.name != "sgd":
        raise InvalidValue(("optimizer", "name"), f"must be sgd with the server scaffold. Received: {method.name}")
    if method.options["momentum"] != 0:
        raise InvalidValue(
            ("optimizer", "momentum"), f"must be 0 with the server scaffold. Received: {method.options['momentum']:g}"
        )
    if recipe.client.stages.name != "joint":
        raise InvalidValue(
            ("client", "stages"), f"must be joint with the server scaffold. Received: {recipe.client.stages.name}"
        )


def _mask(recipe):
    """Check that round.mask and levels.entries are used together, and that the global model has no mask."""
    levels, mask = recipe.levels, recipe.round.mask
    if mask is None and levels.entries:
        raise InvalidValue(("levels", "entries"), "needs round.mask; set it, for example to fiarse")
    if mask is None:
        return
    if not levels.entries:
        raise InvalidValue(("round", "mask"), "needs levels.entries, such as {e: 1/16}")
    if levels.entries_of(levels.global_level) != 1:
        raise InvalidValue(
            ("levels", "entries", levels.global_level),
            "must be 1 for the first level of the mix, which is that of the global model. "
            f"Received: {levels.entries[levels.global_level]:g}",
        )
    if recipe.round.uncovered == "zeros":
        raise InvalidValue(
            ("round", "uncovered"),
            "must be left_out with round.mask, which counts entries individually. Received: zeros",
        )
    for path, value in ((("round", "personal"), recipe.round.personal), (("levels", "members"), levels.members)):
        if value:
            raise InvalidValue(
                path,
                "cannot be combined with round.mask, which needs a single shared network. "
                f"Received: {format_value(value)}",
            )
    if recipe.round.server.name == "scaffold":
        raise InvalidValue(
            ("round", "mask"),
            "cannot be combined with the server scaffold, whose controls change every entry in each step",
        )


def _blockwise(recipe):
    trunk, levels = recipe.model.trunk, recipe.levels
    if recipe.client.stages.name != "blockwise":
        return
    if len(trunk) < FEWEST_UNITS:
        raise InvalidValue(
            ("client", "stages"),
            f"blockwise needs at least {FEWEST_UNITS} units in model.layers: a stem, units to divide, and a "
            f"head. Received: {len(trunk)}",
        )
    if not any(name in levels.budgets for name in levels.names):
        raise InvalidValue(
            ("client", "stages"),
            "blockwise needs levels.budgets; set one for each level that cannot train the whole model, "
            "such as {a: 1, d: 1/6}",
        )


def _peers(recipe):
    """Reject peers with ensembles and with corrections that store values for each network."""
    if not recipe.client.stages.options.get("peers"):
        return
    correction = recipe.client.correction
    if correction is not None and registry.find("corrections", correction.name).REMEMBERS:
        raise InvalidValue(
            ("client", "correction"),
            f"must be null or proximal with client.stages.peers: corrections store nothing for peers. "
            f"Received: {correction.name}",
        )
    if recipe.levels.members:
        raise InvalidValue(
            ("levels", "members"),
            "cannot be combined with client.stages.peers: a client trains the networks of an ensemble separately. "
            f"Received: {format_value(recipe.levels.members)}",
        )


def _several_widths(recipe):
    """Reject running statistics with stages of several widths: each width needs different ones."""
    stages = recipe.client.stages.name
    if stages not in ("nested", "slimmable"):
        return
    for spec in recipe.model.layers:
        for name in ("norm", "kind"):
            if spec.args.get(name) == "bn":
                raise InvalidValue(
                    (*spec.path, name),
                    "bn has one set of running statistics for all widths, so it cannot be combined with "
                    f"client.stages {stages}; use wbn or sbn. Received: 'bn'",
                )


# Loaders that need no files, so a fallback is never used.
ALWAYS_AVAILABLE = ("digits", "pydoc", "synthetic")
# Path, value, the reason why it has no effect, and advice.
UnusedKey = tuple[tuple, object, str, str]


def check_unused(recipe: Recipe) -> None:
    """Raise `InvalidValue` for the first key that has no effect."""
    unused = (
        *_unused_outputs(recipe),
        *_unused_stages(recipe),
        *_unused_ensembles(recipe.levels),
        *_unused_others(recipe),
    )
    for path, value, reason, advice in unused:
        raise InvalidValue(
            path, f"has no effect because {reason}; {advice} or remove this key. Received: {format_value(value)}"
        )


def _unused_outputs(recipe: Recipe) -> Iterator[UnusedKey]:
    """Yield unused keys for several outputs of a step: those of exits, widths or peers."""
    stages, levels, coupling = recipe.client.stages, recipe.levels, recipe.client.coupling
    exits = bool(recipe.model.exits) and any(levels.depth_of(name, 2) > 1 for name in levels.names)
    # The budgets decide which clients have peers, so `peers` without any is allowed.
    peers = stages.options.get("peers")
    widths = len({levels.widths[name] for name in levels.names}) > 1
    has_several_outputs = {
        "joint": exits,
        "nested": exits or stages.options.get("distill"),
        "slimmable": exits or widths,
        "blockwise": peers,
    }
    if coupling.name != "sum" and not has_several_outputs.get(stages.name, True):
        advice = "add an `Exit` to model.layers, set client.stages to {name: nested, distill: true}"
        yield ("client", "coupling"), coupling.name, "a step has one output", advice
    if coupling.name == "weighted" and not coupling.options["gamma"]:
        yield from _switched_off(coupling, "couplings", ("client", "coupling"), "gamma", "temperature", "from_round")
    for path, value, switched_value in (
        (("client", "stages", "exits"), stages.options.get("exits"), "last"),
        (("evaluate", "exits"), recipe.evaluate.exits, "mean"),
    ):
        if value == switched_value and not recipe.model.exits:
            yield path, value, "the model has one output", "add an `Exit` to model.layers"


def _unused_stages(recipe: Recipe) -> Iterator[UnusedKey]:
    """Yield unused keys of levels.fit and client.stages."""
    stages, levels = recipe.client.stages, recipe.levels
    if levels.fit is not None and not levels.budgets:
        yield ("levels", "fit"), levels.fit, "no level has a budget", "set levels.budgets"
    if levels.fit is not None and stages.name == "blockwise":
        reason = "client.stages blockwise already trains only as many units at a time as fit the budget"
        yield ("levels", "fit"), levels.fit, reason, "choose other client.stages"
    for fit, value in (("depths", levels.depths), ("members", levels.members)):
        if levels.fit == fit and not value:
            yield ("levels", "fit"), fit, f"no level has {fit}", f"set levels.{fit}"
    if stages.options.get("buffered") and stages.options.get("stem") == "every":
        reason = "client.stages.stem is every, so no unit is constant before a stage"
        yield ("client", "stages", "buffered"), True, reason, "set client.stages.stem to first"
    trains_everything = stages.name in ("nested", "slimmable") or stages.options.get("exits") == "all"
    if recipe.round.untrained == "counted" and trains_everything:
        reason = f"with client.stages {stages.name} a client trains all of its values"
        yield ("round", "untrained"), "counted", reason, "choose other client.stages"


def _unused_ensembles(levels: Levels) -> Iterator[UnusedKey]:
    """Yield unused keys of ensembles."""
    path, value = ("levels", "members_fan_in"), levels.members_fan_in
    if value == "wide" and levels.ensemble is None:
        yield path, value, "the model is a single network", "set levels.members"
    elif value == "wide" and levels.widths[levels.global_level] == 1:
        yield path, value, "the networks have width 1", "reduce levels.widths"


def _unused_others(recipe: Recipe) -> Iterator[UnusedKey]:
    availability, model, server, data = recipe.availability, recipe.model, recipe.round.server, recipe.data
    if recipe.optimizer.method.options.get("momentum") == 0:
        yield from _switched_off(recipe.optimizer.method, "optimizers", ("optimizer",), "momentum", "nesterov")
    if availability.spread and not availability.seconds_per_step:
        yield (
            ("availability", "spread"),
            availability.spread,
            "no level has seconds_per_step",
            "set availability.seconds_per_step",
        )
    if availability.late != "drop" and availability.deadline is None:
        yield ("availability", "late"), availability.late, "no client can be late", "set availability.deadline"
    tune, default = recipe.evaluate.fine_tune, FineTune()
    for name in ("units", "learning_rate"):
        if not tune.epochs and getattr(tune, name) != getattr(default, name):
            advice = "set evaluate.fine_tune.epochs"
            yield ("evaluate", "fine_tune", name), getattr(tune, name), "fine-tuning is off", advice
    members = recipe.levels.members
    if recipe.evaluate.members == "best" and len({members.get(name) for name in recipe.levels.names}) == 1:
        reason = "every level predicts with all networks" if members else "the model is a single network"
        yield ("evaluate", "members"), "best", reason, "set levels.members, with fewer for some level,"
    if model.reinitialize and model.initial_weights is None:
        reason = "all layers draw their initial values"
        yield ("model", "reinitialize"), model.reinitialize, reason, "set model.initial_weights"
    for index, unit in enumerate(recipe.round.personal):
        if unit in model.frozen:
            yield (
                ("round", "personal", index),
                unit,
                "model.frozen keeps it constant on all clients",
                "unfreeze the unit",
            )
    for spec in model.layers:
        if "lora_scale" in spec.args and spec.args.get("lora_rank") is None:
            yield (*spec.path, "lora_scale"), spec.args["lora_scale"], "the layer has no adapter", "set lora_rank"
    widths = {recipe.levels.widths[name] for name in recipe.levels.names}
    if recipe.round.uncovered == "zeros" and (len(widths) == 1 or recipe.levels.members):
        yield ("round", "uncovered"), "zeros", "all levels of the mix have the same width", "use several widths"
    if "all" in recipe.round.personal and server.name != "replace":
        yield (
            ("round", "server"),
            server.name,
            "all units are personal and none is merged",
            "list fewer units in round.personal",
        )
    if data.fallback and data.loader.name in ALWAYS_AVAILABLE:
        reason = f"the data of {data.loader.name} are always available"
        yield ("data", "fallback"), data.fallback, reason, "choose other data"


def _switched_off(plugin, kind, path, switch, *names):
    """Yield the options among `names` that differ from their default while `switch` is 0."""
    known = registry.options(kind, plugin.name)
    for name in names:
        if name in known and plugin.options[name] != known[name].default:
            yield (*path, name), plugin.options[name], f"{switch} is 0", f"increase {switch}"
