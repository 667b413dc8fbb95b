"""Rules of the keys by which methods differ: depths, members, budgets, masks, stages, availability."""

from collections.abc import Iterator

from hetero_tf.base import registry
from hetero_tf.base.errors import did_you_mean
from hetero_tf.recipe.nodes import InvalidValue, show
from hetero_tf.recipe.schema import FineTune, Levels, Recipe

# Between a stem and a head there must be something to divide.
FEWEST_UNITS = 3


# Clients that return in the whole run, on average.
FEWEST_RETURNS = 0.01


def check_methods(recipe: Recipe) -> None:
    """Raises `InvalidValue` for the first rule that a recipe breaks."""
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
    _halves(recipe)
    _scaffold(recipe)
    _mask(recipe)
    _blockwise(recipe)
    _peers(recipe)
    _several_widths(recipe)


def _known(by_level, widths, path):
    for name in by_level:
        if name not in widths:
            raise InvalidValue((*path, name), f"no width is given for level {name!r}{did_you_mean(name, widths)}", True)


def _epochs(recipe):
    epochs, path = recipe.client.epochs, ("client", "epochs")
    if not isinstance(epochs, dict):
        return
    _known(epochs, recipe.levels.widths, path)
    for name in recipe.levels.names:
        if name not in epochs:
            raise InvalidValue(
                path, f"level {name!r} is missing; every level of the mix needs its epochs. Received: {show(epochs)}"
            )


def _idle(recipe):
    levels, clients = recipe.levels, recipe.partition.options.get("clients")
    for index, name in enumerate(levels.idle):
        if name not in levels.names:
            raise InvalidValue(
                ("levels", "idle", index), f"no such level in the mix: {name!r}{did_you_mean(name, levels.names)}"
            )
    if set(levels.names) <= set(levels.idle):
        raise InvalidValue(
            ("levels", "idle"), f"leaves no level of the mix whose clients take part. Received: {show(levels.idle)}"
        )
    if levels.idle and levels.assignment == "dynamic":
        raise InvalidValue(
            ("levels", "assignment"),
            "must be fixed where levels.idle is given: a client that draws its level "
            "anew each round is not able or unable for good. Received: dynamic",
        )
    if not levels.idle or clients is None:
        return
    each = clients // sum(share for _, share in levels.mix)
    counts = {name: share * each for name, share in levels.mix}
    # Clients left over have the last level.
    counts[levels.names[-1]] += clients - sum(counts.values())
    able = sum(count for name, count in counts.items() if name not in levels.idle)
    if recipe.round.clients > able:
        raise InvalidValue(
            ("round", "clients"),
            f"more active clients than may take part (levels.idle); must be at most "
            f"{able}. Received: {recipe.round.clients}",
        )


def _depths(recipe):
    levels, last = recipe.levels, len(recipe.model.exits) + 1
    for name, depth in levels.depths.items():
        if depth > last:
            raise InvalidValue(
                ("levels", "depths", name),
                f"there is no such exit; must be a whole number from 1 to {last}, the trunk's end (an `Exit` "
                f"in model.layers adds one). Received: {depth}",
            )
    first = levels.depths.get(levels.global_level, last)
    for name in levels.names:
        depth = levels.depths.get(name, last)
        if depth > first:
            raise InvalidValue(
                ("levels", "depths"),
                f"level {name!r} (depth {depth}) is deeper than the first of the mix, "
                f"{levels.global_level!r} (depth {first}), which is the global model's; "
                "list the deepest first",
            )


def _members(levels):
    path, top = ("levels", "members"), levels.global_level
    if not levels.members:
        return
    for name in levels.names:
        if name not in levels.members:
            raise InvalidValue(
                path,
                f"level {name!r} is missing; an ensemble needs a number for every level of the mix. "
                f"Received: {show(levels.members)}",
            )
        if levels.members[name] > levels.members[top]:
            raise InvalidValue(
                (*path, name),
                f"more networks than the first level of the mix, {top!r}, which has them all; "
                f"must be at most {levels.members[top]}. Received: {levels.members[name]}",
            )
        if levels.widths[name] != levels.widths[top]:
            raise InvalidValue(
                ("levels", "widths"),
                "all levels of the mix must have one width where levels.members is given: that of the "
                f"ensemble's networks. Received: {show(levels.widths)}",
            )


def _best_members(recipe):
    if recipe.evaluate.members == "best" and recipe.round.personal:
        raise InvalidValue(
            ("evaluate", "members"),
            "must be first where round.personal is given: clients keep units of the networks that they began with. "
            "Received: best",
        )


def _availability(recipe):
    availability, path = recipe.availability, ("availability", "seconds_per_step")
    if availability.deadline is not None and not availability.seconds_per_step:
        raise InvalidValue(
            ("availability", "deadline"),
            "nobody can be late without seconds; give availability.seconds_per_step, such as {a: 0.1, e: 0.02}",
        )
    for name in recipe.levels.names if availability.seconds_per_step else ():
        if name not in availability.seconds_per_step:
            raise InvalidValue(
                path,
                f"level {name!r} is missing; every level of the mix needs its seconds. "
                f"Received: {show(availability.seconds_per_step)}",
            )


