"""Times and energy of hand-computed clients; the clients of a shared link end when it has moved all bytes."""

import math
from dataclasses import replace

import numpy as np
import pytest

from hetero_tf.planning.fleets.clock import client_times
from hetero_tf.planning.fleets.devices import devices_of
from hetero_tf.recipe.schema import Device, Fleet

FAST = Device(gflops=10, seconds_per_step=0.5, down_mbit=8, up_mbit=0.8, train_watts=4, radio_watts=1)
FLEET = Fleet(devices={"fast": FAST, "free": Device(seconds_per_step=2)}, assign="order")
DEVICES = devices_of(FLEET, 0, np.arange(2), clients=2)


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
