"""Every metric of a run, stated once: what it means, which direction is better, and where it is shown."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One entry of the rows of `metrics.jsonl`.

    Attributes:
        meaning: One line for a person.
        better: "higher" or "lower"; None where neither is better.
        inputs: Kinds of input with which an evaluation measures it; none: every training round gives it.
        selects: Whether `evaluate.best` may name it.
        shown: Whether the lines for a person hold it under its name.
        unit: Of its values, as an axis of a figure names it; "" where they have none.
    """

    meaning: str
    better: str | None = None
    inputs: tuple[str, ...] = ()
    selects: bool = False
    shown: bool = False
    unit: str = ""


LABELLED, TEXT = ("images", "table", "sequences"), ("masked_text", "next_word")
ANY = (*LABELLED, *TEXT)
# Text has no test examples of single clients, and its loss covers all positions, so accuracy would say little.
# A name that ends with LEVEL stands for one metric of each level.
METRICS = {
    "round": Metric(meaning="finished rounds"),
    "loss": Metric(meaning="local training loss, mean over the clients that finished", better="lower", shown=True),
    "gradient_norm": Metric(meaning="norm of the local gradients before clipping, mean over the same clients"),
    "non_finite": Metric(
        meaning="clients left out because their result was not finite", better="lower", unit="clients"
    ),
    "levels": Metric(meaning="active clients of each level"),
    "learning_rate": Metric(meaning="local learning rate of the round"),
    "bytes_down": Metric(meaning="bytes of weights that the active clients received", better="lower", unit="bytes"),
    "bytes_up": Metric(meaning="bytes of weights that the active clients sent", better="lower", unit="bytes"),
    "bytes": Metric(meaning="bytes of weights in both directions since the run began", better="lower", unit="bytes"),
    "train_flops": Metric(
        meaning="operations of the local training that reached the server", better="lower", unit="FLOP"
    ),
    "dropped": Metric(meaning="active clients that dropped out", better="lower", shown=True, unit="clients"),
    "refused": Metric(
        meaning="devices whose answer was not what it must be: wrong names, shapes or sizes; `flower` names each",
        better="lower",
        shown=True,
        unit="clients",
    ),
    "late": Metric(
        meaning="active clients that were not done at the deadline", better="lower", shown=True, unit="clients"
    ),
    "partial": Metric(meaning="late clients whose finished steps were merged", shown=True, unit="clients"),
    "simulated_seconds": Metric(meaning="simulated seconds of the round", better="lower", unit="s"),
    "simulated_client_seconds": Metric(
        meaning="simulated seconds of work, mean over the clients that returned", better="lower", unit="s"
    ),
    "global_loss": Metric(
        meaning="loss of the global model on the test set", better="lower", inputs=ANY, selects=True, shown=True
    ),
    "global_accuracy": Metric(
        meaning="percent of the test set that the global model gets right",
        better="higher",
        inputs=LABELLED,
        selects=True,
        shown=True,
        unit="%",
    ),
    "global_perplexity": Metric(
        meaning="mean over the test batches of exp(loss); all positions count, of masked words hidden or not",
        better="lower",
        inputs=TEXT,
        selects=True,
        shown=True,
    ),
    "validation_loss": Metric(
        meaning="loss of the global model on the examples that clients hold out",
        better="lower",
        inputs=ANY,
        selects=True,
        shown=True,
    ),
    "validation_accuracy": Metric(
        meaning="percent of the held-out examples that the global model gets right",
        better="higher",
        inputs=LABELLED,
        selects=True,
        shown=True,
        unit="%",
    ),
    "validation_perplexity": Metric(
        meaning="mean over the batches of held-out rows of exp(loss)",
        better="lower",
        inputs=TEXT,
        selects=True,
        shown=True,
    ),
    "local_loss": Metric(
        meaning="loss on the test examples of all clients, each with the labels that its client has",
        better="lower",
        inputs=LABELLED,
        selects=True,
        shown=True,
    ),
    "local_accuracy": Metric(
        meaning="percent right of the test examples of all clients, each with the labels that its client has",
        better="higher",
        inputs=LABELLED,
        selects=True,
        shown=True,
        unit="%",
    ),
    "local_mean": Metric(
        meaning="accuracy of a client in percent, mean over clients",
        better="higher",
        inputs=LABELLED,
        selects=True,
        unit="%",
    ),
    "local_worst_decile": Metric(
        meaning="mean accuracy of the worst tenth of the clients",
        better="higher",
        inputs=LABELLED,
        selects=True,
        shown=True,
        unit="%",
    ),
    "local_std": Metric(
        meaning="standard deviation of the accuracy over clients", better="lower", inputs=LABELLED, unit="%"
    ),
    "local_std_noise": Metric(
        meaning="what `local_std` would be if all clients were equally good", inputs=LABELLED, unit="%"
    ),
    "tuned_loss": Metric(
        meaning="`local_loss` of every client's own model after fine-tuning", better="lower", inputs=LABELLED
    ),
    "tuned_accuracy": Metric(
        meaning="`local_accuracy` of every client's own model after fine-tuning",
        better="higher",
        inputs=LABELLED,
        shown=True,
        unit="%",
    ),
    "tuned_mean": Metric(
        meaning="`local_mean` of every client's own model after fine-tuning", better="higher", inputs=LABELLED, unit="%"
    ),
    "tuned_worst_decile": Metric(
        meaning="`local_worst_decile` of every client's own model after fine-tuning",
        better="higher",
        inputs=LABELLED,
        shown=True,
        unit="%",
    ),
    "tuned_std": Metric(
        meaning="`local_std` of every client's own model after fine-tuning", better="lower", inputs=LABELLED, unit="%"
    ),
    "clients_accuracy_LEVEL": Metric(
        meaning="`local_mean` of those clients alone that have the level for the whole run; says how well they are "
        "served, not how good the level's own model is",
        better="higher",
        inputs=LABELLED,
        unit="%",
    ),
    "level_loss_LEVEL": Metric(
        meaning="loss on the test set of the level's own model, cut from the global one", better="lower", inputs=ANY
    ),
    "level_accuracy_LEVEL": Metric(
        meaning="percent of the test set that the level's own model, cut from the global one, gets right",
        better="higher",
        inputs=LABELLED,
        shown=True,
        unit="%",
    ),
    "level_perplexity_LEVEL": Metric(
        meaning="`global_perplexity` of the level's own model, cut from the global one",
        better="lower",
        inputs=TEXT,
        shown=True,
    ),
}
# Names, or how they begin, of the metrics of earlier versions -> what they are called now.
FORMER = {"flops": "train_flops", "lost": "non_finite", "local_accuracy_": "clients_accuracy_"}


