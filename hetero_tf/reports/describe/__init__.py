"""Report of `describe`: costs of a recipe at every level, split of its data, and units that each level trains."""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetero_tf.base.console import format_table
from hetero_tf.base.formatting import MIB, escape_line, format_bytes, format_count, format_memory
from hetero_tf.base.typed_json import finite
from hetero_tf.models.costs.level_costs import LevelCost, costs_to_json
from hetero_tf.models.variables import shared_path
from hetero_tf.planning.selection import reads_state
from hetero_tf.reports.describe import fleet, loads
from hetero_tf.reports.describe.fleet import fleet_report
from hetero_tf.reports.describe.loads import has_unequal_loads, level_loads
from hetero_tf.run import notes
from hetero_tf.run.learning_process import LearningProcess

# Noun of the outputs by the form of the targets; "classes" for others.
OUTPUTS = {"positions": "words", "numbers": "targets", "several_targets": "targets", "label_set": "labels"}


@dataclass(frozen=True)
class Description:
    """Costs of a recipe.

    Attributes:
        levels: Costs of the models of all levels.
        mix: `{level: share of the clients}`; the sum is 1, and the first level is that of the global model.
        labels: int [clients], number of labels of each client.
        about: The other entries of `to_json`; those that need data may be missing.
    """

    levels: dict[str, LevelCost]
    mix: dict
    labels: np.ndarray
    about: dict[str, Any]


def describe(process: LearningProcess, replicas: int = 1) -> Description:
    """Describe the costs of a learning process and the split of its data."""
    if process.recipe.model.initial_weights is not None:
        process.first_weights()
    recipe, dataset, partition = process.recipe, process.dataset, process.partition
    levels, unequal = process.costs_of(recipe.levels.widths), None
    if has_unequal_loads(process.family):
        examples_per_client = float(partition.train.sizes.mean()) * len(process.batching.starts)
        unequal = level_loads(process.all_label_costs, levels, examples_per_client)
    # Without training there is no state for a selection to read.
    cohort = range(recipe.round.clients) if reads_state(recipe) else None
    shares = process.replica_shares(process.plan(0, cohort), replicas) if replicas > 1 else ()
    about = {
        "recipe": recipe.name,
        "example": tuple(process.example_shape),
        "classes": dataset.classes,
        "targets": dataset.targets,
        "split": partition.summary(dataset.strata[0]),
        "data": dataset.source,
        "stand_in_for": dataset.stand_in_for,
        "engine": process.engine_report(),
        "dealt": [{"clients": clients, "share": share} for clients, share in shares],
        "understood": list(notes.data_description(process)),
        "warnings": list(notes.warnings(process)),
        "loads": unequal,
        "fleet": None if recipe.fleet is None else fleet_report(process),
        "personal": process.state_layout.personal,
        "privacy": None if process.privacy is None else process.privacy.describe(recipe.rounds),
    }
    return Description(levels, recipe.levels.divided(1), partition.label_mask.sum(axis=1), about)


def to_json(description: Description) -> dict:
    """Return a plain dict, ready for JSON.

    Returns:
        {"recipe", "example", "classes" (number of outputs: classes, labels, targets, or words of the vocabulary),
        "targets" (their form, see `data.targets`), "levels": {level: {"width", "parameters", "paper_flops",
        "mebibytes", "multiply_adds", "bytes_down", "bytes_up", "training_bytes", "memory": {"weights", "gradients",
        "optimizer", "activations"}, "inference": {"whole", "by_unit"}}}, "mix": {"shares", means of the levels by
        share, "ratio"}, "split", "data", "stand_in_for", "engine", "understood" (lines on how the data were read),
        "warnings", "loads", "fleet", "personal" (paths of the values that stay on their clients), "dealt": [{"clients",
        "share"}] (of each process or device in the first round), "privacy" (a forecast after all rounds, or None)};
        memory: bytes with the sum training_bytes; inference: bytes; ratio: mean parameters relative to the global
        model; loads (None if the levels differ in their widths alone), fleet: see `level_loads` and `fleet_report`.
    """
    return finite({**description.about, **costs_to_json(description.levels, description.mix)})


def to_text(description: Description, complete: bool = False) -> str:
    """Return the costs of the levels and forecasts on one screen.

    Args:
        complete: Also the memory of each level, all loads, the split of the data and the shapes of all variables.
    """
    about = description.about
    parts = [_heading(about), _levels(description)]
    parts += [_notes(description), _memory(description)] if complete else []
    parts += [loads.to_text(about["loads"], complete)] if about.get("loads") else []
    parts += [fleet.to_text(about["fleet"], complete)] if about.get("fleet") else []
    if complete:
        return "\n\n".join([*parts, *([_split(about["split"])] if about.get("split") else []), _variables(description)])
    return "\n\n".join([*parts, "--all adds memory, the split, all variables and the meaning of the columns"])


