"""Outputs of exported models compared with those of the trained one, with known differences."""

from types import SimpleNamespace

import numpy as np
import pytest

from hetero_tf.base.errors import InputError
from hetero_tf.export import compare

LOGITS = np.asarray([[0.0, 1.0], [2.0, -20.0], [3.0, 4.0]])


def check(difference, exact):
    """Compare outputs whose last logit differs, in batches of two examples and of one."""
    outputs = LOGITS + [[0, 0], [0, 0], [0, difference]]
    dataset = SimpleNamespace(test=SimpleNamespace(x=np.arange(3)))
    task = SimpleNamespace(
        process=SimpleNamespace(dataset=dataset),
        request=lambda examples, signature: {"rows": examples},
        outputs_of=lambda outputs: outputs,
        measure=lambda predict, signature: {"loss": 1.0},
    )
    reference = [LOGITS[:2], LOGITS[2:]]
    entry = compare(task, reference, lambda rows: outputs[rows], "serve", "model.onnx", exact=exact)
    assert entry["measured"] == {"loss": 1.0, "on": "the whole test set, by these files"}
    assert entry["compared_test_examples"] == 3
    return entry["largest_difference_of_logits"]


@pytest.mark.parametrize("exact", [True, False])
def test_a_difference_is_a_share_of_the_largest_logit_and_nan_is_refused(exact):
    assert check(1e-3, exact) == pytest.approx(1e-3 / 20)
    with pytest.raises(InputError, match="^model.onnx: outputs differ from .* Received: nan$"):
        check(np.nan, exact)


def test_only_inexact_formats_may_differ():
    assert check(1.0, exact=False) == pytest.approx(0.05)
    with pytest.raises(InputError, match="must be at most 0.0001 of the largest one. Received: 0.05$"):
        check(1.0, exact=True)
