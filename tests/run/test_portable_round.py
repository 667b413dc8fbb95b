"""The engine for GPUs, compiled by XLA on the CPU: compared with the oracle, and exported as StableHLO."""

import numpy as np
import oracle
import programs
import pytest
import tensorflow as tf
import tiny
from tensorflow.compiler.tf2xla.python import xla

portable_round = programs.script("benchmarks/portable_round.py").portable_round
# Few batch shapes, since each of them is compiled at each level.
EVEN = tiny.images(sizes=(6, 3, 6, 6))
SEGMENTS = tiny.text(rows=(2, 2, 2, 2), length=8)
CASES = {
    "images": (tiny.IMAGES, EVEN, ()),
    "text, random": (tiny.TEXT, SEGMENTS, ("round.submodel=random",)),
    "dense, short batches": (tiny.DENSE, tiny.images(), ("engine=sequential",)),
}


def compiled(base, data, *overrides):
    return tiny.process(base, "levels.mix=a-c", "round.clients=4", *overrides, data=data, device="gpu")


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_rounds_compiled_by_xla_agree_with_the_oracle(name):
    base, data, overrides = CASES[name]
    process = compiled(base, data, "precision=float64", *overrides)
    assert process.setup.engine.compiled
    assert set(process.setup.block_sizes) == ({1} if "engine=sequential" in overrides else {2})
    planned = tiny.plans(process, 2)
    state = process.initialize()
    expected, _ = oracle.play(process, tiny.arrays(state), planned)
    actual, rows = process.run(state, planned)
    assert tiny.gap(tiny.arrays(actual), expected) < 1e-10
    assert [row["non_finite"] for row in rows] == [0, 0]


def test_batch_shapes_are_those_that_clients_read():
    assert compiled(tiny.IMAGES, EVEN).setup.examples.batch_shapes == ((3, 1),)
    # 7, 5, 9 and 4 examples in batches of 4.
    assert compiled(tiny.DENSE, tiny.images()).setup.examples.batch_shapes == ((4, 1), (3, 1), (1, 1))
    # 1, 3, 2 and 1 rows in batches of 2; ten words in segments of 4.
    assert compiled(tiny.TEXT, tiny.text()).setup.examples.batch_shapes == ((2, 4), (2, 2), (1, 4), (1, 2))
    assert tiny.process(tiny.DENSE).setup.examples.batch_shapes == (None,)


@pytest.mark.long
def test_exported_round_equals_native_round():
    process = compiled(tiny.DENSE, EVEN)
    native = tiny.process(tiny.DENSE, "levels.mix=a-c", "round.clients=4", data=EVEN)
    state, planned = native.initialize(), tiny.plans(native, 2)
    module, arguments = portable_round(process, state, planned)
    expected, rows = native.run(state, planned)
    shapes = [list(value.shape) for value in state.weights.values()]
    outputs = [*shapes, *[[2, 4]] * 3, [2]]
    types = [tf.float32] * len(shapes) + [tf.bool, tf.float32, tf.float32, tf.bool]
    actual = xla.call_module(arguments, version=9, module=module, platforms=["CPU"], Sout=outputs, Tout=types)
    assert tiny.gap(tiny.arrays(expected), dict(zip(state.weights, actual))) < 1e-6
    finite, _, losses, merge_finite = actual[len(shapes) :]
    assert np.all(finite) and np.all(merge_finite)
    np.testing.assert_allclose(np.mean(losses, axis=1), [row["loss"] for row in rows], rtol=1e-5)


@pytest.mark.long
def test_data_and_weights_are_arguments_of_the_program():
    data = tiny.images(sizes=(600, 600, 600, 600))
    process = compiled(tiny.DENSE, data, "client.batch_size=600")
    module, arguments = portable_round(process, process.initialize(), tiny.plans(process, 1))
    examples = next(value for value in arguments if value.dtype == tf.uint8)
    assert np.array_equal(examples, data[0].train.x)
    assert len(module) < examples.shape.num_elements()
    assert np.asarray(data[0].train.x).tobytes()[:2000] not in module


@pytest.mark.long
def test_xla_does_not_compile_positions_of_a_text_into_the_program():
    graph = compiled(tiny.TEXT, SEGMENTS, "levels.mix=c").runner.compiled_round.get_concrete_function().graph
    graphs = [graph, *(graph._get_function(name).graph for name in graph._functions)]
    slices = [operation for graph in graphs for operation in graph.get_operations() if operation.type == "Slice"]
    # Tokens are int32, activations are not.
    starts = [operation.inputs[1] for operation in slices if operation.outputs[0].dtype == tf.int32]
    assert None not in map(tf.get_static_value, starts)


def test_cpu_engine_is_rejected():
    process = tiny.process(tiny.DENSE)
    with pytest.raises(ValueError, match=r'must be built with device="gpu". Received: device="cpu"'):
        portable_round(process, process.initialize(), tiny.plans(process, 1))
