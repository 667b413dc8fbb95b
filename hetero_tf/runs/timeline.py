"""The first rounds of a run on the clock of its fleet: `timeline.jsonl`, which `report` draws."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from hetero_tf.base.constraints import Range, Text
from hetero_tf.base.typed_json import from_json
from hetero_tf.runs import metrics_file

# Rounds of a run, and clients of a round, that are stored.
MOST_ROUNDS, MOST_CLIENTS = 10, 50
Seconds = Annotated[float, Range(low=0, high=1e15)]
Name = Annotated[str, Text(pattern=".{0,64}")]


@dataclass(frozen=True, kw_only=True)
class ClientSpan:
    """The work of one client for one round, in seconds of device time.

    Attributes:
        client: Its id.
        device: Name of its device class.
        level: Name of its level.
        start: Start of its download since the start of the run.
        download, compute, upload: Durations, until the client drops out or the round ends without it.
        status: "returned", "partial", "late", "dropped" or "stale".
    """

    client: int
    device: Name
    level: Name
    start: Seconds
    download: Seconds
    compute: Seconds
    upload: Seconds
    status: Name

    @property
    def end(self) -> float:
        """Seconds at which its upload ends."""
        return self.start + self.download + self.compute + self.upload


@dataclass(frozen=True)
class RoundSpan:
    """One round: its number from 1, its begin and end in seconds of device time, and its clients."""

    round: int
    began: Seconds
    ended: Seconds
    clients: list[ClientSpan]


def append(path: Path, spans: Iterable[RoundSpan]) -> None:
    """Append rounds, of which the caller gives at most the first `MOST_ROUNDS`.

    Raises:
        DiskProblem: The system refused.
    """
    for span in spans:
        metrics_file.append(path, asdict(span))


def read(path: Path) -> list[RoundSpan]:
    """Return the stored rounds; of a round that a resumed run has repeated, the last one. A missing file has none.

    Raises:
        Damaged: A line has other content.
    """
    spans = [from_json(RoundSpan, row, path, "; delete the file") for row in metrics_file.rows(path)]
    return [span for _, span in sorted({span.round: span for span in spans}.items())][:MOST_ROUNDS]
