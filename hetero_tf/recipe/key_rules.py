"""Rules between two or more keys of a recipe."""

from hetero_tf.base import metrics
from hetero_tf.base.errors import did_you_mean
from hetero_tf.recipe.fine_tuning import check_fine_tuning
from hetero_tf.recipe.method_rules import check_methods, check_unused
from hetero_tf.recipe.model import Classes
from hetero_tf.recipe.nodes import InvalidValue, format_value
from hetero_tf.recipe.schema import Recipe
from hetero_tf.recipe.shapes import check_shapes


def check_keys(recipe: Recipe) -> None:
    """Raise `InvalidValue` for the first rule that a recipe violates."""
    _levels(recipe.levels)
    _reinitialize(recipe.model)
    _units(recipe)
    _frozen(recipe)
    check_methods(recipe)
    check_fine_tuning(recipe)
    check_unused(recipe)
    _clients(recipe)
    _input(recipe.input)
    _text(recipe)
    _schedule(recipe.schedule)
    _metric(recipe)
    if recipe.model.layers:
        _layers(recipe)


def _layers(recipe):
    if not any(isinstance(value, Classes) for spec in recipe.model.layers for value in spec.args.values()):
        raise InvalidValue(
            ("model", "layers"), "no layer is `!classes` wide; the last one must be, such as `Dense: {units: !classes}`"
        )
    check_shapes(recipe)


def _levels(levels):
    for name in levels.names:
        if name not in levels.widths:
            raise InvalidValue(
                ("levels", "mix"), f"levels.widths has no level {name!r}{did_you_mean(name, levels.widths)}"
            )
    widest = levels.widths[levels.global_level]
    for name in levels.names:
        if levels.widths[name] > widest:
            raise InvalidValue(
                ("levels", "mix"),
                f"level {name!r} (width {levels.widths[name]:g}) is wider than the first, "
                f"{levels.global_level!r} (width {widest:g}), which is the global model's; "
                "list the widest level first",
            )


def _reinitialize(model):
    layers = [spec.name for spec in model.layers]
    for index, name in enumerate(model.reinitialize):
        if name.split("/")[0] not in layers:
            raise InvalidValue(("model", "reinitialize", index), f"unknown layer {name!r}{did_you_mean(name, layers)}")


def _units(recipe):
    units = list(dict.fromkeys(spec.unit for spec in recipe.model.layers))
    for path, names, known in (
        (("round", "personal"), recipe.round.personal, ["all", *units]),
        (("model", "frozen"), recipe.model.frozen, units),
        (("evaluate", "fine_tune", "units"), recipe.evaluate.fine_tune.units, ["all", *units]),
    ):
        for index, name in enumerate(names):
            if name not in known:
                raise InvalidValue((*path, index), f"unknown unit {name!r}{did_you_mean(name, known)}")


def _frozen(recipe):
    """Reject frozen units that a stage or an adapter would train."""
    frozen, stages = recipe.model.frozen, recipe.client.stages.name
    if frozen and stages == "blockwise":
        raise InvalidValue(
            ("model", "frozen"),
            "cannot be combined with client.stages blockwise, which trains every unit. "
            f"Received: {format_value(frozen)}",
        )
    for spec in recipe.model.layers:
        if spec.unit in frozen and spec.args.get("lora_rank") is not None:
            raise InvalidValue(
                ("model", "frozen", frozen.index(spec.unit)),
                f"a frozen unit cannot have a trained adapter; unfreeze the unit or remove its lora_rank. "
                f"Received: {spec.unit}",
            )


def _clients(recipe):
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


def _input(plugin):
    mean, std = plugin.options.get("mean"), plugin.options.get("std")
    if plugin.name != "images":
        return
    if len(mean) != len(std) and 1 not in (len(mean), len(std)):
        raise InvalidValue(
            ("input", "std"), f"must have as many numbers as mean ({len(mean)}). Received: {format_value(std)}"
        )
    for name, values in (("mean", mean), ("std", std)):
        if not values:
            raise InvalidValue(("input", name), "must have one number for each channel. Received: []")


def _text(recipe):
    rows, clients = recipe.data.loader.options.get("rows"), recipe.partition.options.get("clients")
    if recipe.input.name not in metrics.TEXT:
        return
    if rows is not None and clients is not None and clients > rows:
        raise InvalidValue(
            ("partition", "clients"),
            f"more clients than rows of text; must be at most {rows} (data.rows). Received: {clients}",
        )
    for spec in recipe.model.layers:
        positions, segment = spec.args.get("positions"), recipe.input.options["segment"]
        if isinstance(positions, int) and positions < segment:
            raise InvalidValue(
                (*spec.path, "positions"),
                f"fewer positions than tokens of a segment; must be at least {segment} "
                f"(input.segment). Received: {positions}",
            )


def _schedule(schedule):
    at = schedule.options.get("at") if schedule.name == "steps" else None
    for index, count in enumerate(at or ()):
        if index and count <= at[index - 1]:
            raise InvalidValue(("schedule", "at", index), f"must be strictly increasing. Received: {format_value(at)}")


def _metric(recipe):
    measured = metrics.selection_metrics(recipe.input.name)
    if measured and recipe.evaluate.best not in (None, *measured):
        raise InvalidValue(
            ("evaluate", "best"),
            f"is not measured with the input {recipe.input.name}; must be one of "
            f"{', '.join(measured)}. Received: {recipe.evaluate.best}",
        )
    if recipe.evaluate.members == "best" and measured and "validation_accuracy" not in measured:
        raise InvalidValue(
            ("evaluate", "members"),
            f"must be first with the input {recipe.input.name}, which has no accuracy. Received: best",
        )
