"""Fine-tuning before a client's own test: against a plain eager loop, what it trains, and that training knows nothing."""

import dataclasses

import numpy as np
import oracle
import pytest
import tensorflow as tf
import tiny
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.recipe.fine_tuning import fine_tuning, tuned_units

EPOCHS = "evaluate.fine_tune.epochs=2"
COMMON = ("precision=float64", "levels.mix=a1-b1", "levels.assignment=fixed", "schedule=constant", "engine=sequential")


def process(*overrides, base=tiny.DENSE):
    """A process whose clients are tested on what they train on: a test that training must make easier."""
    dataset, partition = tiny.images()
    data = dataclasses.replace(dataset, test=dataset.train), dataclasses.replace(partition, test=partition.train)
    return tiny.process(base, *COMMON, *overrides, data=data)


def hand(given, state):
    """Pooled accuracy and cross-entropy of all clients, each tuned alone by the eager loop of the oracle."""
    tuning = given._fine_tuning
    plan, hits, losses = tuning.plan(state.round, range(4)), [], []
    for slot, client in enumerate(plan.clients.tolist()):
        level = given.recipe.levels.names[plan.levels[slot]]
        model = tuning.family.fresh(level, given.dataset.classes)
        for layer in model.layers:
            layer.trainable = given.recipe.model.units.get(layer.name) in tuned_units(given.recipe)
        for variable in [*model.trainable_variables, *model.non_trainable_variables]:
            value = np.asarray(state.weights[variable.path])
            variable.assign(value[tuple(slice(size) for size in variable.shape)])
        oracle.train(tuning, model, plan, slot, state.round)
        # The client predicts with inert Scalers.
        own = given.family.predictor(level)
        found = {variable.path: variable for variable in model.variables}
        for variable in own.variables:
            variable.assign(found[variable.path])
        rows = given.partition.train[client]
        inputs, targets = oracle.batch(given, rows, 0, None)
        logits = np.where(given.partition.label_mask[client], own(inputs, training=False).numpy(), 0)
        hits += (logits.argmax(1) == targets).tolist()
        losses += tf.keras.losses.sparse_categorical_crossentropy(targets, logits, from_logits=True).numpy().tolist()
    return 100 * np.mean(hits), np.mean(losses)


@pytest.mark.parametrize("units", ["[all]", "[1]"])
def test_tuned_models_are_those_of_a_plain_loop(units, eager):
    given = process(EPOCHS, f"evaluate.fine_tune.units={units}", "evaluate.fine_tune.learning_rate=0.5")
    state = given.initialize()
    found, _ = given.evaluate(state)
    accuracy, loss = hand(given, state)
    assert found["tuned_accuracy"] == pytest.approx(accuracy) and found["tuned_loss"] == pytest.approx(loss, abs=1e-9)
    assert found["tuned_loss"] < found["local_loss"]
    assert {name for name in found if "tuned" in name} == {
        f"tuned_{name}" for name in ("loss", "accuracy", "mean", "worst_decile", "std")
    }


def test_only_the_named_units_move_and_the_state_stays_as_it_is(eager):
    given = process(EPOCHS, "model.frozen=[1]", "evaluate.fine_tune.units=[1]", "levels.mix=a1")
    state, _ = given.next(given.initialize())
    before, tuning = tiny.arrays(state), given._fine_tuning
    after = tuning.tuned(state, range(4))
    moved = {path: bool(np.any(np.asarray(table) != before[path])) for path, table in after.clients["personal"].items()}
    assert moved == {path: path.startswith("1_") for path in before}
    given.evaluate(state)
    assert tiny.same(tiny.arrays(state), before)


