"""The export task of a model, by its input and its data."""

import exports
import pytest

from hetero_tf.data.inputs import images
from hetero_tf.export import task_of
from hetero_tf.export.labelled import LabelledTask
from hetero_tf.export.positions import MaskedTextTask, NextWordTask


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [(exports.IMAGES, LabelledTask), (exports.TEXT, MaskedTextTask), (("tiny/wikitext2_lstm",), NextWordTask)],
)
def test_the_input_or_the_kind_of_data_determines_the_task(recipe, expected):
    assert type(task_of(exports.process(*recipe), None)) is expected


def test_an_input_of_a_plugin_can_have_another_task(monkeypatch):
    class Task(LabelledTask):
        pass

    monkeypatch.setattr(images, "export_task", Task, raising=False)
    process = exports.process(*exports.IMAGES)
    task = task_of(process, "model")
    assert type(task) is Task and (task.process, task.model) == (process, "model")
