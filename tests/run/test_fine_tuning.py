"""Fine-tuning before the local test: against an eager loop, its units, and no effect on training."""

import dataclasses

import numpy as np
import oracle
import pytest
import tensorflow as tf
import tiny
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.run.simulated_rounds import fine_tuning, tuned_units

EPOCHS = "evaluate.fine_tune.epochs=2"
COMMON = ("precision=float64", "levels.mix=a1-b1", "levels.assignment=fixed", "schedule=constant", "engine=sequential")


def build_process(*overrides, base=tiny.DENSE):
    """A process whose clients are tested on their training examples, so training must improve the metrics."""
    dataset, partition = tiny.images()
    data = dataclasses.replace(dataset, test=dataset.train), dataclasses.replace(partition, test=partition.train)
    return tiny.process(base, *COMMON, *overrides, data=data)


def expected_metrics(process, state):
    """Pooled accuracy and cross-entropy of all clients, each tuned by the eager loop of the oracle."""
    rounds = process.runner.fine_tuning
    plan, tuning, hits, losses = rounds.plan(state.round, range(4)), rounds.federation, [], []
    for slot, client in enumerate(plan.clients.tolist()):
        level = process.recipe.levels.names[plan.levels[slot]]
        model = tuning.family.new_training_model(level, process.dataset.classes)
        for layer in model.layers:
            layer.trainable = process.recipe.model.units.get(layer.name) in tuned_units(process.recipe)
        received = {}
        for variable in [*model.trainable_variables, *model.non_trainable_variables]:
            value = np.asarray(state.weights[variable.path])
            received[variable.path] = value[tuple(slice(size) for size in variable.shape)]
            variable.assign(received[variable.path])
        oracle.Oracle(tuning).train_client(model, received, plan, slot, state.round)
        # The client predicts with inert Scalers.
        client_model = process.family.predictor(level)
        trained_variables = {variable.path: variable for variable in model.variables}
        for variable in client_model.variables:
            variable.assign(trained_variables[variable.path])
        inputs, targets = oracle.batch(process, process.partition.train[client], 0, None)
        logits = np.where(process.partition.label_mask[client], client_model(inputs, training=False).numpy(), 0)
        hits += (logits.argmax(1) == targets).tolist()
        losses += tf.keras.losses.sparse_categorical_crossentropy(targets, logits, from_logits=True).numpy().tolist()
    return 100 * np.mean(hits), np.mean(losses)


@pytest.mark.parametrize("units", ["[all]", "[1]"])
def test_tuned_metrics_match_an_eager_training_loop(units, eager):
    process = build_process(EPOCHS, f"evaluate.fine_tune.units={units}", "evaluate.fine_tune.learning_rate=0.5")
    state = process.initialize()
    metrics, _ = process.evaluate(state)
    accuracy, loss = expected_metrics(process, state)
    assert metrics["tuned_accuracy"] == pytest.approx(accuracy) and metrics["tuned_loss"] == pytest.approx(
        loss, abs=1e-9
    )
    assert metrics["tuned_loss"] < metrics["local_loss"]
    assert {name for name in metrics if "tuned" in name} == {
        f"tuned_{name}" for name in ("loss", "accuracy", "mean", "worst_decile", "std")
    }


def test_only_the_named_units_change_and_the_state_stays_unchanged(eager):
    process = build_process(EPOCHS, "model.frozen=[1]", "evaluate.fine_tune.units=[1]", "levels.mix=a1")
    state, _ = process.next(process.initialize())
    before, tuning = tiny.arrays(state), process.runner.fine_tuning
    after = tuning.fine_tune(state, range(4))
    moved = {path: bool(np.any(np.asarray(table) != before[path])) for path, table in after.clients["personal"].items()}
    assert moved == {path: path.startswith("1_") for path in before}
    process.evaluate(state)
    assert tiny.same(tiny.arrays(state), before)


@pytest.mark.parametrize("kind", ["none", "bn"])
def test_units_without_weights_and_running_averages_can_be_tuned(kind, eager):
    layers = tiny.DENSE.replace(
        "    - [GlobalAveragePooling2D, ", f"    - ReLU\n    - [Norm: {{kind: {kind}}}, GlobalAveragePooling2D, "
    )
    process = build_process(EPOCHS, "evaluate.fine_tune.units=[2]", "client.loss=cross_entropy", base=layers)
    metrics, _ = process.evaluate(process.initialize())
    assert metrics["tuned_loss"] < metrics["local_loss"]


def test_tuning_starts_from_the_personal_units_of_each_client(eager):
    process = build_process(EPOCHS, "evaluate.fine_tune.learning_rate=1.0e-12", 'round.personal=["1"]')
    state, _ = process.next(process.initialize())
    metrics, _ = process.evaluate(state)
    assert metrics["tuned_loss"] == pytest.approx(metrics["local_loss"], abs=1e-9)
    assert metrics["tuned_accuracy"] == metrics["local_accuracy"]


def test_fine_tuning_does_not_change_training(eager):
    runs = []
    for overrides in ((), (EPOCHS,)):
        process = build_process(*overrides)
        state, _ = process.next(process.initialize())
        metrics, _ = process.evaluate(state)
        state, row = process.next(state)
        plain = {name: value for name, value in metrics.items() if not name.startswith("tuned_")}
        runs.append((tiny.arrays(state), row, plain, len(metrics) - len(plain)))
    (one, *rows, none), (other, *others, tuned) = runs
    assert tiny.same(one, other) and rows == others and (none, tuned) == (0, 5)


def test_dynamic_levels_are_tuned_at_the_global_level_without_dropouts():
    fleet, policy = "fleet={devices: {any: {seconds_per_step: 1}}}", "round.policy=over_selection"
    base_recipe = recipe.loads(tiny.DENSE, "tiny", [EPOCHS, fleet, policy, "client.correction={name: proximal, mu: 1}"])
    tuned = fine_tuning(base_recipe, 7)
    assert (tuned.levels.mix, tuned.levels.assignment, tuned.round.clients) == ({"a": 1}, "fixed", 7)
    assert (tuned.fleet, tuned.round.policy.name, tuned.client.correction) == (None, "wait", None)
    assert (tuned.client.epochs, tuned.schedule.name) == (2, "constant") and not tuned.evaluate.fine_tune.epochs
    assert tuned.optimizer.learning_rate == base_recipe.optimizer.learning_rate


@pytest.mark.parametrize(
    "units, expected",
    [
        ("[]", "units: no unit is selected; list units, or all. Received: []"),
        ("[7]", "units[0]: unknown unit '7'; known: 0, 1, all"),
    ],
)
def test_unknown_units_are_rejected(units, expected):
    message = refusal(recipe.loads, tiny.DENSE, "tiny", [EPOCHS, f"evaluate.fine_tune.units={units}"])
    assert message.split("\n")[0].partition(": evaluate.fine_tune.")[2] == expected
