"""Rules between two or more keys of a recipe; those of plug-ins are in their modules, see `plugin_rules`.

`key_rules.json` has the combinations that are invalid or without effect.
"""

import itertools
import json
from pathlib import Path

from hetero_tf.base import metrics, registry
from hetero_tf.base.errors import did_you_mean
from hetero_tf.recipe.geometry import check_shapes
from hetero_tf.recipe.model import KINDS, Classes
from hetero_tf.recipe.nodes import ErrorList, InvalidValue
from hetero_tf.recipe.plugin_rules import Rules, check_conflict, check_plugins, check_unused
from hetero_tf.recipe.schema import Recipe, is_compression, is_window

TABLES = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
# Values that cannot be combined with privacy, and those that its accountants do not know, by the reason.
NOT_PRIVATE: Rules = TABLES["not_private"]
ACCOUNTED: Rules = TABLES["accounted"]
# Invalid combinations, see `methods`; the error is reported at the last key.
CONFLICTS = TABLES["conflicts"] | ACCOUNTED
CONFLICTS |= {reason: {"privacy.clip": True, **values} for reason, values in NOT_PRIVATE.items()}
# Combinations in which the last key has no effect.
UNUSED: Rules = TABLES["unused"]


def check_keys(recipe: Recipe) -> None:
    """Raise `InvalidValue` or `InvalidValues` for the rules that a recipe violates.

    Later rules hold only for recipes without violations of earlier ones: names, then keys, then shapes.
    """
    errors = ErrorList()
    _collect(errors, recipe, _unknown_levels, _unknown_names)
    errors.raise_all()
    _collect(errors, recipe, _larger_levels, _idle, _fleet, _privacy, _updates)
    for check, rules in ((check_conflict, CONFLICTS), (check_unused, UNUSED)):
        for reason, values in rules.items():
            with errors:
                check(recipe, reason, values)
    with errors:
        check_plugins(recipe)
    _collect(errors, recipe, _task, _units, _clients, _options, _text, _metric)
    errors.raise_all()
    if recipe.model.layers:
        if not any(isinstance(value, Classes) for spec in recipe.model.layers for value in spec.args.values()):
            text = "no layer is `!classes` wide; the last one must be, such as `Dense: {units: !classes}`"
            raise InvalidValue(("model", "layers"), text)
        check_shapes(recipe)


def _collect(errors, recipe, *rules):
    """Collect the violations that rules yield: errors, or `(path, text, received value)`."""
    for violation in itertools.chain.from_iterable(rule(recipe) for rule in rules):
        errors.append(violation if isinstance(violation, InvalidValue) else InvalidValue(*violation))


def _unknown_levels(recipe):
    """Mappings by level have only known levels, and some need every level of the mix."""
    levels, epochs = recipe.levels, recipe.client.epochs
    for path, values, noun in (
        (("levels", "mix"), levels.mix, None),
        (("levels", "depths"), levels.depths, None),
        (("levels", "members"), levels.members or None, "number of networks"),
        (("levels", "budgets"), levels.budgets, None),
        (("levels", "entries"), levels.entries, None),
        (("client", "epochs"), epochs if isinstance(epochs, dict) else None, "epochs"),
    ):
        for name in values or ():
            if name not in levels.widths:
                key = path if values is levels.mix else (*path, name)
                text = f"levels.widths has no level {name!r}{did_you_mean(name, levels.widths)}"
                yield InvalidValue(key, text, at_key=key != path)
        for name in levels.names if noun else ():
            if values is not None and name not in values:
                yield path, f"level {name!r} is missing; set the {noun} of every level of the mix", values


def _unknown_names(recipe):
    """Lists of units, layers and levels have only existing names."""
    layers = [spec.name for spec in recipe.model.layers]
    units, tuned = list(dict.fromkeys(spec.unit for spec in recipe.model.layers)), recipe.evaluate.fine_tune.units
    # Personal names of a function are read with its model.
    personal = () if recipe.model.function is not None else recipe.round.personal
    for path, names, known, noun in (
        (("model", "reinitialize"), recipe.model.reinitialize, layers, "unknown layer"),
        (("round", "personal"), personal, ["all", *units, *KINDS], "unknown unit or kind"),
        (("model", "frozen"), recipe.model.frozen, units, "unknown unit"),
        (("evaluate", "fine_tune", "units"), tuned, ["all", *units], "unknown unit"),
        (("levels", "idle"), recipe.levels.idle, recipe.levels.names, "the mix has no level"),
    ):
        for index, name in enumerate(names):
            # A layer of a block has a name such as `1_0_block/conv`.
            is_layer = path[-1] in ("reinitialize", "personal") and name.split("/")[0] in layers
            is_pattern = path[-1] == "personal" and {*"*?["} & {*name}
            if not (name in known or is_layer or is_pattern):
                yield InvalidValue((*path, index), f"{noun} {name!r}{did_you_mean(name, known)}")
    if not tuned:
        yield ("evaluate", "fine_tune", "units"), "no unit is selected; list units, or all", []


