"""Each client has one device, whatever the cohort it is in; classes and speeds have the configured distribution."""

import math
from dataclasses import replace

import numpy as np
import pytest
import tiny

from hetero_tf import recipe
from hetero_tf.planning.fleets.devices import client_times, devices_of, is_available
from hetero_tf.recipe.schema import Device, Fleet

FAST = Device(share=1, gflops=20, seconds_per_step=0.5, memory="400 MiB", down_mbit=8, train_watts=4, dropout=0.25)
SLOW = Device(share=3, gflops=2, memory="1.5GiB", up_mbit=16, radio_watts=1)
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


def test_classes_are_drawn_once_per_client_by_their_shares_or_in_order():
    kind = devices().kind
    assert kind.mean() == pytest.approx(0.75, abs=0.02)
    assert (devices(ids=[9, 3, 7_000], round=4).kind == kind[[9, 3, 7_000]]).all()
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


def available(hour, fleet, ids=range(2_000)):
    return is_available(fleet, 5, np.asarray(ids), 3600 * hour, clients=2_000)


def test_hours_are_local_and_may_pass_midnight():
    device = Device(gflops=1, hours=((22.0, 7.0), (12.0, 13.5)))
    fleet = Fleet(devices={"night": device, "day": Device(gflops=1)}, assign="order")
    expected = {0: 1, 6.9: 1, 7: 0, 11.9: 0, 12: 1, 13.4: 1, 13.5: 0, 21.9: 0, 22: 1, 24 + 7: 0, 240: 1}
    assert {hour: int(available(hour, fleet, [0])[0]) for hour in expected} == expected
    assert all(available(hour, fleet, [1_999])[0] for hour in expected)


def test_clients_of_time_zones_share_the_day():
    night = Device(gflops=1, hours=((0.0, 6.0),))
    fleet = Fleet(devices={"one": night, "other": night}, time_zones=24)
    kind = devices(fleet, range(2_000), 2_000).kind
    shares = [available(hour, fleet)[kind == each].mean() for hour in range(24) for each in (0, 1)]
    assert shares == pytest.approx([0.25] * 48, abs=0.05)
    one = np.asarray([available(hour, fleet, [7])[0] for hour in range(48)])
    assert one.sum() == 12 and (one[:24] == one[24:]).all()


def test_charging_is_drawn_for_each_client_and_hour():
    fleet = Fleet(devices={"any": Device(gflops=1, charging=0.3)})
    first, same, next_hour = (available(hour, fleet) for hour in (3, 3.9, 4))
    assert first.mean() == pytest.approx(0.3, abs=0.04)
    assert (first == same).all() and (first != next_hour).any()
    assert (available(3, fleet, [9, 4]) == first[[9, 4]]).all()


def test_phones_together_have_the_spread_of_the_benchmark():
    fleet = recipe.loads(tiny.DENSE, "tiny", ["fleet=phones"]).fleet
    logarithm = np.log(devices(fleet, range(100_000)).speed)
    assert logarithm.std() == pytest.approx(0.93, abs=0.01)
    assert np.exp(np.median(logarithm)) == pytest.approx(6e9, rel=0.1)


TIMED = Device(gflops=10, seconds_per_step=0.5, down_mbit=8, up_mbit=0.8, train_watts=4, radio_watts=1)
TWO_DEVICES = Fleet(devices={"fast": TIMED, "free": Device(seconds_per_step=2)}, assign="order")
DEVICES = devices_of(TWO_DEVICES, 0, np.arange(2), clients=2)


def test_seconds_and_energy_of_two_clients():
    times = client_times(DEVICES, [4, 3], [3e10, 3e10], [2e6, 2e6], [1e6, 1e6])
    assert times.download.tolist() == [2.0, 0.0]
    assert times.compute.tolist() == [2.0 + 3.0, 6.0]
    assert times.upload.tolist() == [10.0, 0.0]
    assert times.total.tolist() == [17.0, 6.0]
    assert times.energy.tolist() == [5 * 4 + 12 * 1, 0.0]


def test_clients_of_a_shared_link_get_equal_rates_until_one_ends():
    shared = replace(DEVICES, down=np.full(2, math.inf), shared_down=1e6)
    # Both have 1 MB after 2 s; then the second one has the link for 3 MB.
    assert client_times(shared, [0, 0], [0, 0], [1e6, 4e6], [0, 0]).download.tolist() == [2.0, 5.0]


def test_the_slower_of_the_shared_link_and_the_link_of_the_client_counts():
    shared = replace(DEVICES, shared_up=1e9)
    assert client_times(shared, [0, 0], [0, 0], [0, 0], [1e5, 1e9]).upload == pytest.approx([1.0, 1.0001])


def test_the_last_client_ends_when_the_link_has_moved_all_bytes():
    sizes = np.random.default_rng(0).uniform(0, 1e7, 50)
    fleet = Fleet(devices={"any": Device(seconds_per_step=1)}, shared_down_mbit=80)
    many = devices_of(fleet, 0, np.arange(50), clients=50)
    download = client_times(many, np.ones(50), np.zeros(50), sizes, sizes).download
    assert download.max() == pytest.approx(sizes.sum() / 1e7)
    assert (np.argsort(download) == np.argsort(sizes)).all()
