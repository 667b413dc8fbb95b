"""Rules between two or more keys of a recipe; those of plug-ins are in their modules, see `plugin_rules`."""

from hetero_tf.base import metrics, registry
from hetero_tf.base.errors import did_you_mean
from hetero_tf.recipe.model import Classes
from hetero_tf.recipe.nodes import InvalidValue, format_value
from hetero_tf.recipe.plugin_rules import Rules, check_conflict, check_plugins, check_unused
from hetero_tf.recipe.schema import Levels, Recipe
from hetero_tf.recipe.shapes import check_shapes

# Expected number of clients that return in the whole run.
FEWEST_RETURNS = 0.01
# Invalid combinations, see `methods`; the error is reported at the last key.
CONFLICTS: Rules = {
    "dynamic assignment leaves no client permanently idle; set it to fixed": {
        "levels.idle": True,
        "levels.assignment": "dynamic",
    },
    "clients keep their units of the networks that they started with": {
        "round.personal": True,
        "evaluate.members": "best",
    },
    "text has no accuracy": {"input.TARGETS": "positions", "evaluate.members": "best"},
    "text has no test examples per client": {"input.TARGETS": "positions", "evaluate.fine_tune.epochs": True},
    "in fine-tuning, each step trains the whole client model": {
        "client.stages": True,
        "evaluate.fine_tune.epochs": True,
    },
    "in fine-tuning, a client keeps all entries of its model": {"round.mask": True, "evaluate.fine_tune.epochs": True},
    "in fine-tuning, each client has a single network": {"levels.members": True, "evaluate.fine_tune.epochs": True},
}
# Combinations in which the last key has no effect.
UNUSED: Rules = {
    "the model has one output": {"model.exits": False, "evaluate.exits": True},
    "no level has a budget": {"levels.budgets": False, "levels.fit": True},
    "no level has depths": {"levels.depths": False, "levels.fit": "depths"},
    "no level has members": {"levels.members": False, "levels.fit": "members"},
    "no mask selects entries": {"round.mask": False, "levels.entries": True},
    "the model is a single network": {"levels.members": False, "levels.members_fan_in": True},
    "each level has a single network": {"levels.members": False, "evaluate.members": True},
    "steps take no simulated time": {"availability.seconds_per_step": False, "availability.deadline": True},
    "no level has seconds_per_step": {"availability.seconds_per_step": False, "availability.spread": True},
    "no client can be late": {"availability.deadline": False, "availability.late": True},
    "fine-tuning is off": {"evaluate.fine_tune.epochs": False, "evaluate.fine_tune.units": True},
    "there is no fine-tuning": {"evaluate.fine_tune.epochs": False, "evaluate.fine_tune.learning_rate": True},
    "all layers draw their initial values": {"model.initial_weights": False, "model.reinitialize": True},
    "all levels of the mix have the same width": {"levels.widths": False, "round.uncovered": True},
    "all units are personal and none is merged": {"round.personal": "all", "round.server": True},
}


def check_keys(recipe: Recipe) -> None:
    """Raise `InvalidValue` for the first rule that a recipe violates."""
    _check_levels(recipe.levels)
    _check_by_level(recipe)
    _check_names(recipe)
    _check_depths(recipe)
    _check_members(recipe)
    _check_idle(recipe)
    _check_entries(recipe)
    _check_returns(recipe)
    for reason, values in CONFLICTS.items():
        check_conflict(recipe, reason, values)
    check_plugins(recipe)
    for reason, values in UNUSED.items():
        check_unused(recipe, reason, values)
    _check_units(recipe)
    _check_clients(recipe)
    _check_options(recipe)
    _check_text(recipe)
    _check_metric(recipe)
    if recipe.model.layers:
        _check_layers(recipe)


def _check_levels(levels: Levels) -> None:
    """Check that each level of the mix has a width, at most that of the global model."""
    for name in levels.names:
        if name not in levels.widths:
            text = f"levels.widths has no level {name!r}{did_you_mean(name, levels.widths)}"
            raise InvalidValue(("levels", "mix"), text)
    widest = levels.widths[levels.global_level]
    for name in levels.names:
        if levels.widths[name] > widest:
            raise InvalidValue(
                ("levels", "mix"),
                f"level {name!r} (width {levels.widths[name]:g}) is wider than the first, "
                f"{levels.global_level!r} (width {widest:g}), which is the global model's; "
                "list the widest level first",
            )


