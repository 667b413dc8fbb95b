"""Commands for real devices: `flower` trains on them, `measure-device` measures one."""

import contextlib
import datetime
from pathlib import Path

import yaml
from absl.flags import FlagValues

from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError, did_you_mean, require_modules
from hetero_tf.cli.flags import program_name
from hetero_tf.cli.open_run import build_settings, check_level
from hetero_tf.recipe.schema import Recipe

# Required flags of each role.
REQUIRED_FLAGS = {
    "keys": ("out", "address"),
    "server": ("address", "certificates"),
    "client": ("address", "key", "client"),
}


def run_role(recipe: Recipe, flags: FlagValues, console: Console) -> dict:
    """Run one role of a fleet."""
    role = " ".join(flags.role or ())
    if role not in REQUIRED_FLAGS:
        suggestion = did_you_mean(role, REQUIRED_FLAGS) if role else f"; known: {', '.join(REQUIRED_FLAGS)}"
        example = f"{program_name()} flower keys --recipe digits --address 127.0.0.1:9092 --out fleet"
        raise InputError(f"flower needs a subcommand{suggestion}; try {example}")
    for name in REQUIRED_FLAGS[role]:
        if flags[name].value is None:
            raise InputError(f"--{name} is missing; flower {role} needs --{', --'.join(REQUIRED_FLAGS[role])}")
    if flags.deadline is not None and flags.deadline > flags.patience:
        raise InputError(
            "--deadline must be at most --patience, after which a request is lost. "
            f"Received: --deadline={flags.deadline:g}, --patience={flags.patience:g}"
        )
    from hetero_tf.workers.cluster import parse_address

    host, port = parse_address("--address", flags.address)
    require_modules("flower", ("cryptography",) if role == "keys" else ("cryptography", "flwr"), "flower")
    if role == "keys":
        return _make_keys(recipe, flags, console, host)
    check_level(recipe, flags)
    return _serve(recipe, flags, console, host, port) if role == "server" else _connect(recipe, flags, console)


def _serve(recipe, flags, console, host, port):
    from hetero_tf.devices import certificates, fleet_api

    folder = Path(flags.certificates)
    keys = certificates.read_public_keys(folder)
    with fleet_api.serve(host, port, *certificates.find_server_files(folder), keys) as (grid, nodes):
        console.say(f"devices can connect to {flags.address}: {len(nodes)} keys are registered")
        settings = build_settings(recipe, flags)
        from hetero_tf.cli.commands.training import with_contracts
        from hetero_tf.devices.device_rounds import Selection, deployed
        from hetero_tf.devices.waiting import FlowerNetwork, WaitingFleet
        from hetero_tf.run import experiment
        from hetero_tf.runs.run_folder import RunFolder

        selection = Selection(flags.over_selection, flags.quorum)
        deadline = flags.patience if flags.deadline is None else flags.deadline
        limits = deadline, flags.patience, selection.quorum_size(recipe.round.clients)
        fleet_file = RunFolder(settings.run_dir).fleet

        @contextlib.contextmanager
        def on_fleet(build, console, display):
            with experiment.simulated(build, console, display) as process:
                network = FlowerNetwork(grid, nodes, console.say)
                sizes = process.family.classes, len(process.dataset.train.x)
                fleet = WaitingFleet(network, process.recipe, *sizes, *limits, console.say)
                yield deployed(process, fleet, selection, fleet_file)

        return experiment.train(recipe, settings, console, with_contracts(on_fleet, recipe, flags))[-1]


def _connect(recipe, flags, console):
    from hetero_tf.devices import certificates, machine

    credentials = certificates.read_device_files(Path(flags.key))
    settings = machine.DeviceSettings(recipe, flags.data_dir, flags.threads, flags.client, flags.level, flags.litert)
    return machine.connect(settings, flags.address, *credentials, console.say)


def _make_keys(recipe, flags, console, host):
    from hetero_tf.devices import certificates

    if host in ("0.0.0.0", "::"):
        raise InputError(
            "--address must be the host name or address that devices use to reach the server, because its certificate "
            f"contains it. Received: --address={flags.address}"
        )
    clients = recipe.partition.options["clients"]
    certificates.make(Path(flags.out), list(dict.fromkeys([host, "127.0.0.1"])), clients)
    console.say(
        f"{flags.out} contains the server's certificate and the keys of {clients} devices, valid for a year; give "
        f"client N the files {certificates.AUTHORITY} and {certificates.KEYS}/N.key and nothing else"
    )
    return {"folder": flags.out, "clients": clients}


def measure_device(flags: FlagValues, console: Console) -> dict:
    """Measure the steps of a file, and print the device class."""
    if not flags.file:
        raise InputError(
            "--file is missing; name the model_train.tflite of an export, see export --format litert_train"
        )
    require_modules("measure-device", ("ai_edge_litert",), "litert")
    from hetero_tf.devices import measured_fleet
    from hetero_tf.devices.on_device import LiteRTTrainer

    path = Path(flags.file)
    try:
        trainer = LiteRTTrainer(path if path.is_dir() else path.parent, flags.threads)
    except (OSError, ValueError) as error:
        raise InputError(f"--file {path}: {error}") from error
    steps = measured_fleet.measure_steps(trainer)
    device = measured_fleet.device_of(steps, trainer.settings["train_flops"], measured_fleet.peak_mebibytes())
    times = ", ".join(f"{1000 * seconds:.4g} ms for {examples} examples" for examples, seconds in steps.items())
    console.say_lines(f"# Measured {datetime.date.today()} with --threads {flags.threads}: a step takes {times}")
    console.say_lines(yaml.safe_dump({"devices": {flags.name: device}}, sort_keys=False, allow_unicode=True).rstrip())
    return {"name": flags.name, "device": device, "seconds": steps}
