"""The speed of a device is fitted to times of steps, and a fleet file gets the device class."""

import pytest
import yaml
from refusals import refusal

from hetero_tf.devices.measured_fleet import StepTime, add_class, describe_steps, device_of, fit_speed


def steps(*times):
    """Steps of [GFLOP, seconds]."""
    return [StepTime("a", 2, 1e9 * gflop, seconds) for gflop, seconds in times]


def test_batch_sizes_separate_the_constant_from_the_speed_of_files_of_all_levels():
    speed = fit_speed(steps((1, 0.6), (3, 0.8)))
    assert (speed.seconds_per_step, speed.seconds_per_gflop) == (pytest.approx(0.5), pytest.approx(0.1))
    assert speed.error == pytest.approx(0) and speed.predict(10, 20e9) == pytest.approx(10 * 0.5 + 20 * 0.1)
    assert device_of(speed, 99.2) == {"seconds_per_step": 0.5, "gflops": 10.0, "memory": "100 MiB"}
    # 1.2 s have the smallest squared errors: 20 % of 1 s and 40 % of 2 s.
    speed = fit_speed([*steps((1, 1)), StepTime("c", 4, 1e9, 2)])
    assert speed.error == pytest.approx(0.4) and speed.predict(1, 1e9) == pytest.approx(1.2)
    first, *lines = describe_steps(speed, 2)
    assert first.endswith("with --threads 2; differs from these steps by at most 40%.")
    assert lines == ["Level a: 1000 ms for 2 examples", "Level c: 2000 ms for 4 examples"]


@pytest.mark.parametrize(
    ("times", "device"), [(((1, 0.1), (2, 0.3)), {"gflops": 8.667}), (((1, 0.2), (2, 0.1)), {"seconds_per_step": 0.12})]
)
def test_no_part_of_a_time_is_negative(times, device):
    assert device_of(fit_speed(steps(*times)), 7) == {**device, "memory": "7 MiB"}


def test_a_fleet_file_gets_a_class_below_its_others(tmp_path):
    path = tmp_path / "fleet.yaml"
    path.write_text("# Mine\nspread: 0.5\ndevices:\n  # The first\n  pc:\n    gflops: 20  # fast\n\n")
    before = path.read_text()
    add_class(path, "phone", {"gflops": 2.5}, ["Measured"])
    assert path.read_text() == f"{before.rstrip()}\n  # Measured\n  phone:\n    gflops: 2.5\n"
    add_class(tmp_path / "new.yaml", "phone", {"gflops": 2.5}, [])
    assert yaml.safe_load((tmp_path / "new.yaml").read_text()) == {"devices": {"phone": {"gflops": 2.5}}}


@pytest.mark.parametrize(
    "text",
    [
        "- pc\n",
        "devices: {pc: {gflops: 1}}\n",
        "devices:\n  pc:\n    gflops: 1\nspread: 1\n",
        "devices:\n  phone: {}\n",
    ],
)
def test_other_files_stay_unchanged(text, tmp_path):
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    message = refusal(add_class, path, "phone", {"gflops": 2.5}, [])
    assert message.startswith(f"--append {path}: must be a fleet file without a class 'phone', whose last key is")
    assert path.read_text() == text