def _check_by_level(recipe):
    """Check that mappings by level have only known levels, and those that need it every level of the mix."""
    levels, availability, epochs = recipe.levels, recipe.availability, recipe.client.epochs
    for path, values, noun in (
        (("levels", "depths"), levels.depths, None),
        (("levels", "members"), levels.members or None, "number of networks"),
        (("levels", "budgets"), levels.budgets, None),
        (("levels", "entries"), levels.entries, None),
        (("availability", "seconds_per_step"), availability.seconds_per_step or None, "seconds"),
        (("client", "epochs"), epochs if isinstance(epochs, dict) else None, "epochs"),
    ):
        for name in values or ():
            if name not in levels.widths:
                text = f"levels.widths has no level {name!r}{did_you_mean(name, levels.widths)}"
                raise InvalidValue((*path, name), text, True)
        for name in levels.names if values is not None and noun else ():
            if name not in values:
                text = f"level {name!r} is missing; set the {noun} of every level of the mix"
                raise InvalidValue(path, f"{text}. Received: {format_value(values)}")


def _check_names(recipe):
    """Check that the names in lists of units, layers and levels exist."""
    layers = [spec.name for spec in recipe.model.layers]
    units = list(dict.fromkeys(spec.unit for spec in recipe.model.layers))
    for path, names, known, noun in (
        (("model", "reinitialize"), recipe.model.reinitialize, layers, "unknown layer"),
        (("round", "personal"), recipe.round.personal, ["all", *units], "unknown unit"),
        (("model", "frozen"), recipe.model.frozen, units, "unknown unit"),
        (("evaluate", "fine_tune", "units"), recipe.evaluate.fine_tune.units, ["all", *units], "unknown unit"),
        (("levels", "idle"), recipe.levels.idle, recipe.levels.names, "the mix has no level"),
    ):
        for index, name in enumerate(names):
            # A layer of a block has a name such as `1_0_block/conv`.
            if (name.split("/")[0] if known is layers else name) not in known:
                raise InvalidValue((*path, index), f"{noun} {name!r}{did_you_mean(name, known)}")
    if not recipe.evaluate.fine_tune.units:
        raise InvalidValue(("evaluate", "fine_tune", "units"), "no unit is selected; list units, or all. Received: []")


def _check_depths(recipe):
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


def _check_members(recipe):
    levels = recipe.levels
    members, top = levels.members, levels.global_level
    if not members:
        return
    for name in levels.names:
        if members[name] > members[top]:
            raise InvalidValue(
                ("levels", "members", name),
                f"more networks than the first level of the mix, {top!r}, which has all of them; "
                f"must be at most {members[top]}. Received: {members[name]}",
            )
        if levels.widths[name] != levels.widths[top]:
            raise InvalidValue(
                ("levels", "widths"),
                "all levels of the mix must have the same width with levels.members: that of the networks of the "
                f"ensemble. Received: {format_value(levels.widths)}",
            )
    if levels.members_fan_in == "wide" and levels.widths[top] == 1:
        text = "has no effect because the networks have width 1; reduce levels.widths or remove this key"
        raise InvalidValue(("levels", "members_fan_in"), f"{text}. Received: 'wide'")
    if recipe.evaluate.members == "best" and len({members[name] for name in levels.names}) == 1:
        text = "has no effect because every level predicts with all networks; reduce levels.members of a level"
        raise InvalidValue(("evaluate", "members"), f"{text} or remove this key. Received: 'best'")


def _check_idle(recipe):
    """Check that enough clients train; the number of active clients may have a limit for each level."""
    levels, clients = recipe.levels, recipe.partition.options.get("clients")
    if set(levels.names) <= set(levels.idle):
        raise InvalidValue(
            ("levels", "idle"),
            f"all levels of the mix are idle; leave at least one out. Received: {format_value(levels.idle)}",
        )
    if not levels.idle or clients is None or levels.assignment == "dynamic":
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


def _check_entries(recipe):
    levels = recipe.levels
    if levels.entries_of(levels.global_level) != 1:
        raise InvalidValue(
            ("levels", "entries", levels.global_level),
            "must be 1 for the first level of the mix, which is that of the global model. "
            f"Received: {levels.entries[levels.global_level]:g}",
        )


def _check_returns(recipe):
    """Reject a dropout with which practically no client ever returns."""
    dropout, chances = recipe.availability.dropout, recipe.round.clients * recipe.rounds
    returns = (1 - dropout) * chances
    if returns < FEWEST_RETURNS:
        raise InvalidValue(
            ("availability", "dropout"),
            f"only {returns:.1g} of {chances} clients return on average in the whole run; must be at most "
            f"{1 - FEWEST_RETURNS / chances:.9g}. Received: {dropout!r}",
        )