def _larger_levels(recipe):
    """The first level of the mix, that of the global model, is the largest; networks of an ensemble have one width."""
    levels, last = recipe.levels, len(recipe.model.exits) + 1
    for name, depth in levels.depths.items():
        if depth > last:
            text = f"must be a whole number from 1 to {last}, the end of the trunk (each `Exit` of model.layers adds 1)"
            yield ("levels", "depths", name), f"unknown exit; {text}", depth
    top = levels.global_level
    for key, noun, sizes in (
        ("mix", "width", levels.widths),
        ("depths", "depth", {name: levels.depths.get(name, last) for name in levels.names}),
        ("members", "networks", levels.members),
    ):
        for name in levels.names if sizes else ():
            if sizes[name] > sizes[top]:
                text = (
                    f"level {name!r} ({noun}: {sizes[name]:g}) exceeds the first of the mix, {top!r} ({noun}: "
                    f"{sizes[top]:g}), which is the global model's; list the largest level first"
                )
                yield ("levels", key), text, getattr(levels, key)
    if levels.members and len({levels.widths[name] for name in levels.names}) > 1:
        text = "all levels of the mix must have the same width with levels.members: that of the ensemble's networks"
        yield ("levels", "widths"), text, levels.widths
    if levels.entries.get(levels.global_level, 1.0) != 1:
        text = "must be 1 for the first level of the mix, which is that of the global model"
        yield ("levels", "entries", levels.global_level), text, levels.entries[levels.global_level]


