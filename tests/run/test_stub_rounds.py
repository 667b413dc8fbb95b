"""The contract of the stub of the tests: rows, states, evaluations and progress have the form of the real rounds."""

import numpy as np
import pytest
import tiny
from stub_rounds import stubbed

from hetero_tf.models.state import flatten_state

FLEET = "fleet={jitter: 0.9, devices: {any: {seconds_per_step: 1, train_watts: 2}}}"
# One layer is left out, since tracing it takes long.
IMAGES = tiny.IMAGES.replace("    - PreActivationBlock: {filters: !w 12, stride: 2}\n", "")
TEXT = tiny.TEXT.replace("    - TransformerBlock: {heads: 2, head_width: !w 4, hidden: !w 12}\n", "")
# Statistics, memories and slots; history; results that arrive late.
CASES = {
    "image": (IMAGES, "round.server=scaffold", "client.correction=scaffold", "optimizer.momentum=0"),
    "text": (TEXT, "round.selection=oort"),
    "asynchronous": (tiny.DENSE, "round.policy=immediate", FLEET),
}


def form(value):
    """The keys, types, dtypes and shapes of a value."""
    if isinstance(value, dict):
        return {name: form(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [form(item) for item in value]
    return type(value), getattr(value, "dtype", None), getattr(value, "shape", None)


def run(process):
    """Two rounds: their plans, and the rows, the state, the evaluation and the sums of the progress."""
    progress, state = [], process.initialize()
    watched, plans, rows = process.with_progress(lambda *values: progress.append(values)), [], []
    for round in range(2):
        plans.append(watched.plan(round, state=state))
        state, (row,) = watched.run(state, plans[-1:])
        rows.append(row)
    return plans, (rows, flatten_state(state), process.evaluate(state)), np.sum(progress, 0).tolist()


@pytest.mark.parametrize("name", CASES)
def test_results_have_the_form_of_the_real_rounds(name, eager):
    base, *overrides = CASES[name]
    process = tiny.process(base, "levels.mix=c", *overrides)
    (plans, real, progress), (others, results, sums) = run(process), run(stubbed(process))
    assert form(results) == form(real) and sums == progress
    # Oort chooses the second cohort by the losses of the first.
    for plan, other in list(zip(plans, others))[: 1 if name == "text" else 2]:
        assert plan.clients.tolist() == other.clients.tolist() and np.array_equal(plan.steps, other.steps)