def renamed(row: dict) -> dict:
    """A row of any version with the present names."""
    return {_present(name): value for name, value in row.items()}


def _present(name):
    for former, now in FORMER.items():
        if name == former or former.endswith("_") and name.startswith(former):
            return now + name.removeprefix(former)
    return name


def find(name: str) -> Metric | None:
    """The `Metric` of a name in a row; None where the table has none."""
    for known, metric in METRICS.items():
        if name == known or known.endswith("LEVEL") and name.startswith(known.removesuffix("LEVEL")):
            return metric
    return None


def selecting(kind: str | None = None) -> tuple[str, ...]:
    """Names of the metrics that may choose the best round: with one kind of input, or with any."""
    found = (name for name, metric in METRICS.items() if metric.selects and kind in (None, *metric.inputs))
    return tuple(sorted(found))


def default_metric(kind: str, validated: bool) -> str:
    """The metric that chooses the best round where a recipe names none: that of held-out examples where there are any.

    Args:
        kind: Of the data, such as "images" or "text".
        validated: Whether clients hold examples out.
    """
    return f"{'validation' if validated else 'global'}_{'perplexity' if kind == 'text' else 'accuracy'}"


def is_better(name: str, value: float | None, best: float | None) -> bool:
    """Whether a value of a metric beats the best one so far; None stands for one that is not finite or not there."""
    if value is None or best is None:
        return value is not None
    return value < best if METRICS[name].better == "lower" else value > best


def improves(name: str, row: dict, best: dict) -> bool:
    """Whether an evaluation beats the best one so far; of two with the same value, that with the lower loss is better.

    Args:
        name: The metric that chooses.
        row: Metrics of the evaluation.
        best: Those of the best one; nothing before the first.
    """
    value, former = row.get(name), best.get(name)
    if value is None or value != former:
        return is_better(name, value, former)
    loss = f"{name.partition('_')[0]}_loss"
    return is_better(loss, row.get(loss), best.get(loss))


def shown(row: dict) -> dict:
    """What a line for a person holds of a row."""
    return {name: value for name, value in row.items() if (metric := find(name)) and metric.shown}
