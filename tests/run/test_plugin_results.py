"""Results of plug-ins that have another form than their contract are refused by name, before a round trains."""

import methods
import pytest
import tensorflow as tf
import tiny
from refusals import refusal

from hetero_tf import data
from hetero_tf.base import registry
from hetero_tf.methods.plugin_results import bind
from hetero_tf.methods.stages import Route, Stage, joint
from hetero_tf.recipe.schema import Plugin

ROWS = tf.zeros([2, 3])


@pytest.mark.parametrize(
    ("result", "expected", "received"),
    [
        (tf.zeros([]), ROWS, "float32 []"),
        (ROWS[:1], ROWS, "float32 [1, 3]"),
        (ROWS[:, :1], ROWS, "float32 [2, 1]"),
        (tf.cast(ROWS, tf.float64), ROWS, "float64 [2, 3]"),
        (None, ROWS, "None"),
        (0.5, ROWS, "an object of float"),
        (ROWS, (ROWS, ()), "float32 [2, 3]"),
        ((ROWS, (ROWS,)), (ROWS, ()), "(float32 [2, 3], (float32 [2, 3]))"),
        ((ROWS, ()), (ROWS, (ROWS,)), "(float32 [2, 3], ())"),
        ((ROWS, (ROWS[:1],)), (ROWS, (ROWS,)), "(float32 [2, 3], (float32 [1, 3]))"),
    ],
)
def test_results_of_another_form_are_refused(result, expected, received):
    def update(weights, *, norm):
        assert norm == 2
        return result

    form = "float32 [2, 3]" if expected is ROWS else f"(float32 [2, 3], ({'float32 [2, 3]' if expected[1] else ''}))"
    bound = bind("updates", Plugin("mine", {"norm": 2}), update, lambda weights: expected)
    assert refusal(bound, ROWS) == f"mine (updates): `update` must return {form}. Received: {received}"


@pytest.mark.parametrize("result", [ROWS, (ROWS, [ROWS])])
def test_results_of_the_form_pass_unchanged(result):
    expected = ROWS if result is ROWS else (ROWS, (tf.TensorSpec([2, None]),))
    assert bind("updates", Plugin("mine", {}), lambda: result, lambda: expected)() is result


def break_plugin(monkeypatch, kind, name, function):
    """Replace a function of a plug-in by one that returns a scalar."""

    def scalar(*args, **options):
        return tf.zeros([])

    scalar.__name__ = function
    monkeypatch.setattr(registry.find(kind, name), function, scalar)


def test_a_round_checks_the_functions_of_all_plugins(monkeypatch):
    calls = {
        ("corrections", "scaffold", "correct"): lambda: setup.correct(ROWS, start=ROWS, memory=ROWS, slots=(ROWS,)),
        ("corrections", "scaffold", "remember"): lambda: setup.remember(ROWS, ROWS, ROWS, (ROWS,), 1, 0.1),
        ("couplings", "sum", "couple"): lambda: setup.couple([ROWS], [ROWS], ROWS, 0),
        ("losses", "cross_entropy", "loss"): lambda: setup.loss(tf.zeros([2, 3, 4]), ROWS, None, 0),
        ("optimizers", "sgd", "step"): lambda: setup.optimizer.step(ROWS, ROWS, (ROWS,), 0.1, 1),
        ("servers", "scaffold", "apply"): lambda: setup.server(ROWS, ROWS, ROWS, (ROWS,), memory_change=ROWS),
        ("updates", "clip", "update"): lambda: setup.update(ROWS, ROWS, 1, 0),
    }
    for names in calls:
        break_plugin(monkeypatch, *names)
    method = methods.METHODS["scaffold"]
    setup = tiny.process(method.base, *method.settings, "client.update={name: clip, norm: 1}").setup.algorithm
    for (kind, name, function), call in calls.items():
        row = "float32 [2, 3]"
        form = f"({row}, ({row}))" if kind in ("optimizers", "servers") else row
        assert refusal(call) == f"{name} ({kind}): `{function}` must return {form}. Received: float32 []"


def test_masks_are_checked(monkeypatch):
    for function in ("mask", "counts"):
        break_plugin(monkeypatch, "masks", "fiarse", function)
    method = methods.METHODS["fiarse"]
    mask = tiny.process(method.base, *method.settings).setup.submodels[-1].mask
    assert refusal(mask.mask, ROWS, state=ROWS) == (
        "fiarse (masks): `mask` must return float32 [2, 3]. Received: float32 []"
    )
    assert refusal(mask.counts, ROWS, ROWS, ROWS) == (
        "fiarse (masks): `counts` must return bool [2, 3]. Received: float32 []"
    )


@pytest.mark.parametrize(
    ("kind", "name", "function", "sentence"),
    [
        ("inputs", "images", "build", "images (inputs): the result must be of the class Input. Received: None"),
        (
            "tasks",
            "classification",
            "task",
            "classification (tasks): the result must be of the class Task. Received: None",
        ),
        ("stages", "joint", "divide", "the stages joint must return a tuple of Stage for level a. Received: None"),
    ],
)
def test_records_of_another_class_are_refused(monkeypatch, kind, name, function, sentence):
    monkeypatch.setattr(registry.find(kind, name), function, lambda *args, **options: None)
    assert refusal(tiny.process, tiny.DENSE).endswith(sentence)


@pytest.mark.parametrize(
    ("units", "width", "trained"),
    [(("0", "9"), 0.25, {"0"}), (("0", "1"), 0.3, {"0"}), (("0", "1"), 0, {"0"}), (("0", "1"), 0.25, {"9"})],
)
def test_stages_with_unknown_units_or_wide_routes_are_refused(monkeypatch, units, width, trained):
    stage = Stage((Route(units, (1,), width),), frozenset(trained))
    divide = joint.divide
    monkeypatch.setattr(
        joint,
        "divide",
        lambda outline, level, **options: (stage,) if level.name == "c" else divide(outline, level, **options),
    )
    assert refusal(tiny.process, tiny.DENSE) == (
        "the stages joint: a stage of level c must have routes of a width of at most 0.25 through the units 0, 1. "
        f"Received: {stage!r}"
    )


def test_a_loader_returns_a_dataset(monkeypatch):
    monkeypatch.setattr(registry.find("data", "digits"), "load", lambda data_dir, **options: None)
    assert refusal(data.load, Plugin("digits", {}), None, None) == (
        "the loader digits must return a Dataset. Received: NoneType"
    )