def _idle(recipe):
    levels, clients = recipe.levels, recipe.partition.options.get("clients")
    if set(levels.names) <= set(levels.idle):
        yield ("levels", "idle"), "all levels of the mix are idle; leave at least one out", levels.idle
        return
    if not levels.idle or clients is None or levels.assignment == "dynamic":
        return
    counts = {name: share * (clients // sum(levels.mix.values())) for name, share in levels.mix.items()}
    # Remaining clients have the last level.
    counts[levels.names[-1]] += clients - sum(counts.values())
    able = sum(count for name, count in counts.items() if name not in levels.idle)
    if recipe.round.clients > able:
        text = f"more active clients than clients that are not idle (levels.idle); must be at most {able}"
        yield ("round", "clients"), text, recipe.round.clients


def _fleet(recipe):
    """Every device has a time for its steps and valid hours; `assign: levels` finds a device for each level."""
    fleet = recipe.fleet
    if fleet is None:
        if recipe.levels.fit == "device":
            yield ("levels", "fit"), "needs the devices of a fleet; set fleet, such as `fleet: phones`", "device"
        return
    if bool(fleet.devices) == bool(fleet.trace):
        yield ("fleet",), "set either devices or trace", [*fleet.devices, *filter(None, [fleet.trace])]
    for name, device in fleet.devices.items():
        path = ("fleet", "devices", name)
        if device.gflops is None and not device.seconds_per_step:
            yield InvalidValue(path, "its local steps need a time; set seconds_per_step, gflops or both", at_key=True)
        for index, hours in enumerate(device.hours):
            if not is_window(hours):
                yield (*path, "hours", index), "must be two different hours from 0 to 24, such as [22, 7]", hours
    missing = [name for name in recipe.levels.names if name not in fleet.devices]
    if fleet.assign == "levels" and missing:
        text = f"needs a device for every level of the mix; fleet.devices has no {', '.join(missing)}"
        yield ("fleet", "assign"), text, "levels"


def _privacy(recipe):
    privacy = recipe.privacy
    if privacy is not None and privacy.noise is None and privacy.epsilon is None:
        yield ("privacy",), "set noise, epsilon or both", {"clip": privacy.clip}


def _updates(recipe):
    """The message to clients has all values; a compression and a mask do not both select those that clients send."""
    sent, received = recipe.client.update, recipe.round.update
    unbiased = [name for name in registry.names("updates") if registry.constant("updates", name, "UNBIASED")]
    if received is not None and received.name not in unbiased:
        text = f"compresses all values without bias; must be one of {', '.join(unbiased)}"
        yield ("round", "update"), text, received.name
    if sent is not None and is_compression(sent) and recipe.round.mask is not None:
        text = "cannot be combined with round.mask, which selects the entries that a client sends; remove one of them"
        yield ("client", "update"), text, sent.name


def _units(recipe):
    """Frozen units are neither personal nor adapted; layers without an adapter have no scale of one."""
    frozen = recipe.model.frozen
    for index, unit in enumerate(recipe.round.personal):
        if unit in frozen:
            text = "has no effect because model.frozen keeps it constant on all clients; unfreeze the unit"
            yield ("round", "personal", index), f"{text} or remove this key", unit
    for spec in recipe.model.layers:
        has_adapter = spec.args.get("lora_rank") is not None
        if has_adapter and spec.unit in frozen:
            text = "a frozen unit cannot have a trained adapter; unfreeze the unit or remove its lora_rank"
            yield ("model", "frozen", frozen.index(spec.unit)), text, spec.unit
        if not has_adapter and "lora_scale" in spec.args:
            text = "has no effect because the layer has no adapter; set lora_rank or remove this key"
            yield (*spec.path, "lora_scale"), text, spec.args["lora_scale"]


def _clients(recipe):
    clients, mix = recipe.partition.options.get("clients"), recipe.levels.mix
    if clients is None:
        return
    if recipe.round.clients > clients:
        text = f"more active clients than registered ones; must be at most {clients} (partition.clients)"
        yield ("round", "clients"), text, recipe.round.clients
    if recipe.levels.assignment == "fixed":
        if any(not isinstance(share, int) for share in mix.values()):
            yield ("levels", "mix"), "shares must be whole numbers with `assignment: fixed`", mix
        if sum(mix.values()) > clients:
            text = f"the shares add up to {sum(mix.values())}, more than the {clients} clients (assignment: fixed)"
            yield ("levels", "mix"), f"{text}; use smaller shares", mix


def _options(recipe):
    """Lists increase strictly; epochs remain for shared values."""
    for name in registry.constant("schedules", recipe.schedule.name, "INCREASING") or ():
        numbers = recipe.schedule.options[name]
        for index, (first, second) in enumerate(itertools.pairwise(numbers), 1):
            if second <= first:
                yield ("schedule", name, index), "must be strictly increasing", numbers
    personalization = recipe.client.personalization
    personal_epochs = personalization.options.get("personal_epochs", 0) if personalization else 0
    least = min(map(recipe.client.epochs_of, recipe.levels.names))
    if personal_epochs >= least:
        text = f"must be less than client.epochs ({least}), whose other epochs train the shared values"
        yield ("client", "personalization", "personal_epochs"), text, personal_epochs


def _text(recipe):
    if registry.constant("inputs", recipe.input.name, "TARGETS") != "positions":
        return
    segment = recipe.input.options.get("segment", 0)
    for spec in recipe.model.layers:
        positions = spec.args.get("positions")
        if isinstance(positions, int) and positions < segment:
            text = f"fewer positions than tokens of a segment; must be at least {segment} (input.segment)"
            yield (*spec.path, "positions"), text, positions


def _metric(recipe):
    targets = recipe.targets
    for index, name in enumerate(recipe.evaluate.metrics):
        known = _with_targets("metrics", targets)
        if name not in known:
            text = f"is not a metric of the task {recipe.task.name}; must be one of {', '.join(known) or '(none)'}"
            yield ("evaluate", "metrics", index), text, name
    measured = metrics.selection_metrics(targets, recipe.metrics)
    more = "" if targets == "positions" else "; evaluate.metrics adds others"
    has_client_models = recipe.round.personal or recipe.twin == "twin"
    if not has_client_models:
        measured = tuple(name for name in measured if not name.startswith("validation_local_"))
    for path, metric in recipe.selected_metrics.items():
        if metric.startswith("validation_local_") and not has_client_models:
            text = "is measured only with models of clients (round.personal or client.personalization)"
            yield path, f"{text}; choose another metric", metric
        elif metric not in measured:
            text = f"is not measured with the input {recipe.input.name}; must be one of {', '.join(measured)}{more}"
            yield path, text, metric


def _task(recipe):
    if recipe.targets == "positions":
        if recipe.task.name != "classification":
            text = f"the input {recipe.input.name} has one word at each position; use classification"
            yield ("task",), text, recipe.task.name
        return
    losses = _with_targets("losses", recipe.loss_targets)
    if recipe.loss.name not in losses:
        text = f"is not a loss of the task {recipe.task.name}; must be one of {', '.join(losses)}"
        yield ("client", "loss"), text, recipe.loss.name
    coupling = recipe.client.coupling.name
    if registry.constant("couplings", coupling, "READS_LOGITS") and recipe.loss_targets not in ("label", "label_map"):
        text = f"compares class probabilities, which the task {recipe.task.name} does not have; use another coupling"
        yield ("client", "coupling"), text, coupling


def _with_targets(kind, targets):
    names = registry.names(kind)
    return [name for name in names if targets in (registry.constant(kind, name, "TARGETS") or ("label",))]