def _returns(recipe):
    """A run in which practically nobody ever returns trains nothing."""
    dropout, chances = recipe.availability.dropout, recipe.round.clients * recipe.rounds
    left = (1 - dropout) * chances
    if left < FEWEST_RETURNS:
        raise InvalidValue(
            ("availability", "dropout"),
            f"of {chances} clients in all rounds {left:.1g} return on average, so nothing is trained; must be at most "
            f"{1 - FEWEST_RETURNS / chances:.9g}. Received: {dropout!r}",
        )


def _halves(recipe):
    """A server and a correction of one name are one method."""
    server, correction = recipe.round.server, recipe.client.correction
    for name, other in (("dynamic", " too, with the same alpha"), ("scaffold", " too")):
        if server.name == name and getattr(correction, "name", None) != name:
            raise InvalidValue(
                ("round", "server"), f"{name} is half of a method; set client.correction to {name}{other}"
            )
        if getattr(correction, "name", None) == name and server.name != name:
            raise InvalidValue(
                ("client", "correction"), f"{name} is half of a method; set round.server to {name}{other}"
            )
    if server.name != "dynamic":
        return
    if server.options["alpha"] != correction.options["alpha"]:
        raise InvalidValue(
            ("client", "correction"),
            f"alpha must be that of round.server, {server.options['alpha']:g}. "
            f"Received: {correction.options['alpha']:g}",
        )
    if recipe.round.weighting != "uniform":
        raise InvalidValue(
            ("round", "weighting"),
            f"must be uniform with the server dynamic, which counts clients. Received: {recipe.round.weighting}",
        )


def _scaffold(recipe):
    """A control is the mean of a client's gradients only where every step moves every entry by the rate alone."""
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
    """Masks and shares of entries go together, and the global model is whole."""
    levels, mask = recipe.levels, recipe.round.mask
    if mask is None and levels.entries:
        raise InvalidValue(("levels", "entries"), "nothing reads it; set round.mask, such as fiarse")
    if mask is None:
        return
    if not levels.entries:
        raise InvalidValue(
            ("round", "mask"), "every level keeps all its entries; give levels.entries, such as {e: 1/16}"
        )
    if levels.entries.get(levels.global_level, 1) != 1:
        raise InvalidValue(
            ("levels", "entries", levels.global_level),
            "must be 1 for the first level of the mix, which is the global model's. "
            f"Received: {levels.entries[levels.global_level]:g}",
        )
    if recipe.round.uncovered == "zeros":
        raise InvalidValue(
            ("round", "uncovered"), "must be left_out with round.mask, which counts single entries. Received: zeros"
        )
    for path, given in ((("round", "personal"), recipe.round.personal), (("levels", "members"), levels.members)):
        if given:
            raise InvalidValue(
                path, f"does not go with round.mask, which looks at one whole network. Received: {show(given)}"
            )
    if recipe.round.server.name == "scaffold":
        raise InvalidValue(("round", "mask"), "does not go with the server scaffold, whose controls move in every step")


def _blockwise(recipe):
    trunk, levels = recipe.model.trunk, recipe.levels
    if recipe.client.stages.name != "blockwise":
        return
    if len(trunk) < FEWEST_UNITS:
        raise InvalidValue(
            ("client", "stages"),
            f"blockwise needs at least {FEWEST_UNITS} units in model.layers: a stem, what is divided, and a "
            f"head. Received: {len(trunk)}",
        )
    if not any(name in levels.budgets for name in levels.names):
        raise InvalidValue(
            ("client", "stages"),
            "blockwise divides by levels.budgets; give one to each level that cannot hold the whole model, "
            "such as {a: 1, d: 1/6}",
        )


def _peers(recipe):
    """Peers have no part in what the server and clients keep of one network, or of an ensemble's."""
    if not recipe.client.stages.options.get("peers"):
        return
    correction = recipe.client.correction
    if correction is not None and registry.find("corrections", correction.name).REMEMBERS:
        raise InvalidValue(
            ("client", "correction"),
            f"must be null or proximal where client.stages.peers is true: nothing is remembered of peers. "
            f"Received: {correction.name}",
        )
    if recipe.levels.members:
        raise InvalidValue(
            ("levels", "members"),
            "does not go with client.stages.peers: a client trains an ensemble's networks apart from each other. "
            f"Received: {show(recipe.levels.members)}",
        )


def _several_widths(recipe):
    """Running statistics of one width do not fit another, and a client of several widths has them once."""
    stages = recipe.client.stages.name
    if stages not in ("nested", "slimmable"):
        return
    for spec in recipe.model.layers:
        for name in ("norm", "kind"):
            if spec.args.get(name) == "bn":
                raise InvalidValue(
                    (*spec.path, name),
                    "bn keeps one set of running statistics for all widths, so it does not go with "
                    f"client.stages {stages}; use wbn or sbn. Received: 'bn'",
                )


# Loaders that need no files: no stand-in can ever take their place.
ALWAYS_THERE = ("digits", "pydoc", "synthetic")


# Path, value, why nothing reads it, and what would change that.
Found = tuple[tuple, object, str, str]


def check_unused(recipe: Recipe) -> None:
    """Raises `InvalidValue` for the first key that has no effect."""
    found = (*_of_outputs(recipe), *_of_stages(recipe), *_of_ensembles(recipe.levels), *_of_the_rest(recipe))
    for path, value, reason, advice in found:
        raise InvalidValue(path, f"has no effect, since {reason}; {advice} or leave it out. Received: {show(value)}")


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
