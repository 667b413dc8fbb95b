"""Writes what runs have measured as files of events, which TensorBoard shows.

Every number of the metrics becomes a scalar of its round, and the recipe a text. Updates of single clients are not
there, since runs do not keep them.
"""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hetero_tf.base import files
from hetero_tf.base.errors import require
from hetero_tf.reports.summaries import active
from hetero_tf.runs.history import Run, is_number
from hetero_tf.store.run_folder import RunFolder

# TensorBoard reads files whose names hold "tfevents"; one name for all, so that a run is written over and not beside.
FILE = "events.out.tfevents.hetero_tf"


def write(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Writes one file of events for each run, FOLDER/RUN/..., whole or not at all; earlier ones are replaced.

    Args:
        runs: As `runs.gather` reads them.
        folder: Made if it is missing; its parent must exist.

    Returns:
        The folders of the runs.

    Raises:
        InputError: The package tensorboard is not installed, or something else has the place of a folder or file.
        DiskProblem: The system refused.
    """
    require("tensorboard", ["tensorboard"], "tensorboard")
    places = [folder / name for name in _names(runs)]
    for place in (folder, *places):
        files.check_place(place, folder=True)
        with files.disk(place, "make the folder"):
            place.mkdir(exist_ok=True)
    for run, place in zip(runs, places):
        files.write_atomic(place / FILE, _events(run))
    return places


def _names(runs):
    """The names of the run folders, numbered where several have one."""
    names = [Path(run.folder).resolve().name for run in runs]
    return [
        name if names.count(name) == 1 else f"{name}-{names[: place + 1].count(name)}"
        for place, name in enumerate(names)
    ]


def scalars(run: Run) -> Iterator[tuple[int, str, float]]:
    """(round, tag, value) of everything that a run has measured; a tag is GROUP/METRIC."""
    for row in run.rows:
        for name, value in row.items():
            if is_number(value) and name != "round":
                yield row["round"], f"{name.partition('_')[0]}/{name}", float(value)
        for level, many in active(row).items():
            yield row["round"], f"levels/{level}", float(many)
    for row in run.timings:
        for name, value in row.items():
            if name.endswith("seconds") and is_number(value):
                yield row["round"], f"time/{name}", float(value)


def _events(run: Run) -> bytes:
    """The records of a file of events."""
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    file = io.BytesIO()
    writer, at = RecordWriter(file), _wall_times(run)
    writer.write(event_pb2.Event(wall_time=at[0], file_version="brain.Event:2").SerializeToString())
    writer.write(event_pb2.Event(wall_time=at[0], summary=_recipe(run)).SerializeToString())
    for round, tag, value in scalars(run):
        values = [summary_pb2.Summary.Value(tag=tag, simple_value=value)]
        event = event_pb2.Event(wall_time=at.get(round, at[0]), step=round, summary=summary_pb2.Summary(value=values))
        writer.write(event.SerializeToString())
    return file.getvalue()


def _recipe(run: Run) -> Any:
    """The recipe as a summary of TensorBoard's page of texts, set as code."""
    from tensorboard.compat.proto import summary_pb2, tensor_pb2, types_pb2

    lines = RunFolder(Path(run.folder)).read_recipe().splitlines()
    text = "\n".join(f"    {line}" for line in lines).encode()
    about = summary_pb2.SummaryMetadata(plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="text"))
    tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[text])
    return summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag="recipe", metadata=about, tensor=tensor)])


def _wall_times(run: Run) -> dict[int, float]:
    """`{round: seconds since 1970}`, 0 for the start: counted back from when the metrics were written last."""
    with files.disk(run.folder, "look at"):
        end = RunFolder(Path(run.folder)).metrics.stat().st_mtime
    spent, at = 0.0, {0: 0.0}
    for row in run.timings:
        parts = (row.get(name) for name in ("seconds", "measuring_seconds", "sealing_seconds"))
        spent += sum(part for part in parts if is_number(part))
        at[row["round"]] = spent
    return {round: end - spent + seconds for round, seconds in at.items()}
