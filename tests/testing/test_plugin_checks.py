"""Plug-ins that violate the contract of their kind, each with the rule that `check_plugin` reports."""

import importlib

import numpy as np
import pytest
from refusals import refusal

from hetero_tf import testing
from hetero_tf.base import registry
from hetero_tf.recipe import load

KEEP = 'def keep(size, count, round, client, seed, *, step: int = 1):\n    """Coordinates.\n\n    Args:\n        step: step\n    """\n'
LAYER = '''import keras
class Twice(keras.layers.Layer):
    """Doubles its input of any shape.

    Args:
        factor: factor
    """
    def __init__(self, factor=2, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor
    def call(self, inputs):
        return inputs * self.factor
'''
STEP = 'import tensorflow as tf\nSLOTS = ()\ndef step(weights, gradients, slots, rate, count):\n    """Step."""\n    return '
LOSS = 'import tensorflow as tf\nMASKS_LABELS = False\ndef loss(outputs, targets, present, outside):\n    """Loss."""\n    return '
CASES = [
    ("submodels", KEEP.replace("        step: step\n", "") + "    return list(range(count))\n", "describe every option"),
    ("submodels", KEEP.replace("seed, ", "") + "    return 0\n", "must have the parameters size count round client seed"),
    ("submodels", f"import tensorflow as tf\n{KEEP}    return tf.zeros([count], tf.int32)\n", "distinct coordinates"),
    ("submodels", f"import tensorflow as tf\n{KEEP}    return tf.range(count, dtype=tf.int64)\n", "must be int32"),
    ("schedules", "def multiplier(round):\n    return 1.0 + round\n", "never increase"),
    ("schedules", 'def multiplier(round, *, rate: float = 0.5):\n    """Falling.\n\n    Args:\n        rate: rate\n    """\n    return 1 / (1 + round)\n', "the option rate must have an effect; pass options beside which it has one"),
    ("servers", 'SLOTS = ()\ndef apply(old, mean, coverage, slots, *, registered):\n    """Mean."""\n    return old * 0.5, slots\n', "without coverage must stay bit-equal"),
    ("merges", 'def aggregate(old, rows, covered, weight, *, steps):\n    """First."""\n    return rows[0]\n', "neither the order of clients"),
    ("optimizers", f"{STEP}weights + rate * gradients, slots\n", "follow the negative gradient"),
    ("updates", 'import tensorflow as tf\ndef update(weights, start, steps, key):\n    """Mean."""\n    return weights - tf.reduce_mean(weights)\n', "the values of single ones; rows are some of a round's clients, and padding"),
    ("updates", 'UNBIASED = True\ndef update(weights, start, steps, key):\n    """Half."""\n    return (weights + start) / 2\ndef message_bits(count):\n    return count\n', "UNBIASED: the mean of the messages"),
    ("selections", 'SAMPLING = "cyclic"\ndef choose(pool, count, rng):\n    """First."""\n    return pool.ids[:count]\n', "a client must wait for all others"),
    ("losses", f"{LOSS}tf.reduce_mean(outputs ** 2)\n", "leading axes"),
    ("losses", f"{LOSS}tf.reduce_mean(tf.stop_gradient(outputs) * outputs, -1)\n", "the gradient is that of the loss"),
    ("metrics", 'import tensorflow as tf\nTARGETS = ("label",)\nBETTER = "higher"\nUNIT = None\ndef metric(scores, targets):\n    """Zero."""\n    return tf.zeros([], tf.float64)\n', "perfect scores must be higher"),
    ("layers", LAYER.replace("        factor: factor\n", ""), "`Args:` must describe every argument"),
]  # fmt: skip


@pytest.fixture
def module(plugin_module):
    """Function that writes and imports a module."""
    return lambda text: importlib.import_module(plugin_module(f"tested_plugin_{abs(hash(text))}", text))


@pytest.mark.parametrize(("kind", "text", "rule"), CASES, ids=[f"{kind}-{rule}" for kind, _, rule in CASES])
def test_a_violated_rule_is_reported_with_the_plugin(module, kind, text, rule):
    plugin = module(text)
    message = refusal(testing.check_plugin, kind, plugin, kind=AssertionError)
    assert rule in message and ("Twice" if kind == "layers" else plugin.__name__) in message


def test_a_correct_plugin_passes_with_its_example(module):
    testing.check_plugin("layers", module(LAYER), inputs=np.ones((2, 3)))


