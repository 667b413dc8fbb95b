"""Table of all metrics of a run: meaning, better direction, unit, and visibility."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass

from hetero_tf.base import registry


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One entry of the rows of `metrics.jsonl`.

    Attributes:
        meaning: One-line description.
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


LABEL, POSITIONS = ("label",), ("positions",)
OTHERS = ("numbers", "label_set", "label_map")
EXAMPLES = (*LABEL, *OTHERS)
ANY = (*EXAMPLES, *POSITIONS)
# Values of the plug-ins of kind `metrics` in a row, by the keys of their names.
_MODELS = {
    "global_{}": "{} of the global model on the test set",
    "validation_{}": "{} of the global model on the examples that clients hold out",
    "level_{}_LEVEL": "{} of the level's model, cut from the global model, on the test set",
    "local_{}_worst_decile": "mean over the worst tenth of the clients of: {}",
    "local_{}_std": "standard deviation over the clients of: {}",
}
# Metrics that are not plug-ins. Text data have no test examples per client, and the loss covers all positions, so
# accuracy is not reported. A name that ends in LEVEL is one metric for each level.
_FIXED = {
    "round": Metric(meaning="finished rounds"),
    "loss": Metric(meaning="local training loss, mean over the clients that finished", better="lower", shown=True),
    "gradient_norm": Metric(meaning="norm of the local gradients before clipping, mean over the same clients"),
    "non_finite": Metric(
        meaning="clients excluded because their weights, loss or gradient norm were not finite",
        better="lower",
        unit="clients",
    ),
    "levels": Metric(meaning="active clients of each level"),
    "learning_rate": Metric(meaning="local learning rate of the round"),
    "bytes_down": Metric(meaning="bytes of weights that the active clients received", better="lower", unit="bytes"),
    "bytes_up": Metric(meaning="bytes of weights that the active clients sent", better="lower", unit="bytes"),
    "bytes": Metric(
        meaning="bytes of weights in both directions since the start of the run", better="lower", unit="bytes"
    ),
    "train_flops": Metric(
        meaning="operations of the local training that reached the server", better="lower", unit="FLOP"
    ),
    "dropped": Metric(meaning="active clients that dropped out", better="lower", shown=True, unit="clients"),
    "refused": Metric(
        meaning="devices whose response was invalid: wrong names, shapes or sizes; `flower` names each",
        better="lower",
        shown=True,
        unit="clients",
    ),
    "late": Metric(
        meaning="active clients that returned after the deadline, or after the round had enough results",
        better="lower",
        shown=True,
        unit="clients",
    ),
    "partial": Metric(meaning="late clients whose finished steps were merged", shown=True, unit="clients"),
    "stale": Metric(
        meaning="results of the round that were too old to count", better="lower", shown=True, unit="clients"
    ),
    "staleness": Metric(meaning="versions that ended while a client ran, mean over the merged results", better="lower"),
    "round_seconds": Metric(
        meaning="device time of the round: simulated by the fleet, or measured with real devices",
        better="lower",
        unit="s",
    ),
    "device_seconds": Metric(meaning="device time since the start of the run", better="lower", unit="s"),
    "client_seconds": Metric(
        meaning="device time of transfers and training, mean over the clients that returned", better="lower", unit="s"
    ),
    "round_energy": Metric(meaning="energy of all active clients in the round", better="lower", unit="J"),
    "energy": Metric(meaning="energy of all active clients since the start of the run", better="lower", unit="J"),
    "global_loss": Metric(
        meaning="loss of the global model on the test set", better="lower", targets=ANY, selects=True, shown=True
    ),
    "global_perplexity": Metric(
        meaning="mean over the test batches of exp(loss); all positions count, of masked words hidden or not",
        better="lower",
        targets=POSITIONS,
        selects=True,
        shown=True,
    ),
    "validation_loss": Metric(
        meaning="loss of the global model on the examples that clients hold out",
        better="lower",
        targets=ANY,
        selects=True,
        shown=True,
    ),
    "validation_local_accuracy": Metric(
        meaning="accuracy of the clients' personal models on the examples that they hold out, under their labels",
        better="higher",
        targets=LABEL,
        selects=True,
        unit="%",
    ),
    "validation_local_loss": Metric(
        meaning="loss of the clients' personal models on the examples that they hold out",
        better="lower",
        targets=EXAMPLES,
        selects=True,
    ),
    "validation_perplexity": Metric(
        meaning="mean over the batches of held-out rows of exp(loss)",
        better="lower",
        targets=POSITIONS,
        selects=True,
        shown=True,
    ),
    "local_loss": Metric(
        meaning="loss on the test examples of all clients, over the labels that the client has",
        better="lower",
        targets=EXAMPLES,
        selects=True,
        shown=True,
    ),
    "local_accuracy": Metric(
        meaning="accuracy on the test examples of all clients in percent, over the labels that the client has",
        better="higher",
        targets=LABEL,
        selects=True,
        shown=True,
        unit="%",
    ),
    "local_mean": Metric(
        meaning="accuracy of a client in percent, mean over clients",
        better="higher",
        targets=LABEL,
        selects=True,
        unit="%",
    ),
    "local_worst_decile": Metric(
        meaning="mean accuracy of the worst tenth of the clients",
        better="higher",
        targets=LABEL,
        selects=True,
        shown=True,
        unit="%",
    ),
    "local_std": Metric(
        meaning="standard deviation of the accuracy over clients", better="lower", targets=LABEL, unit="%"
    ),
    "local_std_noise": Metric(
        meaning="expected `local_std` if all clients had the same accuracy", targets=LABEL, unit="%"
    ),
    "local_loss_worst_decile": Metric(
        meaning="mean loss of the tenth of the clients with the highest loss", better="lower", targets=OTHERS
    ),
    "local_loss_std": Metric(
        meaning="standard deviation of the mean loss over clients", better="lower", targets=OTHERS
    ),
    "tuned_loss": Metric(
        meaning="`local_loss` of each client's model after fine-tuning", better="lower", targets=EXAMPLES
    ),
    "tuned_accuracy": Metric(
        meaning="`local_accuracy` of each client's model after fine-tuning",
        better="higher",
        targets=LABEL,
        shown=True,
        unit="%",
    ),
    "tuned_mean": Metric(
        meaning="`local_mean` of each client's model after fine-tuning", better="higher", targets=LABEL, unit="%"
    ),
    "tuned_worst_decile": Metric(
        meaning="`local_worst_decile` of each client's model after fine-tuning",
        better="higher",
        targets=LABEL,
        shown=True,
        unit="%",
    ),
    "tuned_std": Metric(
        meaning="`local_std` of each client's model after fine-tuning", better="lower", targets=LABEL, unit="%"
    ),
    "clients_accuracy_LEVEL": Metric(
        meaning="`local_mean` of the clients that have this level for the whole run; measures these "
        "clients with the global model, not the model of the level",
        better="higher",
        targets=LABEL,
        unit="%",
    ),
    "level_loss_LEVEL": Metric(
        meaning="loss of the level's model, cut from the global model, on the test set", better="lower", targets=ANY
    ),
    "level_perplexity_LEVEL": Metric(
        meaning="`global_perplexity` of the level's model, cut from the global model",
        better="lower",
        targets=POSITIONS,
        shown=True,
    ),
}


def all_metrics() -> dict[str, Metric]:
    """Return all metrics by name; a name that ends in LEVEL is one metric for each level."""
    return dict(_FIXED) | _of_plugins(registry.names("metrics"))


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
        measured: The `metrics` of the recipe.
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


def default_selection_metric(metric: str, validated: bool) -> str:
    """Return the metric that selects the best round by default: on validation examples if there are any.

    Args:
        metric: The first of the `metrics` of the recipe, such as "accuracy".
        validated: Clients hold out validation examples.
    """
    return f"{'validation' if validated else 'global'}_{metric}"


def first_metrics() -> tuple[str, ...]:
    """Return the metrics of which one selects the best round of a run by default, such as "accuracy"."""
    of_tasks = (registry.constant("tasks", name, "METRICS")[0] for name in registry.names("tasks"))
    return tuple(dict.fromkeys((*of_tasks, "perplexity")))


def task_metrics(input: str, task: str) -> tuple[str, ...]:
    """Return the metrics that every evaluation of a task measures, such as ("accuracy",).

    Args:
        input, task: Names of the plug-ins.
    """
    if registry.constant("inputs", input, "TARGETS") == "positions":
        return ("perplexity",)
    return tuple(registry.constant("tasks", task, "METRICS"))


def is_validated(row: Iterable[str]) -> bool:
    """Return True if a row has metrics of validation examples."""
    return any(name.startswith("validation_") for name in row)


def is_better(name: str, value: float | None, best: float | None) -> bool:
    """Return True if a value beats the best one so far; None is a missing or non-finite value."""
    if value is None or best is None:
        return value is not None
    return value < best if all_metrics()[name].better == "lower" else value > best


def is_improvement(name: str, row: dict, best: dict) -> bool:
    """Return True if an evaluation beats the best one so far; the lower loss breaks ties.

    Args:
        name: Selection metric.
        row: Metrics of the evaluation.
        best: Metrics of the best evaluation; empty before the first one.
    """
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
