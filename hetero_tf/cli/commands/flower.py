"""`flower`: trains a recipe on real devices with Flower: `keys`, then `server` here and `client` on each device."""

import contextlib
from pathlib import Path

from absl.flags import FlagValues

from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError, did_you_mean, require_modules
from hetero_tf.cli.commands import RECIPE_FLAGS
from hetero_tf.cli.flags import program_name
from hetero_tf.cli.open_run import build_settings, check_level
from hetero_tf.recipe.schema import Recipe

USAGE, SUMMARY = "flower server|client|keys", "trains on real devices connected by Flower"
FLAGS = (
    *("role", "recipe", "run_dir", "allow_other_machine", "address", "certificates", "patience", "out"),
    *("deadline", "quorum", "over_selection", "max_examples"),
    *("client", "key", "level", "litert", *RECIPE_FLAGS),
)
WORDS, SOURCE = "role", "recipe"
# Required flags of each role.
REQUIRED_FLAGS = {
    "keys": ("out", "address"),
    "server": ("address", "certificates"),
    "client": ("address", "key", "client"),
}


def run(recipe: Recipe, flags: FlagValues, console: Console) -> dict:
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
    """Train the recipe with the devices that connect."""
    from hetero_tf.devices import certificates, fleet_api

    folder = Path(flags.certificates)
    keys = certificates.read_public_keys(folder)
    with fleet_api.serve(host, port, *certificates.find_server_files(folder), keys) as (grid, clients):
        console.say(f"devices can connect to {flags.address}: {len(clients)} keys are registered")
        settings = build_settings(recipe, flags)
        from hetero_tf.devices.device_rounds import Selection, deployed
        from hetero_tf.devices.fleet_api import FlowerNetwork
        from hetero_tf.devices.waiting import Waiting, WaitingFleet
        from hetero_tf.run import experiment
        from hetero_tf.runs.run_folder import RunFolder

        selection = Selection(flags.over_selection, flags.quorum, flags.max_examples)
        deadline = flags.patience if flags.deadline is None else flags.deadline
        waiting = Waiting(deadline, flags.patience, selection.quorum_size(recipe.round.clients))
        fleet_file = RunFolder(settings.run_dir).fleet

        @contextlib.contextmanager
        def on_fleet(build, console, display):
            with experiment.simulated(build, console, display) as process:
                network = FlowerNetwork(grid, console.say)
                fleet = WaitingFleet(network, process.recipe, process.family.classes, clients, waiting, console.say)
                yield deployed(process, fleet, selection, fleet_file)

        return experiment.train(recipe, settings, console, on_fleet)


def _connect(recipe, flags, console):
    """Run a device until it is stopped."""
    from hetero_tf.devices import certificates, machine

    credentials = certificates.read_device_files(Path(flags.key))
    settings = machine.DeviceSettings(recipe, flags.data_dir, flags.threads, flags.client, flags.level, flags.litert)
    return machine.connect(settings, flags.address, *credentials, console.say)


def _make_keys(recipe, flags, console, host):
    """Write the certificate of the server and the keys of all clients of the recipe."""
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
