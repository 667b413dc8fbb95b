"""Graphs capture the data: a constant of one entry per example would be copied into them."""

import numpy as np
import pytest
import test_task_process
import tiny

from hetero_tf.recipe import loads
from hetero_tf.run.learning_process import learning_process

# TensorFlow itself makes constants of captured tensors with up to 128 values.
COUNT = 300
MANY = ((0, 1, 5),) * COUNT
TASKS = ("ordinal", "series", "regression", "multi_label", "segmentation")


def constants(graph):
    """The sizes in bytes and the names of the constants of a graph and of its functions."""
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
    return [(node.attr["value"].tensor.ByteSize(), node.name) for node in nodes if node.op == "Const"]


def largest(process):
    """The largest constant of the round, of the statistics query and of all evaluations."""
    evaluator, state = process.evaluator, process.initialize()
    statistics = evaluator.statistics(state)
    values = evaluator.global_values(state, statistics)
    functions = [process.runner.compiled_round.get_concrete_function()]
    if process.dataset.test.y is not None:
        functions.append(evaluator.measure_global.get_concrete_function(*values))
    functions += [
        evaluator.global_predictor.compiled(split).get_concrete_function(*values) for split in evaluator.splits
    ]
    if state.clients["personal"]:
        clients = evaluator.clients["test"]
        functions.append(clients.measure_personal.get_concrete_function(*clients.personal_values(state)))
    if statistics:
        functions.append(evaluator.global_predictor.calibrate._compiled.get_concrete_function())
    return max(max(constants(function.graph)) for function in functions)


@pytest.mark.parametrize(
    ("base", "overrides"),
    [
        (tiny.IMAGES, ("levels.mix=c1",)),
        pytest.param(
            tiny.DENSE,
            ("levels.mix=c1", "round.personal=[1]", "evaluate.metrics=[accuracy,macro_f1]"),
            marks=pytest.mark.long,
        ),
    ],
)
def test_graphs_of_labels_have_no_constant_for_each_example_or_client(base, overrides):
    data = tiny.images(np.ones(COUNT, int), COUNT, labels=MANY)
    assert largest(tiny.process(base, f"partition.clients={COUNT}", *overrides, data=data)) < (COUNT, "")


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS)
def test_graphs_of_tasks_have_no_constant_for_each_example_or_client(task):
    overrides = (*test_task_process.TASKS[task], f"partition.clients={COUNT // 2}", "levels.mix=b", "client.epochs=1")
    sizes = (f"data.examples={COUNT}", f"data.test_examples={COUNT}")
    assert largest(learning_process(loads(test_task_process.TABLE, overrides=(*overrides, *sizes)))) < (COUNT, "")
