"""What every correction of local steps keeps, found by listing the package, and their formulas by differences."""

import inspect

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.base import registry

OPTIONS = {"proximal": {"mu": 0.3}}  # {correction: options without a default}
SHAPE = (3, 7)


@pytest.fixture(params=registry.names("corrections"))
def name(request):
    return request.param


def draw(name, dtype="float64", seed=0):
    """Weights, start and memory; None where nothing is remembered."""
    weights, start, memory = tf.constant(np.random.default_rng(seed).normal(size=(3, *SHAPE)), dtype)
    return weights, start, memory if registry.find("corrections", name).REMEMBERS else None


def test_signature_constant_and_documented_options(name):
    module, options = registry.find("corrections", name), registry.options("corrections", name)
    assert list(inspect.signature(module.correct).parameters) == ["weights", "start", "memory", *options]
    assert all(option.doc for option in options.values())
    assert {option for option in options if options[option].required} == set(OPTIONS.get(name, {}))
    assert type(module.REMEMBERS) is bool
    assert hasattr(module, "remember") == module.REMEMBERS
    if module.REMEMBERS:
        remember = inspect.signature(module.remember).parameters
        assert list(remember) == ["memory", "weights", "start", *options]
        assert [remember[option].default for option in options] == [option.default for option in options.values()]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_shapes_and_types_are_kept_and_a_client_gets_what_it_gets_alone(name, dtype):
    module, given = registry.find("corrections", name), OPTIONS.get(name, {})
    weights, start, memory = draw(name, dtype)
    found = [module.correct(weights, start, memory, **given)]
    alone = [
        [
            module.correct(weights[k : k + 1], start[k : k + 1], None if memory is None else memory[k : k + 1], **given)
            for k in range(3)
        ]
    ]
    if module.REMEMBERS:
        found.append(module.remember(memory, weights, start, **given))
        alone.append(
            [module.remember(memory[k : k + 1], weights[k : k + 1], start[k : k + 1], **given) for k in range(3)]
        )
    for whole, parts in zip(found, alone, strict=True):
        assert whole.shape == SHAPE and whole.dtype == dtype
        np.testing.assert_array_equal(whole, tf.concat(parts, 0))


def test_nothing_pulls_at_the_start_before_anything_is_remembered(name):
    module, given = registry.find("corrections", name), OPTIONS.get(name, {})
    _, start, memory = draw(name)
    memory = None if memory is None else tf.zeros_like(memory)
    assert not module.correct(start, start, memory, **given).numpy().any()
    if module.REMEMBERS:
        assert not module.remember(memory, start, start, **given).numpy().any()


def test_a_graph_has_no_stateful_operation(name):
    module, given = registry.find("corrections", name), OPTIONS.get(name, {})
    weights, start, memory = draw(name)

    @tf.function
    def graph(weights, start):
        pulled = module.correct(weights, start, memory, **given)
        return (pulled, module.remember(memory, weights, start, **given)) if module.REMEMBERS else (pulled,)

    np.testing.assert_array_equal(graph(weights, start)[0], module.correct(weights, start, memory, **given))
    operations = graph.get_concrete_function(weights, start).graph.get_operations()
    assert not any(operation.op_def.is_stateful for operation in operations)


def test_none_is_zero():
    assert not registry.find("corrections", "none").correct(*draw("none")).numpy().any()


def terms(name, weights, start, memory):
    """The terms that the correction is the gradient of."""
    spring = tf.reduce_sum((weights - start) ** 2) / 2
    return 0.3 * spring if name == "proximal" else 0.2 * spring - tf.reduce_sum(memory * weights)


@pytest.mark.parametrize(("name", "options"), [("proximal", {"mu": 0.3}), ("dynamic", {"alpha": 0.2})])
def test_a_correction_is_the_gradient_of_its_terms(name, options):
    weights, start, memory = draw(name)
    with tf.GradientTape() as tape:
        tape.watch(weights)
        value = terms(name, weights, start, memory)
    found = registry.find("corrections", name).correct(weights, start, memory, **options)
    np.testing.assert_allclose(found, tape.gradient(value, weights), rtol=1e-12, atol=1e-14)


def test_dynamic_remembers_the_slope_of_the_loss_where_the_terms_balance_it():
    # Clients with the losses |w - c|^2 / 2: FedDyn's local minimum is (c + memory + alpha start) / (1 + alpha).
    module = registry.find("corrections", "dynamic")
    centre, start, memory = draw("dynamic")
    weights = (centre + memory + 0.2 * start) / 1.2
    pulled = module.correct(weights, start, memory, alpha=0.2)
    np.testing.assert_allclose(weights - centre + pulled, np.zeros(SHAPE), atol=1e-14)
    np.testing.assert_allclose(module.remember(memory, weights, start, alpha=0.2), weights - centre, atol=1e-14)


def test_dynamic_on_both_sides_finds_the_common_minimum_where_plain_averages_do_not():
    # Losses curvature * (w - c)^2 / 2, each minimised exactly; the minimum of their sum is 34 / 13 for three clients.
    curvature, centre = tf.constant([[1.0], [2.0], [10.0]], tf.float64), tf.constant([[4.0], [5.0], [2.0]], tf.float64)
    client, server = registry.find("corrections", "dynamic"), registry.find("servers", "dynamic")
    memory, weights, drift = tf.zeros([3, 1], tf.float64), tf.zeros([1], tf.float64), (tf.zeros([1], tf.float64),)
    for _ in range(300):
        start = tf.tile(weights[None], [3, 1])
        trained = (curvature * centre + memory + 0.5 * start) / (curvature + 0.5)
        memory = client.remember(memory, trained, start, alpha=0.5)
        weights, drift = server.apply(
            weights, tf.reduce_mean(trained, 0), tf.constant([3.0], tf.float64), drift, registered=3, alpha=0.5
        )
    np.testing.assert_allclose(weights, [34 / 13], rtol=1e-9)
    assert abs(float(tf.reduce_mean(centre)) - 34 / 13) > 1
