"""Merges of adapters of unequal rank: rounds equal a NumPy oracle, and each rule has the effect that its paper states."""

import functools
import importlib

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny
from oracle_adapters import AdapterRounds
from programs import ROOT
from refusals import refusal

from hetero_tf.base import registry
from hetero_tf.models.adapter_pairs import find_adapters
from hetero_tf.recipe.model import Width
from hetero_tf.run import notes
from hetero_tf.run.learning_process import learning_process

RULES = [name for name in registry.names("adapters") if name != "mean"]
WITHOUT_MODEL = tiny.DENSE[: tiny.DENSE.index("model:")] + tiny.COMMON.replace("dynamic", "fixed")
BASES = {f"{unit}_lora_dense/lora/": (f"{unit}_lora_dense/dense/kernel", s) for unit, s in (("0_1", 2.0), ("1_0", 0.5))}
SGD = "optimizer={learning_rate: 0.1, momentum: 0.5, weight_decay: 0.01, clip_norm: null}"
# Steps without a measurable length.
STILL = "optimizer={learning_rate: 1.0e-18, clip_norm: null}"


@functools.cache
def built(rule, *overrides):
    return tiny.process(tiny.ADAPTERS, "precision=float64", SGD, f"round.adapters={rule}", *overrides)


def with_factors(process, seed=0):
    """The initial state with values in all factors, since each `b` starts at zero."""
    state, rng = process.initialize(), np.random.default_rng(seed)
    for path, value in state.weights.items():
        if "lora" in path and path[-1] in "ab":
            state.weights[path] = tf.constant(rng.normal(0, 0.4, value.shape), value.dtype)
    return state


def product(weights, stem):
    a, b = (np.asarray(weights[stem + factor]) for factor in "ab")
    return a.reshape(-1, a.shape[-1]) @ b.reshape(b.shape[0], -1)


def effective(weights):
    """The kernels that the model computes with, by the path of the base."""
    return {
        base: np.asarray(weights[base]) + scale * product(weights, stem).reshape(weights[base].shape)
        for stem, (base, scale) in BASES.items()
    }


def check_rounds(process, reference, bases, rule, rounds=2, atol=1e-10):
    """Compare rounds with those of the oracle on a process with the default rule: adapters by their products."""
    state, plans = with_factors(process), tiny.plans(process, rounds)
    after, rows = process.run(state, plans)
    actual, expected = tiny.arrays(after), {path: np.asarray(value) for path, value in state.weights.items()}
    expected, losses = AdapterRounds(reference, rule, bases).run(expected, plans)
    np.testing.assert_allclose([row["loss"] for row in rows], np.asarray(losses)[:, 0], rtol=100 * atol)
    for stem in bases:
        np.testing.assert_allclose(product(actual, stem), product(expected, stem), atol=atol)
    factors = {stem + factor for stem in bases for factor in "ab"}
    others = [{path: v for path, v in each.items() if path not in factors} for each in (actual, expected)]
    assert tiny.gap(*others) < atol
    assert tiny.gap(actual, tiny.arrays(state)) > 1e-3


@pytest.mark.parametrize("rule", RULES)
def test_rounds_equal_the_oracle(rule, eager):
    check_rounds(built(rule, "round.weighting=uniform"), built("mean"), BASES, rule)


def test_a_compiled_round_has_the_numbers_of_the_eager_one():
    process = tiny.process(tiny.ADAPTERS, "precision=float64", SGD, "round.adapters=products", "levels.mix=a-c")
    state, plans = with_factors(process), tiny.plans(process, 2)
    compiled, _ = process.run(state, plans)
    with tiny.eagerly():
        expected, _ = built("products", "levels.mix=a-c").run(state, plans)
    for stem in BASES:
        np.testing.assert_allclose(product(compiled.weights, stem), product(expected.weights, stem), atol=1e-12)


def keras_model(width, classes):
    """Adapters of Keras' layers: an Embedding, an EinsumDense with two heads, and a Dense."""
    rank = Width(4).at(width)
    inputs = keras.Input((5, 5, 2))
    value = keras.layers.Reshape((5, 10))(inputs)
    value = keras.layers.EinsumDense("bpc,chd->bphd", (5, 2, 5), lora_rank=rank, name="heads")(value)
    value = keras.layers.Flatten()(keras.layers.ReLU()(value))
    return keras.Model(inputs, keras.layers.Dense(classes, lora_rank=rank, name="logits")(value))


