"""Compares exported models with the trained one, by requests as a server sends them."""

from collections.abc import Callable

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.export.task import ExportTask

# Difference of logits, as a share of the largest one if that is above 1; another order of summation differs by less.
TOLERANCE = 1e-4
# Limits of compared test examples and of their logit values, which take 64 MiB.
MAX_COMPARED, MAX_LOGITS = 10_000, 2**24
# An inexact format may differ by this share of the largest logit, and lose this many percent points of accuracy or
# this share of the perplexity, before an export warns.
MAX_INEXACT_DIFFERENCE, MAX_LOST_ACCURACY, MAX_PERPLEXITY_RISE = 0.1, 1.0, 0.02


def reference_logits(task: ExportTask) -> list[np.ndarray]:
    """Return the logits of the Keras model for the test examples that exports are compared on, in batches.

    Returns:
        Arrays [n, ..., classes] of the whole test set, up to `MAX_COMPARED` examples and `MAX_LOGITS` values.
    """
    test = task.process.dataset.test.x

    def logits(examples):
        return np.asarray(task.model(task.model_inputs(examples), training=False))

    count = min(len(test), MAX_COMPARED, max(MAX_LOGITS // logits(test[:1]).size, 1))
    starts = range(0, count, task.CHECKED_EXAMPLES)
    return [logits(test[start : min(start + task.CHECKED_EXAMPLES, count)]) for start in starts]


def check_outputs(
    task: ExportTask, reference: list[np.ndarray], predict: Callable, signature: str, name: str, exact: bool = True
) -> float:
    """Compare the logits of an exported model with those of the Keras model.

    Args:
        task: Task of the export.
        reference: Logits of the Keras model, see `reference_logits`.
        predict: `(**inputs) -> outputs` of a signature of the exported model.
        signature: Its name.
        name: Name of the exported model, for the message.
        exact: Whether a large difference is an error; NaN always is.

    Returns:
        The largest difference, as a share of the largest logit if that is above 1.

    Raises:
        InputError: The difference is too large.
    """
    test, start, differences = task.process.dataset.test.x, 0, []
    for logits in reference:
        request = task.request(test[start : start + len(logits)], signature)
        differences.append(np.max(np.abs(task.outputs_of(predict(**request)) - logits)))
        start += len(logits)
    # A NaN passes through NumPy's maximum.
    difference = float(np.max(differences) / max(1.0, *(np.max(np.abs(logits)) for logits in reference)))
    if not difference <= (TOLERANCE if exact else np.inf):
        raise InputError(
            f"{name}: outputs differ from those of the trained model, so the export was removed; the difference of "
            f"logits must be at most {TOLERANCE:g} of the largest one. Received: {difference:.2g}"
        )
    return difference


def warning_of(entry: dict, float_metrics: dict) -> str | None:
    """Return the warning about an inexact format; None if it is smaller and about as good as its float version.

    Args:
        entry: Entry of the format in `export.json`; "float_bytes" is the size of the same file in 32-bit floats.
        float_metrics: Metrics of the SavedModel, as `ExportTask.measure` returns them.
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
