"""States packed to rows and back."""

import methods
import numpy as np
import pytest
import tensorflow as tf
import tiny

from hetero_tf.models.state import StateLayout, concat_values, flatten_state, split_values

SHAPES = {"b/kernel": (2, 3), "a/bias": (2,), "c/scale": (2, 1, 4)}


def build_layout(ensemble=None, peers=0):
    return StateLayout(
        SHAPES, "float64", ("moment", "drift"), 5, ensemble, ("b/kernel", "c/scale"), has_memory=True, peers=peers
    )


def random_values(layout):
    rng = np.random.default_rng(0)
    return layout.build(lambda shape, dtype: tf.constant(rng.normal(size=shape), dtype))


@pytest.mark.parametrize(("ensemble", "peers"), [(None, 0), (None, 3), (2, 0)])
def test_rows_are_restored(ensemble, peers):
    layout = build_layout(ensemble, peers)
    state = layout.state_of(7, random_values(layout))
    rows = layout.pack(layout.values_of(state))
    back = layout.state_of(7, layout.unpack(rows))
    assert rows.weights.shape == (16,) and len(rows.slots) == 2
    networks = (ensemble,) if ensemble else ()
    assert rows.tables["personal"].shape == (5, *networks, 14 // (ensemble or 1))
    assert ("peers" in rows.tables) == bool(peers) and (not peers or rows.tables["peers"].shape == (5, 3, 16))
    assert back.round == 7 and list(back.weights) == list(SHAPES)
    values, restored = flatten_state(state), flatten_state(back)
    assert values.keys() == restored.keys()
    for name, value in values.items():
        np.testing.assert_array_equal(restored[name], value)


def test_row_of_a_network_has_the_values_of_that_network():
    layout = build_layout(ensemble=2)
    values = random_values(layout)
    row = layout.pack(values).tables["memory"][4, 1].numpy()
    memory = values["clients"]["memory"]
    assert row.tolist() == np.concatenate([memory[path][4, 1].numpy().ravel() for path in SHAPES]).tolist()


def test_tensors_of_any_shapes_are_concatenated():
    shapes = ((2, 3), (), (4,))
    values = [tf.constant(np.random.default_rng(0).normal(size=shape)) for shape in shapes]
    row = concat_values(values)
    assert row.numpy().tolist() == np.concatenate([value.numpy().reshape(-1) for value in values]).tolist()
    for actual, value in zip(split_values(row, shapes), values, strict=True):
        np.testing.assert_array_equal(actual, value)


@pytest.mark.parametrize("name", ["lg", "scaffold", "fedepth_peers", "splitmix", "adam"])
def test_state_of_a_method_keeps_its_bits(name):
    process = methods.built(name)
    layout, state = process.state_layout, process.initialize()
    restored = layout.state_of(0, layout.unpack(layout.pack(layout.values_of(state))))
    assert tiny.same(flatten_state(restored), flatten_state(state))