def custom(rule, *overrides):
    text = WITHOUT_MODEL.replace("a-b-c", "a-c").replace("clip_norm: 1.0", "clip_norm: null")
    text = text.replace("round: {clients: 3}", f"round: {{clients: 3, adapters: {rule}}}")
    return learning_process(text, *tiny.images(), parallel=1, model=keras_model)


@pytest.mark.parametrize("rule", ["products", "ffa", "flora"])
def test_adapters_of_keras_layers_are_pairs_of_their_weights(rule, eager):
    process, reference = custom(rule), custom("mean")
    bases = {"heads/lora_kernel_": ("heads/kernel", 1.0), "logits/lora_kernel_": ("logits/kernel", 1.0)}
    adapters = find_adapters(process.family.training_model("a", tiny.CLASSES))
    assert {each.a[:-1]: (each.base, each.scale) for each in adapters} == bases
    # Keras' factors are float32 in every model.
    check_rounds(process, reference, bases, rule, rounds=1, atol=1e-6)


def test_an_adapter_of_an_embedding_is_a_pair_of_tables():
    inputs = keras.Input((3,), dtype="int32")
    layer = keras.layers.Embedding(7, 4)
    model = keras.Model(inputs, layer(inputs))
    layer.enable_lora(2, lora_alpha=3)
    (adapter,) = find_adapters(model)
    names = [path.rpartition("/")[2] for path in (adapter.a, adapter.b, adapter.base)]
    assert (names, adapter.scale) == (["lora_embeddings_a", "lora_embeddings_b", "embeddings"], 1.5)


def levels_of(process):
    return [process.recipe.levels.names[level] for level in process.plan(0, [0, 1, 2, 3]).levels]


@pytest.mark.parametrize("rule", ["mean", "ffa", "rolora", "flora"])
def test_the_mean_of_two_clients_is_exact(rule, eager):
    """FFA-LoRA, RoLoRA and FLoRA: merged kernels are the means of the clients' kernels; means of factors are not."""
    process = built(rule, "levels.mix=a", *("client.loss=cross_entropy", "round.label_rows=all"))
    start = process.initialize()
    alone = [effective(process.next(start, cohort=[client])[0].weights) for client in (0, 1)]
    merged = effective(process.next(start, cohort=[0, 1])[0].weights)
    gaps = [np.abs(merged[base] - (alone[0][base] + alone[1][base]) / 2).max() for base in merged]
    assert max(gaps) > 1e-6 if rule == "mean" else max(gaps) < 1e-14
    assert min(np.abs(alone[0][base] - effective(start.weights)[base]).max() for base in merged) > 1e-4


def test_rounds_of_rolora_train_one_factor_and_those_of_ffa_the_second(eager):
    for rule, fixed in (("rolora", "ab"), ("ffa", "aa")):
        process = built(rule)
        states = [with_factors(process)]
        for _ in fixed:
            states.append(process.next(states[-1])[0])
        for before, after, factor in zip(states, states[1:], fixed):
            for stem in BASES:
                moved = {
                    each for each in "ab" if (before.weights[stem + each] != after.weights[stem + each]).numpy().any()
                }
                assert moved == {"a", "b"} - {factor}


def singular_values(weights, stem):
    return np.linalg.svd(product(weights, stem))[1][:4]


@pytest.mark.long
@pytest.mark.parametrize(("rule", "share"), [("products", 1), ("flexlora", 1 / 3), ("mean", 1)])
def test_high_ranks_collapse_with_flexlora_alone(rule, share, eager):
    """raFLoRA: each round multiplies the ranks that a client lacks by the share of the clients that have them."""
    process = built(rule, "levels.mix=a-c", STILL, "round.label_rows=all", "client.loss=cross_entropy")
    levels, state, stem = levels_of(process), with_factors(process), next(iter(BASES))
    cohort = [levels.index("a"), *[client for client in range(4) if levels[client] == "c"][:2]]
    start = singular_values(state.weights, stem)
    if rule != "mean":
        # The first factorization has the ranks of the initial factors.
        state, _ = process.next(state, cohort=[cohort[0]])
        np.testing.assert_allclose(singular_values(state.weights, stem), start, rtol=1e-9)
    for _ in range(3):
        state, _ = process.next(state, cohort=cohort)
    expected = start * [1, *[share**3] * 3]
    np.testing.assert_allclose(singular_values(state.weights, stem), np.sort(expected)[::-1], rtol=1e-9)


