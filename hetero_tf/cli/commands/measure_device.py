"""`measure-device`: measures the training speed of this device with exported files, as a device class of a fleet."""

import dataclasses
from pathlib import Path

from absl.flags import FlagValues

from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError, require_modules

USAGE, SUMMARY = "measure-device --file FILE", "measures this device as a class of a fleet"
FLAGS, WORDS, SOURCE = ("file", "name", "append", "threads"), None, None


def run(recipe: None, flags: FlagValues, console: Console) -> dict:
    """Measure the steps of the files, and print the device class or add it to a fleet file."""
    if not flags.file:
        raise InputError(
            "--file is missing; name the model_train.tflite of an export, see export --format litert_train"
        )
    require_modules("measure-device", ("ai_edge_litert",), "litert")
    from hetero_tf.devices import measured_fleet
    from hetero_tf.devices.on_device import LiteRTTrainer

    def client_of(path):
        folder = path if path.is_dir() else path.parent
        if not (folder / "export.json").is_file():
            raise InputError(f"--file {path}: its folder has no export.json; name the model_train.tflite of an export")
        try:
            client = LiteRTTrainer(folder, flags.threads)
        except (OSError, ValueError) as error:
            raise InputError(f"--file {path}: {error}") from error
        if "train_flops" not in client.settings:
            raise InputError(f"--file {path}: its export.json lacks the operations of a step; export the run again")
        return client

    speed = measured_fleet.fit_speed(measured_fleet.measure_steps([client_of(Path(path)) for path in flags.file]))
    device = measured_fleet.device_of(speed, measured_fleet.peak_mebibytes())
    notes = measured_fleet.describe_steps(speed, flags.threads)
    if flags.append is None:
        console.say_lines("devices:\n" + measured_fleet.dump_class(flags.name, device, notes).rstrip())
    else:
        measured_fleet.add_class(Path(flags.append), flags.name, device, notes)
        console.say(f"{flags.append}: added the device class {flags.name}: {device}")
    steps = [dataclasses.asdict(step) for step in speed.steps]
    return {"name": flags.name, "device": device, "error": speed.error, "steps": steps}
