"""The first rounds of a run on the clock of its fleet: `timeline.jsonl`, which `report` draws."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hetero_tf.base.files import Damaged
from hetero_tf.runs import metrics_file

# Rounds of a run, and clients of a round, that are stored.
MOST_ROUNDS, MOST_CLIENTS = 10, 50
LONGEST_NAME = 64
LARGEST = 1e15


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
    device: str
    level: str
    start: float
    download: float
    compute: float
    upload: float
    status: str

    @property
    def end(self) -> float:
        """Seconds at which its upload ends."""
        return self.start + self.download + self.compute + self.upload


@dataclass(frozen=True)
class RoundSpan:
    """One round: its number from 1, its begin and end in seconds of device time, and its clients."""

    round: int
    began: float
    ended: float
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
    try:
        spans = {row["round"]: _round_span(row) for row in metrics_file.rows(path)}
        return [spans[round] for round in sorted(spans)][:MOST_ROUNDS]
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"{path}: does not contain the times of clients; delete it: {error}") from error


def _round_span(row: dict[str, Any]) -> RoundSpan:
    clients = [_client_span(client) for client in row["clients"][:MOST_CLIENTS]]
    return RoundSpan(int(row["round"]), _seconds(row["began"]), _seconds(row["ended"]), clients)


def _client_span(values):
    """Check the values of an untrusted file."""
    times = {name: _seconds(values[name]) for name in ("start", "download", "compute", "upload")}
    names: dict[str, Any] = {name: str(values[name])[:LONGEST_NAME] for name in ("device", "level", "status")}
    return ClientSpan(client=int(values["client"]), **names, **times)


def _seconds(value):
    if not 0 <= value <= LARGEST:
        raise ValueError(f"seconds must be from 0 to {LARGEST:g}. Received: {value}")
    return float(value)