def test_wrong_kinds_are_reported(module):
    plugin = module(LAYER)
    assert refusal(testing.check_plugin, "losses", plugin, kind=ValueError) == (
        f"`module` must define a plug-in of the kind losses. Received: {plugin.__name__}"
    )
    assert refusal(testing.plugin_checks, "loss", "x", kind=ValueError).endswith("updates. Received: kind='loss'")


MEAN = """import tensorflow as tf
def update(weights, start, steps, key, *, factor: float):
    \"\"\"Return the mean.

    Args:
        factor: factor
    \"\"\"
    return start + factor * """


def test_plugins_of_a_recipe_are_checked_once_for_each_version(module, tmp_path, monkeypatch):
    monkeypatch.setattr(testing, "FOLDER", tmp_path / "contracts")
    checked, plugin_checks = [], testing.plugin_checks
    monkeypatch.setattr(testing, "plugin_checks", lambda *call: checked.append(call) or plugin_checks(*call))
    for change, problems in (("(weights - start)", 0), ("tf.reduce_mean(weights - start, 0, keepdims=True)", 1)):
        name = module(MEAN + change).__name__
        registry.register_plugin(name)
        recipe = load("tiny/digits", [f"client.update={{name: {name}, factor: 0.5}}"])
        sentences = [testing.violated_contracts(recipe) for _ in range(2)]
        assert checked == (1 + problems) * [("updates", name, {"factor": 0.5})]
        assert (
            sentences[0]
            == sentences[1]
            == problems
            * [
                f"a plug-in violates the contract of its kind: {name} (updates): batched clients must get the values of "
                "single ones; rows are some of a round's clients, and padding"
            ]
        )
        checked.clear()
    assert len(list((tmp_path / "contracts").iterdir())) == 1


def test_a_failing_plugin_is_a_sentence(module, tmp_path, monkeypatch):
    monkeypatch.setattr(testing, "FOLDER", tmp_path / "contracts")
    name = module("def multiplier(round):\n    return 1 / (round - 3)\n").__name__
    registry.register_plugin(name)
    (sentence,) = testing.violated_contracts(load("tiny/digits", [f"schedule={name}"]))
    assert sentence.endswith(f"{name} (schedules): {name}-schedule ends with ZeroDivisionError: division by zero")


def test_training_does_not_require_effects_on_the_examples(module, tmp_path, monkeypatch):
    monkeypatch.setattr(testing, "FOLDER", tmp_path / "contracts")
    (text,) = (text for _, text, rule in CASES if rule.startswith("the option rate"))
    name = module(text).__name__
    registry.register_plugin(name)
    assert testing.violated_contracts(load("tiny/digits", [f"schedule={name}"])) == []


UNSEEDED = """import numpy as np
from hetero_tf.data.partitions import iid
def split(train_labels, test_labels, classes, rng, *, clients: int):
    \"\"\"Divide the examples without the given generator.

    Args:
        clients: number of clients
    \"\"\"
    return iid.split(train_labels, test_labels, classes, np.random.default_rng(), clients=clients)
"""
NOISE = """import dataclasses
import tensorflow as tf
from hetero_tf.data.inputs import images
DATA = "images"
FORM = "map"
TARGETS = "label"
PER_CHANNEL = ("mean", "std")
def build(dtype, *, mean: tuple[float, ...] = (0.0,), std: tuple[float, ...] = (1.0,)):
    \"\"\"Return images with noise that does not depend on the key.

    Args:
        mean: numbers to subtract
        std: divisors
    \"\"\"
    source = images.build(dtype)
    def batch(*arguments, **options):
        x, y = source.batch(*arguments, **options)
        return x + tf.random.normal(x.shape, dtype=x.dtype), y
    return dataclasses.replace(source, batch=batch)
"""


@pytest.mark.parametrize(
    ("source", "override", "rule"),
    [
        (UNSEEDED, "partition={{name: {}, clients: 30}}", "equal generators must give equal splits"),
        (
            NOISE,
            "input={{name: {}, mean: [0.5], std: [2.0]}}",
            "batched clients must get the values of single ones; rows are some of a round's clients, and padding",
        ),
    ],
    ids=["partition", "input"],
)
def test_a_partition_and_an_input_are_checked(source, override, rule, module, tmp_path, monkeypatch):
    monkeypatch.setattr(testing, "FOLDER", tmp_path / "contracts")
    name = module(source).__name__
    registry.register_plugin(name)
    (sentence,) = testing.violated_contracts(load("tiny/digits", [override.format(name)]))
    assert sentence.endswith(f": {rule}"), sentence
