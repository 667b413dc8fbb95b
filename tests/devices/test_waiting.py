"""How long a server waits for devices: a silent one costs a deadline, and a refused one is asked again."""

import numpy as np
import pytest

from hetero_tf.devices.messages import NARROWER_LEVELS, Lost, Member, Message, Refused, build_introduction
from hetero_tf.devices.waiting import WaitingFleet
from hetero_tf.recipe import load

RECIPE = load("digits", ("partition.clients=5", "round.clients=3", "levels.assignment=fixed"))
DEADLINE, PATIENCE = 60.0, 100.0


class Clock:
    """Time that passes only while the server waits."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        assert self.now < 1e5, "the server waits for ever"


class Nodes:
    """A network of nodes whose number is their client's: `seconds[action][node]` until a response, None: never."""

    def __init__(self, clock, count):
        self.clock, self.nodes, self.sent, self.seconds = clock, list(range(count)), [], {}
        self.responses = {node: introduced(node) for node in self.nodes}

    def connected(self):
        return self.nodes

    def send(self, action, requests):
        first = len(self.sent)
        self.sent += [(action, node, self.clock()) for node in requests]
        return {node: str(first + at) for at, node in enumerate(requests)}

    def receive(self, request):
        action, node, sent_at = self.sent[int(request)]
        seconds = self.seconds.get(action, {}).get(node, 0)
        if seconds is None or self.clock() < sent_at + seconds:
            return None
        return self.responses[node] if action == "introduction" else Message({}, {"node": node})

    def request_times(self, action, node):
        """When a node was asked."""
        return [sent_at for name, to, sent_at in self.sent if (name, to) == (action, node)]


def introduced(node, **claims):
    message = build_introduction(Member(node, "a", 10, np.asarray([0]), NARROWER_LEVELS), RECIPE)
    return Message({}, {**message.metadata, **claims})


@pytest.fixture
def fleet():
    return make()


def make(count=3, quorum=1, deadline=DEADLINE):
    clock, messages = Clock(), []
    fleet = WaitingFleet(
        *(Nodes(clock, count), RECIPE, 10, 10), *(deadline, PATIENCE, quorum, messages.append, clock, clock.sleep)
    )
    fleet.messages = messages
    return fleet


def play(fleet, action="training"):
    """The clients that answer in a step, and the seconds that it takes."""
    members = fleet.members(3)
    began = fleet.clock()
    return sorted(fleet.request(action, dict.fromkeys(members, Message()))), fleet.clock() - began


@pytest.mark.parametrize("deadline", [DEADLINE, PATIENCE])
@pytest.mark.parametrize("action", ["training", "statistics"])
def test_silent_device_costs_one_deadline_and_gets_fewer_requests(action, deadline):
    fleet = make(deadline=deadline)
    fleet.network.seconds[action] = {1: None}
    assert play(fleet, action) == ([0, 2], deadline)
    assert fleet.messages[-1] == (
        f"note: client 1 did not respond within {deadline:.0f} s; next request after its response, or in 100 s"
    )
    assert play(fleet, action) == play(fleet, action) == ([0, 2], 0)
    fleet.clock.now += PATIENCE
    assert play(fleet, action) == ([0, 2], deadline)
    assert play(fleet, action) == ([0, 2], 0)
    fleet.clock.now += PATIENCE
    assert len(fleet.network.request_times(action, 1)) == 2
    fleet.network.seconds[action] = {}
    assert play(fleet, action) == ([0, 1, 2], 0)


def test_a_late_answer_makes_a_device_ready_again(fleet):
    fleet.network.seconds["training"] = {1: DEADLINE + 5}
    assert play(fleet) == ([0, 2], DEADLINE)
    assert play(fleet) == ([0, 2], 0)
    fleet.clock.now += 5
    fleet.network.seconds = {}
    assert play(fleet) == ([0, 1, 2], 0)


