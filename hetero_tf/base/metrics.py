"""Table of all metrics of a run: meaning, better direction, unit, and visibility."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hetero_tf.base import files, registry


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One entry of the rows of `metrics.jsonl`.

    Attributes:
        better: "higher", "lower", or None.
        targets: Forms of targets for which an evaluation measures it; empty: every training round reports it.
        selects: `evaluate.best` may name it.
        shown: Progress lines print it.
        unit: Unit of its values on a figure axis; "" if they have none.
    """

    meaning: str
    better: str | None = None
    targets: tuple[str, ...] = ()
    selects: bool = False
    shown: bool = False
    unit: str = ""


# Values of the plug-ins of kind `metrics` in a row, by the keys of their names.
_MODELS = {
    "global_{}": "{} of the global model on the test set",
    "validation_{}": "{} of the global model on the examples that clients hold out",
    "level_{}_LEVEL": "{} of the level's model, cut from the global model, on the test set",
    "local_{}_worst_decile": "mean over the worst tenth of the clients of: {}",
    "local_{}_std": "standard deviation over the clients of: {}",
}


def all_metrics() -> dict[str, Metric]:
    """Return all metrics by name; a name that ends in LEVEL is one metric for each level."""
    return _fixed_metrics() | _of_plugins(registry.names("metrics"))


@functools.cache
def _fixed_metrics():
    """Read the metrics that are not plug-ins.

    Text data have no test examples per client, and the loss covers all positions, so accuracy is not reported.
    """
    return files.read_table(Path(__file__).with_suffix(".csv"), Metric)


@functools.lru_cache
def _of_plugins(names):
    metrics = {}
    for template, sentence in _MODELS.items():
        for name in names:
            meaning = registry.meaning("metrics", name)
            of_clients = template.startswith("local")
            targets = registry.constant("metrics", name, "TARGETS")
            metrics[template.format(name)] = Metric(
                meaning=sentence.format(meaning[0].lower() + meaning[1:].removesuffix(".")),
                better="lower" if template.endswith("std") else registry.constant("metrics", name, "BETTER"),
                # The accuracy of clients with labels has its own entries.
                targets=tuple(form for form in targets if not (of_clients and (name, form) == ("accuracy", "label"))),
                selects=not (of_clients or template.endswith("LEVEL")),
                shown=not of_clients,
                unit=registry.constant("metrics", name, "UNIT") or "",
            )
    return metrics


def find_metric(name: str) -> Metric | None:
    """Return the `Metric` of a name in a row, or None."""
    for known, metric in all_metrics().items():
        if name == known or known.endswith("LEVEL") and name.startswith(known.removesuffix("LEVEL")):
            return metric
    return None


def selection_metrics(targets: str, measured: Iterable[str]) -> tuple[str, ...]:
    """Return the sorted metrics that may select the best round.

    Args:
        targets: Form of the targets, see `data.targets`.
    """
    plugins = _of_plugins(registry.names("metrics"))
    names = {template.format(name) for template in _MODELS for name in measured}
    return tuple(
        sorted(
            name
            for name, metric in all_metrics().items()
            if metric.selects and targets in metric.targets and (name not in plugins or name in names)
        )
    )


def default_selection_metric(measured: Iterable[str], validated: bool) -> str:
    """Return the metric that selects the best round by default: on validation examples if there are any.

    Args:
        measured: The `metrics` of the recipe. The first one selects, such as "accuracy"; without any, the loss.
        validated: Clients hold out validation examples.
    """
    return f"{'validation' if validated else 'global'}_{next(iter(measured), 'loss')}"


def first_metrics() -> tuple[str, ...]:
    """Return the metrics of which one selects the best round of a run by default, such as "accuracy"."""
    of_tasks = (name for task in registry.names("tasks") for name in registry.constant("tasks", task, "METRICS")[:1])
    return tuple(dict.fromkeys((*of_tasks, "perplexity")))


def task_metrics(input: str, task: str) -> tuple[str, ...]:
    """Return the metrics that every evaluation of a task measures, such as ("accuracy",)."""
    if registry.constant("inputs", input, "TARGETS") == "positions":
        return ("perplexity",)
    return tuple(registry.constant("tasks", task, "METRICS"))


def is_better(name: str, value: float | None, best: float | None) -> bool:
    """Return True if a value beats the best one so far; None is a missing or non-finite value."""
    if value is None or best is None:
        return value is not None
    return value < best if all_metrics()[name].better == "lower" else value > best


def is_improvement(name: str, row: dict, best: dict) -> bool:
    """Return True if an evaluation beats the best one so far; the lower loss breaks ties."""
    value, best_value = row.get(name), best.get(name)
    if value is None or value != best_value:
        return is_better(name, value, best_value)
    loss = f"{name.partition('_')[0]}_loss"
    return is_better(loss, row.get(loss), best.get(loss))


# Abbreviations in the line of a round.
_SHORT_WORDS = {"global ": "", "validation": "val", "accuracy": "acc", "mean average precision": "mAP"}


def format_short(name: str, value: float | None) -> str:
    """Format a selection metric of fixed width: "acc 95.6 %  " for global_accuracy, "val rmse 1.234  "."""
    metric, label = find_metric(name), "test loss" if name == "global_loss" else name.replace("_", " ")
    for word, short in _SHORT_WORDS.items():
        label = label.replace(word, short)
    is_percent = metric is not None and metric.unit == "%"
    number = "-" if value is None else f"{value:4.1f} %" if is_percent else f"{value:.4g}"
    return f"{label} {number:7}"


def displayed_metrics(row: dict) -> dict:
    """Return the metrics of a row that progress lines print."""
    return {name: value for name, value in row.items() if (metric := find_metric(name)) and metric.shown}
