"""What the command line hands to the processes that Flower starts: a JSON file, named by an environment variable."""

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path

from hetero_tf.base import files

VARIABLE = "HETERO_TF_FLOWER"
LIMIT = 2**26


@dataclass(frozen=True)
class Job:
    """What one machine does.

    Attributes:
        recipe: The text of the resolved recipe.
        path: Where it came from, for sentences.
        plugins: Modules of a person's own that it needs.
        data_dir: Folder of the data, or None.
        threads: As the flag says.
        work: Folder of Flower's own files.
        run_dir: Of the server: folder of the run.
        command: Of the server: what a person typed.
        allow_other_machine: Of the server: see `run.experiment.Settings`.
        clients: Of the server: `{id of a node: number of its client}`.
        patience, deadline, quorum: Of the server: see `waiting.Waiting`; the quorum is a share of `round.clients`.
        over_selection, max_examples: Of the server: see `deployed.Selection`.
        client: Of a device: its number.
        level: Of a device: name of its level; None: the recipe's.
        litert: Of a device: folder of an export that it trains by LiteRT; None: it trains by TensorFlow.
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
        """Where it is written."""
        return Path(self.work) / "job.json"

    @property
    def socket(self) -> Path:
        """Unix socket of Flower's server on this machine."""
        return Path(self.work) / "api.sock"

    @property
    def console(self) -> Path:
        """What the process says while it works."""
        return Path(self.work) / "console.txt"

    @property
    def outcome(self) -> Path:
        """How the run ended: {"summary": ...} or {"refusal": sentence, "code": exit code}."""
        return Path(self.work) / "outcome.json"

    def save(self) -> None:
        """Writes the file."""
        files.write_atomic(self.file, json.dumps(dataclasses.asdict(self)).encode())


def current() -> Job:
    """Returns the job of this process."""
    path = Path(os.environ[VARIABLE])
    told = json.loads(files.read_bytes(path, LIMIT))
    return Job(**{**told, "plugins": tuple(told["plugins"])})
