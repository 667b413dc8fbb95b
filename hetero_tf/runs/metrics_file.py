"""Rows of a run: `metrics.jsonl`, `timings.jsonl` and `timeline.jsonl`, strict JSON lines with a "round".

Times differ from run to run, so they are separate from the metrics, which must be bit-equal after a resume. Their files
are not part of checkpoints. The timeline has the first rounds on the clock of the fleet.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hetero_tf.base import files, typed_json
from hetero_tf.base.errors import InputError
from hetero_tf.base.files import Damaged

# Bytes of a file, and of a row whose round `last_round` finds.
LIMIT, LONGEST_ROW = 2**30, 2**18


def append(path: Path, row: dict) -> bytes:
    """Append one row, sync it to disk, and return its line.

    Args:
        path: The file; it is created if missing.
        row: Dict with an integer "round". NumPy numbers are allowed; NaN and infinity are written as null.

    Raises:
        InputError: "round" is missing, a value is not valid JSON, or the path is not a regular file.
        DiskProblem: The write failed; the file is unchanged.
    """
    if not _has_round(row):
        raise InputError(f"a row of metrics needs an integer 'round'. Received: row={row!r}")
    line = typed_json.dump(typed_json.finite(row), "a row of metrics") + b"\n"
    path = Path(path)
    descriptor = files.open_for_update(path, os.O_WRONLY | os.O_APPEND, "append to")
    with files.disk_errors(path, "append to"):
        try:
            size = os.fstat(descriptor).st_size
            _append_whole(descriptor, line, size)
        finally:
            os.close(descriptor)
    if not size:
        files.sync_folder(path.parent)
    return line


def rows(path: Path) -> list[dict]:
    """Return all rows in file order, without an incomplete last line; a missing file has no rows.

    Raises:
        Damaged: A line is not a row; the message names file and line.
    """
    content = files.read_bytes(path, LIMIT) if os.path.lexists(path) else b""
    lines = content.split(b"\n")[:-1]
    parsed = []
    for number, line in enumerate(lines, 1):
        try:
            parsed.append(_row(line, f"{path}:{number}"))
        except Damaged as damage:
            # An unreadable last line counts as an interrupted write.
            if number < len(lines):
                raise Damaged(f"{damage}; remove or repair that line") from damage
    return parsed


def last_round(path: Path) -> int:
    """Return the round of the last complete row without reading the others; 0 for a file without one."""
    with contextlib.suppress(OSError, ValueError, KeyError, IndexError, TypeError), open(path, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LONGEST_ROW))
        return int(json.loads(file.read().split(b"\n")[-2])["round"])
    return 0


def _append_whole(descriptor, line, size):
    try:
        rest = memoryview(line)
        # os.write may write only a part, for example when the disk is nearly full.
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    except OSError:
        # A partial row would merge with the next one.
        os.ftruncate(descriptor, size)
        raise


def _row(line, source):
    row = typed_json.parse(line, source)
    if not _has_round(row):
        raise Damaged(f"{source}: has no integer 'round'")
    return row


def _has_round(row):
    return isinstance(row, dict) and isinstance(row.get("round"), int) and not isinstance(row["round"], bool)


# Rounds of a run, and clients of a round, that the timeline stores.
MOST_ROUNDS, MOST_CLIENTS = 10, 50


def timeline_row(devices: Iterable[str], levels: Iterable[str], round: int, began: float, timing: Any) -> dict:
    """Return a round on the clock of the fleet with its first clients, ready for JSON.

    Args:
        devices: Names of the device classes of the fleet; empty for a trace, in which each client has a row.
        timing: The `planning.timing.RoundTiming` of the round.

    Returns:
        {"round", "began", "ended", "clients": of each {"client", "device", "level", "start" (of its download),
        "download", "compute", "upload" (durations, until the client drops out or the round ends without it), "status"
        ("returned", "partial", "late", "dropped" or "stale")}}. Times are seconds of device time since the start of the
        run.
    """
    times, device_names, level_names = timing.times, [*devices], [*levels]
    columns = {
        "client": timing.clients,
        "device": [device_names[kind] if device_names else f"row {kind + 1}" for kind in timing.kinds],
        "level": [level_names[level] for level in timing.levels],
        "start": began + timing.start_seconds,
        "download": times.download,
        "compute": times.compute,
        "upload": times.upload,
        "status": timing.statuses,
    }
    clients = [dict(zip(columns, values)) for values in zip(*columns.values())]
    return {"round": round, "began": began, "ended": began + timing.seconds, "clients": clients[:MOST_CLIENTS]}


# Planning runs concurrently with the previous call. Merging is the time between the last local step and the end of the
# call, so it is that of the last round of a call; it is unknown if XLA compiles the round.
PARTS = ("planning", "training", "merging", "measuring", "sealing")


def call_row(last: int, planned: Sequence, examples: int, seconds: float, parts: Mapping[str, float | None]) -> dict:
    """Return the timings of one call of the compiled round, ready for JSON, without evaluation.

    Args:
        last: Number of the last round of the call, counted from 1.
        examples: Number of images, or tokens of text, that were trained on.
        parts: Seconds of each of `PARTS`; None if not measured.

    Returns:
        {"round": last, "rounds", "seconds", "clients" (those with a step, over all rounds; each network of an
        ensemble is one), "steps" (of all of them), "examples", "round_seconds", "client_seconds", "step_seconds",
        "examples_per_second", and "PART_seconds" for each of `PARTS`}. Several clients train
        together, so the seconds of one client are its share of the wall time; None if no client took a step.
    """
    clients = sum(int((plan.steps > 0).sum()) for plan in planned)
    steps = sum(int(plan.steps.sum()) for plan in planned)
    return {
        "round": last,
        "rounds": len(planned),
        "seconds": round(seconds, 6),
        "clients": clients,
        "steps": steps,
        "examples": examples,
        "round_seconds": round(seconds / len(planned), 6),
        "client_seconds": round(seconds / clients, 6) if clients else None,
        "step_seconds": round(seconds / steps, 9) if steps else None,
        "examples_per_second": round(examples / seconds, 1),
        **{f"{name}_seconds": None if (part := parts[name]) is None else round(part, 6) for name in PARTS},
    }


def shares(calls: Sequence[Mapping[str, float | None]]) -> str:
    """Format the share of each part of the time, largest first: "training 82 %, measuring 17 %, sealing 1 %"."""
    spent = {name: sum(parts[name] or 0.0 for parts in calls) for name in PARTS[1:]}
    ordered, total = sorted(spent.items(), key=lambda item: -item[1]), sum(spent.values())
    return ", ".join(f"{name} {100 * seconds / total:.0f} %" for name, seconds in ordered if seconds >= total / 200)


def seconds_left(calls: Sequence[tuple[int, float]], rounds: int) -> float | None:
    """Estimate the seconds to the last round from the calls of this start; None before the second call has ended.

    The first call does not count: it also optimises graphs, and its evaluation traces a graph.

    Args:
        calls: Number of rounds of each call, and its seconds with evaluation and checkpoint.
        rounds: Number of remaining rounds.
    """
    if len(calls) < 2:
        return None
    done, seconds = map(sum, zip(*calls[1:]))
    return seconds / done * rounds
