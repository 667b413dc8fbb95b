"""Every key of a recipe has an effect: another legal value changes the plan, the graph, the weights or the metrics.

Found by listing the schema: a new key needs a line in `key_effects.csv` or `keys_elsewhere.csv`. Options of plug-ins and layers: `test_effects`.
"""

import dataclasses
import functools
import re
import shlex
from pathlib import Path

import methods
import numpy as np
import pytest
import tiny

from hetero_tf import recipe
from hetero_tf.base import registry
from hetero_tf.base.constraints import walk_keys
from hetero_tf.base.files import read_rows
from hetero_tf.models.build_model import build_model
from hetero_tf.planning.plan import Batching, Division, plan_round
from hetero_tf.planning.timing import RoundClock
from hetero_tf.recipe.recipe_files import PLUGINS
from hetero_tf.recipe.schema import Recipe
from hetero_tf.run.data import load_data, split

TESTS = Path(__file__).parents[1]
DATA_KEYS = {"data.class_order", "data.fallback"}
DENSE = tiny.DENSE
# Two levels are traced faster than three.
PAIR = DENSE.replace("a-b-c", "a1-b9")
# The units 0 and 2, and an exit between them.
TWICE = PAIR.replace("ReLU]\n", "ReLU]\n    - Exit: [Dense: {units: !classes}]\n")


def plans(text, *overrides):
    """Plans and learning rates of three rounds, without a model."""
    loaded, partition = recipe.loads(text, "tiny", overrides), tiny.images()[1]
    division = Division((1,) * len(loaded.levels.names), False)
    costs = np.ones(len(loaded.levels.names))
    clock = RoundClock(loaded, 4, costs, costs, costs[:, None]) if loaded.fleet else None
    cohorts = [tiny.cohort(loaded, len(partition.train), round) for round in range(3)]
    batching = Batching(loaded, (0,), True, division)
    planned = [plan_round(batching, partition, *each, clock) for each in enumerate(cohorts)]
    multiplier = registry.find("schedules", loaded.schedule.name).multiplier
    rates = [loaded.optimizer.learning_rate * multiplier(round, **loaded.schedule.options) for round in range(3)]
    return [
        (*(array.tobytes() for array in plan.arrays().values()), plan.timing and plan.timing.metrics())
        for plan in planned
    ], rates


def partitioned(text, *overrides):
    return split(recipe.loads(text, "tiny", overrides), tiny.images()[0]).sha256


def built(text, *overrides):
    """Shapes and types of the variables of level b, client tables, and the engine."""
    process = tiny.process(text, *overrides)
    shapes = [(v.path, tuple(v.shape), v.dtype) for v in process.family.predictor("b").trainable_variables]
    return (
        shapes,
        repr({name: list(table) for name, table in process.initialize().clients.items()}),
        process.setup.examples.labels is None,
        repr(process.engine_report()),
        process.family.stages,
    )


def variables(text, *overrides):
    """Shapes and initial values of the whole model."""
    model = build_model(recipe.loads(text, "tiny", overrides).model, (5, 5, 2), 1.0, classes=9)
    return [(v.path, v.numpy().tobytes()) for v in model.variables]


@functools.cache
def trained(text, *overrides):
    """The state after a round, and the metrics of the round."""
    process = tiny.process(text, *overrides)
    state, row = process.next(process.initialize())
    tables = (state.weights, *state.server.values(), *state.clients.values())
    return [{path: np.asarray(value).tobytes() for path, value in table.items()} for table in tables], row


@functools.cache
def measured(text, *overrides):
    process = tiny.process(text, *overrides)
    metrics, statistics = process.evaluate(process.initialize())
    return metrics, {
        (of, path): np.asarray(value).tobytes() for of in statistics for path, value in statistics[of].items()
    }


SETTING = DENSE.replace("layers:", "settings: {units: !w 8}\n  layers:").replace("!w 8}, S", "!setting units}, S")
RECIPES = {"DENSE": DENSE, "DEEP": methods.DEEP, "IMAGES": tiny.IMAGES, "PAIR": PAIR, "SETTING": SETTING}
RECIPES |= {"TEXT": tiny.TEXT, "TWICE": TWICE}
EFFECTS = {function.__name__: function for function in (plans, partitioned, built, variables, trained, measured)}
# How the effect of a key is seen, the recipe, what else is set, and the change.
KEYS = {row["key"]: row for row in read_rows(Path(__file__).with_name("key_effects.csv"))}
# Keys whose effects other tests show: the file that sets or names the key, and what it tests.
ELSEWHERE = {row["key"]: row["file"] for row in read_rows(Path(__file__).with_name("keys_elsewhere.csv"))}


def test_every_key_is_here_or_in_a_file_that_names_it():
    paths = {".".join(path): key for path, key in walk_keys(Recipe) if not key.is_section}
    single = {path for path in paths if not path.startswith("fleet.devices.NAME")}
    plugins = {".".join(path) for path in PLUGINS}
    assert single | plugins == KEYS.keys() | ELSEWHERE.keys() | DATA_KEYS
    for key, file in ELSEWHERE.items():
        name = key.rpartition(".")[2]
        assert re.search(rf"\b{name}\b", (TESTS / file).read_text("utf-8")), f"{file} does not test {key}"


def test_keys_of_data_have_an_effect(tmp_path):
    """`class_order` numbers the classes; `fallback` replaces data that are missing."""
    (tmp_path / "grades.csv").write_text("size,grade\n" + "1,low\n2,high\n" * 9)
    grades, orders = "data={name: csv, path: grades.csv, label: grade}", [(), ("data.class_order=[low, high]",)]
    loaded = [load_data(recipe.load("tiny/table_ordinal", [grades, *order]), tmp_path) for order in orders]
    assert [dataset.class_names for dataset in loaded] == [("high", "low"), ("low", "high")]
    missing = recipe.loads(DENSE, "tiny", ["data={name: npz, path: missing.npz, fallback: digits}"])
    assert "digits" in load_data(missing, tmp_path).source


@pytest.mark.parametrize("key", KEYS)
def test_every_key_has_an_effect(key, eager):
    row = KEYS[key]
    observe, text, before = EFFECTS[row["effect"]], RECIPES[row["recipe"]], shlex.split(row["before"])
    assert observe(text, *before) != observe(text, *before, row["change"])


def test_recipes_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe.loads(DENSE).rounds = 5