@pytest.mark.parametrize("kind", ["none", "bn"])
def test_units_without_weights_and_running_averages_are_no_obstacle(kind, eager):
    layers = tiny.DENSE.replace(
        "    - [GlobalAveragePooling2D, ", f"    - ReLU\n    - [Norm: {{kind: {kind}}}, GlobalAveragePooling2D, "
    )
    given = process(EPOCHS, "evaluate.fine_tune.units=[2]", "client.loss=cross_entropy", base=layers)
    found, _ = given.evaluate(given.initialize())
    assert found["tuned_loss"] < found["local_loss"]


def test_a_tiny_step_changes_nothing_and_own_units_are_what_it_starts_from(eager):
    given = process(EPOCHS, "evaluate.fine_tune.learning_rate=1.0e-12", 'round.personal=["1"]')
    state, _ = given.next(given.initialize())
    found, _ = given.evaluate(state)
    assert found["tuned_loss"] == pytest.approx(found["local_loss"], abs=1e-9)
    assert found["tuned_accuracy"] == found["local_accuracy"]


def test_training_is_bit_equal_with_and_without_it(eager):
    runs = []
    for overrides in ((), (EPOCHS,)):
        given = process(*overrides)
        state, _ = given.next(given.initialize())
        metrics, _ = given.evaluate(state)
        state, row = given.next(state)
        plain = {name: value for name, value in metrics.items() if not name.startswith("tuned_")}
        runs.append((tiny.arrays(state), row, plain, len(metrics) - len(plain)))
    (one, *told, none), (other, *others, tuned) = runs
    assert tiny.same(one, other) and told == others and (none, tuned) == (0, 5)


def test_who_draws_its_level_is_tuned_at_the_global_one_and_nobody_drops_out():
    given = recipe.loads(
        tiny.DENSE, "tiny", [EPOCHS, "availability.dropout=0.5", "client.correction={name: proximal, mu: 1}"]
    )
    found = fine_tuning(given, 7)
    assert (found.levels.mix, found.levels.assignment, found.round.clients) == ((("a", 1),), "fixed", 7)
    assert not found.availability.is_limited and found.client.correction is None and found.client.epochs == 2
    assert found.optimizer.learning_rate == given.optimizer.learning_rate and not found.evaluate.fine_tune.epochs


HALVES = ("levels.mix=a", "levels.members={a: 2}")


@pytest.mark.parametrize(
    "overrides, expected",
    [
        (("evaluate.fine_tune.units=[]",), "units: names no unit to train; name some, or all. Received: []"),
        (
            ("evaluate.fine_tune.units=[1]",),
            "units: has no effect, since nothing is fine-tuned; give evaluate.fine_tune.epochs or leave it out. "
            "Received: ['1']",
        ),
        (
            ("evaluate.fine_tune.learning_rate=1",),
            "learning_rate: has no effect, since nothing is fine-tuned; give evaluate.fine_tune.epochs or leave it out. "
            "Received: 1.0",
        ),
        ((EPOCHS, "evaluate.fine_tune.units=[7]"), "units[0]: no such unit '7'; known: 0, 1, all"),
        (
            (*HALVES, EPOCHS),
            "epochs: must be 0 with levels.members {a: 2}: where it is fine-tuned, a client has one network of its own. "
            "Received: 2",
        ),
        (
            ("client.stages=slimmable", EPOCHS),
            "epochs: must be 0 with client.stages slimmable: where it is fine-tuned, a client trains its whole model in "
            "every step. Received: 2",
        ),
        (
            ("round.mask=fiarse", "levels.entries={b: 1/2}", EPOCHS),
            "epochs: must be 0 with round.mask fiarse: where it is fine-tuned, a client keeps all entries of its own "
            "model. Received: 2",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused(overrides, expected):
    sentence = refusal(recipe.loads, tiny.DENSE, "tiny", overrides)
    assert sentence.split("\n")[0].partition(": evaluate.fine_tune.")[2] == expected


def test_text_has_no_test_of_single_clients():
    sentence = refusal(recipe.loads, tiny.TEXT, "tiny", [EPOCHS])
    assert "must be 0 with the input masked_text: text has no test examples of single clients." in sentence
