"""Fleet files with measured devices: text that the key `fleet` of a recipe reads."""

import datetime
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from hetero_tf.base import files
from hetero_tf.base.errors import InputError
from hetero_tf.devices.calibration import DeviceSpeed
from hetero_tf.recipe import recipe_files
from hetero_tf.recipe.nodes import to_plain
from hetero_tf.recipe.reader import parse

# Significant digits of a measured number.
DIGITS = 4


def device_of(speed: DeviceSpeed, mebibytes: float) -> dict[str, float | str]:
    """Return the keys of a device class that a measurement determines, see `recipe.schema.Device`.

    Args:
        speed: Its training speed; a part that is 0 gives no key.
        mebibytes: Memory in which it trains.
    """
    gflops = 1 / speed.seconds_per_gflop if speed.seconds_per_gflop else None
    times = {"seconds_per_step": speed.seconds_per_step or None, "gflops": gflops}
    device = {name: round_digits(value) for name, value in times.items() if value is not None}
    return {**device, "memory": f"{math.ceil(mebibytes)} MiB"}


def round_digits(value: float) -> float:
    """Return a number with `DIGITS` significant digits."""
    return float(f"{value:.{DIGITS}g}")


def describe_steps(speed: DeviceSpeed, threads: int) -> list[str]:
    """Return lines with the measured steps of a device, and how well the device class describes them."""
    times: dict[str, list[str]] = {}
    for step in speed.steps:
        times.setdefault(step.level, []).append(
            f"{round_digits(1000 * step.seconds):g} ms for {step.examples} examples"
        )
    measured = f"Measured {datetime.date.today()} with --threads {threads}; differs from these steps by at most"
    return [f"{measured} {speed.error:.0%}.", *(f"Level {level}: {', '.join(each)}" for level, each in times.items())]


def dump_class(name: str, device: Mapping[str, float | str], notes: Sequence[str], indent: int = 2) -> str:
    """Return the lines of a device class, indented, after comments."""
    lines = yaml.safe_dump({name: dict(device)}, sort_keys=False, allow_unicode=True, indent=indent).splitlines()
    return "".join(f"{' ' * indent}{line}\n" for line in (*(f"# {note}" for note in notes), *lines))


def add_class(path: Path, name: str, device: Mapping[str, float | str], notes: Sequence[str]) -> None:
    """Add a device class to a fleet file, or create the file.

    Raises:
        InputError: The file is no fleet, has a class of this name, or lists its classes before other keys.
    """
    text = recipe_files.read_file(path, str(path)).text.rstrip("\n") + "\n" if path.exists() else "devices:\n"
    classes = to_plain(parse(text, str(path))) if path.exists() else {"devices": {}}
    if not isinstance(classes, dict) or not isinstance(classes.get("devices"), dict):
        raise InputError(f"--append {path}: is not a fleet file: it has no mapping `devices`")
    if name in classes["devices"]:
        raise InputError(f"--append {path}: already has a device class {name!r}; choose another --name")
    indent = re.search(r"^devices:.*\n(?: *(?:#.*)?\n)*( +)", text, re.MULTILINE)
    text += dump_class(name, device, notes, len(indent[1]) if indent else 2)
    try:
        is_added = to_plain(parse(text, str(path)))["devices"] == {**classes["devices"], name: dict(device)}
    except InputError:
        is_added = False
    if not is_added:
        raise InputError(
            f"--append {path}: `devices` must be the last key of the file, with an indented block for each class"
        )
    if path.exists():
        files.check_single_link(path)
    files.write_atomic(path, text.encode())
