"""`precision: mixed_bfloat16`: bfloat16 products in local training, float32 everything else."""

import functools

import keras
import numpy as np
import programs
import pytest
import runs
import tensorflow as tf
import tiny
from descriptions import describe_recipe
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.base import registry
from hetero_tf.layers.stacked import MIXED
from hetero_tf.models.build_model import build_model, layer_class
from hetero_tf.models.variables import all_layers
from hetero_tf.rounds.engine import check_block

BASES = {"images": tiny.IMAGES, "text": tiny.TEXT, "dense": tiny.DENSE}
PRODUCTS = ("Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput")
RNG = np.random.default_rng(0)
PIXELS, VECTORS = RNG.normal(size=(40, 8, 8, 6)), RNG.normal(size=(300, 20, 8))
# Arguments without a default, and an input whose many rows a sum in bfloat16 could not take; other layers get pixels.
ARGUMENTS = {
    "Conv2D": ({"filters": 6, "kernel_size": 3}, PIXELS),
    "Dense": ({"units": 5, "activation": "tanh"}, VECTORS),
    "UNet": ({"filters": 4}, PIXELS),
    "LoraDense": ({"units": 5, "lora_rank": 3}, VECTORS),
    "PaddedConv2D": ({"filters": 6, "stride": 2}, PIXELS),
    "AttentionGate": ({"norm": "none"}, PIXELS),
    "PatchEmbedding": ({"patch": 2, "width": 5}, PIXELS),
    "PostActivationBlock": ({"filters": 6}, PIXELS),
    "PreActivationBlock": ({"filters": 6}, PIXELS),
    "SeparableBlock": ({"filters": 6}, PIXELS),
    "SelfAttention": ({"heads": 2, "head_width": 4, "scale": 0.5}, VECTORS),
    "TransformerBlock": ({"heads": 2, "head_width": 4, "hidden": 6, "scale": 0.5}, VECTORS),
}
train_stub = runs.train_stub
LAYERS = sorted(
    {*MIXED, *(name for name in registry.names("layers") if getattr(layer_class(name), "HAS_PRODUCTS", False))}
)
# With several products one after the other more ReLUs change sides.
DEEP = ("AttentionGate", "PostActivationBlock", "PreActivationBlock", "SeparableBlock")


@functools.cache
def built(base, engine, precision):
    # One level of three is enough where none is compared.
    levels = ["levels.mix=a"] * (base == "dense")
    return tiny.process(BASES[base], f"engine={engine}", f"precision={precision}", *levels)


@functools.cache
def trained(base, engine, precision):
    process = built(base, engine, precision)
    state, rows = process.run(process.initialize(), tiny.plans(process, 3))
    return tiny.arrays(state), rows


def length(values):
    return float(np.sqrt(sum(np.sum(np.square(np.asarray(value, np.float64))) for value in values)))


def distance(actual, expected):
    """Relative distance of two lists of arrays."""
    return length([one - other for one, other in zip(actual, expected, strict=True)]) / length(expected)


def nodes(function):
    """All operations of a traced function and of the functions that it calls."""
    graph = function.get_concrete_function().graph.as_graph_def()
    return [*graph.node, *(node for called in graph.library.function for node in called.node_def)]


def arguments_and_inputs(kind):
    return ARGUMENTS.get(kind, ({}, PIXELS))


def model_of(kind, precision):
    arguments, inputs = arguments_and_inputs(kind)
    symbol = keras.Input(inputs.shape[1:])
    layer = layer_class(kind, mixed=precision != "float32")(**arguments, dtype=precision)
    return keras.Model(symbol, layer(symbol))


