"""Repeated blocks of a deep model are one function of the graph, and training does not change."""

import json

import keras
import numpy as np
import pytest
import shared_models
import tensorflow as tf
import tiny

from hetero_tf.base.errors import InputError
from hetero_tf.layers.transformer_block import TransformerBlock
from hetero_tf.models.costs.counting import forward, total
from hetero_tf.models.state import flatten_state
from hetero_tf.models.variables import layer_signature
from hetero_tf.rounds import engine
from hetero_tf.rounds.engine import call_by_functions

MAPS = "    - PreActivationBlock: {filters: !w 12, stride: 2}\n"
FOUR = "    - Repeat: {times: 4, layer: {PreActivationBlock: {filters: !w 8, norm: bn}}}\n"
WORDS = "heads: 2, head_width: !w 4, hidden: !w 12"
TEXT = tiny.TEXT.replace(
    f"TransformerBlock: {{{WORDS}}}", f"Repeat: {{times: 4, layer: {{TransformerBlock: {{{WORDS}, dropout: 0.5}}}}}}"
)
CASES = {
    "dropout": (TEXT, ("levels.mix=c",)),
    "running statistics": (tiny.IMAGES.replace(MAPS, FOUR), ("levels.mix=c",)),
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
    return process, flatten_state(state), rows


def functions_in(models):
    """The functions that blocks of models are called by, each once."""
    blocks = (layer for model in models for layer in model.layers if getattr(layer, "by_function", False))
    return {layer.call.args[2] for layer in blocks}


def functions_of(process):
    return functions_in(model for submodel in process.setup.submodels for model in submodel.block.models)


def count_nodes(process):
    library = process.runner.compiled_round.get_concrete_function().graph.as_graph_def().library
    return sum(len(function.node_def) for function in library.function)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_rounds_equal_those_of_blocks_traced_one_by_one(name, monkeypatch):
    process, values, rows = trained(name)
    assert functions_of(process) and process.engine_report()["reasons"] == []
    monkeypatch.setattr(engine, "MIN_BLOCKS", 50)
    with shared_models.apart():
        apart, expected, wanted_rows = trained(name)
    assert not functions_of(apart) and values.keys() == expected.keys()
    for path, value in expected.items():
        np.testing.assert_allclose(values[path], value, rtol=0, atol=1e-13 * max(1, np.abs(value).max()), err_msg=path)
    assert [row["loss"] for row in rows] == pytest.approx([row["loss"] for row in wanted_rows], rel=1e-13)
    assert count_nodes(process) < 0.9 * count_nodes(apart)


@pytest.mark.long
def test_each_kind_of_block_is_traced_once_for_all_levels_and_blocks():
    process, _, _ = trained("dropout", "levels.widths={a: 1, b: 1, c: 0.5}", "levels.mix=a-b-c", "levels.depths={b: 1}")
    process.runner.prepare()
    used = [f for f in functions_of(process) if f.experimental_get_tracing_count()]
    widths = set(process.setup.block_sizes)
    assert len(widths) <= len(used) <= 2 * len(widths)
    assert all(function.experimental_get_tracing_count() == 1 for function in used)


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_explicit_engine_has_no_functions(engine):
    process = tiny.process(TEXT, f"engine={engine}", "levels.mix=c")
    assert not functions_of(process) and process.engine_report()["by_function"] == []


@pytest.mark.long
def test_run_records_that_its_blocks_are_functions(train, tmp_path):
    """Sums may be rounded in another order, so a resumed run with other functions prints a note."""
    train(tmp_path, TEXT, "rounds=1")
    assert json.loads((tmp_path / "environment.json").read_text())["settings"]["by_function"] == ["a", "c"]
    with pytest.raises(InputError, match=r"settings.by_function was \['a', 'c'\], is None"):
        train(tmp_path, TEXT, "rounds=2", "engine=stacked")


def blocks(count, **options):
    """A sequence of blocks that are called by functions, and these functions."""
    value = inputs = keras.Input((3, 4), dtype="float64")
    for _ in range(count):
        value = TransformerBlock(2, 2, 6, dtype="float64", **options)(value)
    model = keras.Model(inputs, value)
    call_by_functions([model])
    return model, functions_in([model])


INPUTS = tf.constant(np.random.default_rng(0).normal(size=(2, 3, 4)))


@tf.function(autograph=False)
def run_step(model, training=True):
    """Outputs of a model in a graph, whether its frozen values have gradients, and the gradients of the others."""
    trainable = [tf.convert_to_tensor(variable) for variable in model.trainable_variables]
    fixed = [tf.convert_to_tensor(variable) for variable in model.non_trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch(trainable)
        tape.watch(fixed)
        outputs, _ = model.stateless_call(trainable, fixed, INPUTS, training=training)
        total = tf.reduce_sum(outputs**2)
    gradients = tape.gradient(total, [trainable, fixed])
    assert all(gradient is not None for gradient in gradients[0])
    return outputs, [tf.constant(gradient is not None) for gradient in gradients[1]], gradients[0]


@pytest.mark.long
def test_gradients_of_frozen_values_are_not_computed():
    model, functions = blocks(4, lora_rank=2)
    outputs, is_computed, gradients = run_step(model)
    assert len(functions) == 1 and len(is_computed) > 20 and not any(is_computed)
    # Without a graph, blocks are not called by functions.
    expected, _, expected_gradients = run_step.python_function(model)
    np.testing.assert_allclose(outputs, expected, rtol=1e-12)
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-9, atol=1e-12)


def test_only_training_steps_of_graphs_use_functions():
    model, functions = blocks(4)
    (function,) = functions
    model(INPUTS, training=True)
    tf.function(lambda: model(INPUTS, training=False), autograph=False)()
    assert function.experimental_get_tracing_count() == 0
    run_step(model)
    assert function.experimental_get_tracing_count() == 1


def test_different_or_rare_blocks_are_unchanged():
    assert not blocks(3)[1]
    value = inputs = keras.Input((3, 4))
    for number in range(4):
        value = TransformerBlock(2, 2, 6 + number % 2)(value)
    plain = keras.Sequential([keras.Input((4,)), *(keras.layers.Dense(4) for _ in range(4))])
    models = keras.Model(inputs, value), plain
    call_by_functions(models)
    assert not functions_in(models)


def test_equal_blocks_of_several_models_share_a_function():
    (first, _), (second, _) = blocks(2), blocks(2)
    call_by_functions([first, second, first])
    assert len(functions_in([first])) == 1 and functions_in([first]) == functions_in([second])
    np.testing.assert_allclose(run_step(first)[0], first(INPUTS, training=True), rtol=1e-12)


class Shifted(keras.layers.Layer):
    """A layer as a user might write it."""

    def __init__(self, shift, **kwargs):
        super().__init__(**kwargs)
        self.shift = shift
        self.dense = keras.layers.Dense(3)

    def call(self, inputs):
        return self.dense(inputs) + self.shift(inputs) if callable(self.shift) else self.dense(inputs) + self.shift


class WithConfig(Shifted):
    """The same with its argument in the config."""

    def get_config(self):
        return {**keras.layers.Layer.get_config(self), "shift": self.shift}


class Hidden:
    """An argument that a Keras config cannot contain."""

    def __call__(self, inputs):
        return inputs[..., :3]


def test_layers_share_a_signature_only_if_all_arguments_are_in_the_config():
    long = np.zeros(5000)
    for layer, shift in ((Shifted, Hidden()), *((WithConfig, each) for each in (Hidden(), long, tf.constant(long)))):
        first, second = layer(shift), layer(shift)
        assert layer_signature(first) == layer_signature(first) != layer_signature(second)
    for layer, one, other in ((WithConfig, [1, 2], [1, 3]), (keras.layers.Dense, 3, 4)):
        assert layer_signature(layer(one)) == layer_signature(layer(one)) != layer_signature(layer(other))


def test_equal_layers_are_counted_each_time():
    inputs = keras.Input((6,))
    value = keras.layers.Dense(6)(keras.layers.Dense(6)(keras.layers.Dense(4)(keras.layers.Dense(6)(inputs))))
    model = keras.Model(inputs, value)
    costs = forward(model, (6,))
    assert [(cost.name, cost.multiply_adds) for cost in costs] == [
        (layer.name, count) for layer, count in zip(model.layers[1:], (36, 24, 24, 36))
    ]
    assert total(costs).products == 4
