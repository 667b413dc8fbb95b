"""Steps that several levels share are one function of the graph, and training does not change."""

import methods
import numpy as np
import pytest
import tiny

from hetero_tf.models.state import flatten_state
from hetero_tf.rounds import engine
from hetero_tf.rounds.training_step import SummedStep, WidthStep

CASES = {name: methods.METHODS[name][:2] for name in ("fjord", "slimmable")} | {
    "statistics of each width": (methods.deep("wbn"), ("client.stages=slimmable", *methods.PLAIN))
}
# Both have the width of b.
TWO_LEVELS = "levels.mix=a-b"


def train(name, kind):
    """(process, values after two rounds, rows) of a tiny recipe with an engine of some kind."""
    base, settings = CASES[name]
    process = tiny.process(base, f"engine={kind}", "precision=float64", *settings, TWO_LEVELS)
    state, rows = process.run(process.initialize(), tiny.plans(process, 2))
    return process, flatten_state(state), rows


def shared_steps(process):
    stages = [stage for submodel in process.setup.submodels for stage in submodel.block.stages]
    return [step for stage in stages if isinstance(stage.step, SummedStep) for step in stage.step.steps]


def test_rounds_are_those_of_separate_steps(eager, monkeypatch):
    check_against_separate_steps("slimmable", 2, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("clients", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_compiled_rounds_are_those_of_separate_steps_and_smaller(name, clients, monkeypatch):
    shared, apart = check_against_separate_steps(name, clients, monkeypatch)
    assert count_nodes(shared) < 0.95 * count_nodes(apart)


def check_against_separate_steps(name, clients, monkeypatch):
    """Compare rounds with those of steps that are traced for each level; return both processes."""
    monkeypatch.setattr(engine, "clients_at_once", lambda *_: clients)
    process, values, rows = train(name, "auto")
    steps = shared_steps(process)
    assert len(steps) > len(set(map(id, steps))) > 0
    # Clients that draw their widths would mostly wait for each other.
    assert set(process.setup.block_sizes) == {1 if name == "fjord" else clients}
    apart, expected, wanted_rows = train(name, "stacked")
    assert shared_steps(apart) == [] and values.keys() == expected.keys()
    for path, value in expected.items():
        np.testing.assert_allclose(values[path], value, rtol=0, atol=1e-13 * max(1, np.abs(value).max()), err_msg=path)
    assert [row["loss"] for row in rows] == pytest.approx([row["loss"] for row in wanted_rows], rel=1e-13)
    return process, apart


def count_nodes(process):
    library = process.runner.compiled_round.get_concrete_function().graph.as_graph_def().library
    return sum(len(function.node_def) for function in library.function)


@pytest.mark.parametrize("name", ["fedprox", "fjord_taught", "depthfl", "fedepth_link", "fedepth_peers", "splitmix"])
def test_steps_of_one_level_or_of_compared_outputs_are_not_shared(name):
    assert shared_steps(methods.built(name, "auto")) == []


# Widths, masks and networks without large constants of their own.
@pytest.mark.long
@pytest.mark.parametrize("name", ["fedepth_link", "scaffold", "fjord", "slimmable", "fiarse", "splitmix"])
def test_no_constant_of_the_graph_is_as_long_as_a_row(name):
    base, settings, _ = methods.METHODS[name]
    for narrow, wide in ((4, 32), (6, 32), (8, 4096)):
        base = base.replace(f"!w {narrow}", f"!w {wide}")
    fewer = {"fjord": [TWO_LEVELS], "slimmable": [TWO_LEVELS], "fedepth_link": ["levels.mix=b"]}
    process = tiny.process(base, *settings, *fewer.get(name, []))
    parameters = max(submodel.block.parameters for submodel in process.setup.submodels)
    library = process.runner.compiled_round.get_concrete_function().graph.as_graph_def().library
    sizes = [node.attr["value"].ByteSize() for function in library.function for node in function.node_def]
    assert parameters > 5000 and max(sizes) < parameters / 4


def test_function_is_traced_once_per_shape_and_not_per_caller():
    base, settings, _ = methods.METHODS["fjord"]
    process = tiny.process(base, *settings, TWO_LEVELS)
    process.runner.prepare()
    steps = {id(step): step for step in shared_steps(process)}
    for step in steps.values():
        assert isinstance(step, WidthStep) and len(step._functions) == 1
        (function,) = step._functions.values()
        assert function.experimental_get_tracing_count() == len(process.setup.examples.batch_shapes)
