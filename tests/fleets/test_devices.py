"""Each client has one device, whatever the cohort it is in; classes and speeds have the configured distribution."""

import math
from dataclasses import replace

import numpy as np
import pytest

from hetero_tf.fleets.devices import devices_of
from hetero_tf.recipe.schema import Device, Fleet

FAST = Device(share=1, gflops=20, seconds_per_step=0.5, memory="400 MB", down_mbit=8, train_watts=4, dropout=0.25)
SLOW = Device(share=3, gflops=2, memory="1.5GB", up_mbit=16, radio_watts=1)
FLEET = Fleet(devices={"fast": FAST, "slow": SLOW})


def devices(fleet=FLEET, ids=range(10_000), clients=10_000, **others):
    return devices_of(fleet, 5, np.asarray(ids), clients=clients, **others)


def test_units_of_a_class():
    both = devices(replace(FLEET, assign="levels"), [0, 1], levels=["fast", "slow"])
    assert {name: np.asarray(value).tolist() for name, value in vars(both).items()} == {
        "kind": [0, 1],
        "speed": [2e10, 2e9],
        "seconds_per_step": [0.5, 0.0],
        "memory": [400 * 2**20, 1.5 * 2**30],
        "down": [1e6, math.inf],
        "up": [math.inf, 2e6],
        "train_watts": [4.0, 0.0],
        "radio_watts": [0.0, 1.0],
        "dropout": [0.25, 0.0],
        "shared_down": math.inf,
        "shared_up": math.inf,
    }


def test_classes_are_drawn_once_per_client_by_their_shares():
    kind = devices().kind
    assert kind.mean() == pytest.approx(0.75, abs=0.02)
    assert (devices(ids=[9, 3, 7_000], round=4).kind == kind[[9, 3, 7_000]]).all()


def test_in_order_the_first_clients_have_the_first_class():
    fleet = replace(FLEET, assign="order")
    assert devices(fleet, range(8), 8).kind.tolist() == [0, 0, 1, 1, 1, 1, 1, 1]
    assert devices(fleet, [7, 1], 8).kind.tolist() == [1, 0]


def test_spread_is_that_of_the_logarithm_and_stays_for_the_run():
    fleet = replace(FLEET, devices={"fast": FAST}, spread=0.93)
    first, later = devices(fleet, round=0), devices(fleet, round=9)
    logarithm = np.log(first.speed / 2e10)
    assert (logarithm.mean(), logarithm.std()) == pytest.approx((0, 0.93), abs=0.03)
    assert (first.speed == later.speed).all()
    assert first.seconds_per_step == pytest.approx(0.5 * 2e10 / first.speed)


def test_jitter_is_drawn_in_each_round():
    fleet = replace(FLEET, devices={"fast": FAST}, jitter=0.2)
    first, later, plain = (devices(fleet, round=round) for round in (0, 1, None))
    assert (plain.speed == 2e10).all()
    for one in (first, later):
        assert np.log(one.speed / 2e10).std() == pytest.approx(0.2, abs=0.01)
    assert abs(np.corrcoef(first.speed, later.speed)[0, 1]) < 0.05


def test_half_normal_seconds():
    fleet = replace(FLEET, devices={"fast": FAST}, distribution="half_normal", jitter=2.0)
    first, later = (devices(fleet, round=round).seconds_per_step / 0.5 for round in (0, 1))
    # The mean of |z| is sqrt(2 / pi), its mean square 1.
    assert (first.mean(), (first**2).mean()) == pytest.approx((2 * math.sqrt(2 / math.pi), 4), rel=0.03)
    assert abs(np.corrcoef(first, later)[0, 1]) < 0.05