def _check_units(recipe):
    """Reject frozen units that would be trained or personal, and scales of adapters that a layer lacks."""
    frozen = recipe.model.frozen
    for index, unit in enumerate(recipe.round.personal):
        if unit in frozen:
            text = "has no effect because model.frozen keeps it constant on all clients; unfreeze the unit"
            raise InvalidValue(("round", "personal", index), f"{text} or remove this key. Received: {unit!r}")
    for spec in recipe.model.layers:
        has_adapter = spec.args.get("lora_rank") is not None
        if has_adapter and spec.unit in frozen:
            text = "a frozen unit cannot have a trained adapter; unfreeze the unit or remove its lora_rank"
            raise InvalidValue(("model", "frozen", frozen.index(spec.unit)), f"{text}. Received: {spec.unit}")
        if not has_adapter and "lora_scale" in spec.args:
            text = "has no effect because the layer has no adapter; set lora_rank or remove this key"
            path, value = (*spec.path, "lora_scale"), spec.args["lora_scale"]
            raise InvalidValue(path, f"{text}. Received: {format_value(value)}")


def _check_clients(recipe):
    clients = recipe.partition.options.get("clients")
    if clients is None:
        return
    if recipe.round.clients > clients:
        raise InvalidValue(
            ("round", "clients"),
            f"more active clients than registered ones; must be at most {clients} "
            f"(partition.clients). Received: {recipe.round.clients}",
        )
    total = sum(recipe.levels.mix.values())
    if recipe.levels.assignment == "fixed":
        if any(not isinstance(share, int) for share in recipe.levels.mix.values()):
            raise InvalidValue(
                ("levels", "mix"),
                f"shares must be whole numbers with `assignment: fixed`. Received: {format_value(recipe.levels.mix)}",
            )
        if total > clients:
            raise InvalidValue(
                ("levels", "mix"),
                f"the shares add up to {total}, more than the {clients} clients (assignment: fixed); "
                "use smaller shares",
            )


def _check_options(recipe):
    """Check lists in the options of plug-ins: one number for each channel, and strictly increasing numbers."""
    options = recipe.input.options
    per_channel = registry.constant("inputs", recipe.input.name, "PER_CHANNEL") or ()
    longest = {}
    for name in per_channel:
        if not options[name]:
            raise InvalidValue(("input", name), "must have one number for each channel. Received: []")
        for other, length in longest.items():
            if len(options[name]) not in (1, length):
                text = f"must have as many numbers as {other} ({length})"
                raise InvalidValue(("input", name), f"{text}. Received: {format_value(options[name])}")
        if len(options[name]) > 1:
            longest[name] = len(options[name])
    for name in registry.constant("schedules", recipe.schedule.name, "INCREASING") or ():
        numbers = recipe.schedule.options[name]
        for index, (first, second) in enumerate(zip(numbers, numbers[1:]), 1):
            if second <= first:
                text = f"must be strictly increasing. Received: {format_value(numbers)}"
                raise InvalidValue(("schedule", name, index), text)


def _check_text(recipe):
    rows, clients = recipe.data.loader.options.get("rows"), recipe.partition.options.get("clients")
    if registry.constant("inputs", recipe.input.name, "TARGETS") != "positions":
        return
    if rows is not None and clients is not None and clients > rows:
        raise InvalidValue(
            ("partition", "clients"),
            f"more clients than rows of text; must be at most {rows} (data.rows). Received: {clients}",
        )
    segment = recipe.input.options.get("segment", 0)
    for spec in recipe.model.layers:
        positions = spec.args.get("positions")
        if isinstance(positions, int) and positions < segment:
            raise InvalidValue(
                (*spec.path, "positions"),
                f"fewer positions than tokens of a segment; must be at least {segment} "
                f"(input.segment). Received: {positions}",
            )


def _check_metric(recipe):
    targets = registry.constant("inputs", recipe.input.name, "TARGETS")
    measured = metrics.selection_metrics(targets) if targets else ()
    if measured and recipe.evaluate.best not in (None, *measured):
        raise InvalidValue(
            ("evaluate", "best"),
            f"is not measured with the input {recipe.input.name}; must be one of "
            f"{', '.join(measured)}. Received: {recipe.evaluate.best}",
        )


def _check_layers(recipe):
    if not any(isinstance(value, Classes) for spec in recipe.model.layers for value in spec.args.values()):
        raise InvalidValue(
            ("model", "layers"), "no layer is `!classes` wide; the last one must be, such as `Dense: {units: !classes}`"
        )
    check_shapes(recipe)
