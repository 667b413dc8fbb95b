"""Rounds whose clients are chosen by their losses or their history."""

import numpy as np
import pytest
import tiny
from oracle import Oracle
from stub_rounds import stubbed

from hetero_tf.models.state import flatten_state
from hetero_tf.run import learning_process, resume
from hetero_tf.runs import checkpoints

OORT, POWER = "round.selection=oort", "round.selection={name: power_of_choice, candidates: 4}"
SETTINGS = ("round.clients=2", "levels.mix=a1-c1", "levels.assignment=fixed", "precision=float64", "rounds=8")


@pytest.fixture(scope="module")
def by_oort():
    return tiny.process(tiny.DENSE, OORT, *SETTINGS)


@pytest.fixture(scope="module")
def by_losses():
    return tiny.process(tiny.DENSE, POWER, *SETTINGS, "client.epochs=2")


class LossesOfSteps(Oracle):
    """Records the loss of every local step."""

    def __init__(self, process):
        super().__init__(process)
        self.losses = []

    def loss(self, logits, targets, client):
        loss = super().loss(logits, targets, client)
        self.losses.append(float(loss))
        return loss


def losses_of_steps(process, plan, slot, state, frozen=False):
    """The losses of a client's local steps by the eager loop; with `frozen`, without a change of the values."""
    recorder, weights = LossesOfSteps(process), {path: np.asarray(value) for path, value in state.weights.items()}
    model = recorder.model(process.recipe.levels.names[plan.levels[slot]])
    coordinates = recorder.coordinates(weights, model, 0, int(plan.clients[slot]))
    received = {path: weights[path][np.ix_(*axes)] for path, axes in coordinates.items()}
    if frozen:
        recorder.step = lambda path, value, *_: value
    recorder.train_client(model, received, plan, slot, state.round)
    return recorder.losses


def test_history_has_the_squared_losses_of_the_local_steps(by_oort):
    state = by_oort.initialize()
    plan = by_oort.plan(0, state=state)
    after, (row,) = by_oort.run(state, [plan])
    history, clients = after.history["clients"], plan.clients.tolist()
    losses = [losses_of_steps(by_oort, plan, slot, state) for slot in range(2)]
    expected = [np.mean(np.square(steps)) for steps in losses]
    np.testing.assert_allclose(history["squared_loss"][clients], expected, 1e-10)
    assert row["loss"] == pytest.approx(np.mean([np.mean(steps) for steps in losses]), rel=1e-10)
    assert sorted(np.flatnonzero(history["count"])) == sorted(clients)
    assert (history["round"] == history["count"]).all()
    assert after.history["selection"]["exploration"] == plan.choice.memory["exploration"] == 0.9


