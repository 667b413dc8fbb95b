"""Running statistics as part of what clients return: moved by steps alone, merged as means, nothing remembered."""

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
    "client.loss=cross_entropy",
    "round.label_rows=all",
)
DYNAMIC = ("round.server={name: dynamic, alpha: 0.1}", "client.correction={name: dynamic, alpha: 0.1}")
LAST = ("client.stages={name: joint, exits: last}", "client.coupling=last")


@functools.cache
def after(*overrides, cohort=(0, 1, 2), rounds=1):
    process = tiny.process(BASE, *PLAIN, *overrides)
    before = state = process.initialize()
    for _ in range(rounds):
        state, _ = process.next(state, list(cohort))
    return before, state


def moving(values):
    return {path: np.asarray(value) for path, value in values.items() if "moving_" in path}


def learned(values):
    return {path: np.asarray(value) for path, value in values.items() if "moving_" not in path}


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_the_server_moves_weights_and_takes_the_mean_of_statistics(engine):
    before, plain = after(f"engine={engine}")
    _, moved = after("round.server={name: momentum, learning_rate: 1.5}", f"engine={engine}")
    assert len(moving(plain.weights)) == 8
    assert tiny.gap(moving(plain.weights), moving(moved.weights)) == 0
    assert tiny.gap(moving(plain.weights), moving(before.weights)) > 1e-3
    assert tiny.gap(learned(plain.weights), learned(moved.weights)) > 1e-3
    assert all((slot == 0).all() for slot in moving(moved.server["velocity"]).values())


def test_clients_remember_nothing_about_statistics():
    _, state = after(*DYNAMIC, rounds=2)
    memory = state.clients["memory"]
    assert all((table == 0).all() for table in moving(memory).values())
    assert all((table[3] == 0).all() for table in learned(memory).values())
    assert any((table[:3] != 0).any() for table in learned(memory).values())


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_exits_without_a_loss_keep_their_values_but_not_their_statistics(engine):
    # A deep client alone: its first exit is run, and neither gradient nor weight decay reaches it.
    levels = ("levels.mix={a: 1}", f"engine={engine}")
    before, state = after(*LAST, *levels, "round.untrained=counted", cohort=(0, 1))
    for path, value in state.weights.items():
        same = np.array_equal(value, before.weights[path])
        assert same == (path.startswith("1_") and "moving_" not in path), path
    _, summed = after("client.coupling=last", *levels, cohort=(0, 1))
    decayed = [
        path
        for path, value in summed.weights.items()
        if path.startswith("1_") and not np.array_equal(value, before.weights[path])
    ]
    assert any("moving_" not in path for path in decayed)


def test_untrained_copies_of_an_exit_count_only_where_the_recipe_says_so():
    _, left_out = after(*LAST, "levels.mix={a: 1, b: 1}", "levels.assignment=fixed", cohort=(0, 3))
    _, counted = after(
        *LAST, "levels.mix={a: 1, b: 1}", "levels.assignment=fixed", "round.untrained=counted", cohort=(0, 3)
    )
    before, _ = after(*LAST)
    head = "1_2_dense/kernel"
    first, alone, damped = (np.asarray(state.weights[head]) for state in (before, left_out, counted))
    np.testing.assert_allclose(damped - first, (alone - first) / 2, atol=1e-15)
    assert np.abs(alone - first).max() > 1e-4


def test_the_mean_of_exits_keeps_the_float_type():
    process = tiny.process(BASE, *PLAIN, "evaluate.exits=mean")
    assert process.evaluator.global_model.outputs[0].dtype == "float64"
    assert np.isfinite(process.evaluate(process.initialize())[0]["global_loss"])
