"""`flower`: plays a recipe on real devices, which Flower connects: `keys`, then `server` here and `client` on each."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from hetero_tf.base import children, exits
from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError, UserError, did_you_mean, require
from hetero_tf.cli.commands import OF_RECIPES
from hetero_tf.cli.flags import program
from hetero_tf.cli.open_run import check_level, run_dir_of, typed

if TYPE_CHECKING:
    from absl.flags import FlagValues

    from hetero_tf.recipe.schema import Recipe

USAGE, SUMMARY = "flower server|client|keys", "trains on real devices, which Flower connects"
FLAGS = (
    *("role", "recipe", "run_dir", "allow_other_machine", "address", "certificates", "patience", "out"),
    *("deadline", "quorum", "over_selection", "max_examples"),
    *("client", "key", "level", "litert", *OF_RECIPES),
)
WORDS, SOURCE = "role", "recipe"
# The flags without which a role cannot be played.
NEEDED = {"keys": ("out", "address"), "server": ("address", "certificates"), "client": ("address", "key", "client")}


def run(recipe: "Recipe", flags: "FlagValues", console: Console) -> dict:
    """Plays one role of a fleet."""
    role = " ".join(flags.role or ())
    if role not in NEEDED:
        meant = did_you_mean(role, NEEDED) if role else f"; known: {', '.join(NEEDED)}"
        try_ = f"{program()} flower keys --recipe digits --address 127.0.0.1:9092 --out fleet"
        raise InputError(f"flower must be told what to do{meant}; try {try_}")
    for name in NEEDED[role]:
        if flags[name].value is None:
            raise InputError(f"--{name} is missing; flower {role} needs --{', --'.join(NEEDED[role])}")
    if flags.deadline is not None and flags.deadline > flags.patience:
        raise InputError(
            "--deadline must be at most --patience: a request is lost after that. "
            f"Received: --deadline={flags.deadline:g}, --patience={flags.patience:g}"
        )
    from hetero_tf.workers.cluster import address_of

    host, port = address_of("--address", flags.address)
    require("flower", ("cryptography",) if role == "keys" else ("cryptography", "flwr"), "flower")
    if role == "keys":
        return _make_keys(recipe, flags, console, host)
    from hetero_tf.devices import processes

    # It stays where a refusal points into it.
    work = exits.make_temporary_folder("hetero_tf-flower-")
    told = _job(recipe, flags, role, str(work))
    with exits.before_exit(lambda: shutil.rmtree(work)):
        if role == "server":
            summary = processes.serve(
                told, processes.Address(host, port), Path(flags.certificates).absolute(), console.say
            )
            shutil.rmtree(work)
            return summary
        code = processes.connect(told, flags.address, Path(flags.key).absolute(), console.say)
    raise UserError(f"Flower's program {children.ended(code)}, see {work}; the same command connects again")


def _make_keys(recipe, flags, console, host):
    """Writes the certificate of the server and the keys of all clients of the recipe."""
    from hetero_tf.devices import certificates

    if host in ("0.0.0.0", "::"):
        raise InputError(
            "--address must have the name or address by which devices reach the server, as its certificate is for that "
            f"name. Received: --address={flags.address}"
        )
    clients = recipe.partition.options["clients"]
    certificates.make(Path(flags.out), list(dict.fromkeys([host, "127.0.0.1"])), clients)
    console.say(
        f"{flags.out} holds the server's certificate and the keys of {clients} devices, valid for a year; give client "
        f"N the files {certificates.AUTHORITY} and {certificates.KEYS}/N.key and nothing else"
    )
    return {"folder": flags.out, "clients": clients}


def _job(recipe, flags, role, work):
    """What this machine does."""
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
        command=typed(),
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
    """The path for a process that works elsewhere."""
    return None if path is None else str(Path(path).absolute())
