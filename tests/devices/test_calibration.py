"""The speed of a device is fitted to the times of two batch sizes."""

import pytest

from hetero_tf.devices.measured_fleet import device_of


def test_batch_sizes_separate_the_constant_from_the_speed():
    device = device_of({1: 0.6, 3: 0.8}, 1e9, 99.2)
    assert device == {"seconds_per_step": 0.5, "gflops": 10.0, "memory": "100 MiB"}


@pytest.mark.parametrize(
    ("times", "device"), [({1: 0.1, 2: 0.3}, {"gflops": 8.333}), ({1: 0.2, 2: 0.1}, {"seconds_per_step": 0.15})]
)
def test_no_part_of_a_time_is_negative(times, device):
    assert device_of(times, 1e9, 7) == {**device, "memory": "7 MiB"}