def _heading(about):
    shape = " x ".join(str(size) for size in about["example"])
    outputs = OUTPUTS.get(about.get("targets", ""), "classes")
    lines = [f"{about['recipe']}: inputs {shape}, {about['classes']:,} {outputs}"]
    lines += [f"data: {about['data']}"] if about.get("data") else []
    lines += about.get("understood", ())
    if split := about.get("split"):
        counts = ", ".join(
            _count(split[key], key.split("_")[-1]) for key in ("train_examples", "labels") if key in split
        )
        lines.append(f"split: {split['clients']:,} clients with {counts} each")
    if about.get("stand_in_for"):
        lines.append(f"*** NOT THE REAL DATA: a stand-in for {about['stand_in_for']} ***")
    engine = [notes.format_engine(about["engine"])] if about.get("engine") else []
    parts = [f"{each['clients']} clients, {100 * each['share']:.0f} % of the work" for each in about.get("dealt", ())]
    engine += [about["privacy"]] if about.get("privacy") else []
    more = [f"replicas: {'; '.join(parts)} (first round)"] if parts else []
    more += [f"note: {sentence}" for sentence in about.get("warnings", ())]
    return "\n".join([*map(escape_line, lines), *engine, *map(escape_line, more)])


def _count(values, unit):
    low, high = values["min"], values["max"]
    return f"{low:,} {unit}" if low == high else f"{low:,} to {high:,} {unit}"


def _levels(description):
    """Return one row for each level, and the mean of the mix as last row."""
    rows = [("level", "width", "clients", "params", "size", "FLOPs", "MACs", "down", "up")]
    for level, cost in description.levels.items():
        rows.append(
            (level, f"{cost.width:g}", _clients(description, description.mix.get(level)), *_figures(vars(cost)))
        )
    mix = costs_to_json(description.levels, description.mix)["mix"]
    rows.append(("mix", f"{mix['ratio']:.2f}", _clients(description, 1), *_figures(mix)))
    return format_table(rows)


def _clients(description, share):
    return "-" if share is None else f"{share * len(description.labels):,.4g} ({100 * share:.0f} %)"


def _figures(values):
    parameters, *operations = (format_count(values[name]) for name in ("parameters", "paper_flops", "multiply_adds"))
    size = format_bytes(values["mebibytes"] * MIB)
    return parameters, size, *operations, *(format_bytes(values[name]) for name in ("bytes_down", "bytes_up"))


def _notes(description):
    labels, classes, spread = description.labels, description.about["classes"], ""
    if labels.min() != labels.max():
        spread = f",\n  mean over clients with {labels.min():,} to {labels.max():,} of {classes:,} labels"
    return (
        "mix: means over the clients; width: mean size relative to the global model\n"
        "FLOPs, MACs: forward pass of one example; FLOPs as in the HeteroFL paper\n"
        f"down, up: weights that a client receives and sends in a round{spread}\n"
        "below: memory of training a batch, and of the inference of one example with all\n"
        "  weights of a network or those of one unit at a time"
    )


def _memory(description):
    """Return one row for each level: training memory by kind, and inference memory."""
    heads = ("weights", "gradients", "optimizer", "activations", "training", "predict", "by unit")
    rows = [("level", *heads)]
    for level, cost in description.levels.items():
        kinds = (*vars(cost.memory).values(), cost.memory.total, *vars(cost.inference).values())
        rows.append((level, *map(format_memory, kinds)))
    return format_table(rows)


def _split(summary):
    rows: list[tuple[str, ...]] = [(f"split over {summary['clients']:,} clients", "least", "mean", "std", "most")]
    for name in filter(summary.__contains__, ("train_examples", "held_out_examples", "test_examples", "labels")):
        cells = {"min": ",", "mean": ",.1f", "std": ",.1f", "max": ","}
        rows.append((name.replace("_", " "), *(format(summary[name][key], spec) for key, spec in cells.items())))
    distance = summary["label_distance"]
    rows.append(("label distance", *(f"{distance[name]:.3f}" for name in ("min", "mean", "std", "max"))))
    return format_table(rows)


def _variables(description):
    """Return one row for each variable, one column for each level."""
    levels = description.levels.values()
    kinds = dict.fromkeys(description.about.get("personal", ()), " (personal)")
    kinds |= {shared_path(path): " (by level)" for cost in levels for path in cost.shapes if path != shared_path(path)}
    shapes = [{shared_path(path): "x".join(map(str, shape)) for path, shape in cost.shapes.items()} for cost in levels]
    paths = dict.fromkeys(itertools.chain(*shapes))
    rows = [(path + kinds.get(path, ""), *(each.get(path, "-") for each in shapes)) for path in paths]
    return format_table([("variable", *description.levels), *rows])
