"""Values that a device receives and returns, by hand; the coverage of the devices of a round; unsupported recipes."""

import numpy as np
import pytest
import tiny
from refusals import refusal

from hetero_tf.devices.device_index import check_deployable, coverage_of, transfer_of

FIXED = ("levels.assignment=fixed", "engine=sequential")
LABELS = np.array([1, 5])
THREE_UNITS = tiny.DENSE.replace("    - Dense", "    - [Dense: {units: !w 6}, ReLU]\n    - Dense")
PEERS = ("client.stages={name: blockwise, peers: true}", "levels.mix=a1", "levels.budgets={a: 2}")
PEERS += ("client.coupling={name: mutual, ramp: null, weight: 1}",)
MEMORIES = ("client.correction", "round.server")
NORM = (
    "model.layers=[[GlobalAveragePooling2D, Dense: {units: !w 8}, Norm: {kind: sbn}, ReLU], Dense: {units: !classes}]"
)
CHANNELS, HALF, CLASSES = np.arange(8), np.arange(4), np.arange(tiny.CLASSES)


def transfer(*overrides, level="b", client=0, round=0):
    return transfer_of(tiny.process(tiny.DENSE, *FIXED, *overrides), client, level, LABELS, round)


def axes(way):
    """The indices of each axis, by path."""
    return {path: [axis.ravel().tolist() for axis in index] for path, index in way.items()}


def values_of(channels, labels):
    """Indices of the kernels and biases of both layers."""
    kernels = {"0_1_dense/kernel": [range(2), channels], "1_0_dense/kernel": [channels, labels]}
    biases = {"0_1_dense/bias": [channels], "1_0_dense/bias": [labels]}
    return {path: [list(map(int, axis)) for axis in index] for path, index in (kernels | biases).items()}


def test_a_device_receives_and_returns_its_width_and_its_labels_or_all_outputs():
    moved = transfer()
    assert axes(moved.down) == axes(moved.up) == values_of(HALF, LABELS)
    assert axes(transfer(level="a").up) == values_of(CHANNELS, LABELS)
    moved = transfer("client.label_cut=false")
    assert axes(moved.down) == values_of(HALF, CLASSES) and axes(moved.up) == values_of(HALF, LABELS)
    moved = transfer("client.label_cut=false", "round.label_rows=all")
    assert axes(moved.down) == axes(moved.up) == values_of(HALF, CLASSES)


def test_channels_are_those_of_the_submodel_in_the_round():
    windows = [transfer("round.submodel=rolling", round=round).merged for round in (0, 3)]
    (axis,) = [axis for axis in windows[0] if not axis.label]
    assert [sorted(window[axis].tolist()) for window in windows] == [[0, 1, 2, 3], [0, 5, 6, 7]]


def test_values_of_personal_and_frozen_units_do_not_move():
    assert axes(transfer('round.personal=["0"]').up).keys() == {"1_0_dense/kernel", "1_0_dense/bias"}
    frozen = transfer('model.frozen=["0"]')
    # Each device computes the initial values of frozen units itself.
    assert axes(frozen.down).keys() == axes(frozen.up).keys() == {"1_0_dense/kernel", "1_0_dense/bias"}


def test_coverage_is_the_sum_of_the_weights_of_the_devices_with_an_entry():
    process = tiny.process(tiny.DENSE, *FIXED)
    counted = [(transfer_of(process, 0, "a", LABELS, 0), 2.0), (transfer_of(process, 1, "c", np.array([1, 2]), 0), 0.5)]
    expected = []
    for path, value in process.blank().weights.items():
        sums = np.zeros(value.shape)
        for moved, weight in counted:
            sums[moved.up[path]] += weight
        expected.append(sums.ravel())
    covered = coverage_of(process, counted).numpy()
    np.testing.assert_array_equal(covered[: sum(map(len, expected))], np.concatenate(expected))


@pytest.mark.parametrize(
    ("key", "overrides"),
    [
        ("round.selection", ("round.selection={name: power_of_choice, candidates: 4}",)),
        ("levels.members", ("levels.widths={a: 1, b: 1, c: 1}", "levels.members={a: 2, b: 1, c: 1}")),
        ("round.mask", ("levels.widths={a: 1, b: 1, c: 1}", "round.mask=fiarse", "levels.entries={b: 0.5}")),
        ("client.correction: dynamic", tuple(f"{key}={{name: dynamic, alpha: 0.1}}" for key in MEMORIES)),
        ("client.stages: blockwise", PEERS),
        ("levels.assignment: dynamic", ("levels.assignment=dynamic",)),
        ("evaluate.statistics: pooled", ("evaluate.statistics=pooled", NORM)),
        ("fleet", ("fleet=uniform",)),
        ("round.personal", ("round.personal=['0']",)),
        ("client.update", ("client.update=sign",)),
        ("round.update", ("round.update=qsgd",)),
        ("precision: float64", ("precision=float64",)),
        ("evaluate.levels: all", ("evaluate.levels=all",)),
        ("evaluate.fine_tune.epochs", ("evaluate.fine_tune.epochs=1",)),
        ("evaluate.best: local_accuracy", ("evaluate.best=local_accuracy",)),
    ],
)
def test_unsupported_recipes_are_refused_with_their_key(key, overrides):
    process = tiny.process(THREE_UNITS, *FIXED, "evaluate.statistics=clients", *overrides)
    message = refusal(check_deployable, process)
    assert "cannot be deployed on devices" in message and message.endswith(f"Received: {key}")
