"""Replays of FeDepth and SplitMix on files from plain loops, and on copies with wrong numbers."""

import methods_fedepth
import methods_splitmix
import numpy as np
import plain_fedepth
import plain_splitmix
import pytest

FEDEPTH = {"loss", "client", "frozen", "stage", "round", "logits"}
SPLITMIX = {"loss", "client", "round", "kept", "logits", "accuracy", "sorted"}


def replayed(module, folder, arrays):
    """`{stage: (gap, tolerance)}` of a file with these arrays."""
    np.savez(folder / "made.npz", **arrays)
    return {stage: (gap, tolerance) for stage, gap, tolerance in module.replay(folder / "made.npz")}


def beyond(found):
    return {stage for stage, (gap, tolerance) in found.items() if not gap <= tolerance}


def shifted(arrays, *names):
    """The arrays with the first number of some of them changed."""
    changed = {name: np.array(array, order="C") for name, array in arrays.items()}
    for name in names:
        changed[name].reshape(-1)[0] += 1e-6
    return changed


@pytest.mark.parametrize(
    "variant, running, stages",
    [
        ("link", True, FEDEPTH),
        ("partial", False, FEDEPTH - {"stage"}),
        ("heads", False, FEDEPTH | {"weighed exits"}),
        ("mkd", False, FEDEPTH - {"round"} | {"merge", "peer"}),
    ],
)
def test_fedepth_agrees_with_plain_loops(tmp_path, variant, running, stages):
    found = replayed(methods_fedepth, tmp_path, plain_fedepth.fedepth(variant, running))
    assert found.keys() == stages
    assert beyond(found) == set()
    assert max(gap for gap, _ in found.values()) < 1e-13


def test_fedepth_notices_every_wrong_number(tmp_path):
    arrays = shifted(
        plain_fedepth.fedepth("link", True),
        "f64/round0/client0/loss",
        "f64/round0/client1/after/bn9.bias",
        "f64/eval/batch0/logits",
        "f64/round0/client2/after_stage1/layer1.0.bn1.running_mean",
        "f64/round0/global_after/first_norm.running_var",
    )
    # As if it had not moved in the first stage.
    del arrays["f64/round0/client0/after_stage1/layer1.0.conv1.weight"]
    assert beyond(replayed(methods_fedepth, tmp_path, arrays)) == FEDEPTH


def test_splitmix_agrees_with_plain_loops(tmp_path):
    bases = ({0: [1], 1: [1]}, {2: [0, 1], 0: [0]})
    found = replayed(methods_splitmix, tmp_path, plain_splitmix.splitmix("resnet", bases, masked=True))
    assert found.keys() == SPLITMIX
    assert beyond(found) == set()
    assert max(gap for gap, _ in found.values()) < 1e-13


def test_splitmix_agrees_where_clients_keep_their_norms(tmp_path):
    arrays = plain_splitmix.splitmix("digit", ({0: [1, 0], 1: [1]}, {2: [0], 0: [0]}), local_bn=True)
    found = replayed(methods_splitmix, tmp_path, arrays)
    assert found.keys() == {"loss", "client", "round", "kept", "personal", "logits"}
    assert beyond(found) == set()
    assert max(gap for gap, _ in found.values()) < 1e-13


def test_splitmix_notices_every_wrong_number(tmp_path):
    arrays = shifted(
        plain_splitmix.splitmix("digit", ({0: [1], 1: [1]},)),
        "f64/round0/client0/loss",
        "f64/round0/client1/after/1.fc1.weight",
        "f64/round0/global_after/0.conv1.bias",
        "f64/eval/members2/batch0/logits",
        "f64/sort/base_acc",
        "f64/sort/members1/batch0/logits",
    )
    assert beyond(replayed(methods_splitmix, tmp_path, arrays)) == SPLITMIX - {"kept"}
