"""The job that the command line passes to Flower's processes: a JSON file, named by an environment variable."""

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path

from hetero_tf.base import files
from hetero_tf.base.typed_json import from_json

VARIABLE = "HETERO_TF_FLOWER"
LIMIT = 2**26


@dataclass(frozen=True)
class Job:
    """The work of one machine.

    Attributes:
        recipe: Text of the resolved recipe.
        path: Path of the recipe, for messages.
        plugins: Plug-in modules of the recipe.
        data_dir: Folder of the data, or None.
        threads: Value of the flag.
        work: Folder of Flower's files.
        run_dir: Server: folder of the run.
        command: Server: the command line.
        allow_other_machine: Server: see `run.experiment.Settings`.
        clients: Server: `{node id: client number}`.
        patience, deadline, quorum: Server: see `waiting.Waiting`; the quorum is a share of `round.clients`.
        over_selection, max_examples: Server: see `device_rounds.Selection`.
        client: Device: client number.
        level: Device: name of its level; None: the recipe's.
        litert: Device: folder of an export to train with LiteRT; None: train with TensorFlow.
    """

    recipe: str
    path: str
    plugins: tuple[str, ...]
    data_dir: str | None
    threads: int
    work: str
    run_dir: str | None = None
    command: str = ""
    allow_other_machine: bool = False
    clients: dict[str, int] = dataclasses.field(default_factory=dict)
    patience: float = 0.0
    deadline: float | None = None
    quorum: float = 0.0
    over_selection: float = 0.0
    max_examples: int | None = None
    client: int = 0
    level: str | None = None
    litert: str | None = None

    @property
    def file(self) -> Path:
        """Path of the JSON file."""
        return Path(self.work) / "job.json"

    @property
    def socket(self) -> Path:
        """Unix socket of Flower's server on this machine."""
        return Path(self.work) / "api.sock"

    @property
    def transfers(self) -> Path:
        """Totals of the transfers of a device, see `transfers`."""
        return Path(self.work) / "transfers.json"

    @property
    def console(self) -> Path:
        """Output of the training process."""
        return Path(self.work) / "console.txt"

    @property
    def outcome(self) -> Path:
        """Result of the run: {"summary": ...} or {"refusal": message, "code": exit code}."""
        return Path(self.work) / "outcome.json"

    def save(self) -> None:
        """Write the JSON file."""
        files.write_atomic(self.file, json.dumps(dataclasses.asdict(self)).encode())


def current() -> Job:
    """Return the job of this process."""
    path = Path(os.environ[VARIABLE])
    return from_json(Job, json.loads(files.read_bytes(path, LIMIT)), path)