def test_refused_device_gets_a_new_request(fleet):
    fleet.network.responses[1] = introduced(1, recipe="another")
    assert sorted(fleet.members(0)) == []
    for _ in range(20):
        fleet.members(0)
        fleet.sleep(1)
    assert sorted(fleet.members(0)) == [0, 2]
    # A look each second; pauses of 10 seconds.
    assert fleet.network.request_times("introduction", 1) == [0, 10]
    assert len(fleet.messages) == 1 and fleet.messages[0].startswith(
        "note: client 1 does not take part: recipe must be the"
    )
    fleet.network.responses[1] = introduced(1)
    assert sorted(fleet.members(3)) == [0, 1, 2]


def test_a_device_may_claim_as_many_examples_as_the_server_has(fleet):
    fleet.network.responses[1] = introduced(1, examples=11)
    assert sorted(fleet.members(0)) == [] and sorted(fleet.members(0)) == [0, 2]
    assert fleet.messages == [
        "note: client 1 does not take part: examples must be a whole number from 1 to 10, the number of the server's "
        "training data. Received: 11"
    ]


@pytest.mark.parametrize("response", [Lost(), Refused("it cannot be read")])
def test_device_without_introduction_delays_no_other_device(fleet, response):
    fleet.network.responses[1] = response
    fleet.members(0)
    fleet.sleep(1)
    assert sorted(fleet.members(0)) == [0, 2] and fleet.clock() == 1
    fleet.network.responses[1] = introduced(1)
    assert sorted(fleet.members(3)) == [0, 1, 2]


def test_a_device_that_never_introduces_itself_delays_the_first_round_by_the_patience(fleet):
    fleet.network.seconds["introduction"] = {1: None}
    assert sorted(fleet.members(3)) == [0, 2] and PATIENCE <= fleet.clock() <= PATIENCE + 3
    assert "2 of 3 devices are connected" in fleet.messages
    began = fleet.clock()
    assert play(fleet) == ([0, 2], 0) and fleet.clock() == began
    # It joins late.
    fleet.network.seconds = {}
    fleet.sleep(PATIENCE)
    fleet.members(0)
    assert play(fleet) == ([0, 1, 2], 0)


def test_a_round_waits_for_a_quorum():
    fleet = make(count=1, quorum=2)
    join, sleep = 500, fleet.sleep

    def sleeping(seconds):
        sleep(seconds)
        if fleet.clock() == join:
            fleet.network.nodes = [0, 1]
            fleet.network.responses[1] = introduced(1)

    fleet.sleep = sleeping
    assert sorted(fleet.members(3)) == [0, 1] and join + PATIENCE <= fleet.clock() <= join + PATIENCE + 3


def test_round_ends_with_enough_responses_and_leaves_busy_devices():
    fleet = make(count=5)
    fleet.members(5)
    fleet.network.seconds["training"] = {0: 40, 1: 30, 2: 5, 3: 10, 4: 20}
    assert play(fleet) == ([2, 3, 4], 20)
    assert sorted(fleet.members(0)) == [2, 3, 4] and fleet.messages[1:] == []
    fleet.sleep(20)
    assert sorted(fleet.members(0)) == [0, 1, 2, 3, 4]


def test_disconnected_device_does_not_delay_the_round(fleet):
    fleet.members(3)
    fleet.network.seconds["training"] = {1: None}
    sleep = fleet.sleep

    def leaving(seconds):
        sleep(seconds)
        fleet.network.nodes = [0, 2]

    fleet.sleep = leaving
    assert play(fleet) == ([0, 2], 1) and fleet.messages[1:] == []


def test_a_request_that_cannot_be_sent_drops_the_device(fleet):
    fleet.members(3)
    send = fleet.network.send
    fleet.network.send = lambda action, requests: send(action, {node: requests[node] for node in requests if node != 1})
    assert play(fleet) == ([0, 2], 0)
