"""Writes the metrics of runs as TensorBoard event files.

Each number of the metrics becomes a scalar at its round, and the recipe a text and the hyperparameters of the HParams
plug-in. Updates of single clients are not included, because runs do not store them.
"""

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from hetero_tf.base import files
from hetero_tf.base.errors import require_modules
from hetero_tf.reports.summaries import active_clients
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

    Returns:
        The folders of the runs.
    """
    require_modules("tensorboard", ["tensorboard"], "tensorboard")
    names = [Path(run.folder).resolve().name for run in runs]
    run_folders = [
        folder / (name if names.count(name) == 1 else f"{name}-{names[: index + 1].count(name)}")
        for index, name in enumerate(names)
    ]
    for run_folder in (folder, *run_folders):
        files.make_folder(run_folder)
    for run, run_folder in zip(runs, run_folders):
        with _event_file(run_folder):
            _write_run(run)
    return run_folders


@contextlib.contextmanager
def _event_file(folder: Path) -> Iterator[None]:
    """Collect the summaries of the block in the event file of a folder."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as temporary:
        with tf.summary.create_file_writer(temporary).as_default():
            yield
        (path,) = Path(temporary).iterdir()
        files.write_atomic(folder / FILE, path.read_bytes())


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


def _write_run(run: Run) -> None:
    """Write the recipe, the hyperparameters and all numbers of a run."""
    import tensorflow as tf
    from tensorboard.plugins.hparams import api

    # Indented Markdown is code.
    text = "\n".join(f"    {line}" for line in RunFolder(Path(run.folder)).read_recipe().splitlines())
    tf.summary.text("recipe", text, 0)
    api.hparams(hyperparameters(run.keys), Path(run.folder).resolve().name)
    for round, tag, value in scalars(run):
        tf.summary.scalar(tag, value, round)
