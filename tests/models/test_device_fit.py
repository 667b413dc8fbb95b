"""With `levels.fit: device` each client has the largest level that fits its device, and others never train."""

import methods
import numpy as np
import pytest
import tiny
from refusals import refusal

from hetero_tf.planning.fleets.devices import devices_of
from hetero_tf.recipe.schema import Device, Fleet
from hetero_tf.run import notes

FIXED = ("levels.assignment=fixed", "levels.fit=device", "round.clients=2")

# A step takes 1 s and an operation 1 s; 1 byte is transferred in 1 s.
UNIT = devices_of(
    Fleet(devices={"unit": Device(seconds_per_step=1, gflops=1e-9, down_mbit=8e-6)}), 0, np.zeros(1, int), clients=1
)


def fleet(*memory, **keys):
    """A fleet whose clients have this memory in order, and a step of 1 s."""
    devices = ", ".join(f"d{number}: {{seconds_per_step: 1, memory: {size} MiB}}" for number, size in enumerate(memory))
    others = "".join(f", {name}: {value}" for name, value in keys.items())
    return f"fleet={{devices: {{{devices}}}, assign: order{others}}}"


@pytest.fixture(scope="module")
def needs():
    """MiB of training memory of the levels a, b and c."""
    costs = tiny.process(tiny.DENSE).costs_of("abc")
    return [costs[name].memory.total / 2**20 for name in "abc"]


def test_each_client_has_the_largest_level_of_its_memory(needs, eager):
    a, b, c = needs
    process = tiny.process(
        tiny.DENSE, *FIXED, fleet(*(f"{size:.9f}" for size in (a * 1.01, b * 0.99, b * 1.01, c / 2)))
    )
    levels = process.recipe.levels
    assert levels.level_of_client.tolist() == [0, 2, 1, -1]
    assert levels.level_of_client.dtype == np.int8
    assert levels.mix == {"a": 1, "b": 1, "c": 1}
    plans = [process.plan(round) for round in range(20)]
    assert {client for plan in plans for client in plan.clients} == {0, 1, 2}
    assert all((plan.levels == levels.level_of_client[plan.clients]).all() for plan in plans)
    assert notes.warnings(process)[-1] == "1 of 4 clients never train: no level fits their device"
    state, _ = process.next(process.initialize())
    assert all(np.isfinite(value).all() for value in state.weights.values())


def test_a_level_has_to_fit_in_the_seconds(needs):
    fast = fleet(*(f"{size:.9f}" for size in (needs[0] * 1.01,) * 4))
    # The batches of 7, 5, 9 and 4 examples are 2, 2, 3 and 1.
    levels = tiny.process(tiny.DENSE, *FIXED, fast, "levels.fit_seconds=2").recipe.levels
    assert levels.level_of_client.tolist() == [0, 0, -1, 0]
    message = refusal(tiny.process, tiny.DENSE, *FIXED, fast, "levels.fit_seconds=0.5")
    assert "levels.fit: no device fits a level: the smallest level, c, needs " in message
    assert "and 1 s on the fastest device; add a smaller level or raise levels.fit_seconds" in message


def test_a_global_level_without_clients_is_noted_and_idle_levels_do_not_train(needs):
    process = tiny.process(tiny.DENSE, *FIXED, fleet(*(f"{size:.9f}" for size in (needs[1] * 1.01,) * 4)))
    assert process.recipe.levels.mix == {"a": 0, "b": 4, "c": 0}
    assert notes.warnings(process)[-1].startswith("no device fits level a: the part of the global model that only it ")
    sizes = fleet(*(f"{size:.9f}" for size in (needs[0] * 1.01, needs[0] * 1.01, needs[2] * 1.01, needs[2] * 1.01)))
    process = tiny.process(tiny.DENSE, *FIXED, sizes, "levels.idle=[c]")
    assert {client for round in range(9) for client in process.plan(round).clients} == {0, 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("levels.idle=[]",), "levels.fit: no device fits a level: the smallest level, c, needs "),
        (("fleet=null",), "levels.fit: needs the devices of a fleet; set fleet, such as `fleet: phones`. Received: 'dev"),
        (("levels.assignment=dynamic",), "levels.assignment: cannot be combined with levels.fit device: a client keeps "),
        (("levels.fit=null", "levels.fit_seconds=3"), "levels.fit_seconds: has no effect because levels do not fit the "),
    ],
)  # fmt: skip
def test_errors(changes, message):
    assert message in refusal(tiny.process, tiny.DENSE, *FIXED, fleet("0.000001"), *changes)


def test_a_round_needs_enough_clients(needs):
    sizes = fleet(*(f"{size:.9f}" for size in (needs[1] * 1.01, needs[2] / 2, needs[2] / 2, needs[2] / 2)))
    assert refusal(tiny.process, tiny.DENSE, *FIXED, sizes) == (
        "--set round.clients=2: round.clients: more active clients than clients whose device fits a level (levels.fit); "
        "must be at most 1. Received: 2"
    )


@pytest.mark.parametrize(
    ("text", "overrides"),
    [
        (tiny.DENSE, ()),
        (tiny.IMAGES, ("client.epochs={a: 2, b: 1, c: 1, d: 1, e: 1}",)),
        (methods.DEEP, ("client.stages=blockwise", "levels.budgets={b: 0.4}", "levels.mix=a-b")),
    ],
)
def test_the_work_of_a_level_is_that_of_its_planned_rounds(text, overrides):
    process = tiny.process(text, *overrides)
    work = process.level_work
    plan = process.plan(0)
    cost = process.round_cost(plan)
    for slot, (client, level) in enumerate(zip(plan.clients, plan.levels)):
        times = work[process.recipe.levels.names[level]].times(UNIT, process.partition.train.sizes[[client]])
        assert times.compute[0] == pytest.approx(plan.steps[slot] + cost.train_flops[slot])
        assert times.download[0] == pytest.approx(cost.bytes_down[slot])