def test_many_rounds_reach_the_target_in_the_order_of_the_rules(monkeypatch):
    """The table of benchmarks/rank_collapse.py: FlexLoRA and zeros stay away from the target, and FFA in its subspace."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    benchmark = importlib.import_module("rank_collapse")
    errors, beyond = {}, {}
    for rule in benchmark.RULES:
        kernel, goal = benchmark.result_of(rule, 20, 0)
        errors[rule] = np.linalg.norm(kernel - goal) / np.linalg.norm(goal)
        beyond[rule] = benchmark.energy_beyond(kernel, 2) / benchmark.energy_beyond(goal, 2)
    assert errors["products"] < 0.08 < errors["mean"] < 0.2 and max(errors["flora"], errors["rolora"]) < 0.2
    assert min(errors["flexlora"], errors["zeros"], errors["ffa"]) > 0.3
    assert max(beyond["flexlora"], beyond["zeros"]) < 0.6 < 0.9 < min(beyond["mean"], beyond["products"])


def test_ranks_without_a_client_stay_and_an_adapter_without_one_keeps_its_bits(eager):
    process = built("products", "levels.mix=a-c", STILL)
    weak = [client for client, level in enumerate(levels_of(process)) if level == "c"]
    state = with_factors(process)
    after, _ = process.next(state, cohort=weak[:1])
    for stem in BASES:
        np.testing.assert_allclose(product(after.weights, stem), product(state.weights, stem), atol=1e-12)
    personal = built("products", "levels.mix=a-c", 'round.personal=["0"]')
    state = with_factors(personal)
    after, _ = personal.next(state, cohort=[0, 1])
    for factor in "ab":
        path = next(iter(BASES)) + factor
        assert (after.weights[path].numpy() == state.weights[path].numpy()).all()


def test_traffic_counts_the_parts_that_a_rule_changes():
    a, b, kernels = 50 * 4 + 6 * 4, 4 * 6 + 4 * 9, 50 * 6 + 6 * 9
    expected = {"mean": (a + b, a + b), "products": (a + b, a + b), "flexlora": (a + b, a + b)}
    expected |= {"ffa": (b, b), "rolora": (a + b, (a + b) / 2), "flora": (kernels, a + b)}
    every = ("client.loss=cross_entropy", "round.label_rows=all", "levels.mix=a")
    for rule, (down, up) in expected.items():
        cost = built(rule, *every).client_costs[0]
        assert (cost.bytes_down, cost.bytes_up) == (8 * down, 8 * up), rule
    assert built("ffa", *every).client_costs[0].train_flops[0] < built("mean", *every).client_costs[0].train_flops[0]


def test_padding_with_zeros_warns():
    zeros, plain = built("mean", "round.uncovered=zeros"), built("mean")
    (sentence,) = set(notes.warnings(zeros)) - set(notes.warnings(plain))
    assert sentence.startswith("round.uncovered: zeros counts clients of lower rank as zeros")


def scaled(width, classes):
    inputs = keras.Input((5, 5, 2))
    alpha = None if width == 1 else 8
    dense = keras.layers.EinsumDense("bi,io->bo", (classes,), lora_rank=Width(4).at(width), lora_alpha=alpha)
    return keras.Model(inputs, dense(keras.layers.Flatten()(inputs)))


def test_rules_refuse_models_without_adapters_and_scales_that_differ():
    assert "has no effect because the model has no low-rank adapter" in refusal(
        tiny.process, tiny.DENSE, "round.adapters=products"
    )
    text = WITHOUT_MODEL.replace("round: {", "round: {adapters: ffa, ")
    message = refusal(learning_process, text, *tiny.images(), parallel=1, model=scaled)
    assert "has the scale 4 at level b and 1 at level a. Received: ffa" in message


REFUSED = {
    "round.uncovered=zeros": "products of factors are averaged over the clients that have them",
    "round.submodel=rolling": "products needs round.submodel prefix",
    "round.server=momentum": "products needs round.server replace",
    "levels.members={a: 2, b: 1, c: 1}": "",
}


@pytest.mark.parametrize("override", REFUSED)
def test_products_refuse_other_merges(override):
    message = refusal(tiny.process, tiny.ADAPTERS, "round.adapters=products", override)
    assert REFUSED[override] in message or "round.adapters" in message
