"""`flower`: trains a recipe on real devices with Flower: `keys`, then `server` here and `client` on each device."""

import shutil
from pathlib import Path

from absl.flags import FlagValues

from hetero_tf.base import children, exits
from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError, UserError, did_you_mean, require_modules
from hetero_tf.cli.commands import RECIPE_FLAGS
from hetero_tf.cli.flags import program_name
from hetero_tf.cli.open_run import check_level, command_line, run_dir_of
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
    from hetero_tf.devices import processes

    # The folder is kept if an error message points to it.
    work = exits.make_temporary_folder("hetero_tf-flower-")
    job = _build_job(recipe, flags, role, str(work))
    with exits.before_exit(lambda: shutil.rmtree(work)):
        if role == "server":
            summary = processes.serve(
                job, processes.Address(host, port), Path(flags.certificates).absolute(), console.say
            )
            shutil.rmtree(work)
            return summary
        code = processes.connect(job, flags.address, Path(flags.key).absolute(), console.say)
    raise UserError(f"Flower's program {children.describe_exit(code)}, see {work}; the same command connects again")


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


def _build_job(recipe, flags, role, work):
    """Return the `Job` of this machine."""
    from hetero_tf.devices.job import Job

    check_level(recipe, flags)
    return Job(
        recipe=recipe.source,
        path=recipe.path,
        plugins=tuple(flags.plugin or ()),
        data_dir=_absolute(flags.data_dir),
        threads=flags.threads,
        work=work,
        run_dir=_absolute(run_dir_of(recipe, flags)) if role == "server" else None,
        command=command_line(),
        allow_other_machine=flags.allow_other_machine,
        patience=flags.patience,
        deadline=flags.deadline,
        quorum=flags.quorum,
        over_selection=flags.over_selection,
        max_examples=flags.max_examples,
        client=flags.client or 0,
        level=flags.level,
        litert=_absolute(flags.litert),
    )


def _absolute(path):
    """Return an absolute path, for a process with another working folder."""
    return None if path is None else str(Path(path).absolute())
