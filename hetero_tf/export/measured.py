"""What an exported model says of the test set: the files themselves are asked, as a server would ask them."""

from collections.abc import Callable, Iterator

import keras
import numpy as np

from hetero_tf.base.errors import BadInput
from hetero_tf.export.kinds import kind_of
from hetero_tf.process import LearningProcess

# Of logits, as a share of the largest one where that is above 1; the same products in another order differ by less.
TOLERANCE = 1e-4


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


def check_answers(process: LearningProcess, model: keras.Model, ask: Callable, name: str, exact: bool = True) -> float:
    """Compares the logits of an exported model with those of the Keras model that it was made of.

    Args:
        process: What the model is of.
        model: The Keras model.
        ask: As `measure` takes it.
        name: Of what was exported, for the message.
        exact: Whether a large difference is refused; NaN is in any case.

    Returns:
        The largest difference, as a share of the largest logit where that is above 1.

    Raises:
        BadInput: It is too large.
    """
    kind = kind_of(process)
    test = process.dataset.test.x[: kind.COMPARED]
    found, inputs = ask(**kind.request(process, test))["logits"], kind.model_inputs(process, test)
    wanted = np.asarray(model(inputs, training=False))
    gap = float(np.max(np.abs(found - wanted)) / max(1.0, np.max(np.abs(wanted))))
    if not gap <= (TOLERANCE if exact else np.inf):
        raise BadInput(
            f"{name} answers other than the model that it was made of, so it was removed; the largest difference of "
            f"logits must be at most {TOLERANCE:g} of the largest one. Received: {gap:.2g}"
        )
    return gap
