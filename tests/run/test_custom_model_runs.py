"""Runs of custom models: from a function of a plug-in module, and with a model and data passed from Python."""

import re
import time

import keras
import numpy as np
import pytest
import tiny
from stub_rounds import stubbed

import hetero_tf
from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.recipe import loads
from hetero_tf.run import experiment
from hetero_tf.run.learning_process import learning_process
from hetero_tf.runs import metrics_file
from hetero_tf.runs.run_folder import RunFolder

WITHOUT_MODEL = tiny.DENSE[: tiny.DENSE.index("model:")] + tiny.TWO_LEVELS
RECIPE = WITHOUT_MODEL.replace("data: {name: synthetic}\n", "")
SOURCE = """
import keras


def dense(width, classes, *, hidden: int = 8, activation: str = "relu"):
    \"\"\"Two layers.

    Args:
        hidden: units of the first layer
    \"\"\"
    inputs = keras.Input((5, 5, 2))
    value = keras.layers.Dense(round(hidden * width), activation)(keras.layers.Flatten()(inputs))
    return keras.Model(inputs, keras.layers.Dense(classes)(value))


def _helper(width):
    return width
"""


def dense(width, classes):
    inputs = keras.Input((5, 5, 2))
    value = keras.layers.Dense(round(8 * width), "relu")(keras.layers.Flatten()(inputs))
    return keras.Model(inputs, keras.layers.Dense(classes)(value))


def ready(units=8):
    return dense(units / 8, tiny.CLASSES)


@pytest.fixture
def module(plugin_module):
    """The name of a module with a model function, on the path."""
    return plugin_module("user_models", SOURCE)


@pytest.fixture
def stub(monkeypatch):
    """No client trains in runs with a folder, see `stub_rounds`."""
    build = experiment.learning_process
    monkeypatch.setattr(experiment, "learning_process", lambda *values, **options: stubbed(build(*values, **options)))


def assert_equal_weights(one, other):
    for value, same in zip(one.weights.values(), other.weights.values(), strict=True):
        np.testing.assert_array_equal(value, same)


def test_a_recipe_names_a_function_of_a_plugin(module, eager):
    assert ("models", "user_models:dense") in registry.register_plugin(module)
    assert registry.names("models") == ("from_python", "preset", "user_models:dense")
    text = WITHOUT_MODEL + "model: user_models:dense\n"
    named, passed = (
        learning_process(each, *tiny.images(), parallel=1, model=model)
        for each, model in ((text, None), (WITHOUT_MODEL, dense))
    )
    assert_equal_weights(*(process.next(process.initialize())[0] for process in (named, passed)))
    wide = loads(text, overrides=["model.function.hidden=16", "model.function.activation=tanh"])
    assert loads(wide.source) == wide and wide.model.function.options == {"hidden": 16, "activation": "tanh"}
    process = learning_process(wide, *tiny.images(), parallel=1)
    assert [value.shape[-1] for value in process.initialize().weights.values()] == [16, 16, 9, 9]


@pytest.mark.long
def test_a_run_with_a_passed_model_and_data_resumes_exactly_and_is_loaded(stub, tmp_path):
    dataset, _ = tiny.images()
    for model in (lambda width, classes: dense(width, classes), ready()):
        keep = {"model": model, "dataset": dataset, "quiet": True}
        folder = tmp_path / type(model).__name__
        whole = hetero_tf.train(RECIPE, 2, folder / "whole", **keep)
        hetero_tf.train(RECIPE, 1, folder / "run", **keep)
        resumed = hetero_tf.train(RECIPE, 2, folder / "run", **keep)
        assert_equal_weights(resumed.state, whole.state)
        assert [row["round"] for row in resumed.rows] == [1, 2] and resumed.state.round == 2
        process, state = hetero_tf.load_run(folder / "run", "last", model=model, dataset=dataset)
        assert_equal_weights(state, whole.state)
        assert process.evaluate(state)[0]["global_loss"] == resumed.rows[-1]["global_loss"]
        readme = RunFolder(folder / "run").readme.read_text()
        assert "by hetero_tf.train in Python" in readme and "recipe.yaml       the recipe with all defaults" in readme
    assert not any(name.startswith("test_custom_model_runs") for _, name in registry.registered_plugins())
    # Keras counts the layers of a process: the same cell of a notebook gives other names when it runs again.
    again = hetero_tf.train(RECIPE, 3, folder / "run", **keep | {"model": ready()})
    assert len(metrics_file.rows(RunFolder(folder / "run").metrics)) == 3
    assert list(again.state.weights) == ["dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"]
    others = [ready(16), ready()]
    others[1].compile("rmsprop", keras.losses.CategoricalFocalCrossentropy(from_logits=True))
    for other in others:
        with pytest.raises(InputError, match="is a run of another model, whose layers or compile"):
            hetero_tf.train(RECIPE, 4, folder / "run", **keep | {"model": other})
    for missing in ("model", "dataset"):
        with pytest.raises(InputError, match=f"passed from Python: pass (it|them) again, as .*{missing}="):
            hetero_tf.load_run(folder / "run", **{"model": model, "dataset": dataset, missing: None})


def test_a_passed_function_of_a_module_is_named_in_the_recipe(module, stub, tmp_path):
    import user_models

    dataset, _ = tiny.images()
    began = time.monotonic()
    trained = hetero_tf.train(RECIPE, 1, tmp_path / "run", model=user_models.dense, dataset=dataset, quiet=True)
    # The start is that of the call, and not that of the notebook or service that makes it.
    (start,) = re.findall(r"ready in .*: start ([\d.]+) s, ", (tmp_path / "run" / "log.txt").read_text())
    assert float(start) <= time.monotonic() - began
    stored = loads(RunFolder(tmp_path / "run").read_recipe())
    assert (stored.model.function.name, stored.data.loader.name) == ("user_models:dense", "from_python")
    _, state = hetero_tf.load_run(tmp_path / "run", model=user_models.dense, dataset=dataset)
    assert_equal_weights(state, trained.state)


def test_a_recipe_trains_without_a_folder():
    rows = []
    with pytest.raises(InputError, match="must be functional, or Sequential with an input, and give 9 logits"):
        hetero_tf.train(RECIPE, 1, model=dense(1, 4), dataset=tiny.images()[0], callbacks=[rows.append])
    assert not rows
