"""Every key of a recipe has an effect: another legal value changes the plan, the graph, the weights or the metrics.

Found by listing the schema: a new key needs a line here. Options of plug-ins and layers: `test_effects`.
"""

import dataclasses
import functools
import re
from pathlib import Path

import methods
import numpy as np
import pytest
import tiny

from hetero_tf import recipe
from hetero_tf.base import registry
from hetero_tf.base.constraints import walk_keys
from hetero_tf.models.build_model import build_model
from hetero_tf.planning.plan import Batching, Division, plan_round
from hetero_tf.planning.timing import RoundClock
from hetero_tf.recipe.changes import PLUGINS
from hetero_tf.recipe.schema import Recipe
from hetero_tf.run.data import load_data, split

TESTS = Path(__file__).parents[1]
DATA_KEYS = {"data.class_order", "data.fallback"}
DENSE, IMAGES, DEEP = tiny.DENSE, tiny.IMAGES, methods.DEEP
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
SLOW = ("fleet={devices: {any: {seconds_per_step: 1}}}", "round.policy={name: deadline, seconds: 2}")
PHONES = ("fleet={devices: {fast: {seconds_per_step: 1}, slow: {seconds_per_step: 3}}}",)
FIARSE = ("round.mask=fiarse", "levels.entries={b: 1/2}")
BUDGETS = (methods.EVEN, "client.stages=blockwise", "levels.budgets={b: 0.4}")
DEPTHS = (methods.EVEN, "levels.mix=a-b-c", "client.stages.exits=last", "levels.depths={b: 1}")
HALVES = ("levels.widths={a: 0.5, b: 0.5}", "levels.members={a: 2, b: 1}")
TUNED = ("evaluate.fine_tune.epochs=1",)
# key: how its effect is seen, the recipe, what else is set, the change
KEYS = {
    "seed": (plans, DENSE, (), "seed=1"),
    "input": (measured, DENSE, (), "input.mean=[0.5]"),
    "partition": (partitioned, DENSE, (), "partition={name: quantity, clients: 4}"),
    "levels.widths": (built, DENSE, (), "levels.widths.b=0.75"),
    "levels.mix": (plans, DENSE, (), "levels.mix=a1-b5-c9"),
    "levels.assignment": (plans, DENSE, (), "levels.assignment=fixed"),
    "levels.depths": (built, TWICE, (methods.EVEN,), "levels.depths={b: 1}"),
    "levels.members": (trained, PAIR, (methods.EVEN, "levels.members={a: 2, b: 1}"), "levels.members.b=2"),
    "levels.members_fan_in": (measured, PAIR, HALVES, "levels.members_fan_in=wide"),
    "levels.entries": (trained, PAIR, FIARSE, "levels.entries={b: 1/4}"),
    "levels.idle": (plans, DENSE, ("levels.assignment=fixed", "round.clients=2"), "levels.idle=[c]"),
    "levels.budgets": (built, DEEP, BUDGETS, "levels.budgets.b=0.2"),
    "levels.rounding": (built, DENSE, ("levels.widths.b=0.55",), "levels.rounding=down"),
    "levels.tolerance": (built, DEEP, BUDGETS, "levels.tolerance=0.5"),
    "levels.fit": (built, DENSE, ("levels.budgets={b: 0.6}",), "levels.fit=widths"),
    "levels.measure": (built, DEEP, BUDGETS, "levels.measure=multiply_adds"),
    "round.policy": (plans, DENSE, SLOW, "round.policy.late=partial"),
    "fleet.devices": (plans, DENSE, SLOW, "fleet.devices.any.seconds_per_step=0.5"),
    "fleet.spread": (plans, DENSE, SLOW, "fleet.spread=2"),
    "fleet.jitter": (plans, DENSE, SLOW, "fleet.jitter=2"),
    "fleet.distribution": (plans, DENSE, (*SLOW, "fleet.jitter=2"), "fleet.distribution=half_normal"),
    "fleet.shared_down_mbit": (plans, DENSE, SLOW, "fleet.shared_down_mbit=1e-5"),
    "fleet.shared_up_mbit": (plans, DENSE, SLOW, "fleet.shared_up_mbit=1e-5"),
    "fleet.assign": (plans, DENSE, PHONES, "fleet.assign=order"),
    "client.sampling": (trained, PAIR, (), "client.sampling=balanced"),
    "round.clients": (plans, DENSE, (), "round.clients=2"),
    "round.submodel": (trained, PAIR, (), "round.submodel=random"),
    "round.mask": (trained, PAIR, FIARSE, "round.mask.surrogate=false"),
    "round.weighting": (trained, PAIR, (), "round.weighting=samples"),
    "round.untrained": (trained, TWICE, DEPTHS, "round.untrained=counted"),
    "round.uncovered": (trained, PAIR, (), "round.uncovered=zeros"),
    "round.label_rows": (built, PAIR, (), "round.label_rows=all"),
    "round.by_level": (built, PAIR, (), "round.by_level=[biases]"),
    "round.personal": (built, PAIR, (), 'round.personal=["0"]'),
    "round.merge": (trained, PAIR, (), "round.merge=median"),
    "round.update": (trained, PAIR, (), "round.update=qsgd"),
    "round.server": (trained, PAIR, (), "round.server={name: sgd, learning_rate: 0.5}"),
    "client.epochs": (plans, DENSE, (), "client.epochs=2"),
    "client.batch_size": (plans, DENSE, (), "client.batch_size=2"),
    "client.stages": (built, DENSE, (), "client.stages=nested"),
    "client.loss": (built, PAIR, (), "client.loss=cross_entropy"),
    "client.coupling": (trained, TWICE, (methods.EVEN,), "client.coupling=last"),
    "client.correction": (trained, PAIR, ("client.correction={name: proximal, mu: 0}",), "client.correction.mu=0.5"),
    "client.personalization": (trained, PAIR, (), "client.personalization=ditto"),
    "client.update": (trained, PAIR, ("client.update={name: clip, norm: 1}",), "client.update.norm=0.01"),
    "client.label_cut": (built, DENSE, (), "client.label_cut=false"),
    "optimizer": (trained, PAIR, (), "optimizer.name=adam"),
    "optimizer.learning_rate": (plans, DENSE, (), "optimizer.learning_rate=0.05"),
    "optimizer.clip_norm": (trained, PAIR, (), "optimizer.clip_norm=0.01"),
    "schedule": (plans, DENSE, (), "schedule=constant"),
    "evaluate.statistics": (measured, IMAGES, (), "evaluate.statistics=clients"),
    "evaluate.statistics_batch": (measured, IMAGES, (), "evaluate.statistics_batch=3"),
    "evaluate.batch_size": (measured, tiny.TEXT, (), "evaluate.batch_size=3"),
    "evaluate.exits": (measured, TWICE, (methods.EVEN,), "evaluate.exits=mean"),
    "evaluate.metrics": (measured, PAIR, (), "evaluate.metrics=[macro_f1]"),
    "evaluate.levels": (measured, PAIR, (), "evaluate.levels=all"),
    "evaluate.fine_tune.epochs": (measured, DENSE, (), "evaluate.fine_tune.epochs=1"),
    "evaluate.fine_tune.units": (measured, DENSE, TUNED, 'evaluate.fine_tune.units=["1"]'),
    "evaluate.fine_tune.learning_rate": (measured, DENSE, TUNED, "evaluate.fine_tune.learning_rate=0.9"),
    "engine": (built, DENSE, (), "engine=stacked"),
    "precision": (built, DENSE, (), "precision=float64"),
    "model.layers": (variables, DENSE, (), "model.layers.0.1.Dense.units=6"),
    "model.settings": (variables, SETTING, (), "model.settings.units=6"),
    "model.frozen": (trained, PAIR, (), 'model.frozen=["0"]'),
}
# Keys whose effects other tests show: the file that sets or names the key, and what it tests.
ELSEWHERE = {
    "name": "recipe/test_naming.py: the run folder is named after it",
    "data": "methods/test_effects.py: options of the loaders",
    "task": "run/test_task_process.py: the form of the targets, loss, metrics and predictions",
    "model.function": "recipe/test_model_layers.py: the function that builds the model",
    "model.initial_weights": "run/test_learning_process.py: values of a file",
    "model.reinitialize": "run/test_learning_process.py: values of a file that are ignored",
    "levels.fit_seconds": "models/test_device_fit.py: a level that takes too long",
    "fleet.time_zones": "planning/test_devices.py: the local hour of a client",
    "fleet.trace": "planning/test_device_table.py: devices from a table",
    "round.adapters": "methods/test_adapters.py: the merge of factors",
    "round.non_finite_share": "run/test_loop.py: from which share on a round is drawn again",
    "round.selection": "run/test_selected_rounds.py: the chosen clients",
    "privacy.clip": "rounds/test_private_sum.py: how far a client moves the sum",
    "privacy.noise": "rounds/test_private_sum.py: the variance of the noise",
    "privacy.epsilon": "planning/test_privacy_account.py: the noise and the rounds of a budget",
    "privacy.delta": "planning/test_privacy_account.py: epsilon at a delta",
    "privacy.accountant": "planning/test_privacy_account.py: epsilon by privacy loss distributions",
    "privacy.bands": "rounds/test_private_sum.py: the noise of several rounds",
    "privacy.seed": "planning/test_privacy_account.py: the seeds of the noise",
    "rounds": "run/test_loop.py: where a run ends",
    "evaluate.every": "run/test_loop.py: which rows of metrics.jsonl have an evaluation",
    "evaluate.members": "evaluation/test_level_metrics.py: a level predicts with the best networks",
    "evaluate.best": "run/test_loop.py: which state is kept as the best",
    "early_stopping.patience": "run/test_loop.py: the round after which a run ends",
    "early_stopping.metric": "runs/test_early_stopping.py: the metric that must improve",
    "early_stopping.min_delta": "run/test_loop.py: a smaller improvement does not count",
    "checkpoint.every": "run/test_loop.py: which rounds are saved",
    "checkpoint.keep": "run/test_loop.py: how many saved states stay",
}


def test_every_key_is_here_or_in_a_file_that_names_it():
    paths = {".".join(path): key for path, key in walk_keys(Recipe) if not key.is_section}
    single = {path for path in paths if not path.startswith("fleet.devices.NAME")}
    plugins = {".".join(path) for path in PLUGINS}
    assert single | plugins == KEYS.keys() | ELSEWHERE.keys() | DATA_KEYS
    for key, text in ELSEWHERE.items():
        file, name = text.partition(":")[0], key.rpartition(".")[2]
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
    observe, text, overrides_before, change = KEYS[key]
    assert observe(text, *overrides_before) != observe(text, *overrides_before, change)


def test_recipes_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe.loads(DENSE).rounds = 5
