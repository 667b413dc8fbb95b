"""The export task of a model, by its input and its data."""

from types import SimpleNamespace

import pytest

from hetero_tf.data.inputs import images
from hetero_tf.export import kinds
from hetero_tf.export.images import ImageTask


def process_with(source, kind):
    """The part of a learning process that determines its export task."""
    return SimpleNamespace(
        recipe=SimpleNamespace(input=SimpleNamespace(name=source)), dataset=SimpleNamespace(kind=kind)
    )


@pytest.mark.parametrize(
    ("source", "kind", "key"),
    [("images", "images", "images"), ("masked_text", "text", "text"), ("next_word", "text", "next_word")],
)
def test_the_input_or_the_kind_of_data_determines_the_task(monkeypatch, source, kind, key):
    monkeypatch.setattr(kinds, "TASKS", {name: lambda *_, name=name: name for name in kinds.TASKS})
    assert kinds.task_of(process_with(source, kind), None) == key


def test_an_input_of_a_plugin_can_have_another_task(monkeypatch):
    class Task(ImageTask):
        pass

    monkeypatch.setattr(images, "export_task", Task, raising=False)
    process = process_with("images", "images")
    task = kinds.task_of(process, "model")
    assert type(task) is Task and (task.process, task.model) == (process, "model")
