"""Writes the metrics of runs as TensorBoard event files.

Each number of the metrics becomes a scalar at its round, and the recipe a text. Updates of single clients are not
included, because runs do not store them.
"""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hetero_tf.base import files
from hetero_tf.base.errors import require_modules
from hetero_tf.reports.summaries import active_clients
from hetero_tf.runs.history import Run, is_number
from hetero_tf.store.run_folder import RunFolder

# TensorBoard reads files with "tfevents" in the name; a fixed name replaces the file of an earlier call.
FILE = "events.out.tfevents.hetero_tf"


def write_events(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Write one event file for each run, FOLDER/RUN/..., atomically; earlier files are replaced.

    Args:
        runs: Output of `runs.gather`.
        folder: Created if missing; its parent must exist.

    Returns:
        The folders of the runs.

    Raises:
        InputError: The package tensorboard is not installed, or a path is not a folder or regular file.
        DiskProblem: The system refused.
    """
    require_modules("tensorboard", ["tensorboard"], "tensorboard")
    run_folders = [folder / name for name in _names(runs)]
    for run_folder in (folder, *run_folders):
        files.check_write_target(run_folder, folder=True)
        with files.disk_errors(run_folder, "create the folder"):
            run_folder.mkdir(exist_ok=True)
    for run, run_folder in zip(runs, run_folders):
        files.write_atomic(run_folder / FILE, _events(run))
    return run_folders


def _names(runs):
    """Return the names of the run folders; equal names are numbered."""
    names = [Path(run.folder).resolve().name for run in runs]
    return [
        name if names.count(name) == 1 else f"{name}-{names[: index + 1].count(name)}"
        for index, name in enumerate(names)
    ]


def scalars(run: Run) -> Iterator[tuple[int, str, float]]:
    """Yield (round, tag, value) of all numbers of a run; a tag is GROUP/METRIC."""
    for row in run.rows:
        for name, value in row.items():
            if is_number(value) and name != "round":
                yield row["round"], f"{name.partition('_')[0]}/{name}", float(value)
        for level, count in active_clients(row).items():
            yield row["round"], f"levels/{level}", float(count)
    for row in run.timings:
        for name, value in row.items():
            if name.endswith("seconds") and is_number(value):
                yield row["round"], f"time/{name}", float(value)


def _events(run: Run) -> bytes:
    """Return the content of an event file."""
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    file = io.BytesIO()
    writer, wall_times = RecordWriter(file), _wall_times(run)
    writer.write(event_pb2.Event(wall_time=wall_times[0], file_version="brain.Event:2").SerializeToString())
    writer.write(event_pb2.Event(wall_time=wall_times[0], summary=_recipe(run)).SerializeToString())
    for round, tag, value in scalars(run):
        values = [summary_pb2.Summary.Value(tag=tag, simple_value=value)]
        event = event_pb2.Event(
            wall_time=wall_times.get(round, wall_times[0]), step=round, summary=summary_pb2.Summary(value=values)
        )
        writer.write(event.SerializeToString())
    return file.getvalue()


def _recipe(run: Run) -> Any:
    """Return the recipe as a TensorBoard text summary, formatted as code."""
    from tensorboard.compat.proto import summary_pb2, tensor_pb2, types_pb2

    lines = RunFolder(Path(run.folder)).read_recipe().splitlines()
    text = "\n".join(f"    {line}" for line in lines).encode()
    metadata = summary_pb2.SummaryMetadata(plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="text"))
    tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[text])
    return summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag="recipe", metadata=metadata, tensor=tensor)])


def _wall_times(run: Run) -> dict[int, float]:
    """Return `{round: seconds since 1970}` (0: start), counted back from the last write of the metrics."""
    with files.disk_errors(run.folder, "look at"):
        end = RunFolder(Path(run.folder)).metrics.stat().st_mtime
    elapsed, elapsed_by_round = 0.0, {0: 0.0}
    for row in run.timings:
        parts = (row.get(name) for name in ("seconds", "measuring_seconds", "sealing_seconds"))
        elapsed += sum(part for part in parts if is_number(part))
        elapsed_by_round[row["round"]] = elapsed
    return {round: end - elapsed + seconds for round, seconds in elapsed_by_round.items()}
