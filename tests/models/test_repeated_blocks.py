"""Blocks that a deep model repeats are one function of the graph, and change nothing of what is trained."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny

from hetero_tf.base.errors import InputError
from hetero_tf.layers.transformer_block import TransformerBlock
from hetero_tf.models import repeated_blocks
from hetero_tf.models.costs.counting import forward, trace
from hetero_tf.models.repeated_blocks import call_by_functions
from hetero_tf.models.state import named
from hetero_tf.models.variables import kind_of

MAPS = "    - PreActivationBlock: {filters: !w 12, stride: 2}\n"
FOUR = "    - Repeat: {times: 4, layer: {PreActivationBlock: {filters: !w 8, norm: bn}}}\n"
WORDS = "heads: 2, head_width: !w 4, hidden: !w 12"
TEXT = tiny.TEXT.replace(
    f"TransformerBlock: {{{WORDS}}}", f"Repeat: {{times: 4, layer: {{TransformerBlock: {{{WORDS}, dropout: 0.5}}}}}}"
)
CASES = {
    "dropout": (TEXT, ()),
    "running statistics": (tiny.IMAGES.replace(MAPS, FOUR), ()),
    "adapters": (
        TEXT.replace("!w", "").replace("dropout: 0.5", "dropout: 0.5, lora_rank: !w 4"),
        ("levels.mix=a-b", "levels.assignment=fixed"),
    ),
}


def trained(name, *more):
    """(process, values after two rounds, rows) of a case."""
    base, settings = CASES[name]
    process = tiny.process(base, "precision=float64", *settings, *more)
    state, rows = process.run(process.initialize(), tiny.plans(process, 2))
    return process, named(state), rows


def functions_of(process):
    return process.family.once("blocks", dict)


def nodes_of(process):
    library = process._round.get_concrete_function().graph.as_graph_def().library
    return sum(len(function.node_def) for function in library.function)


@pytest.mark.parametrize(
    "name", ["dropout", *(pytest.param(name, marks=pytest.mark.long) for name in ("running statistics", "adapters"))]
)
def test_rounds_are_those_of_blocks_that_are_traced_one_by_one(name, monkeypatch):
    process, values, rows = trained(name)
    assert functions_of(process) and process.engine_report()["reasons"] == []
    monkeypatch.setattr(repeated_blocks, "REPEATED", 5)
    apart, wanted, wanted_rows = trained(name)
    assert functions_of(apart) == {} and values.keys() == wanted.keys()
    for path, value in wanted.items():
        np.testing.assert_allclose(values[path], value, rtol=0, atol=1e-13 * max(1, np.abs(value).max()), err_msg=path)
    assert [row["loss"] for row in rows] == pytest.approx([row["loss"] for row in wanted_rows], rel=1e-13)
    assert nodes_of(process) < 0.9 * nodes_of(apart)


def test_each_kind_of_block_is_traced_once_for_all_levels_and_blocks():
    process, _, _ = trained("dropout", "levels.widths={a: 1, b: 1, c: 0.5}", "levels.mix=a-b-c", "levels.depths={b: 1}")
    process.compile()
    used = [f for f in functions_of(process).values() if f.experimental_get_tracing_count()]
    widths = {stack.clients for stack in process.parts.engine.stacks}
    assert len(widths) <= len(used) <= 2 * len(widths)
    assert all(function.experimental_get_tracing_count() == 1 for function in used)


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_an_engine_that_is_asked_for_has_no_functions(engine):
    process = tiny.process(TEXT, f"engine={engine}")
    assert functions_of(process) == {} and process.engine_report()["by_function"] == []


@pytest.mark.long
def test_a_run_remembers_that_its_blocks_are_functions(train, tmp_path):
    """Their sums may be rounded in another order, so no run goes on otherwise without being told."""
    train(tmp_path, TEXT, "rounds=1")
    settings = json.loads((tmp_path / "environment.json").read_text())["settings"]
    assert settings["by_function"] == ["a", "c"]
    with pytest.raises(InputError, match=r"settings.by_function was \['a', 'c'\], is None"):
        train(tmp_path, TEXT, "rounds=2", "engine=stacked")


def blocks(count, **options):
    """A model of some blocks one behind the other, made by functions, and these functions."""
    inputs, functions = keras.Input((3, 4), dtype="float64"), {}
    value = inputs
    for _ in range(count):
        value = TransformerBlock(2, 2, 6, dtype="float64", **options)(value)
    return call_by_functions(keras.Model(inputs, value), functions), functions


INPUTS = tf.constant(np.random.default_rng(0).normal(size=(2, 3, 4)))


@tf.function(autograph=False)
def stepped(model, training=True):
    """Outputs of a model in a graph, and the gradients of the values that it does not train."""
    trainable = [tf.convert_to_tensor(variable) for variable in model.trainable_variables]
    fixed = [tf.convert_to_tensor(variable) for variable in model.non_trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch(trainable)
        tape.watch(fixed)
        outputs, _ = model.stateless_call(trainable, fixed, INPUTS, training=training)
        total = tf.reduce_sum(outputs**2)
    found = tape.gradient(total, [trainable, fixed])
    assert all(gradient is not None for gradient in found[0])
    return outputs, [tf.constant(gradient is not None) for gradient in found[1]]


def test_nothing_is_computed_for_the_gradients_of_what_is_not_trained():
    model, functions = blocks(4, lora_rank=2)
    outputs, asked = stepped(model)
    assert len(functions) == 1 and len(asked) > 20 and not any(asked)
    np.testing.assert_allclose(outputs, model(INPUTS, training=True), rtol=1e-12)


def test_only_training_steps_of_graphs_are_by_functions():
    model, functions = blocks(4)
    (function,) = functions.values()
    model(INPUTS, training=True)
    tf.function(lambda: model(INPUTS, training=False), autograph=False)()
    assert function.experimental_get_tracing_count() == 0
    stepped(model)
    assert function.experimental_get_tracing_count() == 1


def test_blocks_of_other_arguments_shapes_or_of_too_few_are_left_alone():
    assert blocks(3)[1] == {}
    inputs, functions = keras.Input((3, 4)), {}
    value = inputs
    for number in range(4):
        value = TransformerBlock(2, 2, 6 + number % 2)(value)
    call_by_functions(keras.Model(inputs, value), functions)
    assert functions == {}
    plain = keras.Sequential([keras.Input((4,)), *(keras.layers.Dense(4) for _ in range(4))])
    assert call_by_functions(plain, functions) is plain and functions == {}


class Shifted(keras.layers.Layer):
    """A layer like one that a user writes."""

    def __init__(self, shift, **kwargs):
        super().__init__(**kwargs)
        self.shift = shift
        self.dense = keras.layers.Dense(3)

    def call(self, inputs):
        return self.dense(inputs) + self.shift(inputs) if callable(self.shift) else self.dense(inputs) + self.shift


class Told(Shifted):
    """Another one, which tells its argument."""

    def get_config(self):
        return {**keras.layers.Layer.get_config(self), "shift": self.shift}


class Hidden:
    """An argument that Keras cannot put into a config."""

    def __call__(self, inputs):
        return inputs[..., :3]


def test_layers_are_of_one_kind_only_where_all_their_arguments_are_told():
    long = np.zeros(5000)
    for layer, shift in ((Shifted, Hidden()), (Told, Hidden()), (Told, long), (Told, tf.constant(long))):
        first, second = layer(shift), layer(shift)
        assert kind_of(first) == kind_of(first) != kind_of(second)
    assert kind_of(Told([1, 2])) == kind_of(Told([1, 2])) != kind_of(Told([1, 3]))
    assert kind_of(keras.layers.Dense(3)) == kind_of(keras.layers.Dense(3)) != kind_of(keras.layers.Dense(4))


def test_a_model_may_repeat_blocks_that_do_not_tell_their_arguments():
    inputs, functions = keras.Input((4,)), {}
    value = inputs
    for _ in range(4):
        value = keras.layers.Dense(4)(Shifted(Hidden())(value))
    call_by_functions(keras.Model(inputs, value), functions)
    assert functions == {}


def test_layers_of_one_kind_count_as_often_as_they_stand():
    inputs = keras.Input((6,))
    value = keras.layers.Dense(6)(keras.layers.Dense(6)(keras.layers.Dense(4)(keras.layers.Dense(6)(inputs))))
    model = keras.Model(inputs, value)
    assert [outer.products for outer in trace(model, (6,))] == [(36,), (24,), (24,), (36,)]
    assert [outer.layer for outer in trace(model, (6,))] == model.layers[1:]
    assert forward(model, (6,)).multiply_adds == 36 + 24 + 24 + 36
