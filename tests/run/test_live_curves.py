"""Curves in a notebook: one display that later evaluations replace."""

import types

import pytest

from hetero_tf.base.errors import InputError
from hetero_tf.run.callbacks import RoundEnd
from hetero_tf.run.live_curves import LiveCurves


class Display:
    """Records what a notebook would show."""

    def __init__(self):
        self.shown, self.updated = [], []

    def display(self, picture, display_id):
        assert display_id
        self.shown.append(picture)
        return types.SimpleNamespace(update=self.updated.append)


@pytest.fixture
def notebook(monkeypatch):
    pytest.importorskip("matplotlib")
    display = Display()
    module = pytest.importorskip("IPython.display")
    monkeypatch.setattr(module, "Image", lambda data: data)
    monkeypatch.setattr(module, "display", display.display)
    return display


def test_one_picture_is_shown_and_replaced(notebook):
    curves = LiveCurves(["global_accuracy", "loss"], every=2)
    process = types.SimpleNamespace(selection_metric="global_accuracy")
    for round in range(1, 7):
        evaluated = {"global_accuracy": 10.0 * round} if round != 3 else {}
        curves(RoundEnd(process, None, {"round": round, "loss": 1 / round, **evaluated}))
    assert len(notebook.shown) == 1 and len(notebook.updated) == 2
    assert notebook.shown[0].startswith(b"\x89PNG") and len({*notebook.shown, *notebook.updated}) == 3


def test_the_selection_metric_is_the_default(notebook):
    curves = LiveCurves()
    process = types.SimpleNamespace(selection_metric="global_accuracy")
    curves(RoundEnd(process, None, {"round": 1, "loss": 1.0}))
    assert curves.rows == [] and notebook.shown == []
    curves(RoundEnd(process, None, {"round": 2, "loss": 1.0, "global_accuracy": 20.0}))
    assert len(curves.rows) == len(notebook.shown) == 1


def test_wrong_arguments_are_rejected():
    with pytest.raises(InputError, match="`metrics` must be among .*global_accuracy.* Received: 'accurate'"):
        LiveCurves(["accurate"])
    with pytest.raises(InputError, match="`every` must be at least 1. Received: every=0"):
        LiveCurves(every=0)
