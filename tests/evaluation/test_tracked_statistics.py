"""Running statistics as values that clients return: moved by steps, merged as means, excluded from memories."""

import functools

import numpy as np
import pytest
import tiny

pytestmark = pytest.mark.usefixtures("eager")

EXIT = "    - Exit: [Norm: {kind: bn}, GlobalAveragePooling2D, Dense: {units: !classes}]\n    - PreAct"
BASE = tiny.IMAGES.replace("sbn", "bn").replace("stride: 2", "stride: 2, norm: bn").replace("    - PreAct", EXIT)
PLAIN = (
    "precision=float64",
    "levels.widths={a: 1, b: 1, c: 1}",
    "levels.depths={a: 2, b: 1, c: 1}",
    "client={epochs: 1, loss: cross_entropy, batch_size: 5}",
    "round.label_rows=all",
)
DYNAMIC = ("round.server={name: dynamic, alpha: 0.1}", "client.correction={name: dynamic, alpha: 0.1}")
LAST = ("client.stages={name: joint, exits: last}", "client.coupling=last")


@functools.cache
def run_rounds(*overrides, cohort=(0, 1, 2), rounds=1):
    process = tiny.process(BASE, *PLAIN, *overrides)
    before = state = process.initialize()
    for _ in range(rounds):
        state, _ = process.next(state, list(cohort))
    return before, state


def running_averages(values):
    return {path: np.asarray(value) for path, value in values.items() if "moving_" in path}


def trainable_values(values):
    return {path: np.asarray(value) for path, value in values.items() if "moving_" not in path}


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_server_step_updates_weights_and_averages_statistics(engine):
    before, plain = run_rounds(f"engine={engine}")
    _, moved = run_rounds("round.server={name: momentum, learning_rate: 1.5}", f"engine={engine}")
    assert len(running_averages(plain.weights)) == 8
    assert tiny.gap(running_averages(plain.weights), running_averages(moved.weights)) == 0
    assert tiny.gap(running_averages(plain.weights), running_averages(before.weights)) > 1e-3
    assert tiny.gap(trainable_values(plain.weights), trainable_values(moved.weights)) > 1e-3
    assert all((slot == 0).all() for slot in running_averages(moved.server["velocity"]).values())


def test_client_memory_excludes_statistics():
    _, state = run_rounds(*DYNAMIC, rounds=2)
    memory = state.clients["memory"]
    assert all((table == 0).all() for table in running_averages(memory).values())
    assert all((table[3] == 0).all() for table in trainable_values(memory).values())
    assert any((table[:3] != 0).any() for table in trainable_values(memory).values())


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_exits_without_a_loss_keep_their_values_but_not_their_statistics(engine):
    # One deep client: its first exit runs, but neither gradient nor weight decay reaches it.
    levels = ("levels.mix={a: 1}", f"engine={engine}")
    before, state = run_rounds(*LAST, *levels, "round.untrained=counted", cohort=(0, 1))
    for path, value in state.weights.items():
        same = np.array_equal(value, before.weights[path])
        assert same == (path.startswith("1_") and "moving_" not in path), path
    _, summed = run_rounds("client.coupling=last", *levels, cohort=(0, 1))
    decayed = [
        path
        for path, value in summed.weights.items()
        if path.startswith("1_") and not np.array_equal(value, before.weights[path])
    ]
    assert any("moving_" not in path for path in decayed)


def test_untrained_copies_of_an_exit_count_only_if_the_recipe_requires_it():
    _, left_out = run_rounds(*LAST, "levels.mix={a: 1, b: 1}", "levels.assignment=fixed", cohort=(0, 3))
    _, counted = run_rounds(
        *LAST, "levels.mix={a: 1, b: 1}", "levels.assignment=fixed", "round.untrained=counted", cohort=(0, 3)
    )
    before, _ = run_rounds(*LAST)
    head = "1_2_dense/kernel"
    first, alone, damped = (np.asarray(state.weights[head]) for state in (before, left_out, counted))
    np.testing.assert_allclose(damped - first, (alone - first) / 2, atol=1e-15)
    assert np.abs(alone - first).max() > 1e-4


def test_mean_of_exits_keeps_the_float_type():
    process = tiny.process(BASE, *PLAIN, "evaluate.exits=mean")
    assert process.evaluator.global_model.outputs[0].dtype == "float64"
    assert np.isfinite(process.evaluate(process.initialize())[0]["global_loss"])
