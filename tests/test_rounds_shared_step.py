"""Steps that several levels take are one function of the graph, and change nothing of what is trained."""

import methods
import numpy as np
import pytest
import tensorflow as tf
import tiny

from hetero_tf.rounds.layout import _RowLayout
from hetero_tf.rounds.shared_step import SharedStep, StepOnPart
from hetero_tf.rounds.state import named

CASES = {name: methods.METHODS[name][:2] for name in ("fjord", "slimmable")} | {
    "statistics of each width": (methods.deep("wbn"), ("client.stages=slimmable", *methods.PLAIN))
}


def trained(name, engine, dtype):
    """(process, values after two rounds, rows) of a tiny recipe."""
    base, settings = CASES[name]
    process = tiny.process(base, f"engine={engine}", f"precision={dtype}", *settings)
    state, rows = process.run(process.initialize(), tiny.plans(process, 2))
    return process, named(state), rows


def shared_of(process):
    return [step.shared for stack in process.parts.engine.stacks for stage in stack.stages for step in stage.shared]


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
@pytest.mark.parametrize("name", CASES)
def test_rounds_are_those_of_steps_that_are_traced_for_each_level(name, engine, monkeypatch):
    process, values, rows = trained(name, engine, "float64")
    steps = shared_of(process)
    assert len(steps) > len(set(map(id, steps))) or engine == "stacked"
    monkeypatch.setattr(_RowLayout, "shared_steps", lambda *_: ())
    apart, wanted, wanted_rows = trained(name, engine, "float64")
    assert shared_of(apart) == [] and values.keys() == wanted.keys()
    for path, value in wanted.items():
        np.testing.assert_allclose(values[path], value, rtol=0, atol=1e-13 * max(1, np.abs(value).max()), err_msg=path)
    assert [row["loss"] for row in rows] == pytest.approx([row["loss"] for row in wanted_rows], rel=1e-13)
    assert nodes_of(process) < 0.9 * nodes_of(apart) or engine == "stacked"


def nodes_of(process):
    library = process._round.get_concrete_function().graph.as_graph_def().library
    return sum(len(function.node_def) for function in library.function)


@pytest.mark.parametrize("name", ["fedprox", "fjord_taught", "depthfl", "fedepth_link", "fedepth_peers", "splitmix"])
def test_steps_of_one_level_or_of_outputs_that_are_compared_are_not_shared(name):
    assert shared_of(methods.built(name)) == []


def doubling(count):
    """A step whose gradients are twice the first `count` values, and whose carried values three times the others."""

    def step(objective, rows, *_):
        running = rows[:, count:]
        return tf.zeros([rows.shape[0]]), 2 * rows[:, :count], 3 * running if running.shape[1] else None

    return step


def test_gradients_and_running_statistics_come_to_their_places():
    rng = np.random.default_rng(0)
    for _ in range(20):
        parameters, carried, clients = (int(rng.integers(low, 9)) for low in (2, 1, 1))
        trainable = np.sort(rng.choice(parameters, rng.integers(1, parameters), replace=False))
        behind = np.sort(rng.choice(carried, rng.integers(0, carried), replace=False))
        rows = rng.normal(size=(clients, parameters + carried))

        part = StepOnPart(doubling(len(trainable)), np.concatenate([trainable, parameters + behind]), parameters)
        loss, gradients, running = part(None, tf.constant(rows), None, None, None)
        wanted, left = np.zeros((clients, parameters)), rows[:, parameters:].copy()
        wanted[:, trainable] = 2 * rows[:, trainable]
        left[:, behind] *= 3
        np.testing.assert_array_equal(gradients, wanted)
        np.testing.assert_array_equal(running, left)


def test_one_function_is_traced_for_each_shape_and_not_for_each_caller():
    process = methods.built("fjord", "sequential")
    process.compile()
    steps = {id(step): step for step in shared_of(process)}
    for step in steps.values():
        assert isinstance(step, SharedStep) and len(step._functions) == 1
        (function,) = step._functions.values()
        assert function.experimental_get_tracing_count() == len(process.parts.examples.batch_shapes)
