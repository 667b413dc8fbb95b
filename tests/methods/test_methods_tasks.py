"""Which tasks each recipe of recipes/methods trains; recipes/README.md, Tasks, has the rejected ones with the reason."""

import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf import learning_process, recipe
from hetero_tf.base.errors import InputError
from hetero_tf.recipe.recipe_files import shipped

RECIPES = Path(__file__).parents[2] / "recipes"
README = RECIPES / "README.md"
METHODS = sorted(name for name in shipped() if name.startswith("methods/"))
LOSS = "client.loss=null"
TASKS = {
    "binary": (LOSS, "data.classes=2"),
    "ordinal": (LOSS,),
    "regression": (LOSS,),
    "multi_label": (LOSS,),
    "segmentation": (),
}
# Tasks whose losses receive sets of labels; each method trains one of them.
LABEL_SETS = ("binary", "ordinal", "multi_label")
SMALL = (
    "data={name: synthetic, kind: images, examples: 60, test_examples: 20, size: 8, channels: 3, classes: 3}",
    "partition={name: iid, clients: 4}",
    "model.settings.channels=[!w 6, !w 6, !w 6]",
    # Without statistics to query, which would take most of the time.
    "model.settings.norm=in",
    "round.clients=2",
    "client.epochs=1",
    "client.batch_size=10",
    "rounds=2",
    "levels.budgets={a: 1, b: 1, c: 1, d: 1}",
    "levels.fit=null",
)
BEGIN, END = "<!-- begin: methods -->\n", "<!-- end: methods -->"


def layers_of_maps(name):
    """The layers of a method's recipe with logits for each pixel: no strides, and convolutions of one pixel as heads."""
    text = (RECIPES / f"{name}.yaml").read_text("utf-8")
    layers = re.search(r"(?m)^  layers:\n((?:    .*\n)+)", text)
    if layers is None:
        return layers_of_maps(re.search(r"(?m)^base: (.+)$", text)[1])
    changed = layers[1].replace("stride: 2", "stride: 1")
    # DepthFL's exits halve the maps.
    changed = re.sub(r"(AttentionGate|SeparableBlock): \{[^}]*\},\s*", "", changed)
    head = "Conv2D: {kernel_size: 1, filters: !classes}"
    return re.sub(r"GlobalAveragePooling2D,\s*Dense: \{[^}]*\}", head, changed)


def load(name, task):
    overrides = [*SMALL, f"task={task}", *TASKS[task]]
    if task == "segmentation":
        overrides.append(f"model.layers=\n{layers_of_maps(name)}")
    return recipe.load(name, overrides)


def reason(name, task):
    """The sentence of a rejected task, whose name is TASK; None if the recipe trains it."""
    try:
        load(name, task)
    except InputError as error:
        _, key, sentence = str(error).split(": ", 2)
        return f"`{key}` {sentence.partition('. Received: ')[0].replace(task, 'TASK')}"
    return None


def table():
    """The tasks that each recipe rejects, with the reason."""
    lines = ["| recipe | does not train | reason |\n| --- | --- | --- |\n"]
    for name in METHODS:
        reasons = {task: reason(name, task) for task in TASKS}
        for text in dict.fromkeys(filter(None, reasons.values())):
            tasks = ", ".join(task for task in TASKS if reasons[task] == text)
            lines.append(f"| `{name}` | {tasks} | {text} |\n")
    return "".join(lines)


def update():
    """Writes the current table: `python -c "import test_methods_tasks as t; t.update()"` in tests/methods/."""
    head, _, rest = README.read_text("utf-8").partition(BEGIN)
    README.write_text(head + BEGIN + table() + END + rest.partition(END)[2], "utf-8")


def test_the_table_has_every_rejected_task_with_its_reason():
    assert README.read_text("utf-8").partition(BEGIN)[2].partition(END)[0] == table()


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_every_form_of_targets_is_trained(name, eager):
    for task in (LABEL_SETS[METHODS.index(name) % 3], "regression", "segmentation"):
        if reason(name, task) is None:
            process = learning_process(load(name, task))
            state = before = process.initialize()
            for _ in range(2):
                state, row = process.next(state)
                assert row["non_finite"] == 0 and np.isfinite(row["loss"]), task
            assert np.isfinite(process.evaluate(state)[0]["global_loss"]), task
            table = "clients" if process.setup.layout.personal else "weights"
            flat, flat_before = (tf.nest.flatten(getattr(each, table)) for each in (state, before))
            assert any((np.asarray(now) != np.asarray(then)).any() for now, then in zip(flat, flat_before)), task