def slopes(model, inputs, values, factors):
    """Outputs, and the gradients of sum(outputs * factors) for the trainable values and the inputs."""
    state = [tf.convert_to_tensor(variable) for variable in model.non_trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch([inputs, *values])
        outputs = tf.cast(model.stateless_call(values, state, inputs)[0], tf.float32)
        total = tf.reduce_sum(outputs * factors)
    return outputs.numpy(), [gradient.numpy() for gradient in tape.gradient(total, [inputs, *values])]


def test_arguments_belong_to_layers_with_products():
    assert ARGUMENTS.keys() <= set(LAYERS)


@pytest.mark.parametrize("kind", LAYERS)
def test_a_mixed_layer_is_near_float32_in_outputs_and_gradients(kind):
    plain, mixed = (model_of(kind, precision) for precision in ("float32", "mixed_bfloat16"))
    # Constants, such as the base beside an adapter, are no arguments of a step.
    for variable, value in zip(mixed.variables, plain.variables, strict=True):
        variable.assign(value)
    inputs = tf.constant(arguments_and_inputs(kind)[1], tf.float32)
    factors = RNG.uniform(size=plain(inputs).shape)
    values = [tf.constant(RNG.normal(0, 0.3, v.shape), tf.float32) for v in plain.trainable_variables]
    outputs, gradients = slopes(mixed, inputs, values, factors)
    expected_outputs, slope = slopes(plain, inputs, values, factors)
    assert {v.dtype for v in mixed.trainable_variables} == {str(g.dtype) for g in gradients} == {"float32"}
    assert 1e-5 < distance([outputs], [expected_outputs]) < 2e-2
    whole = length(slope[1:]) / 100  # a bias before a norm has no gradient but rounding
    # Without AVX-512, TensorFlow's gradient of a kernel sums some rows in bfloat16: 1.8 to 3.6 % for 10 to 640 pictures.
    share = 2e-1 if kind in DEEP else 5e-2
    for variable, actual, expected in zip((None, *mixed.trainable_variables), gradients, slope):
        assert length([actual - expected]) < share * max(length([expected]), whole), variable


@pytest.mark.parametrize(
    ("base", "engine"),
    [
        pytest.param("images", "stacked", marks=pytest.mark.long),
        pytest.param("text", "sequential", marks=pytest.mark.long),
        ("dense", "stacked"),
    ],
)
def test_a_mixed_run_is_near_a_float32_run_with_float32_weights(base, engine):
    process, start = built(base, engine, "mixed_bfloat16"), tiny.arrays(built(base, engine, "float32").initialize())
    assert tiny.same(tiny.arrays(process.initialize()), start)
    assert process.setup.engine.reasons == ()
    assert set(process.setup.block_sizes) == {1 if engine == "sequential" else 2}
    (mixed_weights, rows), (float32_weights, others) = (
        trained(base, engine, "mixed_bfloat16"),
        trained(base, engine, "float32"),
    )
    assert {value.dtype for value in mixed_weights.values()} == {np.dtype(np.float32)}
    moved = [[value - start[path] for path, value in weights.items()] for weights in (mixed_weights, float32_weights)]
    assert 1e-5 < distance(*moved) < 5e-2
    for name in ("loss", "gradient_norm"):
        np.testing.assert_allclose([row[name] for row in rows], [row[name] for row in others], rtol=1e-2)


@pytest.mark.long
def test_products_of_a_mixed_round_are_bfloat16_and_sums_are_not():
    for precision, types in (("float32", {tf.float32}), ("mixed_bfloat16", {tf.bfloat16})):
        graph_nodes = nodes(built("images", "stacked", precision).runner.compiled_round)
        assert {tf.as_dtype(node.attr["T"].type) for node in graph_nodes if node.op in PRODUCTS} == types
        assert {
            tf.as_dtype(node.attr["T"].type) for node in graph_nodes if node.op in ("BiasAddGrad", "Rsqrt", "Sqrt")
        } == {tf.float32}
    graph_nodes = nodes(built("text", "sequential", "mixed_bfloat16").runner.compiled_round)
    assert any(node.op == "BatchMatMulV2" and node.attr["T"].type == tf.bfloat16 for node in graph_nodes)
    assert {tf.as_dtype(node.attr["T"].type) for node in graph_nodes if node.op in ("Softmax", "Erf")} == {tf.float32}


def test_only_layers_with_products_get_the_mixed_policy():
    model = build_model(recipe.loads(tiny.IMAGES).model, (5, 5, 2), 1.0, dtype="mixed_bfloat16")
    dtypes = {(type(layer).__name__, layer.compute_dtype) for layer in all_layers(model)}
    with_products = {"MixedDense", "PaddedConv2D", "PreActivationBlock"}
    others = {"InputLayer", "Scaler", "Norm", "StaticBatchNormalization", "ReLU", "GlobalAveragePooling2D"}
    assert dtypes == {(name, "bfloat16") for name in with_products} | {(name, "float32") for name in others}
    assert {variable.dtype for variable in model.variables} == {"float32"}
    plain = build_model(recipe.loads(tiny.IMAGES).model, (5, 5, 2), 1.0)
    for one, other in zip(model.variables, plain.variables, strict=True):
        assert one.path == other.path and one.numpy().tobytes() == other.numpy().tobytes()


def test_logits_of_a_step_are_float32_even_of_a_dense_layer_without_bias():
    text = tiny.DENSE.replace("{units: !classes,", "{units: !classes, use_bias: false,")
    assert text != tiny.DENSE
    stack = tiny.process(text, "precision=mixed_bfloat16", "engine=sequential").setup.submodels[0].block
    assert stack.stages[0].joint.models[0].model.outputs[0].dtype == "bfloat16"
    matrix, key = tf.ones([1, sum(stack.sizes)]), tf.zeros([1, 3], tf.int32)
    (logits,), *_ = stack.stages[0].joint.call(matrix, key, tf.ones([1, 2, 5, 5, 2]))
    assert logits.dtype == tf.float32


@pytest.mark.long
@pytest.mark.parametrize("base", ["images", "text"])
def test_evaluation_and_serving_use_the_float32_model(base, eager):
    mixed, plain = (built(base, "sequential", precision) for precision in ("mixed_bfloat16", "float32"))
    state, _ = mixed.next(mixed.initialize())
    (metrics, statistics), (expected, others) = mixed.evaluate(state), plain.evaluate(state)
    assert metrics == expected
    assert tiny.same(statistics["a"], others["a"])
    model = mixed.network(state, "c")
    assert {layer.compute_dtype for layer in all_layers(model)} == {"float32"}
    inputs = np.ones((2, 4), np.int32) if base == "text" else np.ones((2, 5, 5, 2), np.float32)
    assert model(inputs).numpy().tobytes() == plain.network(state, "c")(inputs).numpy().tobytes()


def test_costs_count_float32_weights():
    levels = [
        describe_recipe(recipe.loads(tiny.IMAGES, "tiny", [f"precision={name}"]), (5, 5, 2), 9).levels
        for name in ("float32", "mixed_bfloat16")
    ]
    assert levels[0] == levels[1]


@pytest.mark.long
def test_mixed_run_resumes_bit_for_bit(train, train_stub, tmp_path):
    mixed, text = "precision=mixed_bfloat16", programs.RECIPE.replace("a-b", "a")
    train(tmp_path / "whole", text, mixed)
    with pytest.raises(runs.Stopped):
        train(tmp_path / "parts", text, mixed, console=runs.StoppingConsole(2))
    _, output = train(tmp_path / "parts", text, mixed)
    assert "after round 2" in output and "CPU, mixed_bfloat16" in output
    assert runs.arrays(tmp_path / "parts/checkpoints") == runs.arrays(tmp_path / "whole/checkpoints")
    assert runs.rows(tmp_path / "parts") == runs.rows(tmp_path / "whole")
    train_stub(tmp_path / "plain", text)
    assert "precision: 'float32' -> 'mixed_bfloat16'" in refusal(train_stub, tmp_path / "plain", text, mixed)


def test_a_wrong_twin_is_noticed_in_spite_of_the_rounding():
    make = functools.partial(build_model, recipe.loads(tiny.TEXT).model, (None,), 0.5, 0.5, 13, "mixed_bfloat16")
    build = tiny.stacks(lambda clients: make(clients=clients))
    assert tiny.stacked(build, 2).clients == 2

    def wrong(clients):
        twin = make(clients=clients)
        if clients == 1:
            return twin
        next(layer for layer in all_layers(twin) if layer.name == "norm1").epsilon = 0.5
        return twin

    with pytest.raises(ValueError, match="several clients at once give other numbers than one by one"):
        check_block(tiny.stacks(wrong)(2), build(1), set())


def test_keras_layers_of_a_mixed_model_are_saved_and_loaded(tmp_path):
    inputs = keras.Input((8, 8, 6))
    hidden = MIXED["Conv2D"](4, 3, dtype="mixed_bfloat16")(inputs)
    model = keras.Model(inputs, MIXED["Dense"](3, dtype="mixed_bfloat16")(hidden))
    model.save(tmp_path / "mixed.keras")
    again = keras.models.load_model(tmp_path / "mixed.keras")
    assert again(PIXELS).numpy().tobytes() == model(PIXELS).numpy().tobytes()
