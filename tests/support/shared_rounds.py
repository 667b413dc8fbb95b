"""Plays two rounds of tiny methods alone and on two devices, and prints how far apart they are, a JSON line each.

A separate process runs it (`python tests/support/shared_rounds.py fedprox splitmix ...`): a processor can be divided into
several devices only before TensorFlow has looked at it.
"""

import json
import sys
import tempfile
from pathlib import Path

import folders
import methods
import numpy as np
import tensorflow as tf
import tiny

from hetero_tf import learning_process
from hetero_tf.base import hardware
from hetero_tf.models.state import flatten_state
from hetero_tf.workers.cluster import mirrored

# Recipes of `tiny` beside the methods.
BASES = {"images": tiny.DROPOUT_IMAGES, "text": tiny.DROPOUT_TEXT, "on_disk": tiny.DROPOUT_IMAGES}
# Products of factors are one more sum over the devices.
BASES["dense"] = tiny.DENSE.replace("a-b-c", "a-c")
BASES["adapters"] = tiny.ADAPTERS.replace("round: {", "round: {adapters: flora, ")
EVERYONE = (0, 1, 2, 3)


def single_device_process(name):
    """The process of a tiny recipe, with stacks as small as two devices have them."""
    if name in BASES:
        return tiny.process(BASES[name], "precision=float64", "evaluate.levels=all", parallel=2)
    return methods.built(name, "stacked", "float64")


def on_disk(dataset):
    """The same data set, whose images stay on disk."""
    with tempfile.TemporaryDirectory() as folder:
        return folders.on_disk(Path(folder), dataset)


def gap(one, other):
    """The largest difference, as a share of the largest value; rounding errors around 0 count as 0."""
    one, other = (np.asarray(value, float) for value in (one, other))
    assert np.isfinite(one).all()
    return float(np.abs(one - other).max(initial=0) / max(np.abs(one).max(initial=0), 1e-6))


def gaps(one, other):
    """The largest gap of the values that two dicts have under the same names."""
    assert one.keys() == other.keys()
    return max(gap(one[name], other[name]) for name in one)


def compare(name, strategy):
    """The comparison of one recipe, as a dict."""
    one = single_device_process(name)
    dataset = on_disk(one.dataset) if name == "on_disk" else one.dataset
    two = learning_process(one.recipe, dataset=dataset, partition=one.partition, parallel=1, strategy=strategy)
    plans = [*tiny.plans(one, 1), one.plan(1, EVERYONE)]
    before = one.initialize()
    (state, rows), (shared, others) = one.run(before, plans), two.run(before, plans)
    numbers = [
        {key: value for key, value in row.items() if isinstance(value, (int, float))} for row in (*rows, *others)
    ]
    (metrics, statistics), (of_shared, statistics_of_shared) = one.evaluate(state), two.evaluate(state)
    return {
        "name": name,
        "stacks": two.setup.block_sizes,
        "moved": gaps(flatten_state(state), flatten_state(before)),
        "state": gaps(flatten_state(state), flatten_state(shared)),
        "rows": max(map(gaps, numbers[: len(rows)], numbers[len(rows) :])),
        "metrics": gaps(metrics, of_shared),
        "statistics": max(
            gaps(values, statistics_of_shared[level]) if values else 0.0 for level, values in statistics.items()
        ),
        "traces": two.runner.compiled_round.experimental_get_tracing_count(),
    }


if __name__ == "__main__":
    hardware.configure_threads(2)
    # As in the tests, see `conftest.graph_optimizer`.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    devices = mirrored(2)
    assert devices.num_replicas_in_sync == 2 and len(tf.config.list_logical_devices("CPU")) == 2
    for recipe in sys.argv[1:]:
        print(json.dumps(compare(recipe, devices)), flush=True)
