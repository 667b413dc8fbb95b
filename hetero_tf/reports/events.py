"""Writes the metrics of runs as TensorBoard event files.

Each number of the metrics becomes a scalar at its round, and the recipe a text and the hyperparameters of the HParams
plug-in. Updates of single clients are not included, because runs do not store them.
"""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hetero_tf.base import files
from hetero_tf.base.errors import require_modules
from hetero_tf.base.metrics import first_metrics
from hetero_tf.reports.summaries import active_clients, known_metrics
from hetero_tf.runs.history import Run, hyperparameters, is_number
from hetero_tf.runs.run_folder import RunFolder

# TensorBoard reads files with "tfevents" in the name; a fixed name replaces the file of an earlier call.
FILE = "events.out.tfevents.hetero_tf"
# TensorBoard sorts groups by name, so numbers put the results first. Prefix of a metric -> group.
GROUPS = {
    **dict.fromkeys(("global", "validation"), "1_results"),
    "level": "2_levels",
    **dict.fromkeys(("local", "tuned", "clients"), "3_clients"),
    **dict.fromkeys(("bytes", "train", "round", "device", "client", "energy"), "5_costs"),
}


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
    files.write_atomic(folder / FILE, _experiment(runs))
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


def tag_of(metric: str) -> str:
    """Return the tag of a metric, GROUP/METRIC; "train_flops" is a cost, "loss" belongs to the training."""
    return f"{GROUPS.get(metric.partition('_')[0], '4_training')}/{metric}"


def scalars(run: Run) -> Iterator[tuple[int, str, float]]:
    """Yield (round, tag, value) of all numbers of a run; a tag is GROUP/METRIC."""
    for row in run.rows:
        for name, value in row.items():
            if is_number(value) and name != "round":
                yield row["round"], tag_of(name), float(value)
        for level, count in active_clients(row).items():
            yield row["round"], f"4_training/active_{level}", float(count)
    for row in run.timings:
        for name, value in row.items():
            if name.endswith("seconds") and is_number(value):
                yield row["round"], f"6_time/{name}", float(value)


def _events(run: Run) -> bytes:
    """Return the content of an event file."""
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    file = io.BytesIO()
    writer, wall_times = RecordWriter(file), _wall_times(run)
    writer.write(event_pb2.Event(wall_time=wall_times[0], file_version="brain.Event:2").SerializeToString())
    for summary in (_recipe(run), _session(run, wall_times)):
        writer.write(event_pb2.Event(wall_time=wall_times[0], summary=summary).SerializeToString())
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


def _experiment(runs) -> bytes:
    """Return an event file with the columns of the HParams plug-in: differing keys first, and the selecting metric."""
    from tensorboard.compat.proto import event_pb2
    from tensorboard.plugins.hparams import api_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    keys = [hyperparameters(run.keys) for run in runs]
    names = dict.fromkeys(name for values in keys for name in values)
    ordered = sorted(names, key=lambda name: all(values.get(name) == keys[0].get(name) for values in keys))
    experiment = api_pb2.Experiment(
        hparam_infos=[api_pb2.HParamInfo(name=name, type=_data_type(keys, name)) for name in ordered],
        metric_infos=[
            api_pb2.MetricInfo(name=api_pb2.MetricName(tag=tag_of(metric)), display_name=metric)
            for metric in _results(runs)
        ],
    )
    file = io.BytesIO()
    writer = RecordWriter(file)
    writer.write(event_pb2.Event(wall_time=0, file_version="brain.Event:2").SerializeToString())
    summary = _hparams_summary("_hparams_/experiment", experiment=experiment)
    writer.write(event_pb2.Event(wall_time=0, summary=summary).SerializeToString())
    return file.getvalue()


def _data_type(keys, name):
    from tensorboard.plugins.hparams import api_pb2

    kinds = {type(values[name]) for values in keys if name in values}
    if kinds == {bool}:
        return api_pb2.DATA_TYPE_BOOL
    return api_pb2.DATA_TYPE_FLOAT64 if kinds <= {int, float} else api_pb2.DATA_TYPE_STRING


def _results(runs) -> list[str]:
    """Return the metrics of the results, the selecting one first."""
    known = [name for name in known_metrics(runs) if tag_of(name).startswith(("1_", "2_", "3_"))]
    defaults = [f"{model}_{name}" for model in ("validation", "global") for name in first_metrics()]
    selecting = [*(str(run.keys.get("evaluate.best")) for run in runs), *defaults]
    return sorted(known, key=lambda name: selecting.index(name) if name in selecting else len(selecting))


def _session(run: Run, wall_times: dict[int, float]) -> Any:
    """Return the summary with the hyperparameters of a run."""
    from google.protobuf import struct_pb2
    from tensorboard.plugins.hparams import plugin_data_pb2

    session = plugin_data_pb2.SessionStartInfo(
        group_name=Path(run.folder).resolve().name, start_time_secs=wall_times[0]
    )
    for key, value in hyperparameters(run.keys).items():
        kind = "bool_value" if isinstance(value, bool) else "string_value" if isinstance(value, str) else "number_value"
        session.hparams[key].CopyFrom(struct_pb2.Value(**{kind: value}))
    return _hparams_summary("_hparams_/session_start_info", session_start_info=session)


def _hparams_summary(tag, **content):
    from tensorboard.compat.proto import summary_pb2
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2

    data = metadata.create_summary_metadata(plugin_data_pb2.HParamsPluginData(**content))
    return summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, metadata=data, tensor=metadata.NULL_TENSOR)])


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
