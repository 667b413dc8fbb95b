"""What an exported model says of the test set: the files themselves are asked, as a server would ask them."""

from collections.abc import Callable, Iterator

import keras
import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.export.kinds import kind_of
from hetero_tf.process.learning_process import LearningProcess

# Of logits, as a share of the largest one where that is above 1; the same products in another order differ by less.
TOLERANCE = 1e-4
# Test examples that are compared, and numbers of their logits, which take 64 MiB.
MAX_COMPARED, MAX_LOGITS = 10_000, 2**24
# An inexact format may differ by this share of the largest logit, and lose this many percent points of accuracy or
# this share of the perplexity, before an export warns.
MAX_INEXACT_DIFFERENCE, MAX_LOST_ACCURACY, MAX_PERPLEXITY_RISE = 0.1, 1.0, 0.02


def measure(process: LearningProcess, ask: Callable) -> dict[str, float]:
    """Measures an exported model on the whole test set: "loss", and "accuracy" in percent or "perplexity".

    Args:
        process: What the model is of; its recipe says how many examples are a batch.
        ask: `(**inputs) -> outputs` of the signature "serving_default".
    """
    return kind_of(process).measure(process, ask)


def examples(process: LearningProcess, count: int = 200) -> Iterator[dict[str, np.ndarray]]:
    """Yields single training examples as a client of the model sends them: `{input: array}`."""
    kind, x = kind_of(process), process.dataset.train.x[:count]
    yield from (kind.request(process, x[place : place + 1]) for place in range(len(x)))


def reference_logits(process: LearningProcess, model: keras.Model) -> list[np.ndarray]:
    """Return the logits of the Keras model for the test examples that exports are compared on, in batches.

    Args:
        process: What the model is of.
        model: The Keras model.

    Returns:
        Arrays [n, ..., classes]: of the whole test set up to `MAX_COMPARED` examples and `MAX_LOGITS` numbers.
    """
    kind, test = kind_of(process), process.dataset.test.x

    def logits(examples):
        return np.asarray(model(kind.model_inputs(process, examples), training=False))

    count = min(len(test), MAX_COMPARED, max(MAX_LOGITS // logits(test[:1]).size, 1))
    starts = range(0, count, kind.COMPARED)
    return [logits(test[start : min(start + kind.COMPARED, count)]) for start in starts]


def check_answers(
    process: LearningProcess, reference: list[np.ndarray], ask: Callable, name: str, exact: bool = True
) -> float:
    """Compares the logits of an exported model with those of the Keras model that it was made of.

    Args:
        process: What the model is of.
        reference: As `reference_logits` returns it.
        ask: As `measure` takes it.
        name: Of what was exported, for the message.
        exact: Whether a large difference is refused; NaN is in any case.

    Returns:
        The largest difference, as a share of the largest logit where that is above 1.

    Raises:
        InputError: It is too large.
    """
    kind, test, start, differences = kind_of(process), process.dataset.test.x, 0, []
    for logits in reference:
        request = kind.request(process, test[start : start + len(logits)])
        differences.append(np.max(np.abs(ask(**request)["logits"] - logits)))
        start += len(logits)
    # A NaN passes through NumPy's maximum.
    gap = float(np.max(differences) / max(1.0, *(np.max(np.abs(logits)) for logits in reference)))
    if not gap <= (TOLERANCE if exact else np.inf):
        raise InputError(
            f"{name} answers other than the model that it was made of, so it was removed; the largest difference of "
            f"logits must be at most {TOLERANCE:g} of the largest one. Received: {gap:.2g}"
        )
    return gap


def warning_of(entry: dict, float_metrics: dict) -> str | None:
    """Return the warning about an inexact format, None where it is smaller and about as good as its float version.

    Args:
        entry: What `export.json` says of the format; "float_bytes" is the size of the same file in 32-bit floats.
        float_metrics: What was measured on the SavedModel, as `measure` returns it.
    """
    size, float_size, metrics = entry["bytes"], entry["float_bytes"], entry["measured"]
    difference, problems = entry["largest_difference_of_logits"], []
    if size >= float_size:
        problems.append(f"it has {size:,} bytes, the float file {float_size:,}")
    if "accuracy" in metrics and metrics["accuracy"] < float_metrics["accuracy"] - MAX_LOST_ACCURACY:
        problems.append(f"its accuracy is {metrics['accuracy']:.2f} %, in floats {float_metrics['accuracy']:.2f} %")
    if "perplexity" in metrics and metrics["perplexity"] > float_metrics["perplexity"] * (1 + MAX_PERPLEXITY_RISE):
        problems.append(f"its perplexity is {metrics['perplexity']:.4g}, in floats {float_metrics['perplexity']:.4g}")
    if difference > MAX_INEXACT_DIFFERENCE:
        problems.append(
            f"its logits differ by {difference:.2g} of the largest one, more than {MAX_INEXACT_DIFFERENCE:g}"
        )
    return f"{entry['file']}: {'; '.join(problems)}; prefer the format litert" if problems else None