def test_candidates_report_the_loss_of_the_unchanged_model(by_losses):
    state, _ = by_losses.next(by_losses.initialize(), [0, 1])
    losses, clients = by_losses.runner.client_losses(state, np.arange(4)), by_losses.plan(1, range(4))
    first_epoch = [slice(0, clients.steps[slot] // 2) for slot in range(4)]
    for slot, client in enumerate(clients.clients):
        steps = losses_of_steps(by_losses, clients, slot, state, frozen=True)[first_epoch[slot]]
        assert losses[client] == pytest.approx(np.mean(steps), rel=1e-10)
    plan = by_losses.plan(1, state=state)
    assert sorted(plan.clients) == sorted(np.argsort(-losses, kind="stable")[:2])
    assert plan.choice.evaluated.tolist() == [0, 1, 2, 3]


def test_downloads_of_candidates_that_do_not_train_count(by_losses):
    state = by_losses.initialize()
    plan = by_losses.plan(0, state=state)
    _, (row,) = by_losses.run(state, [plan])
    _, (unasked,) = by_losses.run(state, [by_losses.plan(0, plan.clients)])
    _, (rest,) = by_losses.run(state, [by_losses.plan(0, np.setdiff1d(np.arange(4), plan.clients))])
    assert row["bytes_down"] == unasked["bytes_down"] + rest["bytes_down"]
    assert {name for name in row if row[name] != unasked[name]} == {"bytes_down"}


def test_rounds_are_planned_one_by_one(by_oort):
    assert not by_oort.runner.can_plan_ahead and tiny.shared(tiny.DENSE).runner.can_plan_ahead
    assert len(learning_process.plan_call(by_oort, 0, by_oort.initialize())) == 1
    with pytest.raises(ValueError, match="^the selection oort needs `state`. Received: None$"):
        by_oort.plan(0)


def test_a_resumed_run_chooses_the_same_clients(by_oort, tmp_path):
    state, expected = by_oort.initialize(), []
    for round in range(6):
        if round == 3:
            checkpoints.save(tmp_path, 3, resume.arrays_of(state, {}, "a"), {}, keep=1)
        plan = by_oort.plan(round, state=state)
        expected.append(plan.clients.tolist())
        state, _ = by_oort.run(state, [plan])
    resumed = resume.open_newest(tmp_path, by_oort).state
    for round in range(3, 6):
        plan = by_oort.plan(round, state=resumed)
        assert plan.clients.tolist() == expected[round]
        resumed, _ = by_oort.run(resumed, [plan])
    assert tiny.same(flatten_state(resumed), flatten_state(state))
    assert "history/clients/count" in flatten_state(state)
    assert flatten_state(state)["history/clients/count"].sum() == 12


FLEET = "fleet={devices: {day: {seconds_per_step: 1, hours: [[1, 2]]}, night: {seconds_per_step: 60}}, assign: order}"


def test_rounds_wait_for_available_clients():
    process = stubbed(tiny.process(tiny.DENSE, FLEET, "round.selection=available", "round.clients=3"))
    state = process.initialize()
    plan = process.plan(0, state=state)
    # Clients 0 and 1 take part between 1 and 2 o'clock.
    assert plan.choice.waited == 3600
    state, (row,) = process.run(state, [plan])
    steps = int(plan.steps[np.isin(plan.clients, [2, 3])].max())
    assert row["round_seconds"] == 3600 + 60 * steps == state.history["run"]["device_seconds"]
    assert state.history["clients"]["seconds"].max() == 60 * steps
    assert process.plan(1, state=state).choice.waited == 0


def test_expected_times_exclude_slow_clients():
    process = tiny.process(tiny.DENSE, FLEET, "round.selection={name: in_time, seconds: 10}", "round.clients=2")
    for round in range(4):
        assert sorted(process.plan(round).clients) == [0, 1]
    seconds = process.runner._expected_seconds(0, np.arange(4))
    times = {plan.timing.clients[0]: plan.timing.times.total[0] for plan in (process.plan(0, [k]) for k in range(4))}
    assert seconds.tolist() == [times[client] for client in range(4)]


def test_evaluations_of_candidates_take_device_time():
    device = "{seconds_per_step: 2, gflops: 1.0e-6, down_mbit: 0.1, train_watts: 3, radio_watts: 1}"
    settings = (f"fleet={{devices: {{any: {device}}}}}", *SETTINGS, "client.epochs=2")
    process = stubbed(tiny.process(tiny.DENSE, POWER, *settings))
    state = process.initialize()
    plan = process.plan(0, state=state)
    _, (row,) = process.run(state, [plan])
    chosen, everyone = (process.plan(0, clients).timing for clients in (plan.clients, range(4)))
    # A forward pass has a third of the operations of one of two epochs.
    constant = 2.0 * (everyone.steps // 2)
    forward = constant + (everyone.times.compute - 2 * constant) / 6
    waited = (everyone.times.download + forward).max() - chosen.times.download.max()
    assert plan.choice.waited == pytest.approx(waited) and row["round_seconds"] == pytest.approx(
        chosen.seconds + waited
    )
    others = ~np.isin(everyone.clients, plan.clients)
    energy = 3 * forward.sum() + everyone.times.download[others].sum()
    assert row["round_energy"] == pytest.approx(chosen.times.energy.sum() + energy)
