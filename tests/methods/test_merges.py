"""Rounds whose merge sees every client: the mean of rows is that of sums, and robust merges survive a poisoned client."""

import re
from pathlib import Path

import methods
import pytest
import tiny

from hetero_tf import learning_process, recipe
from hetero_tf.base import registry
from hetero_tf.methods.merges import mean

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"
LONG = pytest.mark.long


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        *("lg", "splitmix", "fedepth_link"),
        *(pytest.param(name, marks=LONG) for name in ("federated_dropout", "fjord", "fiarse_public", "fedepth_peers")),
    ],
)
def test_the_mean_of_stored_rows_is_that_of_sums(name, eager):
    """Label axes, networks, unfinished stages, masks of entries and peers: every row covers what its client trains."""
    process = methods.built(name)
    assert process.setup.algorithm.aggregate is None

    by_rows = tiny.with_setup(
        process,
        algorithm={"aggregate": lambda old, rows, covered, weight, **_: mean.aggregate(old, rows, covered, weight)},
    )
    states = [each.run(each.initialize(), [each.plan(0, [2, 0, 3])])[0] for each in (process, by_rows)]
    assert tiny.gap(*map(tiny.arrays, states)) < 1e-12
    assert tiny.gap(tiny.arrays(states[0]), tiny.arrays(process.initialize())) > 1e-4


@pytest.mark.parametrize("name", ["geometric_median", *(pytest.param(n, marks=LONG) for n in ("qfedavg", "fednova"))])
def test_the_number_of_threads_changes_no_bit(name):
    states = []
    for parallel in (1, 2):
        process = tiny.process(
            tiny.DENSE, "engine=sequential", "levels.mix=a1", f"round.merge={name}", parallel=parallel
        )
        states.append(process.run(process.initialize(), tiny.plans(process, 2))[0])
    assert tiny.same(*map(tiny.arrays, states))
    assert not tiny.same(tiny.arrays(states[0]), tiny.arrays(process.initialize()))


POISON = '''"""Poison: the first client sends its update with another sign and length."""
import tensorflow as tf
def update(weights, start, steps, key):
    """Return the poisoned weights."""
    return tf.where(key[:, 2:] == 0, start - 30 * (weights - start), weights)
'''
DIGITS = (
    *("partition.clients=9", "round.clients=9", "levels.mix=a6-c3", "levels.assignment=fixed"),
    *("client.epochs=1", "client.batch_size=20", "client.loss=cross_entropy", "round.label_rows=all"),
    "model.layers=[[Flatten, Dense: {units: !w 48}, ReLU], Dense: {units: !classes}]",
    *("engine=sequential", "model.settings={}", "optimizer.learning_rate=0.1", "optimizer.clip_norm=null"),
)


ROBUST = ("median", "geometric_median", "bounded")


@pytest.mark.long
@pytest.mark.parametrize(
    "merge", ["mean", "{name: trimmed_mean, share: 0.2}", *(pytest.param(name, marks=LONG) for name in ROBUST)]
)
def test_accuracy_survives_a_poisoned_client_unless_the_merge_is_the_mean(merge, plugin_module):
    registry.register_plugin(plugin_module("poison", POISON))
    process = learning_process(recipe.load("digits", [*DIGITS, f"round.merge={merge}", "client.update=poison"]))
    state, _ = process.run(process.initialize(), tiny.plans(process, 10))
    metrics, _ = process.evaluate(state)
    assert (metrics["global_accuracy"] > 70) == (merge != "mean")


@pytest.mark.long
def test_fednova_in_ten_lines_is_the_built_in_one(plugin_module, eager):
    (source,) = re.findall(r"```python\n(\"\"\"FedNova .*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    registry.register_plugin(plugin_module("nova", source))
    states = []
    for merge in ("nova", "fednova", "mean"):
        settings = ("optimizer.momentum=0", "round.weighting=samples", f"round.merge={merge}")
        process = tiny.process(tiny.DENSE, *settings)
        states.append(tiny.arrays(process.run(process.initialize(), tiny.plans(process, 2))[0]))
    assert tiny.same(states[0], states[1]) and not tiny.same(states[0], states[2])
