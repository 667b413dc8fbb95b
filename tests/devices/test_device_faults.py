"""Devices that leave, overflow, fall silent or claim too much: a round counts them or fails, and the state stays good."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf
from fleets import HonestDevice, LocalFleet
from refusals import refusal

import hetero_tf
from hetero_tf.base.errors import NotFinite, TooFewDevices
from hetero_tf.devices.device_rounds import Selection, deployed
from hetero_tf.devices.messages import Message
from hetero_tf.recipe import load
from hetero_tf.run import learning_process

CLIENTS = 5
OVERRIDES = (
    *("levels.assignment=fixed", "evaluate.statistics=clients", "engine=sequential"),
    *(f"partition.clients={CLIENTS}", f"round.clients={CLIENTS}", "rounds=3"),
)


class LeavingFleet(LocalFleet):
    """A fleet that some devices leave before or after they answer a request, or whose devices claim other numbers."""

    def __init__(self, process, devices, leaving=(), before=None, after=None, claims=None):
        super().__init__(process, devices)
        self.leaving, self.before, self.after, self.claims, self.left = leaving, before, after, claims or {}, set()

    def members(self, least):
        return {
            client: dataclasses.replace(member, examples=self.claims.get(client, member.examples))
            for client, member in super().members(least).items()
            if client not in self.left
        }

    def request(self, action, requests):
        self.left |= set(self.leaving if action == self.before else ())
        responses = super().request(
            action, {client: each for client, each in requests.items() if client not in self.left}
        )
        self.left |= set(self.leaving if action == self.after else ())
        return responses


@pytest.fixture(scope="module")
def process():
    return hetero_tf.learning_process(load("digits", OVERRIDES))


@pytest.fixture(scope="module")
def weighted():
    return hetero_tf.learning_process(load("digits", (*OVERRIDES, "round.weighting=samples")))


def devices_of(process):
    return {client: HonestDevice(process, client) for client in range(CLIENTS)}


def filled(number):
    """Changes an answer into one whose values are all equal to a number."""

    def change(message):
        return dataclasses.replace(
            message, arrays={path: np.full(len(data) // 4, number).tobytes() for path, data in message.arrays.items()}
        )

    return change


def equal(state, other):
    return all(np.array_equal(value, other.weights[path]) for path, value in state.weights.items())


@pytest.mark.parametrize("moment", [{"after": "training"}, {"before": "training"}])
def test_a_device_that_leaves_before_the_merge_is_dropped(weighted, moment):
    state, devices = weighted.initialize(), devices_of(weighted)
    leaving = deployed(weighted, LeavingFleet(weighted, devices, leaving=[0], **moment))
    silent = deployed(weighted, LocalFleet(weighted, devices, {0: lambda answer: None}))
    (after, row), (expected, without) = leaving.next(state), silent.next(state)
    assert row["dropped"] == without["dropped"] == 1 and row["refused"] == row["non_finite"] == 0
    assert equal(after, expected) and not equal(after, state)


@pytest.mark.parametrize("moment", [{"after": "statistics"}, {"before": "statistics"}])
def test_statistics_are_those_of_the_devices_that_stay(process, moment):
    state, devices = process.initialize(), devices_of(process)
    wide = [client for client, device in devices.items() if device.member.level == "a"]
    assert len(wide) == 2
    real = deployed(process, LeavingFleet(process, devices, leaving=wide[:1], **moment))
    assert all(np.array_equal(value, np.ones_like(value)) for value in real.runner.statistics(state).values())
    assert wide[0] in real.runner.fleet.left
    everyone = deployed(process, LeavingFleet(process, devices, leaving=wide, **moment))
    assert everyone.evaluate(state) == ({}, {}) and "no evaluation, since" in everyone.runner.fleet.messages[0]


def test_a_device_with_another_level_than_planned_is_dropped(process):
    devices = devices_of(process)
    real = deployed(process, LocalFleet(process, devices))
    plan = real.plan(0)
    devices[0] = HonestDevice(process, 1)
    devices[0].member = dataclasses.replace(devices[0].member, client=0)
    assert real.run(process.initialize(), [plan])[1][0]["dropped"] == 1


def test_a_round_without_a_quorum_leaves_the_state_and_is_repeated_once(process):
    state, devices = process.initialize(), devices_of(process)
    silent = dict.fromkeys(range(3), lambda answer: None)
    real = deployed(process, LocalFleet(process, devices, silent), Selection(quorum=0.5))
    after, row = real.next(state)
    assert equal(after, state) and row["dropped"] == 3
    assert refusal(learning_process.advance, real, state, [real.plan(0)], kind=TooFewDevices) == (
        "round 1: 2 of 5 devices returned a result, and the quorum is 3, also with a second cohort; the state before "
        "this round is kept. Start the same command again once more devices are connected"
    )
    assert not equal(deployed(process, real.runner.fleet, Selection(quorum=0.4)).next(state)[0], state)
    unconnected = deployed(process, LocalFleet(process, {}))
    assert "0 of 5 devices returned a result" in refusal(
        learning_process.advance, unconnected, state, [unconnected.plan(0)], kind=TooFewDevices
    )


def test_over_selection_asks_more_devices(process):
    small = hetero_tf.learning_process(load("digits", (*OVERRIDES, "round.clients=3")))
    fleet = LocalFleet(small, devices_of(small))
    assert [len(deployed(small, fleet, Selection(share)).plan(0).clients) for share in (0, 0.3, 0.5, 9)] == [3, 4, 5, 5]


@pytest.mark.parametrize("server", ["replace", "{name: adam}", "{name: momentum}", "{name: adagrad}"])
def test_finite_values_that_overflow_leave_the_state_as_it_was(server):
    process = hetero_tf.learning_process(load("digits", (*OVERRIDES, f"round.server={server}")))
    state, devices = process.initialize(), devices_of(process)
    real = deployed(process, LocalFleet(process, devices, dict.fromkeys((0, 1), filled(np.float32(3e38)))))
    after, _ = real.next(state)
    for value, before in zip(
        tf.nest.flatten([after.weights, after.server]), tf.nest.flatten([state.weights, state.server])
    ):
        np.testing.assert_array_equal(value, before)
    message_text = refusal(learning_process.advance, real, state, [real.plan(0)], kind=NotFinite)
    assert message_text.startswith(
        "round 1: the merge of the clients' finite weights overflowed to NaN or infinity; the largest"
    )
    assert "of them, 3e+38, is from client 0, also with a second cohort" in message_text


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, 1e39, 10**400])
@pytest.mark.parametrize("name", ["loss", "gradient_norm"])
def test_a_number_that_is_not_finite_is_refused(process, name, number):
    state = process.initialize()
    wrong = {0: lambda answer: dataclasses.replace(answer, metadata={**answer.metadata, name: number})}
    _, row = deployed(process, LocalFleet(process, devices_of(process), wrong)).next(state)
    assert (row["non_finite"], row["refused"], row["dropped"]) == (1, 0, 0) and row[name] < 2


def test_a_negative_variance_is_refused(process):
    devices = devices_of(process)
    honest = devices[0].respond

    def respond(action, request):
        response = honest(action, request)
        if action != "statistics":
            return response
        return Message(
            {path: -value if path.endswith("variance") else value for path, value in response.arrays.items()}
        )

    devices[0].respond = respond
    real = deployed(process, LocalFleet(process, devices))
    assert all((value >= 0).all() for value in map(np.asarray, real.runner.statistics(process.initialize()).values()))
    assert "must not be negative" in real.runner.fleet.messages[0]


def test_plans_of_devices_do_not_grow_with_the_examples_that_they_claim(process):
    fleet = LeavingFleet(process, devices_of(process), claims=dict.fromkeys(range(CLIENTS), 10**9))
    plan = deployed(process, fleet).plan(0)
    assert sum(array.nbytes for array in plan.arrays().values()) < 1000 and plan.steps.max() >= 10**8
